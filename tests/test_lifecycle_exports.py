"""What has left a process when it is killed, or when nobody takes what it counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HANG_S = 60.0


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


def points(folder: Path, metric: catalogue.Metric) -> Iterator[tuple[int, float, dict[str, Any]]]:
    """Each point of a metric in the order of export: number of the export, value, attributes."""
    for file in folder.glob("metrics-*.jsonl"):
        for number, line in enumerate(file.read_text().splitlines()):
            for scope in json.loads(line)["resourceMetrics"][0]["scopeMetrics"]:
                for found in scope["metrics"]:
                    if found["name"] == metric.name:
                        for point in found["sum"]["dataPoints"]:
                            given = {pair["key"]: pair["value"] for pair in point.get("attributes", [])}
                            yield number, float(point.get("asDouble", point.get("asInt", 0))), given


def test_a_process_that_is_killed_has_exported_values_not_only_zeros(tmp_path: Path) -> None:
    program = """
import sys, time, gputrace
gputrace.configure(data_dir="data", export_interval=0.5)
with gputrace.span("work", feature="search"):
    pass
print("ready", flush=True)
time.sleep(600)
"""
    data = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + HANG_S
        while not any(value == 1 for _, value, _ in points(data, catalogue.CALLS)):
            assert time.monotonic() < deadline, "the value never came"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    # The first export says where the device's time begins, before much of it has passed.
    first = [value for number, value, _ in points(data, catalogue.DEVICE_TIME) if number == 0]
    assert first
    assert sum(first) == 0
    exports = [(number, value) for number, value, _ in points(data, catalogue.CALLS)]
    zero = next(number for number, value in exports if value == 0)
    assert (zero + 1, 1.0) in exports


def test_calls_that_nobody_takes_are_told_once_at_exit(tmp_path: Path) -> None:
    program = """
import gputrace
for _ in range(3):
    with gputrace.span("work"):
        pass
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.stderr.count("3 tracked calls went nowhere") == 1
    assert "gputrace.configure()" in done.stderr
    assert not list(tmp_path.iterdir())


def test_half_a_surrogate_pair_spoils_no_line(tmp_path: Path) -> None:
    program = r"""
import gputrace
gputrace.configure(data_dir="data")
with gputrace.attribute_to(feature="bad \ud800", tenant="\udfff"):
    with gputrace.span("work \ud801", model="\udc00"):
        pass
with gputrace.span("work", feature="good"):
    pass
"""
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), check=True, timeout=HANG_S
    )
    report = [sys.executable, "-m", "gputrace", "report", "data", "--json"]
    done = subprocess.run(
        report, cwd=tmp_path, env=environment(), check=True, capture_output=True, text=True, timeout=HANG_S
    )
    found = json.loads(done.stdout)
    assert found["skipped_lines"] == 0
    assert {row["feature"]: row["calls"] for row in found["rows"]} == {r"bad \ud800": 1, "good": 1}
