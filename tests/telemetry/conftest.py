"""Providers in this process, where the API takes only one: each test begins as if none had been set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

import gputrace
from gputrace import baggage, call, faults, identity, lifecycle
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric, NumberDataPoint
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.sampling import Sampler


class Users:
    """OpenTelemetry as a user sets it up, in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()

    def set_tracer_provider(self, sampler: Sampler | None = None) -> TracerProvider:
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(provider)
        return provider

    def set_meter_provider(self, *readers: InMemoryMetricReader, **options: object) -> MeterProvider:
        provider = MeterProvider(readers or (self.reader,), shutdown_on_exit=False, **options)
        metrics_internal.set_meter_provider(provider)
        return provider

    def spans(self) -> dict[str, ReadableSpan]:
        """What has ended, settled first, by name."""
        assert gputrace.flush()
        return {span.name: span for span in self.exporter.get_finished_spans()}


def collected(reader: InMemoryMetricReader) -> dict[str, Metric]:
    """One collection: each metric of gputrace by name."""
    data = reader.get_metrics_data()
    return {
        metric.name: metric
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        if scope.scope.name == "gputrace"
        for metric in scope.metrics
    }


def points(reader: InMemoryMetricReader, name: str) -> list[NumberDataPoint | HistogramDataPoint]:
    found = collected(reader)
    return list(found[name].data.data_points) if name in found else []


def _begin() -> None:
    lifecycle._process = lifecycle.Process(lifecycle._at_exit)
    call.reset()
    identity.reset()
    faults.reset()
    baggage.reset()
    spans.enabled = True
    spans._tracer = spans._tracer_of = None
    trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE = None, Once()
    metrics_internal._METER_PROVIDER, metrics_internal._METER_PROVIDER_SET_ONCE = None, Once()
    metrics_internal._PROXY_METER_PROVIDER = metrics_internal._ProxyMeterProvider()


@pytest.fixture
def users() -> Iterator[Users]:
    _begin()
    yield Users()
    lifecycle.shutdown(timeout=1)
    _begin()


@pytest.fixture
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults are kept from the user, as in real life; elsewhere tests let them through."""
    monkeypatch.delenv(faults.RAISE_VARIABLE)


@pytest.fixture(scope="session")
def shown():
    """`shown(reader, name)`: the points of one metric, in one collection."""
    return points


@pytest.fixture(scope="session")
def collect():
    """`collect(reader)`: the metrics of one collection, by name."""
    return collected
