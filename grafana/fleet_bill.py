"""The row of the budgets' board on the whole bill: what of it features are charged, and what nobody used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Row
from gputrace.grafana.feature_queries import NO_SPEND
from gputrace.grafana.fleet_queries import CHARGED, FLEET, IDLE
from gputrace.grafana.panels import Query, lines, ranking, shares, stat
from gputrace.grafana.promql import Scope, match
from gputrace.grafana.sources import label, labels
from gputrace.grafana.units import BALANCE_STEPS, MONEY, SHARE, STATE_COLOURS

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_HARDWARE = (catalogue.HW_TYPE, catalogue.HW_NAME)
_STATE = (catalogue.DEVICE_STATE,)
_NO_PRICE = "No priced devices"


def row() -> Row:
    """Return the row."""
    return Row("The whole bill", (*_charged(), _balance(), *_standing_costs(), *_by_state(), _idle_kinds()))


def _charged() -> tuple[Panel, ...]:
    return (
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
            FLEET.total(recorded.FEATURE_COST),
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
    )


def _balance() -> Panel:
    fleet = Scope(("environment",))
    charged = fleet.total(recorded.FLEET_TIME, CHARGED)
    overlap = f"({fleet.total(recorded.FLEET_OVERLAP)} or vector(0))"
    return stat(
        "Ledger off by",
        "Time charged to features less time that several processes charged at once, against the "
        "time that the devices' own ledgers call charged. Above 5 %: see Telemetry health.",
        f"abs({fleet.total(recorded.FEATURE_TIME)} - {overlap} - {charged}) / ({charged} > 0)",
        SHARE,
        steps=BALANCE_STEPS,
        nothing="Nothing was charged",
    )


def _standing_costs() -> tuple[Panel, ...]:
    price = f"max by ({labels(*_HARDWARE, catalogue.HW_ID)}) ({FLEET.select(catalogue.DEVICE_PRICE)})"
    return (
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
    )


def _by_state() -> tuple[Panel, ...]:
    return (
        lines(
            "What devices cost an hour, by state ($currency)",
            "The parts add up to the price of the fleet: charged, untracked, idle, unknown.",
            [Query(f"3600 * {FLEET.now(recorded.FLEET_COST, per=_STATE)}", "{{gputrace_device_state}}")],
            MONEY,
            stacked=True,
            colours=STATE_COLOURS,
            nothing=_NO_PRICE,
        ),
        shares(
            "The bill by state ($currency)",
            "What the range cost, by what devices did. Untracked: somebody used them whom nobody tracks.",
            Query(
                f"sort_desc({FLEET.total(recorded.FLEET_COST, per=_STATE)})",
                "{{gputrace_device_state}}",
                instant=True,
            ),
            MONEY,
            colours=STATE_COLOURS,
            nothing=_NO_PRICE,
        ),
    )


def _idle_kinds() -> Panel:
    return ranking(
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
    )
