"""The instruments: observable ones that read the settler's totals, and histograms.

Aggregation is gputrace's own: a counter of the OpenTelemetry SDK costs several
microseconds a call, an addition to a dict a fraction of one.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
import threading
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics as metrics_api, trace as trace_api
from opentelemetry.metrics import CallbackOptions, Observation

from gputrace import baggage, catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

    from opentelemetry.metrics import Histogram, Meter

    from gputrace.accounts import Snapshot
    from gputrace.call import Call

    Rows = list[tuple[dict[str, str], float]] | list[tuple[dict[str, str], int]]
    Key = tuple[str, ...]

_OBSERVING = faults.contained("show a metric")
_FRAMES_TO_READER = 8
_OF_REQUESTS = (
    catalogue.REQUESTS,
    catalogue.REQUEST_CALLS,
    catalogue.REQUEST_TIME,
    catalogue.REQUEST_COST,
    catalogue.BATCH_MEMBERS,
    *catalogue.STEP_METRICS,
)
_OF_ESCALATIONS = (
    catalogue.ESCALATION_REQUESTS,
    catalogue.ESCALATION_TIME,
    catalogue.ESCALATION_COST,
    catalogue.ESCALATION_THRESHOLD,
    catalogue.ESCALATION_ESTIMATE,
)
#: What comes from reading GPUs; absent where nothing is read.
_OF_READINGS = (
    catalogue.FEATURE_ENERGY,
    catalogue.DEVICE_ENERGY,
    catalogue.DEVICE_OVERLAP_TIME,
    catalogue.DEVICE_UNTRACKED_UPPER_TIME,
    catalogue.FEATURE_ALONE_TIME,
    catalogue.FEATURE_ALONE_BUSY_TIME,
    catalogue.FEATURE_ALONE_PERIODS,
    catalogue.NVML_UP,
    catalogue.HW_GPU_UTILIZATION,
    catalogue.HW_GPU_MEMORY_USAGE,
    catalogue.HW_GPU_MEMORY_LIMIT,
    catalogue.HW_ENERGY,
    catalogue.HW_POWER,
    catalogue.HW_TEMPERATURE,
    catalogue.HW_ERRORS,
)
_NO_ATTRIBUTES: dict[str, str] = {}


class _Shown:
    """What one metric reader has been shown.

    Attributes:
        series: Every series it has seen: metric name and attributes.
        owed: Of these, the ones whose value it has yet to see, having been shown 0 instead.
    """

    def __init__(self) -> None:
        self.series: set[Key] = set()
        self.owed: set[Key] = set()


class Instruments:
    """All instruments, on the meter provider that is set or will be.

    Args:
        snapshot: Returns all counters at one instant.
        meter: Makes them; that of the global provider by default.

    Attributes:
        take_snapshot: ``snapshot``; replaced when another settler takes over, since
            a meter takes an instrument of a name only once.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], meter: Meter | None = None) -> None:
        self.take_snapshot = snapshot
        self._collection = threading.local()
        self._shown: WeakKeyDictionary[Any, _Shown] = WeakKeyDictionary()
        self._counters: list[tuple[str, Callable[[Snapshot], Rows]]] = []
        if meter is None:
            meter = metrics_api.get_meter(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
        self._observe(meter, catalogue.DEVICE_TIME, lambda shown: shown.device_time_s)
        self._observe(meter, catalogue.FEATURE_TIME, lambda shown: shown.feature_time_s)
        self._observe(meter, catalogue.CALLS, lambda shown: shown.calls)
        self._observe(meter, catalogue.OUTCOMES, lambda shown: shown.outcomes)
        self._observe(meter, catalogue.UNITS, lambda shown: shown.units)
        self._observe(meter, catalogue.FEATURE_COST, lambda shown: shown.feature_cost)
        self._observe(meter, catalogue.DEVICE_COST, lambda shown: shown.device_cost)
        self._observe(meter, catalogue.DEVICE_PRICE, lambda shown: shown.device_price)
        self._observe(meter, catalogue.PRICE_INFO, lambda shown: shown.price_info)
        self._observe(meter, catalogue.BUDGET, lambda shown: shown.budgets)
        # Found here, on the user's thread: it imports, and a fork while another thread imports leaves the
        # child waiting for that module for ever.
        build = {catalogue.BUILD_VERSION: _version()}
        self._observe(meter, catalogue.BUILD_INFO, lambda _: [(build, 1)])
        for metric in _OF_REQUESTS:
            self._observe(meter, metric, _requests_of(metric))
        for metric in _OF_ESCALATIONS:
            self._observe(meter, metric, _escalations_of(metric))
        for metric in _OF_READINGS:
            self._observe(meter, metric, _readings_of(metric))
        self._observe(meter, catalogue.SDK_UNPRICED_TIME, lambda shown: shown.unpriced_s)
        self._observe(meter, catalogue.SDK_LOST, lambda shown: shown.lost)
        self._observe(meter, catalogue.SDK_UNMEASURED, lambda shown: shown.unmeasured)
        self._observe(meter, catalogue.SDK_FOLDED, lambda shown: [(_NO_ATTRIBUTES, shown.folded)])
        self._observe(meter, catalogue.SDK_UNTRUSTED, lambda _: baggage.unbelieved())
        self._observe(meter, catalogue.SDK_FAULTS, lambda _: [(_NO_ATTRIBUTES, faults.count())])
        self._observe(meter, catalogue.SDK_QUEUE_LENGTH, lambda shown: [(_NO_ATTRIBUTES, shown.queue_length)])
        self._duration = _histogram(meter, catalogue.CALL_DURATION)
        self._device_time = _histogram(meter, catalogue.CALL_DEVICE_TIME_HISTOGRAM)
        self._score = _histogram(meter, catalogue.SCORE, catalogue.SCORE_BUCKETS)

    def reset(self, snapshot: Callable[[], Snapshot]) -> None:
        """Begin anew in a forked child, where no reader has been shown anything."""
        self.take_snapshot = snapshot
        self._collection = threading.local()
        self._shown = WeakKeyDictionary()

    def owes(self) -> bool:
        """Tell whether a reader that collects has seen 0 where there is a value by now.

        What this thread itself has shown as 0 since it last asked counts as well: another
        thread may have collected the value since, and not exported it by the time that
        the process ends.
        """
        collection = self._collection
        stepped: bool = getattr(collection, "stepped", False)
        collection.stepped = False
        return stepped or any(shown.owed for shown in list(self._shown.values()))

    def owes_to(self, reader: object) -> bool:
        """Tell whether this reader has seen 0 where there is a value by now."""
        shown = self._shown.get(reader)
        return shown is not None and bool(shown.owed)

    def complete(self) -> bool:
        """Tell whether one more collection would show every reader the value of every series."""
        snapshot = self.take_snapshot()
        current = {
            _key(name, attributes) for name, rows_of in self._counters for attributes, _ in rows_of(snapshot)
        }
        readers = list(self._shown.values())
        return bool(readers) and all(shown.series >= current for shown in readers)

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

    def record_score(self, value: float, attributes: dict[str, str]) -> None:
        """Record how good an answer was.

        Args:
            value: The score.
            attributes: Its metric attributes.
        """
        self._score.record(value, attributes)

    def _observe(self, meter: Meter, metric: catalogue.Metric, rows_of: Callable[[Snapshot], Rows]) -> None:
        counter = metric.kind is catalogue.Kind.COUNTER

        def callback(_: CallbackOptions) -> Iterable[Observation]:
            with _OBSERVING:
                rows = rows_of(self._snapshot_for(metric.name))
                if counter:
                    return self._from_zero(metric.name, rows)
                return [Observation(value, attributes) for attributes, value in rows]
            return []

        if counter:
            self._counters.append((metric.name, rows_of))
        create = {
            catalogue.Kind.COUNTER: meter.create_observable_counter,
            catalogue.Kind.UP_DOWN_COUNTER: meter.create_observable_up_down_counter,
        }.get(metric.kind, meter.create_observable_gauge)
        create(metric.name, [callback], metric.unit, metric.description)

    def _snapshot_for(self, name: str) -> Snapshot:
        """Return the snapshot of the collection that runs on this thread.

        All instruments of one collection show the same, so that what is exported
        together balances. One that is asked again is in the next collection.
        """
        collection = self._collection
        asked: set[str] | None = getattr(collection, "asked", None)
        if asked is None or name in asked:
            asked = collection.asked = set()
            collection.snapshot = self.take_snapshot()
        asked.add(name)
        snapshot: Snapshot = collection.snapshot
        return snapshot

    def _from_zero(self, name: str, rows: Rows) -> list[Observation]:
        """Show a new series as 0 the first time a reader sees it: ``increase()`` counts from there.

        Not to a reader that is being shut down and will not come again: a missing
        first step is better than a missing value.
        """
        reader = _collecting_reader()
        shown = self._shown.setdefault(self if reader is None else reader, _Shown())
        last = bool(getattr(reader, "_shutdown", False))
        observations = []
        for attributes, value in rows:
            key = _key(name, attributes)
            if key in shown.series or last or not value:
                shown.owed.discard(key)
            else:
                shown.owed.add(key)
                self._collection.stepped = True
                value = 0  # noqa: PLW2901 - this time
            shown.series.add(key)
            observations.append(Observation(value, attributes))
        return observations


@functools.cache
def _version() -> str:
    return importlib.metadata.version("gputrace")


def _key(name: str, attributes: dict[str, str]) -> Key:
    # One tuple, not one for each item: readers are shown thousands of series.
    return (name, *attributes, *attributes.values())


def _requests_of(metric: catalogue.Metric) -> Callable[[Snapshot], Rows]:
    return lambda shown: shown.requests.get(metric.name, [])


def _escalations_of(metric: catalogue.Metric) -> Callable[[Snapshot], Rows]:
    return lambda shown: shown.escalations.get(metric.name, [])


def _readings_of(metric: catalogue.Metric) -> Callable[[Snapshot], Rows]:
    return lambda shown: shown.readings.get(metric.name, [])


def _histogram(
    meter: Meter, metric: catalogue.Metric, buckets: Sequence[float] = catalogue.DURATION_BUCKETS_S
) -> Histogram:
    return meter.create_histogram(
        metric.name,
        metric.unit,
        metric.description,
        explicit_bucket_boundaries_advisory=buckets,
    )


def _collecting_reader() -> object | None:
    """Return the metric reader that collects on this thread, None if it cannot be told.

    Each reader must see a new series as 0 first, and the SDK tells callbacks
    nothing of who asks. Its ``collect`` has the reader as an argument, a few frames
    up. Where that changes, all readers count as one, and only the first gets its 0.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the caller's frame
    for _ in range(_FRAMES_TO_READER):
        if frame is None:
            return None
        if frame.f_code.co_name == "collect":
            reader = frame.f_locals.get("metric_reader")
            if isinstance(reader, Hashable) and type(reader).__weakrefoffset__:
                return reader
        frame = frame.f_back
    return None
