"""Where telemetry of our own providers goes, and how much of it arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gputrace.telemetry.histograms import with_histograms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

    from gputrace.telemetry.histograms import HistogramTable, Shown


class Destination(NamedTuple):
    """One place that telemetry goes to.

    Exporters are made anew in each process: connections, files and locks are the
    parent's after a fork.

    Attributes:
        name: What a user calls it, for messages: a URL, a folder.
        span_exporter: Makes an exporter of spans; None where spans go elsewhere.
        metric_exporter: Makes an exporter of metrics; None where metrics go elsewhere.
        log_exporter: Makes an exporter of log events; None where they go elsewhere.
        patience_s: How much longer than for others a process that ends waits for it, s.
    """

    name: str
    span_exporter: Callable[[], SpanExporter] | None
    metric_exporter: Callable[[], MetricExporter] | None
    patience_s: float = 0.0
    log_exporter: Callable[[], LogRecordExporter] | None = None


class CountedExporter:
    """Hands batches on and knows how much of them arrived.

    Args:
        make: Makes the exporter proper; anew in a forked child.
        on_lost: Told how much the exporter refused.

    Attributes:
        delivered: Spans or records that the exporter took.
        refused: Those that it did not.
    """

    def __init__(self, make: Callable[[], Any], on_lost: Callable[[int], None]) -> None:
        self._make = make
        self._on_lost = on_lost
        self._inner: Any = make()
        self.delivered = self.refused = 0

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self._inner = None
        self.delivered = self.refused = 0

    def _hand_on(self, batch: Sequence[Any], success: object) -> Any:
        if self._inner is None:
            self._inner = self._make()
        result: Any = None
        try:
            result = self._inner.export(batch)
        finally:
            if result is success:
                self.delivered += len(batch)
            else:
                self.refused += len(batch)
                self._on_lost(len(batch))
        return result

    def shutdown(self) -> None:
        """Shut the exporter down."""
        if self._inner is not None:
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._inner is None or bool(self._inner.force_flush(timeout_millis))


class CountedSpanExporter(CountedExporter, SpanExporter):
    """Hands spans on and knows how many arrived."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch."""
        result: SpanExportResult = self._hand_on(spans, SpanExportResult.SUCCESS)
        return result


class CountedMetricExporter(MetricExporter):
    """Hands metrics on and knows whether the last of them arrived.

    Earlier ones do not matter: points are cumulative, so each says again what
    those before it said.

    Args:
        make: Makes the exporter proper.

    Attributes:
        histograms: Added to what the SDK collects; cumulative, in buckets.
        undelivered: Points of the last export, until the exporter has taken them.
        muted: Export nothing.
        on_exported: Called after each export that arrived.
    """

    def __init__(self, make: Callable[[], MetricExporter]) -> None:
        self._make = make
        inner = make()
        # The reader looks for these two attributes.
        super().__init__(inner._preferred_temporality, inner._preferred_aggregation)  # noqa: SLF001
        self._inner: MetricExporter | None = inner
        self._shown: Shown = set()
        self.histograms: HistogramTable | None = None
        self.undelivered = 0
        self.muted = False
        self._ended = False
        self.on_exported: Callable[[], None] = lambda: None

    @property
    def wants_plain_histograms(self) -> bool:
        """Whether histograms are to be what ours are: cumulative, and in explicit buckets."""
        temporality = (self._preferred_temporality or {}).get(Histogram, AggregationTemporality.CUMULATIVE)
        aggregation = (self._preferred_aggregation or {}).get(Histogram)
        return temporality is AggregationTemporality.CUMULATIVE and not isinstance(
            aggregation, ExponentialBucketHistogramAggregation
        )

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self._inner = None
        self._ended = False
        self._shown = set()
        self.undelivered = 0

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> MetricExportResult:
        """Export one collection."""
        # The reader's own last collection may come after its shutdown gave it up: all of it was said before.
        if self.muted or self._ended:
            return MetricExportResult.SUCCESS
        if self._inner is None:
            self._inner = self._make()
        if self.histograms is not None:
            rows = self.histograms.read(self._shown)
            metrics_data = with_histograms(metrics_data, rows, Resource.get_empty())
        # Until it is done: one that hangs when the process ends has not arrived.
        self.undelivered = _points(metrics_data)
        result = self._inner.export(metrics_data, timeout_millis=timeout_millis)
        if result is MetricExportResult.SUCCESS:
            self.undelivered = 0
            self.on_exported()
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the exporter."""
        return self._inner is None or self._inner.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Shut the exporter down, once."""
        if self._inner is not None and not self._ended:
            self._ended = True
            self._inner.shutdown(timeout_millis=timeout_millis)


def _points(metrics_data: MetricsData) -> int:
    return sum(
        len(metric.data.data_points)
        for resource in metrics_data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )
