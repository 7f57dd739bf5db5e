"""What cascades of this process have decided and cost: counted, and told as log events."""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import call as calls, cascades_records, cascades_scores, catalogue, faults, ledger, staged
from gputrace.cascades_policy import AUDIT_STAGE
from gputrace.cascades_shadow import PATIENCE_S
from gputrace.prices_billing import Bill
from gputrace.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.accounts import Snapshot, Totals
    from gputrace.cascades_records import Decided
    from gputrace.cascades_requests import CascadeRequest
    from gputrace.cascades_scores import Score
    from gputrace.telemetry.events import Event

    Rows = list[tuple[dict[str, str], float]]

_UNITS_PER_HOUR = ledger.SCALE * 3_600 * 1_000_000_000
_UNITS_PER_S = ledger.SCALE * 1_000_000_000

#: Requests whose answers may be scored later by who knows their identity alone.
_REMEMBERED = 10_000

_PREPARING = faults.contained("make ready for log events")
_COUNTING = faults.contained("count the decision of a cascade")


class Answered(NamedTuple):
    """What a score may ask of a request that was decided here."""

    cascade: str
    feature: str | None
    stage: str
    variant: str | None


class Escalations:
    """The decisions of a process.

    Args:
        totals: Caps the names that go on metrics.
        record_score: Records a score in the histogram, with its attributes.
        emit: Takes the log events.
    """

    def __init__(
        self,
        totals: Totals,
        record_score: Callable[[float, dict[str, str]], None] = lambda *_: None,
        emit: Callable[[Event], None] = events.emit,
    ) -> None:
        self._emit = emit
        self._totals = totals
        self._record_score = record_score
        self._lock = RLock()
        self._waiting: dict[CascadeRequest, None] = {}
        self._untold: dict[CascadeRequest, None] = {}
        self._requests: dict[tuple[tuple[str, str], ...], int] = {}
        self._time: dict[tuple[tuple[str, str], ...], int] = {}
        self._bills: dict[tuple[tuple[str, str], ...], Bill] = {}
        self._paid: dict[tuple[tuple[str, str], ...], float] = {}
        self._answered: OrderedDict[str, Answered | CascadeRequest] = OrderedDict()
        self.scores = cascades_scores.Scores()

    # --- audits that are under way -------------------------------------------

    def waiting(self) -> int:
        """Return how many audits wait or run."""
        return len(self._waiting)

    def begun(self, request: CascadeRequest) -> None:
        """Take note of a request that will be audited."""
        self._waiting[request] = None

    def finish(self, deadline: float) -> bool:
        """Wait for audits under way; those that have not begun by the deadline do not begin any more.

        Args:
            deadline: ``time.monotonic()`` value, s.

        Returns:
            Whether all of them ended.
        """
        while self._running() and monotonic() < deadline:
            sleep(0.001)
        return not self._running()

    def _running(self) -> bool:
        return any(
            request.audit is not None and not (request.audit.cancelled or request.audit.has_ended)
            for request in list(self._waiting)
        )

    def give_up(self) -> None:
        """Tell of the requests that were decided and of which not all has ended: nobody will."""
        for request in list(self._untold):
            self._give_up(request)
            self.settled(request, unfinished=True)

    def deciding(self, request: CascadeRequest) -> None:
        """Take note of a request that is decided, and will be told."""
        self._untold[request] = None

    def _give_up(self, request: CascadeRequest) -> None:
        if request.audit is not None:
            request.audit.cancelled = True
        if request.is_settled:
            self.settled(request, unfinished=True)

    # --- what is settled ------------------------------------------------------

    def settled(self, request: CascadeRequest, *, unfinished: bool = False) -> None:
        """Count a request to a cascade, and tell of it; once.

        Args:
            request: A settled request, or one that nobody waits for any more.
            unfinished: It has not ended, or its audit has not, and is not waited for.
        """
        with self._lock:
            if request.is_told:
                return
            request.is_told = True
            self._waiting.pop(request, None)
            self._untold.pop(request, None)
        with _COUNTING:
            if request.audit is not None:
                request.cascade.audits.spent(None if unfinished else request.audit.rest.time_s)
            if request.steps:
                self.decided(cascades_records.decided(request, unfinished=unfinished))
            else:
                tallies = [(one.name, one.charged, one.bill) for one in request.stages]
                self._count_stages(request.cascade.name, request.call.attribution.feature, tallies)

    def decided(self, record: Decided) -> None:
        """Count a decision, and tell of it."""
        reason = record.reason
        if record.audit_reason is not None:
            reason = f"audit_{record.audit_reason}"
        elif record.decision == cascades_records.AUDITED:
            reason = AUDIT_STAGE
        with self._lock:
            key = self._named(
                catalogue.ESCALATION_REQUESTS,
                record.cascade,
                record.feature,
                {catalogue.ESCALATION_DECISION: record.decision, catalogue.ESCALATION_REASON: reason},
            )
            self._requests[key] = self._requests.get(key, 0) + 1
        answered = Answered(record.cascade, record.feature, record.served_stage, record.served_variant)
        self._remember(record.request_id, answered)
        self._count_stages(record.cascade, record.feature, record.stages)
        for stage, currency, cost in record.paid:
            self._count_paid(record, {catalogue.STAGE: stage, catalogue.CURRENCY: currency}, cost)
        self._emit(record.event())

    def asked(self, identity: str, request: CascadeRequest) -> None:
        """Take note that somebody knows a request, and may score it before all of it is settled."""
        if not request.is_told:
            self._remember(identity, request)

    def _remember(self, identity: str, known: Answered | CascadeRequest) -> None:
        with self._lock:
            self._answered[identity] = known
            while len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)

    def _count_stages(self, cascade: str, feature: str | None, stages: Any) -> None:
        with self._lock:
            for stage, charged, bill in stages:
                key = self._named(catalogue.ESCALATION_TIME, cascade, feature, {catalogue.STAGE: stage})
                self._time[key] = self._time.get(key, 0) + charged
                if bill is not None:
                    self._bills.setdefault(key, Bill()).merge(bill)

    def _count_paid(self, record: Decided, more: dict[str, str], cost: float) -> None:
        with self._lock:
            key = self._named(catalogue.ESCALATION_COST, record.cascade, record.feature, more)
            self._paid[key] = self._paid.get(key, 0.0) + cost

    def _named(
        self, metric: catalogue.Metric, cascade: str, feature: str | None, more: dict[str, str]
    ) -> tuple[tuple[str, str], ...]:
        given = {
            catalogue.ESCALATION_CASCADE: cascade,
            catalogue.FEATURE: feature or catalogue.NO_FEATURE,
            **more,
        }
        kept = {name: self._totals.kept(name, value) for name, value in given.items()}
        return tuple(self._totals.counted_as(metric, kept).items())

    # --- whoever reads --------------------------------------------------------

    def show(self, shown: Snapshot) -> None:
        """Add what was counted to what the instruments show."""
        with self._lock:
            shown.escalations = {
                catalogue.ESCALATION_REQUESTS.name: [
                    (dict(key), float(count)) for key, count in self._requests.items()
                ],
                catalogue.ESCALATION_TIME.name: [
                    (dict(key), charged / _UNITS_PER_S) for key, charged in self._time.items()
                ],
                catalogue.ESCALATION_COST.name: self._costs(),
                catalogue.ESCALATION_THRESHOLD.name: self._thresholds(),
                catalogue.ESCALATION_ESTIMATE.name: estimates(),
            }

    def _costs(self) -> Rows:
        costs = dict(self._paid)
        for key, bill in self._bills.items():
            for currency, cost in bill.costs(_UNITS_PER_HOUR).items():
                priced = (*key, (catalogue.CURRENCY, currency))
                costs[priced] = costs.get(priced, 0.0) + float(cost)
        return [(dict(key), cost) for key, cost in costs.items()]

    def _thresholds(self) -> Rows:
        rows: Rows = []
        for name, stages, policy in thresholds():
            for stage, threshold in zip(stages, policy.thresholds or (), strict=False):
                given = {
                    catalogue.ESCALATION_CASCADE: name,
                    catalogue.ESCALATION_POLICY: policy.name,
                    catalogue.STAGE: stage,
                }
                # Shown anew each time: not counted as folded each time.
                kept = {key: self._totals.names.cap.value(key, value) for key, value in given.items()}
                rows.append((kept, threshold))
        return rows

    def tell(self) -> None:
        """Tell of scores, and of audits that take too long; not on the user's thread."""
        for request in list(self._waiting):
            if request.audit is not None and monotonic() - request.audit.begun_s > PATIENCE_S:
                self._give_up(request)
        for score in self.scores.take():
            with _COUNTING:
                self._score(score)

    def _score(self, score: Score) -> None:
        known = self._answered.get(score.request_id)
        if known is not None and not isinstance(known, Answered):
            known = Answered(known.cascade.name, known.attribution.feature, *cascades_records.served(known))
        feature = score.feature if known is None else known.feature
        self._emit(score.event(feature, None if known is None else known.cascade))
        stage = score.stage or (None if known is None else known.stage)
        given = {
            catalogue.FEATURE: feature or catalogue.NO_FEATURE,
            catalogue.ESCALATION_CASCADE: None if known is None else known.cascade,
            catalogue.SCORE_NAME: score.name,
            catalogue.STAGE: stage,
            catalogue.VARIANT: known.variant if known is not None and stage == known.stage else None,
        }
        with self._lock:
            kept = {
                name: self._totals.kept(name, value) for name, value in given.items() if value is not None
            }
            attributes = self._totals.counted_as(catalogue.SCORE, kept)
        self._record_score(score.value, attributes)


# --- what is in force in this process ---------------------------------------

_in_force: Escalations | None = None

#: Returns name, stages and policy of each cascade; the module of cascades puts itself here.
thresholds: Callable[[], list[tuple[str, tuple[str, ...], Any]]] = list

#: Returns the rows of ``gputrace.escalation.estimate``: whoever estimates puts itself here. The SDK itself
#: does not: `gputrace payoff --watch` reads the files of all processes, each of which knows a part alone.
estimates: Callable[[], Rows] = list


def record(counting: Escalations | None) -> None:
    """Count from now on.

    Args:
        counting: Where; None counts nothing.
    """
    global _in_force, _prepared  # noqa: PLW0603 - state of a process
    _in_force = counting
    _prepared = False


_prepared = False


def in_force() -> Escalations | None:
    """Return where this process counts, None where it does not."""
    return _in_force


def ready() -> Escalations | None:
    """Start what counts and what takes log events, where that is still to be done."""
    global _prepared  # noqa: PLW0603 - a latch
    if not calls.settling:
        calls.ensure_settled()
    if not _prepared:
        _prepared = True
        staged.begin()
        with _PREPARING:
            events.prepare()
    return _in_force
