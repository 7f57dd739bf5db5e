"""The spend overview in a real Prometheus, fed with what the SDK exported: its numbers are the report's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gputrace import catalogue
from gputrace.grafana import spend_overview

if TYPE_CHECKING:
    from tests.integration.history import History

# Of two hours; it ends when everything is over.
RANGE_S = 3 * 3600
VALUES = {
    "$__range": f"{RANGE_S}s",
    "$__rate_interval": "4m",
    "$currency": "USD",
    "$environment": ".*",
    "$job": ".*",
    "$feature": ".*",
}


def asked(expr: str) -> str:
    for name, value in VALUES.items():
        expr = expr.replace(name, value)
    return expr


class Board:
    """The overview, asked in a Prometheus at a moment."""

    def __init__(self, prometheus: Any, at_s: float) -> None:
        self._prometheus = prometheus
        self._at_s = at_s
        board = json.loads(spend_overview.board().to_json())
        self.panels = {panel["title"]: panel for panel in board["panels"] if panel["type"] != "row"}

    def ask(self, title: str, number: int = 0) -> list[tuple[dict[str, str], float]]:
        """Labels and values that a query of a panel ends with."""
        target = self.panels[title]["targets"][number]
        if target["instant"]:
            return self._prometheus.query(asked(target["expr"]), time=f"{self._at_s:.3f}")
        answer = self._prometheus.get(
            "/api/v1/query_range",
            query=asked(target["expr"]),
            start=f"{self._at_s - RANGE_S:.0f}",
            end=f"{self._at_s:.0f}",
            step="60",
        )
        assert answer["status"] == "success"
        return [(row["metric"], float(row["values"][-1][1])) for row in answer["data"]["result"]]

    def number(self, title: str) -> float:
        [(_, value)] = self.ask(title)
        return value

    def column(self, title: str, name: str) -> dict[str, float]:
        """A column of a table, by feature."""
        panel = self.panels[title]
        renamed = panel["transformations"][1]["options"]["renameByName"]
        reference = next(key for key, value in renamed.items() if value == name)[-1]
        rows = self.ask(title, ord(reference) - ord("A"))
        return {labels["gputrace_feature"]: value for labels, value in rows}


@pytest.fixture(scope="module")
def board(history: History) -> Board:
    return Board(history.server, history.range_s[1] + 0.5)


@pytest.mark.requires("prometheus")
def test_the_overview_shows_what_the_report_says(history: History, board: Board) -> None:
    said = history.report
    for title, panel in board.panels.items():
        for number, _ in enumerate(panel["targets"]):
            board.ask(title, number)

    # Steps that served several features are counted apart, and charged to these.
    rows = [row for row in said["rows"] if row["feature"] != catalogue.SHARED]
    costs = {row["feature"]: row["cost"] for row in rows}
    seconds = {row["feature"]: row["charged_s"] for row in rows}
    assert len(costs) > 3
    assert board.number("Spend in range ($currency)") == pytest.approx(sum(costs.values()), rel=0.01)
    ledger = "Every feature ($currency)"
    # Windows of five minutes over exports of one: what one feature does seldom is known less well.
    close = {feature: pytest.approx(cost, rel=0.05, abs=0.01) for feature, cost in costs.items()}
    assert board.column(ledger, "Spend") == close
    shown = {labels["gputrace_feature"]: value for labels, value in board.ask("Share of spend ($currency)")}
    assert shown == close
    hours = board.column(ledger, "Device hours")
    assert sum(hours.values()) * 3600 == pytest.approx(sum(seconds.values()), rel=0.01)

    states = {state: said["totals"][f"{state}_s"] for state in catalogue.DEVICE_STATES}
    idle = states["idle"] / sum(states.values())
    # One price for all devices: shares of money are shares of time.
    assert board.number("Idle share of the bill") == pytest.approx(idle, rel=0.02)
    used = states["charged"] + states["untracked"]
    named = sum(value for feature, value in seconds.items() if feature != catalogue.NO_FEATURE) / used
    assert board.number("Spend with a feature") == pytest.approx(named, rel=0.02)
    # Nothing of it before: then there is nothing to compare with.
    assert board.ask("Against the range before") == []
