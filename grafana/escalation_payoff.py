"""Whether the larger model was worth it, where, and at which threshold: for ML engineers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Board, Row, feature_link
from gputrace.grafana.panels import Query, lines, shares, stat
from gputrace.grafana.promql import LONG, Scope, match, ratio
from gputrace.grafana.sources import label, labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    BOUND_COLOURS,
    DECISION_COLOURS,
    HOURS,
    MONEY,
    PER_SECOND,
    SAVING_STEPS,
    SCORE,
    SHARE,
    SMALL_MONEY,
    STAGE_COLOURS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_SCOPE = Scope(("currency", "environment", "job", "feature", "cascade"))
_CASCADE = (catalogue.ESCALATION_CASCADE,)
_DECISION = (catalogue.ESCALATION_DECISION,)
_STAGE = (catalogue.STAGE,)
_ESCALATED = match(catalogue.ESCALATION_DECISION, "escalated")
_AUDITED = match(catalogue.ESCALATION_DECISION, "audited")
_AUDIT = match(catalogue.STAGE, "audit")
_NOT_AUDIT = match(catalogue.STAGE, "audit", "!=")
_FEWEST_AUDITS = 30
_NO_CASCADE = "No cascade decided anything: see docs/cascades.md"
_FEW_AUDITS = f"Not enough audits: fewer than {_FEWEST_AUDITS} in this range"
_NO_ESTIMATE = "Not published, or too few audits: run gputrace payoff --watch"

_ALL = _SCOPE.total(recorded.ESCALATION_REQUESTS)
_COST = _SCOPE.total(recorded.ESCALATION_COST, _NOT_AUDIT)
_AUDITS = _SCOPE.total(recorded.ESCALATION_REQUESTS, _AUDITED)
_HEAVY_ALONE = f"{_SCOPE.total(recorded.ESCALATION_COST, _AUDIT)} / ({_AUDITS} > {_FEWEST_AUDITS})"


def _worth_it() -> Row:
    return Row(
        "Is it worth it?",
        (
            stat(
                "Requests escalated",
                "Share of requests to cascades that went on to the larger model.",
                ratio(_SCOPE.total(recorded.ESCALATION_REQUESTS, _ESCALATED), _ALL),
                SHARE,
                nothing=_NO_CASCADE,
            ),
            stat(
                "Spent on cascades ($currency)",
                "All stages of the selected cascades. Audits are beside it: they are the price of knowing.",
                _COST,
                MONEY,
                nothing=_NO_CASCADE,
            ),
            stat(
                "Spent on audits ($currency)",
                "The larger model in the shadow, on requests whose answer was kept.",
                _SCOPE.total(recorded.ESCALATION_COST, _AUDIT),
                MONEY,
                nothing="No audits: set audit_rate",
            ),
            stat(
                "1 000 requests ($currency)",
                "Through the cascade, all stages.",
                f"1000 * {ratio(_COST, _ALL)}",
                SMALL_MONEY,
                nothing=_NO_CASCADE,
            ),
            stat(
                "Heavy alone ($currency)",
                "What 1 000 of the kept requests would have cost there, as their audits show. A mean without "
                f"bounds, and only of more than {_FEWEST_AUDITS} audits.",
                f"1000 * {_HEAVY_ALONE}",
                SMALL_MONEY,
                nothing=_FEW_AUDITS,
            ),
            stat(
                "A request costs less by",
                "One less what a request costs through the cascade over what the larger model costs alone. "
                "Below zero the smaller model is paid for and saves nothing. Costs alone: whether answers "
                "are as good is below. Choose one cascade: a mean over several says little.",
                f"1 - {ratio(_COST, _ALL)} / ({_HEAVY_ALONE} > 0)",
                SHARE,
                steps=SAVING_STEPS,
                nothing=_FEW_AUDITS,
            ),
        ),
    )


def _over_time() -> Row:
    reason = (catalogue.ESCALATION_REASON,)
    ruled = labels(catalogue.ESCALATION_CASCADE, catalogue.STAGE, catalogue.ESCALATION_POLICY)
    return Row(
        "What is decided",
        (
            lines(
                "Requests by decision",
                "Kept, escalated, or audited: kept, with the larger model in the shadow. They exclude each "
                "other. A rate that climbs without a deploy means that inputs have changed.",
                [
                    Query(
                        _SCOPE.now(recorded.ESCALATION_REQUESTS, per=_DECISION),
                        "{{gputrace_escalation_decision}}",
                    )
                ],
                PER_SECOND,
                stacked=True,
                width=9,
                colours=DECISION_COLOURS,
                nothing=_NO_CASCADE,
            ),
            lines(
                "Escalated share by cascade",
                "The share of requests that the larger model answers, over the hour before each point.",
                [
                    Query(
                        ratio(
                            _SCOPE.now(recorded.ESCALATION_REQUESTS_HOURLY, _ESCALATED, per=_CASCADE),
                            _SCOPE.now(recorded.ESCALATION_REQUESTS_HOURLY, per=_CASCADE),
                        ),
                        "{{gputrace_escalation_cascade}}",
                    )
                ],
                SHARE,
                width=9,
                bounds=(0, 1),
                nothing=_NO_CASCADE,
            ),
            shares(
                "Why",
                "Reasons of decisions, and of audits that did not run.",
                Query(
                    f"sort_desc({_SCOPE.increase(catalogue.ESCALATION_REQUESTS, per=reason)})",
                    "{{gputrace_escalation_reason}}",
                    instant=True,
                ),
                WHOLE,
                nothing=_NO_CASCADE,
            ),
            lines(
                "Spend an hour by stage ($currency)",
                "What each stage costs. Where `audit` is thick, lower the audit rate once there are enough.",
                [Query(f"3600 * {_SCOPE.now(recorded.ESCALATION_COST, per=_STAGE)}", "{{gputrace_stage}}")],
                MONEY,
                stacked=True,
                width=9,
                colours=STAGE_COLOURS,
                nothing=_NO_CASCADE,
            ),
            lines(
                "Threshold in force",
                "By cascade, stage and version of the rule. A step here is somebody's decision: look for "
                "what it did to the escalated share.",
                [
                    Query(
                        f"max by ({ruled}) ({_SCOPE.select(catalogue.ESCALATION_THRESHOLD)})",
                        "{{gputrace_escalation_cascade}} {{gputrace_stage}} {{gputrace_escalation_policy}}",
                    )
                ],
                SCORE,
                width=9,
                bounds=(None, None),
                nothing="No threshold: rules of your own have none",
            ),
            shares(
                "Device hours by stage",
                "Charged device time of the stages.",
                Query(
                    f"sort_desc({_SCOPE.increase(catalogue.ESCALATION_TIME, per=_STAGE)} / 3600)",
                    "{{gputrace_stage}}",
                    instant=True,
                ),
                HOURS,
                colours=STAGE_COLOURS,
                nothing=_NO_CASCADE,
            ),
        ),
    )


def _quality() -> Row:
    answered = (catalogue.SCORE_NAME, catalogue.STAGE)
    mean = ratio(
        _SCOPE.rate(catalogue.SCORE, per=answered, suffix="_sum", window=LONG),
        _SCOPE.rate(catalogue.SCORE, per=answered, suffix="_count", window=LONG),
    )
    return Row(
        "Are the answers as good?",
        (
            lines(
                "Mean score by stage",
                "Scores by the stage that answered, over the hour before. Escalated requests are harder: "
                "that the larger model scores no better does not mean that it is no better. The estimates "
                "say that.",
                [Query(mean, "{{gputrace_score_name}}: {{gputrace_stage}}")],
                SCORE,
                width=8,
                bounds=(None, None),
                nothing="No scores: record them with gputrace.score()",
            ),
            _estimate(
                "Saved, against always the larger model",
                "savings_frac",
                "Of what always the larger model would have cost, the share that the cascade saved, with "
                "its bounds. If the bounds contain zero, it may save nothing.",
            ),
            _estimate(
                "Quality lost or gained",
                "quality_delta",
                "Quality served less that of always the larger model, in units of the score, with its "
                "bounds. If the upper bound is below zero, answers have become worse.",
            ),
        ),
    )


def _estimated(quantity: str, *matchers: str, per: tuple[str, ...]) -> str:
    # Published every five minutes, and by two processes while one takes over from the other.
    selected = _SCOPE.select(
        catalogue.ESCALATION_ESTIMATE, match(catalogue.ESCALATION_QUANTITY, quantity), *matchers
    )
    return f"max by ({labels(*per)}) (last_over_time({selected}[{LONG}]))"


def _estimate(title: str, quantity: str, description: str) -> Panel:
    per = (catalogue.ESCALATION_CASCADE, catalogue.FEATURE, catalogue.ESCALATION_BOUND)
    return lines(
        title,
        f"{description} Published by `gputrace payoff --watch`. No bounds: not enough audits, see below.",
        [
            Query(
                _estimated(quantity, per=per),
                "{{gputrace_escalation_cascade}} {{gputrace_feature}} {{gputrace_escalation_bound}}",
            )
        ],
        SHARE if quantity.endswith("frac") else SCORE,
        width=8,
        bounds=(None, None),
        overrides=tuple(
            {
                "matcher": {"id": "byRegexp", "options": f"/ {bound}$/"},
                "properties": [
                    {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}},
                    {"id": "custom.lineStyle", "value": {"fill": "solid" if bound == "value" else "dash"}},
                ],
            }
            for bound, colour in BOUND_COLOURS.items()
        ),
        nothing=_NO_ESTIMATE,
    )


def _each() -> Row:
    per = (catalogue.ESCALATION_CASCADE, catalogue.FEATURE)
    requests = _SCOPE.total(recorded.ESCALATION_REQUESTS, per=per)
    escalated = _SCOPE.total(recorded.ESCALATION_REQUESTS, _ESCALATED, per=per)
    audited = _SCOPE.total(recorded.ESCALATION_REQUESTS, _AUDITED, per=per)
    cost = _SCOPE.total(recorded.ESCALATION_COST, _NOT_AUDIT, per=per)
    alone = f"{_SCOPE.total(recorded.ESCALATION_COST, _AUDIT, per=per)} / ({audited} > {_FEWEST_AUDITS})"
    columns: tuple[Column, ...] = (
        Column("Cascade", label=label(catalogue.ESCALATION_CASCADE)),
        Column("Feature", label="gputrace_feature", link=feature_link("${__value.raw}")[0]),
        Column("Requests", requests, unit=WHOLE),
        Column("Escalated", ratio(escalated, requests), unit=SHARE),
        Column("Spend", cost, unit=MONEY, bar=True),
        Column("Cost of 1 000", f"1000 * {ratio(cost, requests)}", unit=SMALL_MONEY),
        Column("Audits", audited, unit=WHOLE),
        Column("Heavy alone", f"1000 * {alone}", unit=SMALL_MONEY),
        Column(
            "Costs less by", f"1 - {ratio(cost, requests)} / ({alone} > 0)", unit=SHARE, steps=SAVING_STEPS
        ),
    )
    columns += tuple(
        Column(
            f"Saved {sign}",
            _estimated("savings_frac", match(catalogue.ESCALATION_BOUND, bound), per=per),
            unit=SHARE,
            steps=SAVING_STEPS,
        )
        for sign, bound in (("≥", "low"), ("≤", "high"))
    )
    columns += (Column("More audits", _estimated("audits_needed", per=per), unit=WHOLE),)
    return Row(
        "Each cascade",
        (
            table(
                "Every cascade and feature ($currency)",
                f"Where escalation pays and where it does not. With {_FEWEST_AUDITS} audits or fewer "
                "there is no comparison.",
                columns,
                sort="Spend",
                height=6,
                nothing=_NO_CASCADE,
            ),
        ),
    )


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-escalation",
        "For ML engineers: is escalating to the larger model worth it, where, and at which threshold.",
        _SCOPE,
        (_worth_it(), _over_time(), _quality(), _each()),
    )
