"""Whether the parts add up, who is over budget, who holds idle devices: for FinOps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import fleet_bill, recorded
from gputrace.grafana.board import Board, Row, feature_link
from gputrace.grafana.feature_queries import NO_SPEND, SCOPE
from gputrace.grafana.fleet_queries import FLEET
from gputrace.grafana.panels import Query, lines, ranking
from gputrace.grafana.promql import ratio
from gputrace.grafana.sources import label, labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import BUDGET_STEPS, HOURS, MONEY, SHARE, SMALL_MONEY, WHOLE

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_SHOWBACK = ("job", catalogue.FEATURE, catalogue.MODEL, catalogue.HW_NAME)
_OFFER = (
    catalogue.HW_NAME,
    catalogue.PRICE_SKU,
    catalogue.PRICE_KIND,
    catalogue.PRICE_SOURCE,
    catalogue.PRICE_DATE,
)
_NO_BUDGET = "No budget set: see GPUTRACE_BUDGETS"
_NO_MONTH = "No hour of spend yet: rules record one after an hour"

_ALERTED = (
    f"alertname, severity, job, {labels(catalogue.FEATURE, catalogue.HW_NAME, catalogue.ESCALATION_CASCADE)}"
)
_FIRING = 'alertname=~"Gputrace.+", alertstate="firing"'

_BUDGET = f"max by (gputrace_feature) ({SCOPE.select(catalogue.BUDGET)})"
_MONTH = f"sum by (gputrace_feature) ({SCOPE.select(recorded.FEATURE_COST_MONTH)})"
_PACE = f"sum by (gputrace_feature) (avg_over_time({SCOPE.select(recorded.FEATURE_COST_HOURLY)}[1d]))"
_LEFT = f"scalar({recorded.MONTH_LEFT.name})"
_LENGTH = f"scalar({recorded.MONTH_LENGTH.name})"
_PROJECTED = f"{_MONTH} + {_PACE} * {_LEFT}"


def _budgets() -> Row:
    return Row("Budgets of this month", (_used(), _pace(), _month_end(), _alerts()))


def _used() -> Panel:
    return ranking(
        "Budget used",
        "Spend since the first of the month (UTC) over the feature's budget for the whole month.",
        Query(f"sort_desc({ratio(_MONTH, _BUDGET)})", "{{gputrace_feature}}", instant=True),
        SHARE,
        steps=BUDGET_STEPS,
        bounds=(0, 1),
        width=8,
        nothing=_NO_BUDGET,
        links=feature_link(),
    )


def _pace() -> Panel:
    even = f"sum ({_BUDGET}) * (1 - {_LEFT} / {_LENGTH})"
    return lines(
        "Month to date against even pace ($currency)",
        "What all features with a budget have spent this month, and what they would have spent at "
        "an even pace. Above the dashed line the money ends before the month.",
        [
            Query(f"sum ({_MONTH} and on (gputrace_feature) {_BUDGET})", "spent"),
            Query(even, "even pace"),
            Query(f"sum ({_BUDGET})", "budget"),
        ],
        MONEY,
        width=8,
        colours={"spent": "blue", "even pace": "green", "budget": "red"},
        nothing=_NO_BUDGET,
    )


def _month_end() -> Panel:
    return table(
        "Projected month end ($currency)",
        "Month to date plus the pace of the last day until the month's end. Over 100 % of the "
        "budget: agree on one or the other now.",
        (
            Column("Feature", label="gputrace_feature", link=feature_link("${__value.raw}")[0]),
            Column("So far", _MONTH, unit=MONEY, width=85),
            Column("Projected", _PROJECTED, unit=MONEY, width=90),
            Column("Budget", _BUDGET, unit=MONEY, width=85),
            Column(
                "Of budget",
                ratio(f"({_PROJECTED})", _BUDGET),
                unit=SHARE,
                steps=BUDGET_STEPS,
                width=85,
            ),
        ),
        sort="Projected",
        width=8,
        nothing=_NO_MONTH,
    )


def _alerts() -> Panel:
    return table(
        "Alerts that fire",
        "What Prometheus complains about now. The runbook of each is docs/runbooks.md.",
        (
            Column("Alert", label="alertname"),
            Column("Severity", label="severity"),
            Column("Feature", label="gputrace_feature"),
            Column("Device", label="hw_name"),
            Column("Cascade", label="gputrace_escalation_cascade"),
            Column("Service", label="job"),
            Column("Firing", f"count by ({_ALERTED}) (ALERTS{{{_FIRING}}})", unit=WHOLE),
        ),
        sort="Alert",
        ascending=True,
        width=24,
        height=4,
        nothing="No alert of gputrace fires",
    )


def _showback() -> Row:
    return Row("Showback", (_spenders(), _prices()))


def _spenders() -> Panel:
    hours = f"{SCOPE.total(recorded.FEATURE_TIME, per=_SHOWBACK)} / 3600"
    return table(
        "Spend by service, feature and device ($currency)",
        "Ready to be downloaded as CSV (panel menu, Inspect, Data). The sum is what features were "
        "charged; idle devices are nobody's, and stand above.",
        (
            Column("Service", label="job", width=140),
            Column("Feature", label="gputrace_feature", link=feature_link("${__value.raw}")[0]),
            Column("Model", label="gputrace_model", width=110),
            Column("Device", label="hw_name", width=120),
            Column("Spend", SCOPE.total(recorded.FEATURE_COST, per=_SHOWBACK), unit=MONEY, bar=True),
            Column("Device hours", hours, unit=HOURS),
        ),
        sort="Spend",
        width=13,
        height=10,
        nothing=NO_SPEND,
    )


def _prices() -> Panel:
    return table(
        "Prices in force ($currency)",
        "What each kind of device costs an hour, where the price is from and of which day. A price "
        "that is old or has the wrong source makes every number above wrong.",
        (
            Column("Device", label="hw_name"),
            Column("Offer", label="gputrace_price_sku", width=110),
            Column("Kind", label="gputrace_price_kind", width=90),
            Column("Source", label="gputrace_price_source", width=95),
            Column("Of", label="gputrace_price_date", width=90),
            Column("Devices", _devices(), unit=WHOLE, width=75),
            Column("An hour", _price(), unit=SMALL_MONEY, width=85),
        ),
        sort="An hour",
        width=11,
        height=10,
        nothing="No prices: set GPUTRACE_PRICES",
    )


def _info() -> str:
    return f"max by ({labels(catalogue.HW_ID, *_OFFER)}) ({FLEET.select(catalogue.PRICE_INFO)})"


def _devices() -> str:
    return f"count by ({labels(*_OFFER)}) ({_info()})"


def _price() -> str:
    price = f"max by ({label(catalogue.HW_ID)}) ({FLEET.select(catalogue.DEVICE_PRICE)})"
    return f"avg by ({labels(*_OFFER)}) ({_info()} * on ({label(catalogue.HW_ID)}) group_left () {price})"


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-budget",
        "For FinOps: do the parts add up to the bill, who is over budget, what is idle, what will the month "
        "cost.",
        SCOPE,
        (_budgets(), fleet_bill.row(), _showback()),
        start="now/M",
    )
