"""Histograms of our own equal those of the OpenTelemetry SDK."""

from __future__ import annotations

from hypothesis import given, strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanContext, TraceFlags

from gputrace import catalogue
from gputrace.telemetry.histograms import HistogramTable, with_histograms

METRICS = (catalogue.CALL_DURATION, catalogue.CALL_DEVICE_TIME_HISTOGRAM)
VALUES = st.lists(
    st.tuples(
        st.sampled_from(["search", "chat"]),
        st.one_of(st.floats(0, 200), st.sampled_from(catalogue.DURATION_BUCKETS_S)),
    ),
    min_size=1,
    max_size=30,
)


@given(VALUES)
def test_counts_are_those_of_the_sdk(values: list[tuple[str, float]]) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    histogram = provider.get_meter(catalogue.SCOPE_NAME).create_histogram(
        catalogue.CALL_DURATION.name, explicit_bucket_boundaries_advisory=catalogue.DURATION_BUCKETS_S
    )
    table = HistogramTable(METRICS)
    for feature, value in values:
        histogram.record(value, {catalogue.FEATURE: feature})
        table.record({catalogue.FEATURE: feature}, (value, None), None)
    data = reader.get_metrics_data()
    provider.shutdown()
    expected = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    shown: set[object] = set()
    (first,) = table.read(shown)
    assert [point.count for point in first.data.data_points] == [0] * len(expected)
    (metric,) = table.read(shown)
    for point, theirs in zip(metric.data.data_points, expected, strict=True):
        assert point.attributes == theirs.attributes
        assert (point.count, point.bucket_counts) == (theirs.count, theirs.bucket_counts)
        assert (point.sum, point.min, point.max) == (theirs.sum, theirs.min, theirs.max)
        assert point.explicit_bounds == theirs.explicit_bounds


def test_an_exemplar_leads_to_the_sampled_span() -> None:
    table = HistogramTable(METRICS)
    span = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    table.record({}, (0.2, 0.1), span)
    table.record({}, (0.3, 0.1), None)
    shown: set[object] = set()
    table.read(shown)
    duration, device_time = table.read(shown)
    (exemplar,) = duration.data.data_points[0].exemplars
    assert (exemplar.trace_id, exemplar.span_id, exemplar.value) == (0xABC, 0xDEF, 0.2)
    assert device_time.data.data_points[0].count == 2


def test_they_join_the_scope_that_the_sdk_collected() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], resource=Resource({"service.name": "shop"}))
    provider.get_meter(catalogue.SCOPE_NAME).create_counter("other").add(1)
    data = reader.get_metrics_data()
    provider.shutdown()
    table = HistogramTable(METRICS)
    table.record({}, (0.2, None), None)
    metrics = table.read(set())
    joined = with_histograms(data, metrics, Resource({}))
    (scope,) = joined.resource_metrics[0].scope_metrics
    assert [metric.name for metric in scope.metrics] == ["other", catalogue.CALL_DURATION.name]
    assert joined.resource_metrics[0].resource.attributes["service.name"] == "shop"
    alone = with_histograms(MetricsData([]), metrics, Resource({"service.name": "alone"}))
    assert alone.resource_metrics[0].resource.attributes["service.name"] == "alone"
    assert with_histograms(data, [], Resource({})) is data
