"""What one feature costs a piece and where that goes: for product managers and ML engineers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import feature_serving, recorded
from gputrace.grafana.board import Board, Row
from gputrace.grafana.feature_queries import COMPARABLE, NO_COMPARISON, NO_REQUESTS, NO_SPEND, SCOPE
from gputrace.grafana.panels import Query, lines, shares, stat
from gputrace.grafana.promql import match, named, ratio
from gputrace.grafana.sources import label
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    COUNT,
    HOURS,
    JOULES,
    MONEY,
    PER_SECOND,
    SHARE,
    SMALL_MONEY,
    STAGE_COLOURS,
    STATUS_COLOURS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel
    from gputrace.grafana.sources import Recorded

_SPEND = SCOPE.total(recorded.FEATURE_COST)
_SPEND_BEFORE = SCOPE.total(recorded.FEATURE_COST, before=True)
_REQUESTS = SCOPE.total(recorded.REQUESTS)
_REQUESTS_BEFORE = SCOPE.total(recorded.REQUESTS, before=True)
_FAILED = match(catalogue.STATUS, "ok", "!=")
_NO_OUTCOMES = "No outcomes: record them with gputrace.outcome()"
_NO_UNITS = "No units: add them with current().add_units()"
_PER_REQUEST = "requests that an integration or a cascade counts"


def _unit_economics() -> Row:
    return Row("What one costs", (*_cost(), _outcomes(), _units(), *_over_time(), _decomposition()))


def _cost() -> tuple[Panel, ...]:
    return (
        stat(
            "Spend ($currency)",
            "What the feature was charged for in the selected time.",
            _SPEND,
            MONEY,
            nothing=NO_SPEND,
            width=3,
        ),
        stat(
            "1 000 requests ($currency)",
            f"Spend over {_PER_REQUEST}, failed ones included: they cost too.",
            f"1000 * {ratio(_SPEND, _REQUESTS)}",
            SMALL_MONEY,
            nothing=NO_REQUESTS,
            width=4,
        ),
        stat(
            "Device hours",
            "Time that the feature kept devices from others, shared where several held one at once.",
            f"{SCOPE.total(recorded.FEATURE_TIME)} / 3600",
            HOURS,
            width=3,
        ),
        stat(
            "Failed requests",
            "Share of requests that did not end well. Each was paid for.",
            ratio(SCOPE.total(recorded.REQUESTS, _FAILED), _REQUESTS),
            SHARE,
            nothing="No failed requests",
            width=3,
        ),
    )


def _outcomes() -> Panel:
    return _pieces(
        "Outcomes ($currency)",
        "What one product event costs: one solved ticket, one accepted answer. The same spend "
        "stands above each kind of outcome, so these are never added.",
        ("Outcome", catalogue.OUTCOME_NAME, recorded.OUTCOMES),
        ("Cost of one", f"scalar({_SPEND})"),
        _NO_OUTCOMES,
    )


def _units() -> Panel:
    return _pieces(
        "Units of work ($currency)",
        "What a million units cost, such as tokens.",
        ("Unit", catalogue.UNIT_NAME, recorded.UNITS),
        ("A million", f"1000 * 1000 * scalar({_SPEND})"),
        _NO_UNITS,
    )


def _pieces(
    title: str,
    description: str,
    counted: tuple[str, str, Recorded],
    cost: tuple[str, str],
    nothing: str,
) -> Panel:
    heading, attribute, source = counted
    pieces = SCOPE.total(source, per=(attribute,))
    return table(
        title,
        description,
        (
            Column(heading, label=label(attribute), width=125),
            Column("Number", pieces, unit=WHOLE, width=90),
            Column(cost[0], ratio(cost[1], pieces), unit=SMALL_MONEY, width=95),
        ),
        sort="Number",
        width=6 if source is recorded.OUTCOMES else 5,
        height=4,
        nothing=nothing,
    )


def _over_time() -> tuple[Panel, ...]:
    hourly = SCOPE.now(recorded.FEATURE_COST_HOURLY)
    unit_cost = f"1000 * {ratio(hourly, SCOPE.now(recorded.REQUESTS_HOURLY))}"
    return (
        lines(
            "What 1 000 requests cost ($currency)",
            "Over the hour before each point. A step at a deploy mark is the deploy's doing.",
            [Query(unit_cost, "1 000 requests")],
            SMALL_MONEY,
            width=9,
            nothing=NO_REQUESTS,
        ),
        lines(
            "Requests a second",
            "How much the feature is used, by how requests end.",
            [Query(SCOPE.now(recorded.REQUESTS, per=(catalogue.STATUS,)), "{{gputrace_status}}")],
            PER_SECOND,
            width=9,
            stacked=True,
            colours=STATUS_COLOURS,
            nothing=NO_REQUESTS,
        ),
    )


def _decomposition() -> Panel:
    """Spend = requests × cost of one: what of the change is due to which."""
    cost_before = f"({ratio(_SPEND_BEFORE, _REQUESTS_BEFORE)})"
    cost_now = f"({ratio(_SPEND, _REQUESTS)})"
    more = f"({_REQUESTS} - {_REQUESTS_BEFORE}) * {cost_before}"
    dearer = f"{_REQUESTS} * ({cost_now} - {cost_before})"
    return stat(
        "Why spend changed ($currency)",
        "The change against the range before, in two parts that add up to it: more or fewer requests at the "
        "old cost of one, and all requests at what one became dearer or cheaper.",
        "",
        MONEY,
        parts=(
            Query(f"{more} {COMPARABLE}", "more requests", instant=True),
            Query(f"{dearer} {COMPARABLE}", "dearer requests", instant=True),
        ),
        nothing=NO_COMPARISON,
        width=6,
        height=9,
    )


def _where_it_goes() -> Row:
    return Row("Where it goes", (*_parts(), _busy_alone(), _energy(), _batches()))


def _parts() -> tuple[Panel, ...]:
    parts = (
        ("model", catalogue.MODEL, "{{gputrace_model}}"),
        ("operation", catalogue.OPERATION, "{{gputrace_operation}}"),
        ("stage", catalogue.STAGE, "{{gputrace_stage}}"),
        ("variant", catalogue.VARIANT, "{{gputrace_variant}}"),
    )
    return tuple(
        shares(
            f"Spend by {name} ($currency)",
            f"Which {name} the feature's money goes to. What names none is one part.",
            Query(
                f"sort_desc({named(_cost_by(attribute), attribute, 'none named')})",
                legend,
                instant=True,
            ),
            MONEY,
            colours=STAGE_COLOURS if attribute == catalogue.STAGE else None,
            nothing=NO_SPEND,
        )
        for name, attribute, legend in parts
    )


def _cost_by(attribute: str) -> str:
    return SCOPE.increase(catalogue.FEATURE_COST, per=(attribute,))


def _busy_alone() -> Panel:
    share = ratio(SCOPE.rate(catalogue.FEATURE_ALONE_BUSY_TIME), SCOPE.rate(catalogue.FEATURE_ALONE_TIME))
    enough = f"sum (increase({SCOPE.select(catalogue.FEATURE_ALONE_PERIODS)}[$__rate_interval])) >= 10"
    return lines(
        "Busy while it held a device alone",
        "How much of the time that the feature alone held a device the device computed. Low means "
        "that the feature pays for a device that waits: larger batches, a faster host side, "
        "sharing. Absent where fewer than ten sample periods tell of it.",
        [Query(f"({share}) and on () ({enough})", "busy share")],
        SHARE,
        width=8,
        bounds=(0, 1),
        nothing="Never alone on a device that is read",
    )


def _energy() -> Panel:
    energy = ratio(SCOPE.rate(catalogue.FEATURE_ENERGY), SCOPE.rate(catalogue.REQUESTS))
    return lines(
        "Energy of 1 000 requests",
        "The devices' measured energy, shared as their time is.",
        [Query(f"1000 * {energy}", "1 000 requests")],
        JOULES,
        width=8,
        nothing="No energy is read on these devices",
    )


def _batches() -> Panel:
    operation = (catalogue.OPERATION,)
    members = ratio(
        SCOPE.rate(catalogue.BATCH_MEMBERS, per=operation), SCOPE.rate(catalogue.CALLS, per=operation)
    )
    return lines(
        "Members of a batch",
        "How many requests share one batch, by operation. One means that batching does nothing.",
        [Query(members, "{{gputrace_operation}}")],
        COUNT,
        width=8,
        nothing="No batches",
    )


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-feature",
        "For product managers and ML engineers: what one request, outcome or unit of a feature costs, and "
        "why.",
        SCOPE,
        (_unit_economics(), _where_it_goes(), feature_serving.row()),
        start="now-24h",
    )
