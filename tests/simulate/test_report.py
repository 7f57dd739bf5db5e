"""The files of a simulation, read as those of a program are, say what the simulation did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gputrace import catalogue
from gputrace.analysis.reporting import spend_report
from gputrace.cli import main
from gputrace.simulate.truth import STATES
from tests.simulate.conftest import served_as_one

if TYPE_CHECKING:
    from tests.simulate.conftest import Played

MOST_APART = 1e-6
#: The settler looks so long after the end; a device that nobody reads is unknown until then.
LOOK_S = 0.01


@pytest.fixture(scope="module")
def report(played: Played) -> dict[str, Any]:
    found: dict[str, Any] = spend_report(played.folder, ("feature",), None, percentiles=True).to_json()
    return found


def rows(report: dict[str, Any], value: str) -> dict[str, float]:
    return {row["feature"]: row[value] for row in report["rows"]}


def test_spend_by_feature_is_what_was_launched(played: Played, report: dict[str, Any]) -> None:
    assert len(played.truth.feature_s) == played.plan.features
    charged_s, launched_s = rows(report, "charged_s"), played.truth.feature_s
    assert served_as_one(charged_s) == pytest.approx(served_as_one(launched_s), rel=MOST_APART)
    # Where the price changes, marks that are told a tenth of a millisecond early cost the old one.
    costs, whole = rows(report, "cost"), sum(played.truth.feature_cost.values())
    truth = served_as_one(played.truth.feature_cost)
    assert served_as_one(costs) == pytest.approx(truth, abs=MOST_APART * whole)


def test_idle_and_unknown_time_are_what_was_left(played: Played, report: dict[str, Any]) -> None:
    wall_s = played.plan.gpus * played.plan.span_s
    truth = played.truth.state_s()
    assert sum(truth.values()) == pytest.approx(wall_s, abs=1e-6)
    assert truth["unknown"] > 0
    assert truth["untracked"] > 0
    for state in STATES:
        least = LOOK_S if state == "unknown" else MOST_APART * wall_s
        assert report["totals"][f"{state}_s"] == pytest.approx(truth[state], rel=MOST_APART, abs=least)
    assert report["totals"]["idle_cost"] == pytest.approx(played.truth.state_cost["idle"], rel=MOST_APART)


def test_the_books_balance(report: dict[str, Any]) -> None:
    assert report["balanced"]
    assert report["energy_balanced"]
    assert report["skipped_lines"] == 0
    assert not [note for note in report["notes"] if "sum to" in note or "between two publishers" in note]


def test_outcomes_are_what_users_said(played: Played, report: dict[str, Any]) -> None:
    counted = {one["name"]: one["count"] for one in report["outcomes"]}
    assert counted == played.truth.outcomes
    assert sum(counted.values()) > 20


def test_energy_is_what_the_devices_drew(played: Played, report: dict[str, Any]) -> None:
    drawn_j = sum(played.truth.energy_j.values())
    assert report["totals"]["device_energy_j"] == pytest.approx(drawn_j, rel=MOST_APART)


def test_percentiles_are_of_the_simulated_time(played: Played, report: dict[str, Any]) -> None:
    """Requests wait for a GPU: their calls last about as long as they compute, and not zero."""
    # Steps that several features share are nobody's request.
    timed = [row for row in report["rows"] if row["feature"] != catalogue.SHARED]
    assert len(timed) == played.plan.features
    for row in timed:
        assert row["wall_p50_s"] >= 0.9 * row["device_p50_s"] > 0


def test_every_line_says_that_it_is_simulated(played: Played) -> None:
    files = sorted(played.folder.glob("*.jsonl"))
    assert {file.name.partition("-")[0] for file in files} == {"spans", "metrics", "logs"}
    for file in files:
        for line in file.read_text().splitlines():
            (kind,) = json.loads(line).values()
            for resource in kind:
                marks = {one["key"]: one["value"] for one in resource["resource"]["attributes"]}
                assert marks[catalogue.SIMULATED] == {"boolValue": True}


def test_decisions_are_told_one_by_one(played: Played) -> None:
    """What `gputrace payoff` reads."""
    told: dict[str, int] = {}
    scored = 0
    for file in played.folder.glob("logs-*.jsonl"):
        for line in file.read_text().splitlines():
            for resource in json.loads(line)["resourceLogs"]:
                for scope in resource["scopeLogs"]:
                    for record in scope["logRecords"]:
                        told[record["eventName"]] = told.get(record["eventName"], 0) + 1
                        scored += record["eventName"] == catalogue.SCORE_EVENT
                        at_ns = int(record["timeUnixNano"])
                        assert played.plan.start_ns <= at_ns <= played.plan.end_ns + 10_000_000
    assert told[catalogue.DECISION_EVENT] >= sum(played.truth.decisions.values()) > 50
    assert scored > 30


def test_a_folder_that_holds_files_is_refused(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--data", str(played.folder)]) == 2
    assert "holds files already" in capsys.readouterr().err
