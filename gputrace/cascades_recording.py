"""``record_decision``: the decision of a router of one's own, with what the caller knows of its cost."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

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
    scope = scope_in_force()
    call = enclosing_call(scope)
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
        span: SpanContext | None = None
        if call is not None and call.span is not None:
            span = call.span.get_span_context()
        billed = UNNAMED if scope is None else scope.attribution
        decision = ESCALATED if escalated else AUDITED if audited else KEPT
        propensity = _propensity(decision, audit_propensity)
        given = _amounts(
            light_time=light_time,
            heavy_time=heavy_time,
            light_cost=light_cost,
            heavy_cost=heavy_cost,
            light_energy=light_energy,
            heavy_energy=heavy_energy,
        )
        money = tolerated_fields({"currency": currency}, "record_decision").get("currency")
        ran = decision != KEPT
        light_stage, heavy_stage = _stages(stages)
        sides = [(light_stage, "light")]
        if ran:
            sides.append((heavy_stage if escalated else AUDIT_STAGE, "heavy"))
        counting.decided(
            Decided(
                cascade=named["cascade"],
                policy=named.get("policy", _RECORDED),
                request_id=identity,
                feature=named.get("feature", billed.feature),
                status="ok",
                at_ns=clocks.wall_ns(),
                steps=(
                    Step(
                        as_scalar(confidence),
                        as_number(threshold),
                        bool(escalated),
                        named.get("reason", _RECORDED),
                    ),
                ),
                surer=SURER[bool(higher_is_better)],
                decision=decision,
                drawn=decision == AUDITED,
                propensity=propensity,
                audit_reason=None,
                excluded=PROPENSITY_UNKNOWN if propensity is None else None,
                input_size=as_number(input_size),
                light_stage=light_stage,
                served_stage=heavy_stage if escalated else light_stage,
                served_variant=None,
                light=Spent(
                    given["light_time"], given["light_cost"] if money else None, given["light_energy"]
                ),
                heavy=Spent(
                    given["heavy_time"], given["heavy_cost"] if money else None, given["heavy_energy"]
                )
                if ran
                else None,
                currency=money,
                span=span,
                stages=[
                    (stage, round((given[f"{side}_time"] or 0.0) * _UNITS_PER_S), None)
                    for stage, side in sides
                    if given[f"{side}_time"] is not None
                ],
                paid=[
                    (stage, money, cost)
                    for stage, side in sides
                    if money and (cost := given[f"{side}_cost"]) is not None
                ],
                enclosing_id=None if call is None else enclosing_id(call),
            )
        )
    return identity


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
