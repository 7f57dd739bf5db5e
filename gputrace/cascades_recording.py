"""``record_decision``: the decision of a router of one's own, with what the caller knows of its cost."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from gputrace import cascades_counting, clocks, faults, ledger
from gputrace.attribution import UNNAMED, enclosing_call, printable, scope_in_force, tolerated_fields
from gputrace.cascades_policy import AUDIT_STAGE, Step, as_number, as_scalar
from gputrace.cascades_records import (
    AUDITED,
    ESCALATED,
    KEPT,
    PROPENSITY_UNKNOWN,
    SURER,
    Decided,
    Spent,
    enclosing_id,
)
from gputrace.outcomes import LONGEST_REQUEST_ID

_RECORDING = faults.contained("record a decision")
_RECORDED = "recorded"
_UNITS_PER_S = ledger.SCALE * 1_000_000_000


def record_decision(  # noqa: PLR0913 - one argument a fact
    cascade: str,
    *,
    escalated: bool,
    confidence: float | None = None,
    threshold: float | None = None,
    higher_is_better: bool = True,
    audited: bool = False,
    audit_propensity: float | None = None,
    policy: str = _RECORDED,
    reason: str = _RECORDED,
    request_id: str | None = None,
    feature: str | None = None,
    stages: tuple[str, str] = ("light", "heavy"),
    light_time: float | None = None,
    heavy_time: float | None = None,
    light_cost: float | None = None,
    heavy_cost: float | None = None,
    currency: str | None = None,
    light_energy: float | None = None,
    heavy_energy: float | None = None,
    input_size: float | None = None,
) -> str:
    """Record a decision that something else has made: a router or gateway of one's own.

    Called once a request, when what it cost is known. Costs that are not given are
    not known: never 0. Whatever else cannot be used is left out with one log line,
    and never raises.

    Args:
        cascade: Name of the cascade.
        escalated: The heavy side answered.
        confidence: What the decision went by.
        threshold: In force then.
        higher_is_better: False where a low confidence value is the surer.
        audited: The answer was kept, and the heavy side ran as well.
        audit_propensity: Probability, before the draw, that a kept request was audited; needed
            for every kept request as soon as there are audits. Without, 0: none could be.
        policy: Name of this version of the rule.
        reason: Why it was decided so; one of a few, since it goes on metrics.
        request_id: Identity of the request, for scores; that of the enclosing call by default.
        feature: Product feature; that of the enclosing scope by default.
        stages: Names of the light and of the heavy side.
        light_time: Device time of the light side, s.
        heavy_time: Device time of the heavy side, an audit's too, s.
        light_cost: Cost of the light side, in ``currency``.
        heavy_cost: Cost of the heavy side.
        currency: ISO 4217; costs without one are left out.
        light_energy: Energy of the light side, J.
        heavy_energy: Energy of the heavy side, J.
        input_size: How large the input was.

    Returns:
        The identity of the request, for :func:`gputrace.score`.
    """
    call = enclosing_call(scope_in_force())
    identity = _identity(request_id, None if call is None else call.id)
    counting = cascades_counting.ready()
    if counting is None:
        return identity
    with _RECORDING:
        names = {"cascade": cascade, "policy": policy, "reason": reason, "feature": feature}
        named = tolerated_fields(names, "record_decision")
        if not named.get("cascade"):
            faults.log_once(
                "record_decision:no-cascade", "record_decision: a cascade must have a name; ignored"
            )
            return identity
        counting.decided(
            _decided(
                named,
                identity,
                _Sides(
                    ESCALATED if escalated else AUDITED if audited else KEPT,
                    *_stages(stages),
                    tolerated_fields({"currency": currency}, "record_decision").get("currency"),
                    _amounts(
                        light_time=light_time,
                        heavy_time=heavy_time,
                        light_cost=light_cost,
                        heavy_cost=heavy_cost,
                        light_energy=light_energy,
                        heavy_energy=heavy_energy,
                    ),
                ),
                step=Step(
                    as_scalar(confidence),
                    as_number(threshold),
                    bool(escalated),
                    named.get("reason", _RECORDED),
                ),
                surer=SURER[bool(higher_is_better)],
                propensity=audit_propensity,
                input_size=as_number(input_size),
            )
        )
    return identity


class _Sides(NamedTuple):
    """The light and the heavy side of a decision, and what is known of each.

    Attributes:
        decision: Kept, escalated or audited.
        light: Name of the light stage.
        heavy: Name of the heavy one.
        currency: Of the costs; None where none can be told.
        amounts: Time, cost and energy by side, such as ``light_time``; None where not known.
    """

    decision: str
    light: str
    heavy: str
    currency: str | None
    amounts: dict[str, float | None]

    def ran(self) -> list[tuple[str, str]]:
        """Return the stages that ran, each with its side."""
        ran = [(self.light, "light")]
        if self.decision != KEPT:
            ran.append((self.heavy if self.decision == ESCALATED else AUDIT_STAGE, "heavy"))
        return ran

    def spent(self, side: str) -> Spent:
        """Return what a side came to."""
        cost = self.amounts[f"{side}_cost"] if self.currency else None
        return Spent(self.amounts[f"{side}_time"], cost, self.amounts[f"{side}_energy"])


def _decided(  # noqa: PLR0913 - one argument a fact
    named: dict[str, str],
    identity: str,
    sides: _Sides,
    *,
    step: Step,
    surer: str,
    propensity: float | None,
    input_size: float | None,
) -> Decided:
    """Return the record of a decision that was made in the scope in force."""
    scope = scope_in_force()
    call = enclosing_call(scope)
    decision, currency = sides.decision, sides.currency
    known = _propensity(decision, propensity)
    spent = [(stage, sides.spent(side)) for stage, side in sides.ran()]
    return Decided(
        cascade=named["cascade"],
        policy=named.get("policy", _RECORDED),
        request_id=identity,
        feature=named.get("feature", (UNNAMED if scope is None else scope.attribution).feature),
        status="ok",
        at_ns=clocks.wall_ns(),
        steps=(step,),
        surer=surer,
        decision=decision,
        drawn=decision == AUDITED,
        propensity=known,
        audit_reason=None,
        excluded=PROPENSITY_UNKNOWN if known is None else None,
        input_size=input_size,
        light_stage=sides.light,
        served_stage=sides.heavy if decision == ESCALATED else sides.light,
        served_variant=None,
        light=sides.spent("light"),
        heavy=None if decision == KEPT else sides.spent("heavy"),
        currency=currency,
        span=None if call is None or call.span is None else call.span.get_span_context(),
        stages=[
            (stage, round(one.time_s * _UNITS_PER_S), None) for stage, one in spent if one.time_s is not None
        ],
        paid=[(stage, currency, one.cost) for stage, one in spent if currency and one.cost is not None],
        enclosing_id=None if call is None else enclosing_id(call),
    )


def _identity(given: Any, of_call: str | None) -> str:
    if given is not None:
        text = str(given)
        if 0 < len(text) <= LONGEST_REQUEST_ID:
            return printable(text)
        faults.log_once(
            "record_decision:request_id",
            "record_decision: a request_id must have 1 to %d characters; the enclosing call's is used",
            LONGEST_REQUEST_ID,
        )
    return of_call or str(uuid.uuid4())


def _propensity(decision: str, given: Any) -> float | None:
    if decision == ESCALATED:
        return 1.0
    number = 0.0 if given is None else as_number(given)
    valid = number is not None and 0 <= number <= 1
    if valid and not (decision == AUDITED and not number):
        return number
    faults.log_once(
        "record_decision:audit_propensity",
        "record_decision: an audited request needs audit_propensity=, the probability above 0 and at most 1 "
        "with which it was drawn; without it estimates must leave the request out",
    )
    return None


def _amounts(**given: Any) -> dict[str, float | None]:
    """Return what is a number, and not negative."""
    found: dict[str, float | None] = {}
    for name, value in given.items():
        number = as_number(value)
        valid = number is not None and number >= 0
        if value is not None and not valid:
            faults.log_once(
                f"record_decision:{name}", "record_decision: %s must be a number, not below 0; left out", name
            )
        found[name] = number if valid else None
    return found


def _stages(given: Any) -> tuple[str, str]:
    light, heavy = given if isinstance(given, (tuple, list)) and len(given) == 2 else ("", "")  # noqa: PLR2004
    fields = tolerated_fields({"light": light, "heavy": heavy}, "record_decision")
    return fields.get("light") or "light", fields.get("heavy") or "heavy"
