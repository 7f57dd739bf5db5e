"""Whether the larger model was worth it, where, and at which threshold: for ML engineers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import escalation_decisions, recorded
from gputrace.grafana.board import Board, Row, feature_link
from gputrace.grafana.escalation_queries import ESCALATED, NO_CASCADE, SCOPE
from gputrace.grafana.panels import Query, lines, stat
from gputrace.grafana.promql import LONG, match, ratio
from gputrace.grafana.sources import label, labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import BOUND_COLOURS, MONEY, SAVING_STEPS, SCORE, SHARE, SMALL_MONEY, WHOLE

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_EACH = (catalogue.ESCALATION_CASCADE, catalogue.FEATURE)
_AUDITED = match(catalogue.ESCALATION_DECISION, "audited")
_AUDIT = match(catalogue.STAGE, "audit")
_NOT_AUDIT = match(catalogue.STAGE, "audit", "!=")
_FEWEST_AUDITS = 30
_FEW_AUDITS = f"Not enough audits: fewer than {_FEWEST_AUDITS} in this range"
_NO_ESTIMATE = "Not published, or too few audits: run gputrace payoff --watch"

_ALL = SCOPE.total(recorded.ESCALATION_REQUESTS)
_COST = SCOPE.total(recorded.ESCALATION_COST, _NOT_AUDIT)
_AUDITS = SCOPE.total(recorded.ESCALATION_REQUESTS, _AUDITED)
_HEAVY_ALONE = f"{SCOPE.total(recorded.ESCALATION_COST, _AUDIT)} / ({_AUDITS} > {_FEWEST_AUDITS})"


def _worth_it() -> Row:
    return Row("Is it worth it?", (*_spent(), *_compared()))


def _spent() -> tuple[Panel, ...]:
    return (
        stat(
            "Requests escalated",
            "Share of requests to cascades that went on to the larger model.",
            ratio(SCOPE.total(recorded.ESCALATION_REQUESTS, ESCALATED), _ALL),
            SHARE,
            nothing=NO_CASCADE,
        ),
        stat(
            "Spent on cascades ($currency)",
            "All stages of the selected cascades. Audits are beside it: they are the price of knowing.",
            _COST,
            MONEY,
            nothing=NO_CASCADE,
        ),
        stat(
            "Spent on audits ($currency)",
            "The larger model in the shadow, on requests whose answer was kept.",
            SCOPE.total(recorded.ESCALATION_COST, _AUDIT),
            MONEY,
            nothing="No audits: set audit_rate",
        ),
    )


def _compared() -> tuple[Panel, ...]:
    return (
        stat(
            "1 000 requests ($currency)",
            "Through the cascade, all stages.",
            f"1000 * {ratio(_COST, _ALL)}",
            SMALL_MONEY,
            nothing=NO_CASCADE,
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
    )


def _quality() -> Row:
    answered = (catalogue.SCORE_NAME, catalogue.STAGE)
    mean = ratio(
        SCOPE.rate(catalogue.SCORE, per=answered, suffix="_sum", window=LONG),
        SCOPE.rate(catalogue.SCORE, per=answered, suffix="_count", window=LONG),
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
    selected = SCOPE.select(
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
    return Row(
        "Each cascade",
        (
            table(
                "Every cascade and feature ($currency)",
                f"Where escalation pays and where it does not. With {_FEWEST_AUDITS} audits or fewer "
                "there is no comparison.",
                (*_compared_means(), *_bounds()),
                sort="Spend",
                height=6,
                nothing=NO_CASCADE,
            ),
        ),
    )


def _compared_means() -> tuple[Column, ...]:
    requests = SCOPE.total(recorded.ESCALATION_REQUESTS, per=_EACH)
    escalated = SCOPE.total(recorded.ESCALATION_REQUESTS, ESCALATED, per=_EACH)
    audited = SCOPE.total(recorded.ESCALATION_REQUESTS, _AUDITED, per=_EACH)
    cost = SCOPE.total(recorded.ESCALATION_COST, _NOT_AUDIT, per=_EACH)
    alone = f"{SCOPE.total(recorded.ESCALATION_COST, _AUDIT, per=_EACH)} / ({audited} > {_FEWEST_AUDITS})"
    return (
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


def _bounds() -> tuple[Column, ...]:
    saved = (
        Column(
            f"Saved {sign}",
            _estimated("savings_frac", match(catalogue.ESCALATION_BOUND, bound), per=_EACH),
            unit=SHARE,
            steps=SAVING_STEPS,
        )
        for sign, bound in (("≥", "low"), ("≤", "high"))
    )
    return (*saved, Column("More audits", _estimated("audits_needed", per=_EACH), unit=WHOLE))


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-escalation",
        "For ML engineers: is escalating to the larger model worth it, where, and at which threshold.",
        SCOPE,
        (_worth_it(), escalation_decisions.row(), _quality(), _each()),
    )
