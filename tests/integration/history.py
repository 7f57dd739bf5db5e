"""A simulation whose history is in a Prometheus, with the files and the truth to compare it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputrace.analysis.reporting import spend_report
from gputrace.simulate.outputs import Outputs
from gputrace.simulate.plan import INCIDENTS, Plan
from gputrace.simulate.running import simulate
from tests.grafana.recording import record

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.simulate.truth import Truth
    from tests.integration.conftest import MetricServer

#: Long past: whatever the server knows of the present must not matter. A whole hour.
START_S = 1_767_225_600
#: The rules look five minutes back: by then everything is over.
AFTER_S = 3_600


@dataclass(frozen=True)
class History:
    """What was played.

    Attributes:
        plan: What was asked for.
        folder: Its files.
        report: What `gputrace report` says of them.
        truth: What was launched.
        server: Where its history is, recorded by the rules as well.
        range_s: From when to when it lasts, Unix time, until all of it is over.
    """

    plan: Plan
    folder: Path
    report: dict[str, Any]
    truth: Truth
    server: MetricServer
    range_s: tuple[int, int]

    def cost_by_feature(self) -> dict[str, float]:
        """What the report charges each feature; what is shared by several is charged to them."""
        return {row["feature"]: row["cost"] for row in self.report["rows"] if row["cost"]}


def play(server: MetricServer, folder: Path, span_s: int, **asked: Any) -> History:
    """Play a simulation into a Prometheus that takes history, and into files.

    Args:
        server: The Prometheus.
        folder: Where the files go.
        span_s: How long it lasts, s.
        asked: More of the plan.
    """
    # Prices change within a window of a rule: its share of money is not its share of time.
    plan = Plan(START_S * 10**9, span_s=span_s, incidents=frozenset(INCIDENTS) - {"price"}, **asked)
    truth = simulate(plan, Outputs(folder, remote_write=server.url))
    range_s = START_S, START_S + span_s + AFTER_S
    record(server, *range_s)
    report = spend_report(folder, ("feature",), None, percentiles=False).to_json()
    return History(plan, folder, report, truth, server, range_s)
