"""The record of one decision: what was decided, on what ground, and what each stage cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import catalogue
from gputrace.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.trace import SpanContext

    from gputrace.call import Call
    from gputrace.cascades_policy import Step
    from gputrace.cascades_requests import CascadeRequest
    from gputrace.prices_billing import Bill
    from gputrace.staged import Tally

KEPT, ESCALATED, AUDITED = catalogue.ESCALATION_DECISIONS

#: Why estimates must leave a decision out.
AUDIT_FAILED, AUDIT_UNFINISHED, HEAVY_FAILED, UNSETTLED = (
    "audit_failed",
    "audit_unfinished",
    "heavy_failed",
    "unsettled",
)
#: The process ended while it was under way.
UNFINISHED = "unfinished"
PROPENSITY_UNKNOWN = "propensity_unknown"
#: Its answer was kept, and the heavy stage ran in the request all the same, as where both are begun at once.
HEAVY_RAN_KEPT = "heavy_ran_kept"

SURER = {True: "higher", False: "lower"}


class Spent(NamedTuple):
    """What a stage, or all that are heavy, came to; None for what was not measured.

    Attributes:
        time_s: Charged device time, s.
        cost: In ``currency``.
        energy_j: J.
    """

    time_s: float | None = None
    cost: float | None = None
    energy_j: float | None = None


class Decided(NamedTuple):
    """One decision and what it cost, final.

    Attributes:
        cascade: Name of the cascade.
        policy: Which version of its rule.
        request_id: Identity of the request.
        feature: Feature that is billed, None where nobody named one.
        status: How the request ended; None where it did not.
        at_ns: When it was decided, Unix time in ns.
        steps: What was decided after each stage; one at least.
        surer: Which confidence is.
        decision: One of ``catalogue.ESCALATION_DECISIONS``.
        drawn: An audit was drawn.
        propensity: Probability, before the draw, that one would run; None where unknown.
        audit_reason: Why one that was drawn did not run.
        excluded: Why estimates must leave it out.
        input_size: As the program said.
        light_stage: Name of the first stage.
        served_stage: Name of the stage whose answer was served.
        served_variant: Variant of its model.
        light: What the first stage came to.
        heavy: What all others did, in an audit too; None where none ran.
        currency: Of the costs.
        body: The details, by stage and step.
        span: The span of the request.
        stages: Time in 1/``SCALE`` ns and bill by the name of the stage.
        paid: Currency and cost by the name of the stage, where that is all that is known.
        enclosing_id: Identity of the request that it is a part of, None where it is one itself.
    """

    cascade: str
    policy: str
    request_id: str
    feature: str | None
    status: str | None
    at_ns: int
    steps: Sequence[Step]
    surer: str
    decision: str
    drawn: bool
    propensity: float | None
    audit_reason: str | None
    excluded: str | None
    input_size: float | None
    light_stage: str
    served_stage: str
    served_variant: str | None
    light: Spent
    heavy: Spent | None
    currency: str | None
    body: Mapping[str, Any] | None = None
    span: SpanContext | None = None
    stages: Sequence[tuple[str, int, Bill | None]] = ()
    paid: Sequence[tuple[str, str, float]] = ()
    enclosing_id: str | None = None

    @property
    def reason(self) -> str:
        """Why it was decided so."""
        return self.steps[0].reason

    def event(self) -> Event:
        """Return the log event that says all of it; what is not known is left out."""
        first = self.steps[0]
        heavy = self.heavy or Spent()
        given: dict[str, Any] = {
            catalogue.REQUEST_ID: self.request_id,
            catalogue.ESCALATION_ENCLOSING_ID: self.enclosing_id,
            catalogue.FEATURE: self.feature or catalogue.NO_FEATURE,
            catalogue.STATUS: self.status,
            catalogue.ESCALATION_CASCADE: self.cascade,
            catalogue.ESCALATION_POLICY: self.policy,
            catalogue.ESCALATION_DECISION: self.decision,
            catalogue.ESCALATION_REASON: self.reason,
            catalogue.ESCALATION_CONFIDENCE: first.confidence,
            catalogue.ESCALATION_THRESHOLD_VALUE: first.threshold,
            catalogue.ESCALATION_SURER: self.surer,
            catalogue.ESCALATION_AUDIT_DRAWN: self.drawn,
            catalogue.ESCALATION_AUDIT_PROPENSITY: self.propensity,
            catalogue.ESCALATION_AUDIT_REASON: self.audit_reason,
            catalogue.ESCALATION_EXCLUDED: self.excluded,
            catalogue.ESCALATION_INPUT_SIZE: self.input_size,
            catalogue.ESCALATION_LIGHT_STAGE: self.light_stage,
            catalogue.ESCALATION_LIGHT_TIME: self.light.time_s,
            catalogue.ESCALATION_LIGHT_COST: self.light.cost,
            catalogue.ESCALATION_LIGHT_ENERGY: self.light.energy_j,
            catalogue.ESCALATION_HEAVY_TIME: heavy.time_s,
            catalogue.ESCALATION_HEAVY_COST: heavy.cost,
            catalogue.ESCALATION_HEAVY_ENERGY: heavy.energy_j,
            catalogue.CURRENCY: self.currency,
        }
        known = {name: value for name, value in given.items() if value is not None}
        return Event(catalogue.DECISION_EVENT, self.at_ns, known, self.body, self.span)


def decided(request: CascadeRequest, *, unfinished: bool) -> Decided:
    """Return the record of a request that was decided.

    Args:
        request: A settled one, or one that nobody waits for any more.
        unfinished: It has not ended, or its audit has not, and is not waited for.
    """
    cascade, policy, audit = request.cascade, request.policy, request.audit
    first = request.steps[0]
    call = request.call
    light, heavy = _sides(request)
    served_stage, served_variant = served(request)
    excluded = _excluded(request, heavy, unfinished=unfinished)
    audited = audit is not None and excluded not in {AUDIT_FAILED, AUDIT_UNFINISHED, UNFINISHED}
    if audit is not None and audited and not heavy:
        heavy = [audit.rest]
    propensity: float | None = 1.0 if first.escalated else request.draw.propensity
    reason = request.draw.reason
    if audit is not None and not audited:
        propensity = None
        reason = "failed" if excluded == AUDIT_FAILED else "unfinished"
    tallies = [*request.stages, *([] if audit is None else [audit.rest])]
    currency = _currency(tallies)
    return Decided(
        cascade=cascade.name,
        policy="" if policy is None else policy.name,
        request_id=call.label,
        feature=call.attribution.feature,
        status=call.status or ("ok" if call.closed else None),
        at_ns=request.decided_ns,
        steps=tuple(request.steps),
        surer=SURER[policy is None or policy.higher_is_better],
        decision=ESCALATED if first.escalated else AUDITED if audited else KEPT,
        drawn=request.draw.drawn,
        propensity=propensity,
        audit_reason=reason,
        excluded=excluded,
        input_size=request.input_size if not light else light[0].input_size,
        light_stage=cascade.stages[0],
        served_stage=served_stage,
        served_variant=served_variant,
        light=_spent(light, currency),
        heavy=_spent(heavy, currency) if heavy else None,
        currency=currency,
        body=_body(request, currency),
        span=None if call.span is None else call.span.get_span_context(),
        stages=[(one.name, one.charged, one.bill) for one in tallies],
        enclosing_id=enclosing_id(call),
    )


def enclosing_id(call: Call) -> str | None:
    """Return the identity of the request that a call is a part of, None where it is in none."""
    return call.root.label if call.root is not None and call.root.site.is_request else None


def served(request: CascadeRequest) -> tuple[str, str | None]:
    """Return the stage whose answer was served, as far as is known, and the variant of its model."""
    last = next((one for one in reversed(request.stages) if one.completed), None)
    if last is None:
        return request.cascade.stages[0], None
    return last.name, None if last.call is None else last.call.attribution.variant


def _sides(request: CascadeRequest) -> tuple[list[Tally], list[Tally]]:
    first = request.cascade.stages[0]
    return (
        [one for one in request.stages if one.name == first],
        [one for one in request.stages if one.name != first],
    )


def _excluded(request: CascadeRequest, heavy: Sequence[Tally], *, unfinished: bool) -> str | None:
    audit = request.audit
    if unfinished:
        return AUDIT_UNFINISHED if request.is_settled else UNFINISHED
    if audit is not None and audit.failure is not None:
        return AUDIT_FAILED
    if request.escalated and not any(one.completed for one in heavy):
        return HEAVY_FAILED
    if heavy and not request.escalated:
        return HEAVY_RAN_KEPT
    if request.unsettled or (audit is not None and audit.unsettled):
        return UNSETTLED
    return None


def _currency(tallies: Iterable[Tally]) -> str | None:
    """Return the currency in which all is paid; None where there are two, which are never added."""
    found = {currency for one in tallies for currency in one.costs()}
    return found.pop() if len(found) == 1 else None


def _spent(tallies: Sequence[Tally], currency: str | None) -> Spent:
    """Sum up stages; None as soon as one of them was not measured."""
    times = [one.time_s for one in tallies]
    costs = [one.costs().get(currency) if currency else None for one in tallies]
    energies = [one.energy_j for one in tallies]
    return Spent(_sum(times), _sum(costs), _sum(energies))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _body(request: CascadeRequest, currency: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "stages": [_described(one, currency) for one in request.stages],
        "steps": [
            _known(confidence=step.confidence, threshold=step.threshold, escalated=step.escalated)
            for step in request.steps
        ],
    }
    if request.rest.charged:
        body["rest"] = _described(request.rest, currency)
    if request.audit is not None:
        body["audit"] = _described(request.audit.rest, currency)
    return body


def _described(tally: Tally, currency: str | None) -> dict[str, Any]:
    call = tally.call
    return _known(
        name=tally.name or None,
        time=tally.time_s,
        cost=tally.costs().get(currency) if currency else None,
        energy=tally.energy_j,
        input_size=tally.input_size,
        calls=tally.measured,
        call_id=None if call is None else call.label,
        completed=tally.completed,
    )


def _known(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
