"""How long a spend report takes over one million spans, about 800 MB of OTLP/JSON.

    python benchmarks/report_million_spans.py [--spans 1000000] [--per-line 512] [--foreign] [--keep FOLDER]

Budget: 10 s from the files, 2 s without percentiles. Each report runs in a fresh
process, so that imports count; wall and CPU seconds are given, since cores may
be shared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from gputrace import catalogue

FEATURES = tuple(f"feature-{number}" for number in range(8))
MODELS = ("minilm", "bge-large")
START_NS = 1_790_000_000_000_000_000
CALL_EVERY_NS = 1_000_000
EXPORT_EVERY_S = 10
FILE_BYTES = 64 << 20
DEVICE = {catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "H100"}
# As if other processes had held the device in a fifth of the time: a report corrects for it.
OVERLAP = 0.2
RESOURCE = {
    "attributes": [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "service.instance.id", "value": {"stringValue": "i1"}},
    ]
}


def encode(data: object) -> str:
    """Return JSON as the exporters write it, without blanks."""
    return json.dumps(data, separators=(",", ":"))


def texts(attributes: dict[str, str]) -> list[dict[str, object]]:
    """Return attributes in their OTLP form."""
    return [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]


class Rotating:
    """A file that starts anew every 64 MiB, as the exporter's do."""

    def __init__(self, folder: Path, signal: str) -> None:
        """Open nothing yet: files appear with their first line."""
        self._folder, self._signal = folder, signal
        self._file: TextIO | None = None
        self._number = self._size = self.total = 0

    def write(self, line: str) -> None:
        """Append one line."""
        if self._file is None or self._size > FILE_BYTES:
            self.close()
            self._file = (self._folder / f"{self._signal}-1-i1-{self._number}.jsonl").open("w")
            self._number, self._size = self._number + 1, 0
        self._file.write(line + "\n")
        self._size += len(line) + 1
        self.total += len(line) + 1

    def close(self) -> None:
        """Close the last file."""
        if self._file is not None:
            self._file.close()


def write_spans(
    folder: Path, count: int, per_line: int, *, foreign: bool
) -> dict[tuple[str, str], list[float]]:
    """Write spans and return the charged seconds of every call by feature and model."""
    rng = random.Random(1)
    kinds = [(feature, model) for feature in FEATURES for model in MODELS]
    prefixes = {kind: encode(texts(_names(*kind)))[1:-1] for kind in kinds}
    charged: dict[tuple[str, str], list[float]] = {kind: [] for kind in kinds}
    file = Rotating(folder, "spans")
    head = f'{{"resourceSpans":[{{"resource":{encode(RESOURCE)},"scopeSpans":['
    for first in range(0, count, per_line):
        spans = []
        for number in range(first, min(first + per_line, count)):
            kind = rng.choice(kinds)
            device_s = rng.expovariate(2000.0)
            charged[kind].append(device_s)
            start_ns = START_NS + number * CALL_EVERY_NS
            spans.append(
                f'{{"traceId":"{rng.getrandbits(128):032x}","spanId":"{rng.getrandbits(64):016x}",'
                f'"parentSpanId":"{rng.getrandbits(64):016x}","flags":256,"name":"answer","kind":1,'
                f'"startTimeUnixNano":"{start_ns}","endTimeUnixNano":"{start_ns + int(device_s * 1.5e9)}",'
                f'"attributes":[{prefixes[kind]},'
                f'{{"key":"{catalogue.CALL_DEVICE_TIME}","value":{{"doubleValue":{device_s!r}}}}},'
                f'{{"key":"{catalogue.CALL_HELD_TIME}","value":{{"doubleValue":{device_s * 1.2!r}}}}}],'
                '"status":{}}'
            )
        scopes = [f'{{"scope":{{"name":"{catalogue.SCOPE_NAME}"}},"spans":[{",".join(spans)}]}}']
        if foreign:
            # What FastAPI's own instrumentation adds to the same batch.
            scopes.append(f'{{"scope":{{"name":"fastapi"}},"spans":[{spans[0]}]}}')
        file.write(f"{head}{','.join(scopes)}]}}]}}")
    file.close()
    return charged


def _names(feature: str, model: str) -> dict[str, str]:
    return {
        catalogue.FEATURE: feature,
        catalogue.OPERATION: f"service.endpoints.{feature}",
        catalogue.MODEL: model,
        catalogue.VARIANT: "fp16",
        catalogue.STAGE: "small",
        catalogue.STATUS: "ok",
        catalogue.TIME_SOURCE: "cuda_event",
    }


def write_metrics(folder: Path, charged: dict[tuple[str, str], list[float]], wall_s: float) -> None:
    """Write the exports of the process that made these calls, one every ten seconds."""
    file = Rotating(folder, "metrics")
    exports = max(1, round(wall_s / EXPORT_EVERY_S))
    for export in range(exports + 1):
        part = export / exports
        at_ns = START_NS + round(part * wall_s * 1e9)
        points: dict[str, list[object]] = {}

        def add(metric: catalogue.Metric, attributes: dict[str, str], number: dict[str, object]) -> None:
            times = {"startTimeUnixNano": str(START_NS), "timeUnixNano": str(at_ns)}  # noqa: B023 - called at once
            points.setdefault(metric.name, []).append({"attributes": texts(attributes), **times, **number})  # noqa: B023

        for kind, values in charged.items():
            family = {**_names(*kind), **DEVICE}
            add(catalogue.CALLS, family, {"asInt": str(round(part * len(values)))})
            family.pop(catalogue.STATUS)
            add(catalogue.FEATURE_TIME, family, {"asDouble": part * sum(values)})
        both_s = part * sum(map(sum, charged.values()))
        held_s = (1 - OVERLAP) * both_s
        device = {catalogue.HW_ID: "GPU-1", **DEVICE}
        for state, value in (("charged", held_s), ("idle", part * wall_s - held_s)):
            add(catalogue.DEVICE_TIME, {**device, catalogue.DEVICE_STATE: state}, {"asDouble": value})
        add(catalogue.DEVICE_OVERLAP_TIME, device, {"asDouble": OVERLAP * both_s})
        metrics = [
            {"name": name, "sum": {"dataPoints": found, "aggregationTemporality": 2, "isMonotonic": True}}
            for name, found in points.items()
        ]
        scopes = [{"scope": {"name": catalogue.SCOPE_NAME}, "metrics": metrics}]
        file.write(encode({"resourceMetrics": [{"resource": RESOURCE, "scopeMetrics": scopes}]}))
    file.close()


def measure(folder: Path, *options: str) -> tuple[float, float, dict[str, object]]:
    """Run one report in a new process and return wall seconds, CPU seconds and what it said."""
    before, start = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "gputrace", "report", str(folder), "--json", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall_s, after = time.perf_counter() - start, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, cpu_s, json.loads(done.stdout)


def main() -> None:
    """Generate, measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument(
        "--per-line", type=int, default=512, help="spans in one batch (default: the SDK's, 512)"
    )
    parser.add_argument("--foreign", action="store_true", help="put a span of another scope into each batch")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write there and leave it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        charged = write_spans(folder, arguments.spans, arguments.per_line, foreign=arguments.foreign)
        write_metrics(folder, charged, arguments.spans * CALL_EVERY_NS / 1e9)
        size = sum(file.stat().st_size for file in folder.glob("*.jsonl"))
        print(f"{arguments.spans:,} spans, {size / 1e6:,.0f} MB, {os.cpu_count()} cores")
        print(f"{'report':<22}{'wall s':>8}{'CPU s':>8}{'budget s':>10}")
        for name, options, budget in (
            ("with percentiles", (), 10),
            ("without percentiles", ("--no-percentiles",), 2),
        ):
            wall_s, cpu_s, found = measure(folder, *options)
            print(f"{name:<22}{wall_s:>8.2f}{cpu_s:>8.2f}{budget:>10}")
            if not found["balanced"] or found["skipped_lines"]:
                message = f"the report is wrong: {found['notes']}"
                raise SystemExit(message)


if __name__ == "__main__":
    main()
