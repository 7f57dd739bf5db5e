"""Whether the parts add up, who is over budget, who holds idle devices: for FinOps."""

from __future__ import annotations

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Board, Row, feature_link
from gputrace.grafana.feature_queries import NO_SPEND, SCOPE
from gputrace.grafana.fleet_queries import CHARGED, FLEET, IDLE
from gputrace.grafana.panels import Query, lines, ranking, shares, stat
from gputrace.grafana.promql import Scope, match, ratio
from gputrace.grafana.sources import label, labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    BALANCE_STEPS,
    BUDGET_STEPS,
    HOURS,
    MONEY,
    SHARE,
    SMALL_MONEY,
    STATE_COLOURS,
    WHOLE,
)

_FEATURE = (catalogue.FEATURE,)
_HARDWARE = (catalogue.HW_TYPE, catalogue.HW_NAME)
_NO_BUDGET = "No budget set: see GPUTRACE_BUDGETS"
_NO_MONTH = "No hour of spend yet: rules record one after an hour"
_NO_PRICE = "No priced devices"

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
    even = f"sum ({_BUDGET}) * (1 - {_LEFT} / {_LENGTH})"
    return Row(
        "Budgets of this month",
        (
            ranking(
                "Budget used",
                "Spend since the first of the month (UTC) over the feature's budget for the whole month.",
                Query(f"sort_desc({ratio(_MONTH, _BUDGET)})", "{{gputrace_feature}}", instant=True),
                SHARE,
                steps=BUDGET_STEPS,
                bounds=(0, 1),
                width=8,
                nothing=_NO_BUDGET,
                links=feature_link(),
            ),
            lines(
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
            ),
            table(
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
            ),
            table(
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
            ),
        ),
    )


def _bill() -> Row:
    features = FLEET.total(recorded.FEATURE_COST)
    state = (catalogue.DEVICE_STATE,)
    fleet_time = Scope(("environment",))
    price = f"max by ({labels(*_HARDWARE, catalogue.HW_ID)}) ({FLEET.select(catalogue.DEVICE_PRICE)})"
    return Row(
        "The whole bill",
        (
            stat(
                "What devices cost ($currency)",
                "Every device that is read, for the whole range, whatever it did.",
                FLEET.total(recorded.FLEET_COST),
                MONEY,
                nothing=_NO_PRICE,
            ),
            stat(
                "Charged to features ($currency)",
                "The sum of all features, unnamed work included.",
                features,
                MONEY,
                nothing=NO_SPEND,
            ),
            stat(
                "Of that, named ($currency)",
                "What names its feature. The rest is tracked and unnamed.",
                FLEET.total(recorded.FEATURE_COST, match(catalogue.FEATURE, catalogue.NO_FEATURE, "!=")),
                MONEY,
                nothing=NO_SPEND,
            ),
            stat(
                "Ledger off by",
                "Time charged to features less time that several processes charged at once, against the "
                "time that the devices' own ledgers call charged. Above 5 %: see Telemetry health.",
                f"abs({fleet_time.total(recorded.FEATURE_TIME)} - "
                f"({fleet_time.total(recorded.FLEET_OVERLAP)} or vector(0)) - "
                f"{fleet_time.total(recorded.FLEET_TIME, CHARGED)}) "
                f"/ ({fleet_time.total(recorded.FLEET_TIME, CHARGED)} > 0)",
                SHARE,
                steps=BALANCE_STEPS,
                nothing="Nothing was charged",
            ),
            stat(
                "Fleet an hour ($currency)",
                "The prices in force of all devices that are read now.",
                f"sum ({price})",
                MONEY,
                nothing=_NO_PRICE,
            ),
            stat(
                "Nobody used ($currency)",
                "What idle devices cost over the range.",
                FLEET.total(recorded.FLEET_COST, IDLE),
                MONEY,
                nothing="Nothing was idle",
            ),
            lines(
                "What devices cost an hour, by state ($currency)",
                "The parts add up to the price of the fleet: charged, untracked, idle, unknown.",
                [Query(f"3600 * {FLEET.now(recorded.FLEET_COST, per=state)}", "{{gputrace_device_state}}")],
                MONEY,
                stacked=True,
                colours=STATE_COLOURS,
                nothing=_NO_PRICE,
            ),
            shares(
                "The bill by state ($currency)",
                "What the range cost, by what devices did. Untracked: somebody used them whom nobody tracks.",
                Query(
                    f"sort_desc({FLEET.total(recorded.FLEET_COST, per=state)})",
                    "{{gputrace_device_state}}",
                    instant=True,
                ),
                MONEY,
                colours=STATE_COLOURS,
                nothing=_NO_PRICE,
            ),
            ranking(
                "Idle a day ($currency)",
                "What idle devices of each kind cost a day, at the mean of the range.",
                Query(
                    f"sort_desc(24 * 3600 * avg by ({label(catalogue.HW_NAME)}) (avg_over_time("
                    f"(sum by ({label(catalogue.HW_NAME)}) ({FLEET.select(recorded.FLEET_COST, IDLE)}))"
                    f"[$__range:5m])))",
                    "{{hw_name}}",
                    instant=True,
                ),
                MONEY,
                nothing="Nothing was idle",
            ),
        ),
    )


def _showback() -> Row:
    hours = f"{SCOPE.total(recorded.FEATURE_TIME, per=_SHOWBACK)} / 3600"
    return Row(
        "Showback",
        (
            table(
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
            ),
            table(
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
            ),
        ),
    )


_SHOWBACK = ("job", catalogue.FEATURE, catalogue.MODEL, catalogue.HW_NAME)
_OFFER = (
    catalogue.HW_NAME,
    catalogue.PRICE_SKU,
    catalogue.PRICE_KIND,
    catalogue.PRICE_SOURCE,
    catalogue.PRICE_DATE,
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
        (_budgets(), _bill(), _showback()),
        start="now/M",
    )
