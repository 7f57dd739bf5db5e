"""What a test may need beyond Python, and what happens where that is missing.

`@pytest.mark.requires("prometheus", "torch")` names what a test needs. Without it the test is skipped and
says what is missing; with `GPUTRACE_REQUIRE=all`, as in CI, the same skip is a failure, so that nothing goes
untested unseen. Only a GPU may be missing there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
SERVERS = ("prometheus", "promtool", "victoria-metrics")
RENDERER = Path(os.environ.get("GPUTRACE_RENDER", ROOT / "build" / "render"))
MODULES = ("fastapi", "httpx", "ray", "sklearn", "torch", "transformers", "uvicorn")
# What `make serve-check` installs.
SERVED = ("bentoml", "litserve", "pytriton", "tritonclient")

# What gputrace would contain in a user's program must fail its own tests, in their subprocesses too.
os.environ["GPUTRACE_RAISE_FAULTS"] = "1"

# A shell lets what it starts in the background ignore this, and programs inherit it that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine is no failure: no test judges time, hypothesis neither. CI tries the same examples each time,
# so that it judges the change; new ones are tried wherever else the tests run.
hypothesis.settings.register_profile("gputrace", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("gputrace")


def everything_required() -> bool:
    return os.environ.get("GPUTRACE_REQUIRE") == "all"


def program(name: str) -> str | None:
    """The path of a server or another program: as `make servers` leaves them, else from PATH."""
    folder = Path(os.environ.get("GPUTRACE_SERVERS", ROOT / ".servers"))
    return shutil.which(name, path=os.pathsep.join([str(folder / "bin"), str(folder)])) or shutil.which(name)


def missing(name: str) -> str | None:
    """Why a test that needs `name` cannot run here, or None."""
    if name in SERVERS:
        return None if program(name) else f"no {name}: `make servers`, or put it on PATH"
    if name == "render":
        absent = [one for one in ("node", "chromium") if not shutil.which(one)]
        if not (RENDERER / "node_modules").is_dir():
            absent.append(f"renderer of dashboards in {RENDERER}")
        return f"no {', no '.join(absent)}: `make renderer`" if absent else None
    if name in MODULES:
        return None if importlib.util.find_spec(name) else f"no module {name}: install gputrace[all]"
    if name in SERVED:
        return None if importlib.util.find_spec(name) else f"no module {name}: `make serve-check` installs it"
    if name == "shared":
        return None if SHARED.is_dir() else "no ../shared beside the checkout"
    if name == "gpu":
        found = shutil.which("nvidia-smi") and importlib.util.find_spec("torch")
        return None if found else "no GPU: needs an NVIDIA driver and torch"
    msg = f"unknown requirement {name!r}: tests/conftest.py lists them"
    raise pytest.UsageError(msg)


def need(*names: str) -> None:
    """Skip the running test, or fail it where everything is required, unless all of `names` are here."""
    reasons = [reason for name in names if (reason := missing(name))]
    if not reasons:
        return
    if everything_required() and "gpu" not in names:
        pytest.fail(f"GPUTRACE_REQUIRE=all: {'; '.join(reasons)}", pytrace=False)
    pytest.skip("; ".join(reasons))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        need("gpu")
    for marker in item.iter_markers("requires"):
        need(*marker.args)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole file that skips itself (`importorskip` at its top) would escape the rule above."""
    report = yield
    if report.skipped and everything_required() and "gpu" not in collector.path.parts:
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """So would `pytest.skip()` inside a test; `skipif` stays free to name a platform or a Python version."""
    report = yield
    excused = any(item.get_closest_marker(name) for name in ("skipif", "gpu"))
    if report.skipped and not hasattr(report, "wasxfail") and everything_required() and not excused:
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Leave what a test never ends to itself: what it is in would be what the next one is in."""
    yield
    attribution = sys.modules.get("gputrace.attribution")
    if attribution is not None:
        attribution.current_scope.set(None)


class Servers:
    """Paths of server programs, by name; asking for one that is missing skips the test."""

    def __getitem__(self, name: str) -> str:
        need(name)
        path = program(name)
        assert path is not None
        return path


@pytest.fixture(scope="session")
def servers() -> Servers:
    """`servers["prometheus"]` is the path of that program."""
    return Servers()


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """`needs("torch")` is the `requires` marker for a test that learns only on the way what it needs."""
    return need


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measured data beside the checkout."""
    need("shared")
    return SHARED


@pytest.fixture(scope="session")
def renderer() -> Path:
    """The folder of what draws Grafana's dashboards: `make renderer`."""
    need("render")
    return RENDERER


@pytest.fixture
def free_port() -> int:
    """A loopback port that nobody listens on; `unused_tcp_port_factory` gives several."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Program:
    """Runs Python source in a fresh interpreter, in an empty folder, without this one's settings.

    Attributes:
        folder: Where it runs.
        hang_s: What has not ended by then hangs.
    """

    hang_s = 100.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, source: str, *command: str, **variables: str) -> subprocess.Popen[str]:
        """`command` stands before the script: `opentelemetry-instrument`, say."""
        path = self.folder / "program.py"
        path.write_text(source)
        foreign = ("OTEL_", "GPUTRACE_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        environment |= {"GPUTRACE_RAISE_FAULTS": "1", **variables}
        return subprocess.Popen(
            [*(command or (sys.executable,)), str(path)],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(
        self, source: str, *command: str, code: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end, which must be `code`."""
        process = self.start(source, *command, **variables)
        try:
            output, errors = process.communicate(timeout=self.hang_s)
        except BaseException as error:
            # Its children too: they hold the pipes open.
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                pytest.fail(f"did not end\n{output}\n{errors}")
            raise
        assert process.returncode == code, f"ended with {process.returncode}\n{output}\n{errors}"
        return subprocess.CompletedProcess(process.args, code, output, errors)


@pytest.fixture
def run_python(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture(scope="session")
def program_in() -> type[Program]:
    """`program_in(folder)` is `run_python` for a fixture that outlives one test."""
    return Program


class Files:
    """What the files of the embedded default say.

    Attributes:
        spans: Each span as it stands, with its attributes and those of its resource as dicts.
        logs: Each log record likewise.
        lines: Lines that are JSON.
        broken: Lines that are not.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jsonl"))
        self.spans: list[dict[str, Any]] = []
        self.logs: list[dict[str, Any]] = []
        self.lines = 0
        self.broken: list[str] = []
        self._points: list[tuple[str, str, dict[str, str], int, float]] = []
        for path in self.paths:
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    self.broken.append(line)
                else:
                    self.lines += 1
                    self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        for resource, span in nested(entry, "resourceSpans", "scopeSpans", "spans"):
            self.spans.append({**span, "attributes": named(span), "resource": resource})
        for resource, record in nested(entry, "resourceLogs", "scopeLogs", "logRecords"):
            self.logs.append({**record, "attributes": named(record), "resource": resource})
        for resource, metric in nested(entry, "resourceMetrics", "scopeMetrics", "metrics"):
            data = metric.get("sum") or metric.get("gauge") or metric["histogram"]
            for point in data["dataPoints"]:
                # A count of 0 is left out, as protobuf does.
                value = point.get("asDouble", point.get("asInt", point.get("count", 0)))
                at_ns = int(point["timeUnixNano"])
                process = resource["service.instance.id"]
                self._points.append((metric["name"], process, named(point), at_ns, float(value)))

    def values(self, name: str, **where: str) -> dict[tuple[str, frozenset[tuple[str, str]]], list[float]]:
        """The values of each series (process, attributes) in order; `where` by the last word of a name."""
        found: dict[tuple[str, frozenset[tuple[str, str]]], list[float]] = {}
        for metric, process, attributes, _, value in self._points:
            last_words = {key.rpartition(".")[2]: text for key, text in attributes.items()}
            if metric == name and where.items() <= last_words.items():
                found.setdefault((process, frozenset(attributes.items())), []).append(value)
        return found

    def total(self, name: str, **where: str) -> float:
        """The sum of the last values: points are cumulative."""
        return sum(values[-1] for values in self.values(name, **where).values())

    def timed(self, name: str) -> dict[frozenset[tuple[str, str]], list[tuple[int, float]]]:
        """The points of each set of attributes, with their times."""
        found: dict[frozenset[tuple[str, str]], list[tuple[int, float]]] = {}
        for metric, _, attributes, at_ns, value in self._points:
            if metric == name:
                found.setdefault(frozenset(attributes.items()), []).append((at_ns, value))
        return found

    def names(self) -> set[str]:
        return {name for name, *_ in self._points}

    def processes(self) -> set[str]:
        """Every `service.instance.id`."""
        spans = {span["resource"]["service.instance.id"] for span in self.spans}
        return spans | {process for _, process, *_ in self._points}


def nested(entry: dict[str, Any], *keys: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of resource attributes and what lies two levels beneath them."""
    for resource in entry.get(keys[0], []):
        for scope in resource[keys[1]]:
            for item in scope[keys[2]]:
                yield named(resource["resource"]), item


def named(item: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a resource, span or point, as a dict."""
    return {one["key"]: next(iter(one["value"].values())) for one in item.get("attributes", [])}


@pytest.fixture(scope="session")
def read_files() -> type[Files]:
    """`read_files(folder)` reads what `configure()` left there."""
    return Files


@pytest.fixture
def clock() -> Any:
    """A clock that only the test advances."""
    from gputrace.testing import VirtualClock

    return VirtualClock()


@pytest.fixture
def recorder(clock: Any) -> Iterator[Any]:
    """Records the calls of this process on that clock."""
    from gputrace.testing import Recorder

    with Recorder(clock) as recorder:
        yield recorder
