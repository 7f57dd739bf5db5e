"""What a simulation says of its cascades is what `gputrace payoff` makes of its files, and near the truth."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputrace import catalogue
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.payoff_watch import SERVICE_NAME, gauge_rows
from gputrace.simulate import watching
from gputrace.simulate.outputs import Outputs
from gputrace.simulate.running import simulate
from tests.simulate.conftest import SHORT, Played

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Key = tuple[tuple[str, str], ...]


def published(folder: Path) -> list[dict[Key, float]]:
    """The estimates that the watcher exported, one dictionary an export."""
    found = []
    for path in folder.glob("metrics-*.jsonl"):
        for line in path.read_text().splitlines():
            for resource in json.loads(line)["resourceMetrics"]:
                if named(resource["resource"]["attributes"])["service.name"] == SERVICE_NAME:
                    points = resource["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"]
                    found.append({key(named(one["attributes"])): one["asDouble"] for one in points})
    return found


def named(attributes: list[dict[str, dict[str, str]]]) -> dict[str, str]:
    return {str(one["key"]): next(iter(one["value"].values())) for one in attributes}


def key(attributes: Mapping[str, str]) -> Key:
    return tuple(sorted(attributes.items()))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Enough requests for bounds."""
    plan = replace(SHORT, requests=1_500, features=1, traced_requests=1, incidents=frozenset(), step_s=60)
    folder = tmp_path_factory.mktemp("many") / "data"
    return Played(plan, folder, simulate(plan, Outputs(folder)))


def test_in_the_end_it_is_what_gputrace_payoff_says(many: Played) -> None:
    rows = gauge_rows(payoff_report(many.folder, Asked()))
    assert published(many.folder)[-1] == {key(of): pytest.approx(value, rel=1e-9) for of, value in rows}


def test_it_begins_without_bounds_and_asks_for_audits(many: Played) -> None:
    def quantities(estimates: dict[Key, float], bound: str) -> dict[str, float]:
        rows = [(dict(of), value) for of, value in estimates.items()]
        return {
            of[catalogue.ESCALATION_QUANTITY]: value
            for of, value in rows
            if of[catalogue.ESCALATION_BOUND] == bound
        }

    first, *_, last = [one for one in published(many.folder) if one]
    assert quantities(first, "value")["audits_needed"] > 0
    assert "quality_delta" not in quantities(first, "low")
    assert quantities(last, "value")["audits_needed"] == 0
    low, high = quantities(last, "low"), quantities(last, "high")
    assert low["quality_delta"] < high["quality_delta"]
    decided = many.truth.decisions
    rate = sum(n for (_, decision), n in decided.items() if decision == "escalated") / decided.total()
    assert low["escalation_rate"] <= rate <= high["escalation_rate"]


def test_long_audits_are_waited_for(tmp_path: Path) -> None:
    """The fewer requests there are, the longer each computes: longer than a request waits in real time."""
    plan = replace(SHORT, requests=40, features=1, traced_requests=1, incidents=frozenset(), step_s=60)
    truth = simulate(plan, Outputs(tmp_path / "data"))
    (row,) = payoff_report(tmp_path / "data", Asked()).rows
    assert row.excluded == {}
    audited = sum(n for (_, decision), n in truth.decisions.items() if decision == "audited")
    assert row.estimates["audit_count"].value == audited > 0


def test_a_prometheus_is_sent_them_without_a_folder(tmp_path: Path) -> None:
    plan = replace(SHORT, requests=200, features=1, traced_requests=1)
    simulate(plan, Outputs(tmp_path / "data"))
    outputs = Outputs(remote_write="http://nowhere", events=tmp_path / "data")
    sent = b"".join(series for some in watching.watch(plan, outputs) for series in some)
    assert catalogue.ESCALATION_ESTIMATE.prometheus.encode() in sent
    assert b"gputrace_simulated" in sent


def test_without_a_cascade_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert list(watching.watch(SHORT, Outputs(tmp_path))) == []
