"""Real servers, on ports of their own and in folders of the test's."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A server that has not answered by then hangs.
HANG_S = 60.0


class MetricServer:
    """A server that answers PromQL.

    Attributes:
        url: Its base.
        flush: Path that makes it show what has just come in; nothing where it does at once.
    """

    def __init__(self, url: str, flush: str) -> None:
        self.url = url
        self.flush = flush

    def get(self, path: str, **parameters: str) -> Any:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"{self.url}{path}{query}", timeout=HANG_S) as answer:  # noqa: S310
            return json.load(answer)

    def query(self, promql: str, **parameters: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query."""
        if self.flush:
            urllib.request.urlopen(f"{self.url}{self.flush}", timeout=HANG_S).close()  # noqa: S310
        answer = self.get("/api/v1/query", query=promql, **parameters)
        return [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]

    def eventually(self, promql: str, enough: Callable[[list[Any]], bool] = bool) -> Any:
        """The first answer to a query that is enough; it comes when the server has taken it in."""
        deadline = time.monotonic() + HANG_S
        while not enough(found := self.query(promql)):
            assert time.monotonic() < deadline, f"{promql} still gives {found}"
            time.sleep(0.1)
        return found

    def names(self, *, at_least: set[str]) -> set[str]:
        """Every metric name of gputrace, once those are among them."""
        everything = '{__name__=~"(gputrace|hw)_.*"}'
        found = self.eventually(everything, lambda rows: at_least <= {row["__name__"] for row, _ in rows})
        return {row["__name__"] for row, _ in found}


@contextlib.contextmanager
def running(command: list[str], url: str, ready: str, log: Path, flush: str = "") -> Iterator[MetricServer]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent) as server:
        try:
            deadline = time.monotonic() + HANG_S
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}{ready}", timeout=5):  # noqa: S310
                    break
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"no answer from {command[0]}\n{log.read_text()}"
                time.sleep(0.1)
            yield MetricServer(url, flush)
        finally:
            server.terminate()


@contextlib.contextmanager
def prometheus(  # noqa: PLR0913 - one argument a setting
    program: str,
    folder: Path,
    port: int,
    scraped: int | None = None,
    data: Path | None = None,
    *,
    receives: bool = False,
) -> Iterator[MetricServer]:
    """A Prometheus that scrapes a port, reads blocks, or takes history by remote write."""
    config: dict[str, Any] = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}}
    if scraped is not None:
        config["scrape_configs"] = [
            {"job_name": "app", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}
        ]
    if receives:
        # History: all of a series comes at once, when other series are further already.
        config["storage"] = {"tsdb": {"out_of_order_time_window": "400d"}}
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={data or folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    if receives:
        command += ["--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y"]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, "/-/ready", folder / "prometheus.log") as server:
        yield server


@pytest.fixture(scope="session")
def history(
    servers: Any, tmp_path_factory: pytest.TempPathFactory, unused_tcp_port_factory: Callable[[], int]
) -> Iterator[Any]:
    """Two hours of two GPUs in a Prometheus."""
    # It starts servers with what is above.
    from tests.integration.history import play

    folder = tmp_path_factory.mktemp("history")
    with prometheus(servers["prometheus"], folder, unused_tcp_port_factory(), receives=True) as server:
        yield play(server, folder / "data", 2 * 3_600, gpus=2, step_s=60, requests=600)


@pytest.fixture
def start_prometheus(
    servers: Any, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> Iterator[Callable[..., MetricServer]]:
    """`start_prometheus(port)` scrapes it twice a second; `start_prometheus(data=...)` reads blocks;
    `start_prometheus(receives=True)` takes history by remote write."""
    with contextlib.ExitStack() as stack:

        def start(*given: Any, **options: Any) -> MetricServer:
            port = unused_tcp_port_factory()
            return stack.enter_context(prometheus(servers["prometheus"], tmp_path, port, *given, **options))

        yield start


@pytest.fixture
def victoria(
    servers: Any, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> Iterator[MetricServer]:
    """Takes OTLP at `/opentelemetry`."""
    port = unused_tcp_port_factory()
    command = [
        servers["victoria-metrics"],
        f"-storageDataPath={tmp_path / 'victoria'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-opentelemetry.usePrometheusNaming",
        "-retentionPeriod=1d",
        # By default queries do not see the last half minute.
        "-search.latencyOffset=0s",
    ]
    url = f"http://127.0.0.1:{port}"
    log = tmp_path / "victoria.log"
    with running(command, url, "/health", log, flush="/internal/force_flush") as server:
        yield server
