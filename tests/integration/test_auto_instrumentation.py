"""Under `opentelemetry-instrument`, which sets the providers before the program begins."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import time
import gputrace
{configured}

@gputrace.track(feature="search", operation="work")
def work():
    time.sleep(0.01)

work(); work()
"""


def instrument(**exporters: str) -> list[str]:
    """The command, with these exporters and no others."""
    program = shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent))
    assert program is not None
    chosen = {"traces": "none", "metrics": "none", "logs": "none"} | exporters
    options = [word for name, exporter in chosen.items() for word in (f"--{name}_exporter", exporter)]
    return [program, *options, sys.executable]


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON documents that the console exporters print one after the other."""
    decoder = json.JSONDecoder()
    found = []
    text = text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].strip()
    return found


@pytest.mark.parametrize("configured", ["", "gputrace.configure()"])
def test_the_console_shows_spans_and_metrics(run_python: Any, configured: str) -> None:
    source = PROGRAM.format(configured=configured)
    result = run_python(source, *instrument(traces="console", metrics="console"))
    printed = documents(result.stdout)
    spans = [document for document in printed if "resource_metrics" not in document]
    assert [span["name"] for span in spans] == ["work", "work"]
    assert all(span["attributes"]["gputrace.call.device.time"] >= 0.01 for span in spans)
    metrics = [
        metric
        for document in printed
        for resource in document.get("resource_metrics", [])
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
    ]
    calls = [
        point["value"]
        for metric in metrics
        if metric["name"] == "gputrace.calls"
        for point in metric["data"]["data_points"]
    ]
    assert calls == [0, 2]
    assert "gputrace" not in result.stderr
    assert not (run_python.folder / "gputrace-data").exists()


def test_the_sdks_own_otlp_exporter_carries_them(run_python: Any, victoria: Any) -> None:
    result = run_python(
        PROGRAM.format(configured=""),
        *instrument(metrics="otlp"),
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"{victoria.url}/opentelemetry",
        OTEL_SERVICE_NAME="shop",
    )
    assert result.stderr == ""
    [(labels, calls)] = victoria.eventually("last_over_time(gputrace_calls_total[10m])")
    assert calls == 2
    assert labels["gputrace_feature"] == "search"


def test_a_disabled_sdk_is_left_disabled(run_python: Any) -> None:
    source = PROGRAM.format(configured="gputrace.configure()")
    result = run_python(source, *instrument(traces="console", metrics="console"), OTEL_SDK_DISABLED="true")
    assert documents(result.stdout) == []
    assert not (run_python.folder / "gputrace-data").exists()
