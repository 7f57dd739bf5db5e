"""What a simulation says of its cascades is what `gputrace payoff` makes of its files, and near the truth."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputrace import catalogue
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.payoff_watch import SERVICE_NAME, gauge_rows
from gputrace.simulate import watching
from gputrace.simulate.demand import draw
from gputrace.simulate.outputs import Outputs
from gputrace.simulate.running import simulate
from tests.simulate.conftest import SHORT, Played

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Key = tuple[tuple[str, str], ...]
QUANTITY, BOUND = catalogue.ESCALATION_QUANTITY, catalogue.ESCALATION_BOUND


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


def test_bounds_hold_what_was_drawn(many: Played) -> None:
    """Of savings and quality: the truth is that of all requests, of which an audit sees one in ten."""
    ladder_cost, heavy_cost, lost, number = 0.0, 0.0, 0, 0
    for one in draw(many.plan, 0).asked:
        ladder = one.feature.kind.ladder
        assert ladder is not None
        escalated = one.confidence < ladder.threshold
        ladder_cost += one.size * (ladder.light.cost + ladder.heavy.cost * escalated)
        heavy_cost += one.size * ladder.heavy.cost
        lost += 0 if escalated else one.heavy_right - one.light_right
        number += 1
    truth = {"savings_frac": 1 - ladder_cost / heavy_cost, "quality_delta": -lost / number}
    last = {(dict(of)[QUANTITY], dict(of)[BOUND]): value for of, value in published(many.folder)[-1].items()}
    for quantity, value in truth.items():
        assert last[quantity, "low"] <= value <= last[quantity, "high"]
        # Were they as wide as anything can be, they would hold it too.
        assert last[quantity, "high"] - last[quantity, "low"] < abs(last[quantity, "value"]) * 4


def test_one_publisher_speaks_for_all_processes(tmp_path: Path) -> None:
    plan = replace(SHORT, requests=200, features=1, processes=2, traced_requests=1, step_s=60)
    folder = tmp_path / "data"
    simulate(plan, Outputs(folder))
    rows = gauge_rows(payoff_report(folder, Asked()))
    assert published(folder)[-1] == {key(of): pytest.approx(value, rel=1e-9) for of, value in rows}
    services: dict[str, set[str]] = {}
    for path in folder.glob("metrics-*.jsonl"):
        for line in path.read_text().splitlines():
            for resource in json.loads(line)["resourceMetrics"]:
                of = named(resource["resource"]["attributes"])
                services.setdefault(of["service.name"], set()).add(of["service.instance.id"])
    watcher = services.pop(SERVICE_NAME)
    (processes,) = services.values()
    assert (len(watcher), len(processes)) == (1, 2)
    assert not watcher & processes


def test_without_numpy_it_says_so_once(
    many: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [one for one in sys.modules if one.startswith("gputrace.analysis.payoff")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert list(watching.watch(many.plan, Outputs(many.folder))) == []
    (said,) = caplog.messages
    assert "leaves out gputrace.escalation.estimate, which needs numpy" in said


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
