"""A meter that is collected by hand: it asks the instruments' callbacks, and nothing else.

The SDK aggregates again what gputrace has aggregated, at some twenty microseconds a point, and stamps it with
the machine's time. A simulation collects ten thousand times, in a time of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace as trace_api
from opentelemetry.metrics import CallbackOptions, Meter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from gputrace import catalogue
from gputrace.telemetry.histograms import HistogramTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.resources import Resource

    from gputrace.telemetry.histograms import Shown

_OPTIONS = CallbackOptions()
_METRICS = {metric.name: metric for metric in catalogue.METRICS}


class Numbers(NamedTuple):
    """What one observable instrument showed.

    Attributes:
        metric: Which.
        observations: Its points.
    """

    metric: catalogue.Metric
    observations: Sequence[Observation]


class Collected(NamedTuple):
    """What all instruments showed at one moment.

    Attributes:
        numbers: Counters and gauges.
        histograms: Histograms, with their points.
    """

    numbers: Sequence[Numbers]
    histograms: Sequence[tuple[catalogue.Metric, Sequence[HistogramDataPoint]]]

    def data(self, resource: Resource, start_ns: int, at_ns: int) -> MetricsData:
        """Return it as the SDK would.

        Args:
            resource: Whose it is.
            start_ns: When counting began, Unix time.
            at_ns: When it was collected.
        """
        found = [
            Metric(one.metric.name, one.metric.description, one.metric.unit, _data(one, start_ns, at_ns))
            for one in self.numbers
            if one.observations
        ]
        for metric, points in self.histograms:
            stamped = [_stamped(point, start_ns, at_ns) for point in points]
            data = Histogram(stamped, AggregationTemporality.CUMULATIVE)
            found.append(Metric(metric.name, metric.description, metric.unit, data))
        scope = InstrumentationScope(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
        scoped = ScopeMetrics(scope, found, catalogue.SCHEMA_URL)
        return MetricsData([ResourceMetrics(resource, [scoped], "")])


def _data(numbers: Numbers, start_ns: int, at_ns: int) -> Any:
    kind = numbers.metric.kind
    if kind is catalogue.Kind.GAUGE:
        # Of a gauge, nothing began.
        begun: Any = None
        return Gauge([NumberDataPoint(of.attributes, begun, at_ns, of.value) for of in numbers.observations])
    points = [NumberDataPoint(of.attributes, start_ns, at_ns, of.value) for of in numbers.observations]
    return Sum(points, AggregationTemporality.CUMULATIVE, kind is catalogue.Kind.COUNTER)


def _stamped(point: HistogramDataPoint, start_ns: int, at_ns: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        point.attributes,
        start_ns,
        at_ns,
        point.count,
        point.sum,
        point.bucket_counts,
        point.explicit_bounds,
        point.min,
        point.max,
        point.exemplars,
    )


class _HistogramByHand:
    """A histogram whose counts are gputrace's own.

    Args:
        metric: Which.
        bounds: Upper bounds of its buckets.
    """

    def __init__(self, metric: catalogue.Metric, bounds: Sequence[float]) -> None:
        self.metric = metric
        self._table = HistogramTable((metric,), bounds)

    def record(self, amount: float, attributes: Mapping[str, str], context: Context | None = None) -> None:
        """Record a value."""
        span = None if context is None else trace_api.get_current_span(context).get_span_context()
        sampled = span is not None and span.trace_flags.sampled
        self._table.record(attributes, (amount,), span if sampled else None)

    def points(self, shown: Shown) -> Sequence[HistogramDataPoint]:
        """Return its points; one that was never shown is empty this time."""
        found: list[HistogramDataPoint] = []
        for metric in self._table.read(shown):
            data: Any = metric.data
            found.extend(data.data_points)
        return found


class MeterByHand(Meter):
    """Makes the instruments of gputrace, and collects what they show."""

    def __init__(self) -> None:
        super().__init__(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
        self._observed: list[tuple[catalogue.Metric, Callable[[CallbackOptions], Iterable[Observation]]]] = []
        self._histograms: list[_HistogramByHand] = []
        self._shown: Shown = set()

    def collect(self) -> Collected:
        """Ask all instruments."""
        # The name tells the instruments which reader it is that asks.
        metric_reader = self
        observed = metric_reader._observed
        numbers = [Numbers(metric, list(callback(_OPTIONS))) for metric, callback in observed]
        return Collected(numbers, [(one.metric, one.points(self._shown)) for one in self._histograms])

    def _observe(self, name: str, callbacks: Sequence[Any] | None = None, *_: Any, **__: Any) -> Any:
        self._observed.extend((_METRICS[name], callback) for callback in callbacks or ())

    create_observable_counter = _observe
    create_observable_gauge = _observe
    create_observable_up_down_counter = _observe

    def create_histogram(self, name: str, *_: Any, **named: Any) -> Any:
        """Make a histogram."""
        made = _HistogramByHand(_METRICS[name], named["explicit_bucket_boundaries_advisory"])
        self._histograms.append(made)
        return made

    def create_counter(self, name: str, *_: Any, **__: Any) -> Any:
        """Refuse: gputrace counts by itself."""
        raise NotImplementedError(name)

    create_up_down_counter = create_counter
