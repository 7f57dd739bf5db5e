"""Data folders for the report: through the real SDK, and by hand where times must be exact."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from gputrace import catalogue
from gputrace.analysis.reporting import spend_report

NS = 1_000_000_000
# 2026-01-31T12:00:00Z
NOON = 1_769_860_800 * NS
GPU = {
    catalogue.HW_ID: "GPU-1",
    catalogue.HW_TYPE: "gpu",
    catalogue.HW_NAME: "H100",
    catalogue.PUBLISHER: "p1",
}


@dataclass
class Program:
    """One process as the SDK sees it: counters by attributes, read by observable instruments."""

    folder: Path
    instance: str = "i1"
    sampling: float = 1.0
    marks: dict[str, bool] = field(default_factory=dict)
    counters: dict[str, dict[tuple[tuple[str, str], ...], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        resource = Resource.create(
            {"service.name": "shop", "service.instance.id": self.instance, **self.marks}
        )
        reader = PeriodicExportingMetricReader(
            FileMetricExporter(self.folder / f"metrics-1-{self.instance}-0.jsonl"),
            export_interval_millis=float("inf"),
        )
        self.meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self.meters.get_meter(catalogue.SCOPE_NAME)
        for metric in catalogue.METRICS:
            if metric.kind is catalogue.Kind.COUNTER:
                meter.create_observable_counter(metric.name, [self._reader(metric.name)], metric.unit)
            elif metric.kind is catalogue.Kind.GAUGE:
                meter.create_observable_gauge(metric.name, [self._reader(metric.name)], metric.unit)
        self.tracers = TracerProvider(
            resource=resource, sampler=TraceIdRatioBased(self.sampling), shutdown_on_exit=False
        )
        spans = FileSpanExporter(self.folder / f"spans-1-{self.instance}-0.jsonl")
        self.tracers.add_span_processor(SimpleSpanProcessor(spans))

    def _reader(self, name: str):
        return lambda _: [
            Observation(value, dict(attributes)) for attributes, value in self.counters.get(name, {}).items()
        ]

    def add(self, metric: catalogue.Metric, value: float, attributes: dict[str, str]) -> None:
        series = self.counters.setdefault(metric.name, {})
        key = tuple(sorted(attributes.items()))
        series[key] = series.get(key, 0) + value

    def show(self, metric: catalogue.Metric, value: float, attributes: dict[str, str]) -> None:
        """Show a gauge at this value from now on."""
        self.counters.setdefault(metric.name, {})[tuple(sorted(attributes.items()))] = value

    def device(self, device: dict[str, str] = GPU, **states: float) -> None:
        for state in catalogue.DEVICE_STATES:
            self.add(catalogue.DEVICE_TIME, states.get(state, 0.0), {**device, catalogue.DEVICE_STATE: state})

    def call(
        self, charged: float, wall: float | None = None, status: str = "ok", hw: str = "gpu", **names: str
    ) -> None:
        """Count one call, and make its span if it is sampled."""
        attributes = {f"gputrace.{name}": value for name, value in names.items()}
        self.add(catalogue.FEATURE_TIME, charged, {**attributes, catalogue.HW_TYPE: hw})
        self.add(catalogue.CALLS, 1, {**attributes, catalogue.HW_TYPE: hw, catalogue.STATUS: status})
        span = self.tracers.get_tracer(catalogue.SCOPE_NAME).start_span("call", start_time=NOON)
        span.set_attributes({**attributes, catalogue.STATUS: status, catalogue.CALL_DEVICE_TIME: charged})
        span.end(NOON + round((charged if wall is None else wall) * NS))

    def export(self) -> None:
        self.meters.force_flush()

    def close(self) -> None:
        self.meters.shutdown()
        self.tracers.shutdown()


@pytest.fixture
def data(tmp_path):
    return tmp_path / "gputrace-data"


@pytest.fixture
def program(data):
    """Start programs that write into `data`, or another folder."""
    started = []

    def start(folder=data, **arguments) -> Program:
        started.append(Program(folder, **arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


def keyed(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {str: "stringValue", float: "doubleValue", int: "intValue"}
    return [{"key": key, "value": {kinds[type(value)]: value}} for key, value in attributes.items()]


def metric_line(at_s, points, instance="i1", start_s=0.0, temporality=2) -> str:
    """One export: `points` are (name, attributes, value); times are seconds after noon."""
    by_name: dict[str, list[Any]] = {}
    for name, attributes, value in points:
        by_name.setdefault(name, []).append(
            {
                "attributes": keyed(attributes),
                "startTimeUnixNano": str(NOON + round(start_s * NS)),
                "timeUnixNano": str(NOON + round(at_s * NS)),
                **({"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}),
            }
        )
    metrics = [
        {
            "name": name,
            "sum": {"dataPoints": found, "aggregationTemporality": temporality, "isMonotonic": True},
        }
        for name, found in by_name.items()
    ]
    resource = {"attributes": keyed({"service.instance.id": instance})}
    scopes = [{"scope": {"name": catalogue.SCOPE_NAME}, "metrics": metrics}]
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]}) + "\n"


def export_line(at_s, charged=0.0, idle=0.0, feature="search", calls=0, **rest) -> str:
    """One export of a process with one feature on one device."""
    family = {catalogue.FEATURE: feature, catalogue.HW_TYPE: "gpu"}
    points = [
        (catalogue.FEATURE_TIME.name, family, charged),
        (catalogue.CALLS.name, {**family, catalogue.STATUS: "ok"}, calls),
        (catalogue.DEVICE_TIME.name, {**GPU, catalogue.DEVICE_STATE: "charged"}, charged),
        (catalogue.DEVICE_TIME.name, {**GPU, catalogue.DEVICE_STATE: "idle"}, idle),
    ]
    return metric_line(at_s, points, **rest)


def span(attributes, wall_s=1.0, start_s=0.0, name="call") -> dict[str, Any]:
    return {
        "traceId": "0" * 31 + "1",
        "spanId": "0" * 15 + "1",
        "name": name,
        "startTimeUnixNano": str(NOON + round(start_s * NS)),
        "endTimeUnixNano": str(NOON + round((start_s + wall_s) * NS)),
        "attributes": keyed(attributes) if isinstance(attributes, dict) else attributes,
    }


def span_line(*scopes) -> str:
    """One batch: each scope is its name, or None for a scope without one, and its spans."""
    found = [{"scope": {} if name is None else {"name": name}, "spans": spans} for name, spans in scopes]
    return json.dumps({"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": found}]}) + "\n"


@dataclass(frozen=True)
class Lines:
    """What tests write by hand; times are seconds after `noon`."""

    metrics = staticmethod(metric_line)
    export = staticmethod(export_line)
    span = staticmethod(span)
    spans = staticmethod(span_line)
    gpu = GPU
    noon = NOON


@pytest.fixture
def lines():
    return Lines


@pytest.fixture
def write(data):
    """Write lines into a file of the data folder and return the folder."""

    def into(*texts: str | bytes, name: str = "metrics-1-i1-0.jsonl") -> Path:
        data.mkdir(exist_ok=True)
        content = b"".join(text if isinstance(text, bytes) else text.encode() for text in texts)
        (data / name).write_bytes(content)
        return data

    return into


@pytest.fixture
def report(data):
    """Report on the data folder; times of `since` are seconds after noon."""

    def read(path=data, since=None, **arguments):
        since_ns = None if since is None else NOON + round(since * NS)
        return spend_report(path, since_ns=since_ns, **arguments)

    return read


@pytest.fixture(scope="session")
def payoff_logs():
    """Decision logs for the pay-off, and what is true of them."""
    path = Path(__file__).with_name("payoff_logs.py")
    specification = importlib.util.spec_from_file_location("payoff_logs", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
