"""The instruments: observable ones that read the settler's totals, and histograms.

Aggregation is gputrace's own: a counter of the OpenTelemetry SDK costs several
microseconds a call, an addition to a dict a fraction of one.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api
from opentelemetry.metrics import CallbackOptions, Observation

from gputrace import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import Histogram, Meter, MeterProvider

    from gputrace.accounts import Snapshot
    from gputrace.call import Call

    Rows = list[tuple[dict[str, str], float]] | list[tuple[dict[str, str], int]]


class Instruments:
    """All instruments on one meter.

    Args:
        provider: Where the meter comes from; the global provider when None.
        snapshot: Returns all counters at one instant.

    Attributes:
        take_snapshot: ``snapshot``; replaced when another settler takes over, since
            a meter takes an instrument of a name only once.
    """

    def __init__(self, provider: MeterProvider | None, snapshot: Callable[[], Snapshot]) -> None:
        self.take_snapshot = snapshot
        self._taken = threading.local()
        self._shown: WeakKeyDictionary[Any, set[tuple[str, frozenset[tuple[str, str]]]]] = WeakKeyDictionary()
        meter = metrics_api.get_meter(
            catalogue.SCOPE_NAME, meter_provider=provider, schema_url=catalogue.SCHEMA_URL
        )
        # The first instrument of a collection takes the snapshot, the others
        # show the same one, so that what is exported together balances.
        self._observe(meter, catalogue.DEVICE_TIME, lambda shown: shown.device_time_s, first=True)
        self._observe(meter, catalogue.FEATURE_TIME, lambda shown: shown.feature_time_s)
        self._observe(meter, catalogue.CALLS, lambda shown: shown.calls)
        self._observe(meter, catalogue.SDK_LOST, lambda shown: shown.lost)
        self._observe(meter, catalogue.SDK_UNMEASURED, lambda shown: shown.unmeasured)
        self._observe(meter, catalogue.SDK_FOLDED, lambda shown: [({}, shown.folded)])
        self._observe(meter, catalogue.SDK_FAULTS, lambda _: [({}, faults.count())])
        self._observe(meter, catalogue.SDK_QUEUE_LENGTH, lambda shown: [({}, shown.queue_length)])
        self._duration = _histogram(meter, catalogue.CALL_DURATION)
        self._device_time = _histogram(meter, catalogue.CALL_DEVICE_TIME_HISTOGRAM)

    def record(
        self, call: Call, attributes: dict[str, str], duration_s: float, device_time_s: float | None
    ) -> None:
        """Record the histograms of a settled call, with its span as exemplar.

        Args:
            call: The call.
            attributes: Its metric attributes.
            duration_s: Its wall time, s.
            device_time_s: Its charged device time, s; None where it has none.
        """
        context = trace_api.set_span_in_context(call.span) if call.span is not None else None
        self._duration.record(duration_s, attributes, context)
        if device_time_s is not None:
            self._device_time.record(device_time_s, attributes, context)

    def _observe(
        self, meter: Meter, metric: catalogue.Metric, rows_of: Callable[[Snapshot], Rows], *, first: bool = False
    ) -> None:
        def callback(_: CallbackOptions) -> Iterable[Observation]:
            if first or not hasattr(self._taken, "snapshot"):
                self._taken.snapshot = self.take_snapshot()
            rows = rows_of(self._taken.snapshot)
            if metric.kind is catalogue.Kind.GAUGE:
                return [Observation(value, attributes) for attributes, value in rows]
            return self._from_zero(metric.name, rows)

        if metric.kind is catalogue.Kind.GAUGE:
            meter.create_observable_gauge(metric.name, [callback], metric.unit, metric.description)
        else:
            meter.create_observable_counter(metric.name, [callback], metric.unit, metric.description)

    def _from_zero(self, name: str, rows: Rows) -> list[Observation]:
        """Show a new series as 0 the first time a reader sees it: ``increase()`` counts from there."""
        shown = self._shown.setdefault(_collecting_reader() or self, set())
        observations = []
        for attributes, value in rows:
            key = (name, frozenset(attributes.items()))
            observations.append(Observation(value if key in shown else 0, attributes))
            shown.add(key)
        return observations


def _histogram(meter: Meter, metric: catalogue.Metric) -> Histogram:
    return meter.create_histogram(
        metric.name,
        metric.unit,
        metric.description,
        explicit_bucket_boundaries_advisory=catalogue.DURATION_BUCKETS_S,
    )


def _collecting_reader() -> object | None:
    """Return the metric reader that collects on this thread, None if it cannot be told.

    The SDK does not pass it to callbacks; its ``collect`` has it as an argument.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the caller's frame
    for _ in range(8):
        if frame is None:
            return None
        reader = frame.f_locals.get("metric_reader")
        if reader is not None:
            return reader  # type: ignore[no-any-return]
        frame = frame.f_back  # type: ignore[assignment]
    return None
