"""The spend overview in a real Prometheus, fed with what the SDK exported: its numbers are the SDK's."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from gputrace import catalogue
from gputrace.grafana import spend_overview
from tests.grafana import remote_write
from tests.grafana.recording import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM = """
import time
import gputrace

gputrace.configure(
    service_name="shop", data_dir="data", export_interval=0.1, prices="prices.toml", budgets="budgets.toml"
)

def work(feature, seconds):
    with gputrace.span("work", feature=feature, model="m"):
        time.sleep(seconds)

until = time.monotonic() + 10
while time.monotonic() < until:
    work("search", 0.03)
    work("chat", 0.06)
    work(None, 0.01)
    gputrace.outcome("solved", feature="chat")
    time.sleep(0.02)
"""
PRICES = """
[[price]]
name = "*"
type = "cpu"
per_hour = 3600.0
currency = "USD"
kind = "on_demand"
source = "a test"
as_of = 2026-09-01
"""
BUDGETS = '[[budget]]\nfeature = "chat"\ncurrency = "USD"\nper_month = 100\n'
# A tenth of a second of the program, one export, is a quarter of a minute of Prometheus' history.
STRETCH = 150
RANGE_S = 3600
VALUES = {
    "$__range": f"{RANGE_S}s",
    "$__rate_interval": "1m",
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


@pytest.fixture
def exported(run_python: Any, read_files: Any, tmp_path: Path) -> Any:
    """What a program of ten seconds exported."""
    (tmp_path / "prices.toml").write_text(PRICES)
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    run_python(PROGRAM)
    return read_files(tmp_path / "data")


@pytest.fixture
def board(exported: Any, start_prometheus: Callable[..., Any]) -> Board:
    """Asked when everything is over."""
    prometheus = start_prometheus(history=True)
    names = {
        metric.name: metric for metric in catalogue.METRICS if metric.kind is not catalogue.Kind.HISTOGRAM
    }
    first_ns = min(at_ns for name in names for points in exported.timed(name).values() for at_ns, _ in points)
    end_s = int(time.time()) // 300 * 300
    series: remote_write.Series = {}
    last_ms = 0
    for name, metric in names.items():
        for attributes, points in exported.timed(name).items():
            labels = {
                "__name__": metric.prometheus,
                "job": "shop",
                "instance": "one",
                **{key.replace(".", "_"): value for key, value in attributes},
            }
            moments = [
                ((end_s - RANGE_S + 600) * 1000 + (at_ns - first_ns) * STRETCH // 1_000_000, value)
                for at_ns, value in points
            ]
            last_ms = max(last_ms, moments[-1][0])
            series[frozenset(labels.items())] = moments
    assert last_ms < (end_s - 600) * 1000, "the program ran for longer than the range"
    remote_write.write(prometheus.url, series)
    record(prometheus, end_s - RANGE_S, end_s)
    return Board(prometheus, end_s + 0.5)


@pytest.mark.requires("prometheus")
def test_the_overview_shows_what_the_sdk_counted(exported: Any, board: Board) -> None:
    for title, panel in board.panels.items():
        for number, _ in enumerate(panel["targets"]):
            board.ask(title, number)

    by_feature = {
        feature: exported.total("gputrace.feature.cost", feature=feature)
        for feature in ("search", "chat", "__none__")
    }
    assert all(cost > 0.3 for cost in by_feature.values())
    close = {feature: pytest.approx(cost, rel=0.04) for feature, cost in by_feature.items()}
    spend = sum(by_feature.values())
    assert board.number("Spend in range ($currency)") == pytest.approx(spend, rel=0.02)
    assert board.column("Every feature ($currency)", "Spend") == close
    shown = {labels["gputrace_feature"]: value for labels, value in board.ask("Share of spend ($currency)")}
    assert shown == close
    hours = board.column("Every feature ($currency)", "Device hours")
    seconds = {feature: value * 3600 for feature, value in hours.items()}
    # At a price of one a second.
    assert seconds == close

    costs = {state: exported.total("gputrace.device.cost", state=state) for state in catalogue.DEVICE_STATES}
    idle = costs["idle"] / sum(costs.values())
    assert board.number("Idle share of the bill") == pytest.approx(idle, rel=0.05)
    used = costs["charged"] + costs["untracked"]
    named = (by_feature["search"] + by_feature["chat"]) / used
    assert board.number("Spend with a feature") == pytest.approx(named, rel=0.05)
    # Nothing of it before: then there is nothing to compare with.
    assert board.ask("Against the range before") == []
