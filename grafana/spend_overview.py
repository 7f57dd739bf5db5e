"""What each feature costs, what nobody used, and what changed: for product managers and FinOps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Board, Row, feature_link, value_link
from gputrace.grafana.feature_queries import COMPARABLE, NO_COMPARISON, NO_REQUESTS, NO_SPEND, SCOPE
from gputrace.grafana.fleet_queries import FLEET, IDLE, USED
from gputrace.grafana.panels import Query, lines, ranking, shares, stat
from gputrace.grafana.promql import match, named, ratio
from gputrace.grafana.sources import label
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    COVERAGE_STEPS,
    GREY,
    GROWTH_STEPS,
    HOURS,
    IDLE_STEPS,
    MONEY,
    SHARE,
    SMALL_MONEY,
    STATE_COLOURS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel
    from gputrace.grafana.sources import Recorded

_FEATURE = (catalogue.FEATURE,)
_UNNAMED = match(catalogue.FEATURE, catalogue.NO_FEATURE)
_FAILED = match(catalogue.STATUS, "ok", "!=")

_SPEND = SCOPE.total(recorded.FEATURE_COST)
_BY_FEATURE = SCOPE.total(recorded.FEATURE_COST, per=_FEATURE)
_BEFORE = SCOPE.total(recorded.FEATURE_COST, before=True)
_REQUESTS = SCOPE.total(recorded.REQUESTS, per=_FEATURE)
_PARTS, _OTHERS, _BARS = 10, "all others", 20
# More parts than that are no picture: all others are one. There is none where there are no others.
_TOP = f"topk({_PARTS}, {_BY_FEATURE})"
_REST = f"sum ({_BY_FEATURE} unless {_TOP})"
_LARGEST = f'{_TOP} or label_replace({_REST}, "{label(catalogue.FEATURE)}", "{_OTHERS}", "", "")'
_PER_THOUSAND = f"1000 * {ratio(_BY_FEATURE, _REQUESTS)}"


def _now() -> Row:
    return Row("Now", (*_spent(), *_pace(), *_explained()))


def _spent() -> tuple[Panel, ...]:
    return (
        stat(
            "Spend in range ($currency)",
            "What the selected features were charged for in the selected time: device time, shared "
            "where several held a device at once, at the price of that device at that moment. Idle "
            "devices are not in it: they are beside it.",
            _SPEND,
            MONEY,
            nothing=NO_SPEND,
        ),
        stat(
            "Against the range before",
            "Spend of this range over that of the equally long one before it, less one. Growth without "
            "more use is worth a look at the unit costs below.",
            f"({ratio(_SPEND, _BEFORE)} - 1) {COMPARABLE}",
            SHARE,
            steps=GROWTH_STEPS,
            nothing=NO_COMPARISON,
        ),
    )


def _pace() -> tuple[Panel, ...]:
    hourly = f"3600 * {SCOPE.now(recorded.FEATURE_COST)}"
    month = f"sum ({SCOPE.select(recorded.FEATURE_COST_MONTH)})"
    recent = f"sum (avg_over_time({SCOPE.select(recorded.FEATURE_COST_HOURLY)}[6h]))"
    projected = f"{month} + {recent} * scalar({recorded.MONTH_LEFT.name})"
    return (
        stat(
            "Run rate an hour ($currency)",
            "What the selected features spend at the moment, as an hour of it would cost; the curve is "
            "the range.",
            hourly,
            MONEY,
            nothing=NO_SPEND,
            trend=hourly,
        ),
        stat(
            "Month, projected ($currency)",
            "Spend since the first of this month (UTC), plus the pace of the last six hours until its "
            "end. Whatever the selected range is.",
            projected,
            MONEY,
            nothing="No hour of spend yet: rules record one after an hour",
        ),
    )


def _explained() -> tuple[Panel, ...]:
    return (
        stat(
            "Idle share of the bill",
            "Share of what all devices cost in this currency that nobody used, whatever features are "
            "selected. Above a half: fewer devices, or work that waits for night.",
            ratio(SCOPE.total(recorded.FLEET_COST, IDLE), SCOPE.total(recorded.FLEET_COST)),
            SHARE,
            steps=IDLE_STEPS,
            nothing="No priced devices",
        ),
        stat(
            "Spend with a feature",
            "Share of what devices were used for, by the clock, that a tracked call with a named "
            "feature answers for. The rest is untracked, or tracked and unnamed: decorate it, or name "
            "it.",
            ratio(
                "("
                + _all_features(recorded.FEATURE_COST)
                + " - ("
                + _all_features(recorded.FEATURE_COST, _UNNAMED)
                + " or vector(0)))",
                SCOPE.total(recorded.FLEET_COST, USED),
            ),
            SHARE,
            steps=COVERAGE_STEPS,
            nothing="No priced device was used",
        ),
    )


def _all_features(source: Recorded, *matchers: str) -> str:
    return FLEET.total(source, *matchers)


def _by_feature() -> Row:
    return Row(
        "By feature",
        (
            lines(
                "Spend an hour by feature ($currency)",
                "How fast each feature spends, stacked. A launch shows as a step, a leak as a slope.",
                [Query(f"3600 * {SCOPE.now(recorded.FEATURE_COST, per=_FEATURE)}", "{{gputrace_feature}}")],
                MONEY,
                stacked=True,
                nothing=NO_SPEND,
                links=feature_link(),
            ),
            shares(
                "Share of spend ($currency)",
                "Who spent what was charged in the range: the ten largest, and all others as one; below, "
                "each stands alone. `__none__` is tracked work that nobody named.",
                Query(f"sort_desc({_LARGEST})", "{{gputrace_feature}}", instant=True),
                MONEY,
                colours={_OTHERS: GREY},
                nothing=NO_SPEND,
                links=feature_link(),
            ),
            ranking(
                "Cost of 1 000 requests ($currency)",
                "Spend over requests, of the twenty dearest. Falling spend with rising unit cost means "
                "less use, not more thrift.",
                Query(f"sort_desc(topk({_BARS}, {_PER_THOUSAND}))", "{{gputrace_feature}}", instant=True),
                SMALL_MONEY,
                nothing=NO_REQUESTS,
                links=feature_link(),
            ),
        ),
    )


def _ledger() -> Row:
    failed = SCOPE.total(recorded.REQUESTS, _FAILED, per=_FEATURE)
    hours = f"{SCOPE.total(recorded.FEATURE_TIME, per=_FEATURE)} / 3600"
    before = SCOPE.total(recorded.FEATURE_COST, per=_FEATURE, before=True)
    month = f"sum by (gputrace_feature) ({SCOPE.select(recorded.FEATURE_COST_MONTH)})"
    budget = f"max by (gputrace_feature) ({SCOPE.select(catalogue.BUDGET)})"
    columns = (
        Column("Feature", label="gputrace_feature", link=feature_link("${__value.raw}")[0]),
        Column("Spend", _BY_FEATURE, unit=MONEY, bar=True),
        Column(
            "Growth",
            f"({ratio(_BY_FEATURE, before)} - 1) {COMPARABLE}",
            unit=SHARE,
            steps=GROWTH_STEPS,
        ),
        Column("Device hours", hours, unit=HOURS),
        Column("Requests", _REQUESTS, unit=WHOLE),
        Column("Cost of 1 000", _PER_THOUSAND, unit=SMALL_MONEY),
        Column("Failed", ratio(f"({failed} or 0 * {_REQUESTS})", _REQUESTS), unit=SHARE),
        Column("Budget used", ratio(month, budget), unit=SHARE),
    )
    return Row(
        "Ledger",
        (
            table(
                "Every feature ($currency)",
                "One line a feature over the range; the name leads to its own board. A cell without number "
                "has nothing to say: no requests counted, no range before, no budget set.",
                columns,
                sort="Spend",
                nothing=NO_SPEND,
                height=8,
            ),
        ),
    )


def _movers() -> Row:
    return Row("What moves, and what it runs on", (_increases(), _models(), _bill()))


def _increases() -> Panel:
    grown = f"{_BY_FEATURE} - {SCOPE.total(recorded.FEATURE_COST, per=_FEATURE, before=True)}"
    return table(
        "Greatest increases ($currency)",
        "The five features whose spend grew most against the range before. A feature that is new is "
        "in the ledger above.",
        (
            Column("Feature", label="gputrace_feature", link=feature_link("${__value.raw}")[0]),
            Column("Increase", f"topk(5, ({grown}) > 0) {COMPARABLE}", unit=MONEY),
        ),
        sort="Increase",
        width=6,
        nothing="Nothing grew, or the range before was not recorded whole",
    )


def _models() -> Panel:
    by_model = SCOPE.now(recorded.FEATURE_COST, per=(catalogue.MODEL,))
    return lines(
        "Spend an hour by model ($currency)",
        "Which models the money goes to. Calls without a model are one line.",
        [Query(f"3600 * {named(by_model, catalogue.MODEL, 'no model')}", "{{gputrace_model}}")],
        MONEY,
        width=9,
        stacked=True,
        nothing=NO_SPEND,
    )


def _bill() -> Panel:
    return lines(
        "What all devices cost an hour, by state ($currency)",
        "The whole bill: charged to features, untracked (busy, and no tracked call held the "
        "device), idle, and unknown (nobody read the device). It does not change with the features "
        "selected.",
        [
            Query(
                f"3600 * {SCOPE.now(recorded.FLEET_COST, per=(catalogue.DEVICE_STATE,))}",
                "{{gputrace_device_state}}",
            )
        ],
        MONEY,
        width=9,
        stacked=True,
        colours=STATE_COLOURS,
        nothing="No priced devices",
        links=(value_link("The fleet", "gputrace-fleet"),),
    )


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-spend",
        "For product managers and FinOps: what each feature costs, how much nobody used, what changed.",
        SCOPE,
        (_now(), _by_feature(), _ledger(), _movers()),
    )
