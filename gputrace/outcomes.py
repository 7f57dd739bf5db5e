"""Product events and units of work: counted in the process, so that reports can divide the cost by them.

On the user's thread a count is checked and put on a queue. The queue is summed
whenever somebody reads, and when it has grown long.
"""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import (
    attribution,
    attribution_current,
    call as calls,
    call_register,
    catalogue,
    clocks,
    faults,
)
from gputrace.attribution import UNNAMED, scope_in_force, tolerated_fields
from gputrace.outcomes_values import checked_amount, checked_name
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.accounts import Snapshot, Totals
    from gputrace.attribution import Attribution

#: Identities are short; what is longer came from elsewhere.
LONGEST_REQUEST_ID = 256

_LONG_QUEUE = 4096
_DISTINCT_SUMS = 10_000
_WAITING_EVENTS = 10_000

_COUNTING = faults.contained("count an outcome or units of work")

_METRICS = {metric.name: metric for metric in (catalogue.OUTCOMES, catalogue.UNITS)}
_NAME_ATTRIBUTE = {
    catalogue.OUTCOMES.name: catalogue.OUTCOME_NAME,
    catalogue.UNITS.name: catalogue.UNIT_NAME,
}


class Counted(NamedTuple):
    """What is summed under one entry.

    Attributes:
        metric: Name of the metric.
        name: Of the outcome or unit.
        feature: What it is billed to, None where nobody named one.
        tenant: Likewise.
    """

    metric: str
    name: str
    feature: str | None
    tenant: str | None


_FOLDED = {
    metric: Counted(metric, catalogue.OTHER, catalogue.OTHER, catalogue.OTHER) for metric in _NAME_ATTRIBUTE
}


class Event(NamedTuple):
    """An outcome of a request that this process does not know: a reader of all spans may.

    Attributes:
        at_ns: When, Unix time in ns.
        name: Of the outcome.
        value: How often it happened.
        request_id: Identity of the request.
    """

    at_ns: int
    name: str
    value: float
    request_id: str


class Outcomes:
    """The outcomes and units of a process.

    Args:
        totals: Caps the names that go on metrics, and how many sets there are of them.
        metric_attributes: Attributes on metrics beyond the defaults.
        declared: Outcomes that are shown as 0 from the start.
    """

    def __init__(
        self,
        totals: Totals,
        metric_attributes: tuple[str, ...] = (),
        declared: Iterable[str] = (),
    ) -> None:
        self._totals = totals
        self._queue: deque[tuple[Counted, float]] = deque()
        self._sums: dict[Counted, float] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._events: deque[Event] = deque(maxlen=_WAITING_EVENTS)
        self._lock = RLock()
        self._summing = False
        self.apply(metric_attributes, declared)

    def apply(self, metric_attributes: tuple[str, ...], declared: Iterable[str]) -> None:
        """Use other settings from here on; what was counted stays where it is."""
        self._with_tenant = "tenant" in metric_attributes
        for name in declared:
            self._queue.append((Counted(catalogue.OUTCOMES.name, name, None, None), 0))

    # --- the user's thread ---------------------------------------------------

    def count_outcome(self, name: Any, value: Any, request_id: Any, feature: Any) -> None:
        """Count an outcome; see :func:`outcome`."""
        text = checked_name("outcome", name)
        amount = checked_amount("outcome", text, value)
        if text is None or amount is None:
            return
        billed: Attribution | None
        if request_id is None:
            scope = scope_in_force()
            billed = UNNAMED if scope is None else scope.attribution
        else:
            request_id = str(request_id)
            billed = call_register.attribution_of(request_id)
        named = None if feature is None else tolerated_fields({"feature": feature}, "outcome").get("feature")
        if billed is None:
            billed = UNNAMED
            if named is None:
                self._leave_to_readers(text, amount, request_id)
        self._count(catalogue.OUTCOMES.name, text, amount, billed, named)

    def count_units(self, billed: Attribution, amounts: Mapping[str, Any]) -> None:
        """Count units of work.

        Args:
            billed: What they were done for.
            amounts: How many, by name of the unit.
        """
        for name, value in amounts.items():
            text = checked_name("add_units", name)
            amount = checked_amount("add_units", text, value)
            if text is not None and amount is not None:
                self._count(catalogue.UNITS.name, text, amount, billed, None)

    def _count(self, metric: str, name: str, amount: float, billed: Attribution, feature: str | None) -> None:
        tenant = billed.tenant if self._with_tenant else None
        self._queue.append((Counted(metric, name, feature or billed.feature, tenant), amount))
        # Where nobody reads, nobody else would.
        if len(self._queue) >= _LONG_QUEUE:
            self._sum()

    def _leave_to_readers(self, name: str, value: float, request_id: str) -> None:
        if len(request_id) > LONGEST_REQUEST_ID:
            faults.log_once(
                "outcome:request_id",
                "outcome: a request_id of %d characters is none of gputrace's; counted without it",
                len(request_id),
            )
            return
        self._events.append(Event(clocks.wall_ns(), name, value, attribution.printable(request_id)))

    # --- whoever reads -------------------------------------------------------

    def _sum(self) -> None:
        with self._lock:
            # A finaliser that counts while this thread sums leaves the sum to it.
            if self._summing:
                return
            self._summing = True
            try:
                while self._queue:
                    counted, amount = self._queue.popleft()
                    if counted not in self._sums and len(self._sums) >= _DISTINCT_SUMS:
                        counted = _FOLDED[counted.metric]
                    self._sums[counted] = self._sums.get(counted, 0) + amount
            finally:
                self._summing = False

    def show(self, shown: Snapshot) -> None:
        """Add what was counted to what the instruments show; for one thread at a time."""
        self._sum()
        with self._lock:
            sums, self._sums = self._sums, {}
        for counted, amount in sums.items():
            metric = _METRICS[counted.metric]
            attributes = self._totals.counted_as(metric, self._attributes(counted))
            key = (metric.name, tuple(attributes.items()))
            self._series[key] = self._series.get(key, 0) + amount
        rows = {catalogue.OUTCOMES.name: shown.outcomes, catalogue.UNITS.name: shown.units}
        for (name, named), total in self._series.items():
            rows[name].append((dict(named), float(total)))

    def _attributes(self, counted: Counted) -> dict[str, str]:
        given = {
            catalogue.FEATURE: counted.feature or catalogue.NO_FEATURE,
            catalogue.TENANT: counted.tenant,
            _NAME_ATTRIBUTE[counted.metric]: counted.name,
        }
        return {name: self._totals.kept(name, value) for name, value in given.items() if value is not None}

    def tell(self) -> None:
        """Record the outcomes whose request is another process's as spans; not on the user's thread."""
        while self._events:
            try:
                event = self._events.popleft()
            except IndexError:
                # Another thread was faster.
                return
            spans.record_outcome(
                event.at_ns,
                {
                    catalogue.OUTCOME_NAME: event.name,
                    catalogue.OUTCOME_VALUE: float(event.value),
                    catalogue.REQUEST_ID: event.request_id,
                },
            )


# --- what is in force in this process ---------------------------------------

_in_force: Outcomes | None = None


def record(counting: Outcomes | None) -> None:
    """Count from now on.

    Args:
        counting: Where; None counts nothing.
    """
    global _in_force  # noqa: PLW0603 - state of a process
    _in_force = counting


def in_force() -> Outcomes | None:
    """Return where this process counts, None where it does not."""
    return _in_force


def outcome(name: str, value: float = 1, request_id: str | None = None, feature: str | None = None) -> None:
    """Count a product event: a ticket that was solved, an answer that was accepted.

    Reports then show what one costs. It may come late and from another process.
    Whatever cannot be used is left out with one log line, and never raises.

    Args:
        name: Name of the event.
        value: How often it happened, from 0 to 1e15.
        request_id: Identity of the call or request that it belongs to, as ``Call.id`` or
            ``current().call_id`` gave it; by default what this is called in.
        feature: Feature that it is counted for, by default that of the request. Where this
            process does not know the request, it is counted for nobody, and a span tells
            ``gputrace report`` whose it is.
    """
    if not calls.settling:
        calls.ensure_settled()
    counting = _in_force
    if counting is not None:
        with _COUNTING:
            counting.count_outcome(name, value, request_id, feature)


def _count_units(billed: Attribution, amounts: Mapping[str, float]) -> None:
    if not calls.settling:
        calls.ensure_settled()
    counting = _in_force
    if counting is not None:
        with _COUNTING:
            counting.count_units(billed, amounts)


attribution_current.count_units = _count_units
