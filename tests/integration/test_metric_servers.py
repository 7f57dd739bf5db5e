"""What gputrace exports, asked for with PromQL in real servers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLS = "gputrace_calls_total"
TIME = "gputrace_feature_time_seconds_total"


def test_a_feature_called_once_shows_in_increase(
    run_python: Any, start_prometheus: Callable[..., Any], free_port: int
) -> None:
    """Through a reader of the user's that Prometheus scrapes: a first value alone would be no increase."""
    process = run_python.start(
        f"""
import prometheus_client, time
import gputrace
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider

metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
prometheus_client.start_http_server({free_port}, "127.0.0.1")
with gputrace.span("work", feature="once"):
    time.sleep(0.02)
print("ready", flush=True)
time.sleep(600)
"""
    )
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            prometheus = start_prometheus(free_port)
            query = f'increase({CALLS}{{gputrace_feature="once"}}[10m])'
            [(labels, increase)] = prometheus.eventually(query, lambda rows: bool(rows) and rows[0][1] > 0)
            assert labels["gputrace_status"] == "ok"
            assert increase >= 1
            [(_, seconds)] = prometheus.eventually(
                f'increase({TIME}{{gputrace_feature="once"}}[10m])',
                lambda rows: bool(rows) and rows[0][1] > 0,
            )
            assert seconds >= 0.02
        finally:
            process.kill()


def open_metrics(files: Any) -> list[str]:
    """The points of the counter of calls in the files, with their own times."""
    return [
        "{}{{{}}} {} {:.3f}".format(
            CALLS,
            ",".join(f'{name.replace(".", "_")}="{value}"' for name, value in sorted(attributes)),
            value,
            at_ns / 1e9,
        )
        for attributes, points in files.timed(catalogue.CALLS.name).items()
        for at_ns, value in points
    ]


def test_a_process_that_ends_at_once_shows_in_increase(
    run_python: Any, read_files: Any, servers: Any, start_prometheus: Callable[..., Any], tmp_path: Path
) -> None:
    """It is collected twice as it ends. A Prometheus without an OTLP receiver reads the points as blocks."""
    run_python(
        """
import gputrace
gputrace.configure(data_dir="data")
with gputrace.span("work", feature="once"):
    pass
"""
    )
    points = open_metrics(read_files(tmp_path / "data"))
    last = max(float(line.rpartition(" ")[2]) for line in points)

    def increase(lines: list[str], name: str) -> list[float]:
        text = [f"# TYPE {CALLS.removesuffix('_total')} counter", *lines, "# EOF", ""]
        (tmp_path / "points.txt").write_text("\n".join(text))
        create = [servers["promtool"], "tsdb", "create-blocks-from", "openmetrics", "points.txt", name]
        subprocess.run(create, check=True, cwd=tmp_path, capture_output=True)
        query = f'increase({CALLS}{{gputrace_feature="once"}}[1m])'
        rows = start_prometheus(data=tmp_path / name).query(query, time=f"{last + 1:.3f}")
        return [value for _, value in rows]

    [value] = increase(points, "all")
    assert value > 0
    # The 0 is what does it.
    assert not any(increase([line for line in points if " 0.0 " not in line], "without-zeros"))


def test_victoria_metrics_shows_the_time_that_the_files_say(
    run_python: Any, read_files: Any, victoria: Any, tmp_path: Path
) -> None:
    """Files and OTLP together, in a program of two processes: the same numbers by feature."""
    result = run_python(
        f"""
import os, sys, threading, time
import gputrace
gputrace.configure(endpoint="{victoria.url}/opentelemetry", data_dir="data", export_interval=0.2)

def work(feature, seconds):
    with gputrace.span("work", feature=feature, model="m"):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(1000))

def run():
    for _ in range(10):
        work("search", 0.02)
        work("chat", 0.05)
        work(None, 0.01)

pid = os.fork()
threads = [threading.Thread(target=run) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
sys.exit(0)
"""
    )
    # It has no place for spans, and says so; nothing else.
    assert "metric point" not in result.stderr
    files = read_files(tmp_path / "data")
    by_feature = {
        name: files.total("gputrace.feature.time", feature=name) for name in ("search", "chat", "__none__")
    }
    assert all(seconds > 0.1 for seconds in by_feature.values())
    query = f"sum by (gputrace_feature) (last_over_time({TIME}[10m]))"
    # What came in last may show last.
    victoria.eventually(
        query,
        lambda rows: (
            {labels["gputrace_feature"]: seconds for labels, seconds in rows}
            == pytest.approx(by_feature, rel=0.01)
        ),
    )
    # And the names are those of everything that a process emits. But for what was lost: spans are, here, and
    # whether a destination's own last collection comes before or after that is known is a matter of chance.
    emitted = {metric.prometheus for metric in catalogue.METRICS if metric.name in files.names()}
    names = victoria.names(at_least=set())
    stems = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in names}
    lost = {catalogue.SDK_LOST.prometheus}
    assert stems - lost == emitted - lost
    query = 'sum(last_over_time(gputrace_device_time_seconds_total{gputrace_device_state="charged"}[10m]))'
    [(_, seconds)] = victoria.query(query)
    assert seconds == pytest.approx(sum(by_feature.values()), rel=0.01)
