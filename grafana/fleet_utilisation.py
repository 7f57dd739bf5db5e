"""Whether the devices are busy, who shares them and what idles: for SREs and FinOps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import fleet_devices, recorded
from gputrace.grafana.board import Board, Row, feature_link
from gputrace.grafana.fleet_queries import CHARGED, IDLE, READ, SCOPE, UNKNOWN, UNREAD, UNTRACKED, USED
from gputrace.grafana.panels import Query, lines, ranking, shares, stat
from gputrace.grafana.promql import ratio
from gputrace.grafana.sources import labels
from gputrace.grafana.strips import timeline
from gputrace.grafana.units import (
    BUSY_STEPS,
    COUNT,
    GREEN,
    GREY,
    HOURS,
    IDLE_STEPS,
    MONEY,
    ORANGE,
    SHARE,
    STATE_COLOURS,
    WATTS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_DEVICE = (catalogue.HW_ID,)
_STATE = (catalogue.DEVICE_STATE,)

_TOTAL = SCOPE.total(recorded.FLEET_TIME)


def _share(matcher: str) -> str:
    return ratio(SCOPE.total(recorded.FLEET_TIME, matcher), _TOTAL)


def _whole() -> Row:
    return Row("The fleet", (*_use(), _funnel(), _by_state(), *_untracked(), _unread(), _power_now()))


def _use() -> tuple[Panel, ...]:
    return (
        stat(
            "Devices",
            "How many devices of this type are published now, slices counted one by one.",
            f"count (count by ({labels(*_DEVICE)}) ({SCOPE.select(catalogue.DEVICE_TIME)}))",
            WHOLE,
            nothing=UNREAD,
            width=3,
        ),
        stat(
            "Used",
            "Share of all time that devices were charged to features or used by somebody untracked.",
            _share(USED),
            SHARE,
            steps=BUSY_STEPS,
            nothing=UNREAD,
            width=3,
        ),
        stat(
            "Idle",
            "Share of all time that devices were read, and neither charged nor busy.",
            _share(IDLE),
            SHARE,
            steps=IDLE_STEPS,
            nothing="Nothing was idle",
            width=3,
        ),
        stat(
            "Idle ($currency)",
            "What the idle time of the range cost.",
            SCOPE.total(recorded.FLEET_COST, IDLE),
            MONEY,
            nothing="No priced devices",
            width=3,
        ),
    )


def _funnel() -> Panel:
    steps = (
        ("there", ""),
        ("read", READ),
        ("used", USED),
        ("charged to features", CHARGED),
    )
    funnel = [
        Query(
            f"{SCOPE.total(recorded.FLEET_TIME, *([matcher] if matcher else []))} / 3600", name, instant=True
        )
        for name, matcher in steps
    ]
    return ranking(
        "Where device hours go",
        "From all hours that devices were there to those charged to features. The largest step down "
        "is where to look first: unread, idle, or untracked.",
        funnel[0],
        HOURS,
        more=tuple(funnel[1:]),
        height=8,
        width=6,
        nothing=UNREAD,
    )


def _by_state() -> Panel:
    return shares(
        "Device time by state",
        "All time of all devices in the range, by what it went to.",
        Query(
            f"sort_desc({SCOPE.total(recorded.FLEET_TIME, per=_STATE)} / 3600)",
            "{{gputrace_device_state}}",
            instant=True,
        ),
        HOURS,
        height=8,
        colours=STATE_COLOURS,
        nothing=UNREAD,
    )


def _untracked() -> tuple[Panel, ...]:
    return (
        stat(
            "Untracked ≥",
            "Share of all time that devices were busy beyond what tracked calls held. A lower bound: a "
            "tracked call can hold a device that somebody else computes on.",
            _share(UNTRACKED),
            SHARE,
            nothing="Nothing was untracked",
            width=3,
        ),
        stat(
            "Untracked ≤",
            "As if tracked calls had computed nothing whenever others could have.",
            ratio(
                SCOPE.increase(catalogue.DEVICE_UNTRACKED_UPPER_TIME),
                SCOPE.increase(catalogue.DEVICE_TIME),
            ),
            SHARE,
            nothing="No device is read here",
            width=3,
        ),
    )


def _unread() -> Panel:
    return stat(
        "Not read",
        "Share of all time for which there is no reading. Never counted as idle.",
        _share(UNKNOWN),
        SHARE,
        nothing="Everything was read",
        width=3,
    )


def _power_now() -> Panel:
    return stat(
        "Power now",
        "What the devices of this type draw together, as their driver says.",
        f"sum (max by ({labels(*_DEVICE)}) ({SCOPE.select(catalogue.HW_POWER)}))",
        WATTS,
        nothing="No power is read",
        width=3,
    )


def _over_time() -> Row:
    return Row("Over time", (*_states(), _sharers(), _power()))


def _states() -> tuple[Panel, ...]:
    used = f"sum by ({labels(*_DEVICE)}) ({SCOPE.select(recorded.DEVICE_TIME, USED)})"
    unread = f"sum by ({labels(*_DEVICE)}) ({SCOPE.select(recorded.DEVICE_TIME, UNKNOWN)})"
    return (
        lines(
            "Devices by state",
            "How many devices' worth of time goes to each state. Idle nights are where work that can "
            "wait belongs.",
            [Query(SCOPE.now(recorded.FLEET_TIME, per=_STATE), "{{gputrace_device_state}}")],
            COUNT,
            stacked=True,
            colours=STATE_COLOURS,
            nothing=UNREAD,
        ),
        timeline(
            "Each device",
            "Used means for more than 5 % of five minutes. Not read means that for most of them nobody "
            "read the device: its agent is down, or it has fallen off the bus.",
            Query(f"({used} > bool 0.05) + 2 * ({unread} > bool 0.5)", "{{hw_id}}"),
            {
                0: ("idle", STATE_COLOURS["idle"]),
                1: ("used", GREEN),
                2: ("not read", GREY),
                3: ("partly read", ORANGE),
            },
            nothing=UNREAD,
        ),
    )


def _sharers() -> Panel:
    return lines(
        "Who shares the devices",
        "How many devices' worth of time each feature is charged for. Where the sum touches the "
        "number of devices, features wait for each other.",
        [Query(SCOPE.now(recorded.FEATURE_TIME, per=(catalogue.FEATURE,)), "{{gputrace_feature}}")],
        COUNT,
        stacked=True,
        nothing="Nothing was charged",
        links=feature_link(),
    )


def _power() -> Panel:
    energy = SCOPE.rate(catalogue.DEVICE_ENERGY, per=_STATE)
    return lines(
        "Power by state",
        "Measured energy of the devices, by what they did. Idle devices draw power too.",
        [Query(energy, "{{gputrace_device_state}}")],
        WATTS,
        stacked=True,
        colours=STATE_COLOURS,
        nothing="No energy is read",
    )


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-fleet",
        "For SREs and FinOps: are the devices busy, who shares them, what idles, and what does that cost.",
        SCOPE,
        (_whole(), _over_time(), fleet_devices.row()),
        start="now-24h",
    )
