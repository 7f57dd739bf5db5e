"""The Prometheus names of the catalogue, as real servers show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

from gputrace import catalogue
from gputrace.catalogue import Kind, Metric
from gputrace.exporters import otlp

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS_OF_A_HISTOGRAM = ("_bucket", "_count", "_sum")


def emit(reader: MetricReader) -> MeterProvider:
    """Every metric of the catalogue, with all its attributes: of those that come later too."""
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter(catalogue.SCOPE_NAME)
    for metric in catalogue.METRICS:
        attributes = dict.fromkeys(metric.attributes, "x")
        given = {"unit": metric.unit, "description": metric.description}

        def observe(_: object, attributes: dict[str, str] = attributes) -> list[Observation]:
            return [Observation(1, attributes)]

        if metric.kind is Kind.HISTOGRAM:
            meter.create_histogram(metric.name, **given).record(1, attributes)
        elif metric.kind is Kind.COUNTER:
            meter.create_observable_counter(metric.name, [observe], **given)
        elif metric.kind is Kind.UP_DOWN_COUNTER:
            meter.create_observable_up_down_counter(metric.name, [observe], **given)
        else:
            meter.create_observable_gauge(metric.name, [observe], **given)
    return provider


def series_of(metric: Metric) -> set[str]:
    if metric.kind is Kind.HISTOGRAM:
        return {f"{metric.prometheus}{part}" for part in PARTS_OF_A_HISTOGRAM}
    return {metric.prometheus}


#: Exporters disagree about the suffix of unit 1, which a standard name has: what is scraped has none.
SCRAPED_AS = {"hw_gpu_utilization_ratio": "hw_gpu_utilization"}
EXPECTED = set().union(*(series_of(metric) for metric in catalogue.METRICS))


def assert_labels(rows: list[tuple[dict[str, str], float]]) -> None:
    """Attribute names become labels by one rule: dots to underscores."""
    by_name = {row["__name__"]: set(row) for row, _ in rows}
    for metric in catalogue.METRICS:
        for name in series_of(metric):
            name = name if name in by_name else SCRAPED_AS[name]  # noqa: PLW2901
            assert {attribute.replace(".", "_") for attribute in metric.attributes} <= by_name[name]


def test_victoria_metrics_shows_them_over_otlp(victoria: Any) -> None:
    provider = emit(PeriodicExportingMetricReader(otlp.metric_exporter(f"{victoria.url}/opentelemetry")))
    try:
        assert provider.force_flush()
        assert victoria.names(at_least=EXPECTED) == EXPECTED
        assert_labels(victoria.query('{__name__=~"(gputrace|hw)_.*"}'))
    finally:
        provider.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_prometheus_shows_them_when_it_scrapes(start_prometheus: Callable[..., Any], free_port: int) -> None:
    registry = prometheus_client.CollectorRegistry()
    provider = emit(PrometheusMetricReader(registry=registry))
    server, thread = prometheus_client.start_http_server(free_port, "127.0.0.1", registry)
    try:
        prometheus = start_prometheus(free_port)
        expected = {SCRAPED_AS.get(name, name) for name in EXPECTED}
        assert prometheus.names(at_least=expected) == expected
        assert_labels(prometheus.query('{__name__=~"(gputrace|hw)_.*"}'))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()
