"""Histograms of our own, for exporters of our own.

A histogram of the OpenTelemetry SDK costs some eight microseconds a record,
and each call has two: more than all the rest of settling it. Where ``configure``
made the meter provider, the settler counts into plain arrays, and the exporter
adds them to what it sends.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from gputrace import catalogue, clocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import SpanContext

_BOUNDS = catalogue.DURATION_BUCKETS_S

#: Names and values of attributes, in one tuple: there may be thousands of series.
Key = tuple[str, ...]
#: The series, by metric name and attributes, that a reader has seen.
Shown = set[tuple[str, Key]]


class _Row:
    """Counts of one series by bucket, with sum, extremes and the last exemplar."""

    __slots__ = ("attributes", "bounds", "buckets", "count", "exemplar", "maximum", "minimum", "total")

    def __init__(self, attributes: Mapping[str, str], bounds: Sequence[float]) -> None:
        self.attributes = attributes
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0
        self.minimum = float("inf")
        self.maximum = float("-inf")
        self.exemplar: Exemplar | None = None

    def record(self, value: float, span: SpanContext | None) -> None:
        # As in OpenTelemetry, a bucket includes its upper bound.
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)
        if span is not None:
            self.exemplar = Exemplar({}, value, clocks.wall_ns(), span.span_id, span.trace_id)


class HistogramTable:
    """The histograms of this process, cumulative since it was made.

    Args:
        metrics: Which histograms there are, in the order in which values are recorded.
        bounds: Upper bounds of their buckets.
    """

    def __init__(self, metrics: Sequence[catalogue.Metric], bounds: Sequence[float] = _BOUNDS) -> None:
        self._metrics = tuple(metrics)
        self._bounds = tuple(bounds)
        self.reset()

    def reset(self) -> None:
        """Begin anew in a forked child."""
        # A signal handler that flushes may interrupt a record on its own thread.
        self._lock = threading.RLock()
        self._rows: list[dict[Key, _Row]] = [{} for _ in self._metrics]
        self._start_ns = clocks.wall_ns()

    def record(
        self, attributes: Mapping[str, str], values: Sequence[float | None], span: SpanContext | None
    ) -> None:
        """Record one value for each histogram.

        Args:
            attributes: Metric attributes; kept, so never to be changed.
            values: One for each of ``metrics``, s; None where there is none.
            span: The sampled span that it was measured in, for the exemplar.
        """
        key = (*attributes, *attributes.values())
        with self._lock:
            for rows, value in zip(self._rows, values, strict=True):
                if value is not None:
                    row = rows.get(key)
                    if row is None:
                        row = rows.setdefault(key, _Row(attributes, self._bounds))
                    row.record(value, span)

    def read(self, shown: Shown) -> list[Metric]:
        """Return the metrics for one export.

        Args:
            shown: What this reader has seen; a new series is shown empty first and added
                here, so that ``increase()`` counts from zero.
        """
        with self._lock:
            return [
                Metric(
                    metric.name,
                    metric.description,
                    metric.unit,
                    Histogram(self._points(metric.name, rows, shown), AggregationTemporality.CUMULATIVE),
                )
                for metric, rows in zip(self._metrics, self._rows, strict=True)
                if rows
            ]

    def _points(
        self,
        name: str,
        rows: Mapping[Key, _Row],
        shown: Shown,
    ) -> list[HistogramDataPoint]:
        points = []
        now_ns = clocks.wall_ns()
        for key, row in rows.items():
            seen = row if (name, key) in shown else _Row(row.attributes, self._bounds)
            shown.add((name, key))
            points.append(
                HistogramDataPoint(
                    attributes=dict(row.attributes),
                    start_time_unix_nano=self._start_ns,
                    time_unix_nano=now_ns,
                    count=seen.count,
                    sum=seen.total,
                    bucket_counts=tuple(seen.buckets),
                    explicit_bounds=self._bounds,
                    min=seen.minimum if seen.count else 0.0,
                    max=seen.maximum if seen.count else 0.0,
                    exemplars=[seen.exemplar] if seen.exemplar is not None else [],
                )
            )
        return points


def with_histograms(data: MetricsData, metrics: Sequence[Metric], resource: Resource) -> MetricsData:
    """Return one collection with histograms added to gputrace's scope.

    Args:
        data: What the SDK collected.
        metrics: What ``HistogramTable.read`` returned.
        resource: Whose metrics these are, where the SDK collected nothing.
    """
    if not metrics:
        return data
    resources = list(data.resource_metrics) or [ResourceMetrics(resource, [], "")]
    first = resources[0]
    scopes = list(first.scope_metrics)
    position = next((i for i, found in enumerate(scopes) if found.scope.name == catalogue.SCOPE_NAME), None)
    if position is None:
        scope = InstrumentationScope(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
        scopes.append(ScopeMetrics(scope, list(metrics), catalogue.SCHEMA_URL))
    else:
        found = scopes[position]
        scopes[position] = ScopeMetrics(found.scope, [*found.metrics, *metrics], found.schema_url)
    resources[0] = ResourceMetrics(first.resource, scopes, first.schema_url)
    return MetricsData(resources)
