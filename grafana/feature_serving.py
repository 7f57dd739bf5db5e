"""The row of a feature's board on how it serves: how long calls take, how they end, and what routes cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Row
from gputrace.grafana.feature_queries import SCOPE
from gputrace.grafana.panels import Query, lines
from gputrace.grafana.promql import ratio
from gputrace.grafana.strips import heatmap
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    COUNT,
    MONEY,
    PER_SECOND,
    QUANTILE_COLOURS,
    SECONDS,
    SMALL_MONEY,
    STATUS_COLOURS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.catalogue import Metric
    from gputrace.grafana.panels import Panel

_QUANTILES = {0.5: "p50", 0.95: "p95", 0.99: "p99"}


def row() -> Row:
    """Return the row."""
    return Row("How it serves", (*_durations(), *_calls(), _routes()))


def _durations() -> tuple[Panel, ...]:
    return (
        lines(
            "Duration of a call",
            "Wall time of tracked calls. Diamonds are single calls: they lead to their traces.",
            _quantiles(catalogue.CALL_DURATION),
            SECONDS,
            width=8,
            colours=QUANTILE_COLOURS,
            nothing="No calls",
        ),
        lines(
            "Device time of a call",
            "What a call was charged. Where duration grows and this does not, calls wait for a device.",
            _quantiles(catalogue.CALL_DEVICE_TIME_HISTOGRAM),
            SECONDS,
            width=8,
            colours=QUANTILE_COLOURS,
            nothing="No call held a device",
        ),
    )


def _quantiles(metric: Metric) -> list[Query]:
    return [
        Query(SCOPE.quantile(share, metric), name, exemplars=name == "p99")
        for share, name in _QUANTILES.items()
    ]


def _calls() -> tuple[Panel, ...]:
    duration = SCOPE.select(catalogue.CALL_DURATION, suffix="_bucket")
    buckets = f"sum by (le) (rate({duration}[$__rate_interval]))"
    status = (catalogue.STATUS,)
    return (
        heatmap(
            "Calls by duration",
            "How many calls a second took how long. Two bands are two kinds of calls in one feature.",
            Query(buckets, "{{le}}", heatmap=True),
            SECONDS,
            width=8,
            nothing="No calls",
        ),
        lines(
            "Calls a second by status",
            "Tracked calls, by how they ended. A failed or cancelled call is charged like any other.",
            [Query(SCOPE.now(recorded.CALLS, per=status), "{{gputrace_status}}")],
            PER_SECOND,
            width=8,
            stacked=True,
            colours=STATUS_COLOURS,
            nothing="No calls",
        ),
    )


def _routes() -> Panel:
    per = (catalogue.HTTP_ROUTE,)
    cost = SCOPE.increase(catalogue.REQUEST_COST, per=per)
    requests = SCOPE.increase(catalogue.REQUESTS, per=per)
    columns = (
        Column("Route", label="http_route"),
        Column("Cost inside requests", f"topk(20, {cost})", unit=MONEY, bar=True),
        Column("Requests", requests, unit=WHOLE),
        Column("Cost of 1 000", f"1000 * {ratio(cost, requests)}", unit=SMALL_MONEY),
        Column(
            "Time of one",
            ratio(SCOPE.increase(catalogue.REQUEST_TIME, per=per), requests),
            unit=SECONDS,
        ),
        Column(
            "Calls of one",
            ratio(SCOPE.increase(catalogue.REQUEST_CALLS, per=per), requests),
            unit=COUNT,
        ),
    )
    return table(
        "Routes ($currency)",
        "Which routes of the service spend it: what was charged inside their requests, their shares of "
        "batches included. Work outside requests is not in it.",
        columns,
        sort="Cost inside requests",
        width=16,
        nothing="No requests: instrument the service with gputrace.instrument()",
    )
