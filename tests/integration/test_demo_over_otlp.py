"""The demo's numbers in a metric server that takes OTLP equal those of its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_S = 30.0


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - a server on the loopback
        return json.load(answer)


@pytest.fixture
def victoria_metrics(
    servers: Any, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> Iterator[str]:
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
    with (tmp_path / "victoria.log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            deadline = time.monotonic() + START_S
            while True:
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=1).close()  # noqa: S310
                    break
                except OSError:
                    assert server.poll() is None, (tmp_path / "victoria.log").read_text()
                    assert time.monotonic() < deadline, "VictoriaMetrics did not answer"
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()


def seconds_by_feature(url: str) -> dict[str, float]:
    query = "sum by (gputrace_feature) (last_over_time(gputrace_feature_time_seconds_total[10m]))"
    # What has just come in shows only at the next flush of the server's memory.
    urllib.request.urlopen(f"{url}/internal/force_flush", timeout=10).close()  # noqa: S310
    answer = get_json(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    return {row["metric"]["gputrace_feature"]: float(row["value"][1]) for row in answer["data"]["result"]}


@pytest.mark.requires("torch", "sklearn", "victoria-metrics")
@pytest.mark.timeout(300)
def test_the_server_shows_what_the_report_says(victoria_metrics: str, tmp_path: Path) -> None:
    gputrace = [sys.executable, "-m", "gputrace"]
    data = tmp_path / "gputrace-data"
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"{victoria_metrics}/opentelemetry"}
    # Traces have no receiver there: the demo must not mind.
    subprocess.run(
        [*gputrace, "demo", "--data", data, "--requests", "200", "--pause", "1", "--untracked", "1"],
        check=True,
        env=environment,
        cwd=tmp_path,
        timeout=200,
    )
    done = subprocess.run(
        [*gputrace, "report", data, "--json"], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    reported = {row["feature"]: row["charged_s"] for row in json.loads(done.stdout)["rows"]}
    assert len(reported) >= 3
    expected = {feature: pytest.approx(seconds, rel=0.01, abs=1e-9) for feature, seconds in reported.items()}
    deadline = time.monotonic() + START_S
    while (shown := seconds_by_feature(victoria_metrics)) != expected and time.monotonic() < deadline:
        time.sleep(0.5)
    assert shown == expected
