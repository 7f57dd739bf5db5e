"""The layout of --json: other tools read it, so a change here is a change for them."""

from __future__ import annotations

import json

import pytest

from gputrace import catalogue

ROW = [
    "feature",
    "calls",
    "errors",
    "cancelled",
    "charged_s",
    "share",
    "cost",
    "currency",
    "cost_per_1000_calls",
    "wall_p50_s",
    "wall_p95_s",
    "device_p50_s",
    "device_p95_s",
    "busy_share",
    "busy_periods",
    "energy_j",
    "energy_by_source",
    "energy_estimated_share",
]
TIMES = [
    "charged_s",
    "overlap_s",
    "untracked_s",
    "untracked_upper_s",
    "idle_s",
    "unknown_s",
    "wall_s",
    "overlap_corrected_s",
]


@pytest.fixture
def layout(program, report):
    def made(**arguments):
        one = program()
        one.device(charged=3.0, untracked=1.0, idle=5.5, unknown=0.5)
        one.call(2.0, wall=2.5, feature="a", model="m")
        one.call(1.0, status="error", feature="b")
        family = {catalogue.FEATURE: "a", catalogue.MODEL: "m"}
        one.add(catalogue.FEATURE_COST, 0.02, {**family, catalogue.CURRENCY: "EUR"})
        one.export()
        found = report(**arguments).to_json()
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        return found

    return made


def test_the_object(layout):
    found = layout()
    assert list(found) == [
        "window",
        "simulated",
        "rows",
        "devices",
        "totals",
        "outcomes",
        "units",
        "model_servers",
        "balanced",
        "imbalance_s",
        "energy_balanced",
        "energy_imbalance_j",
        "skipped_lines",
        "sampled_share",
        "notes",
    ]
    assert list(found["window"]) == ["start", "end", "seconds"]
    assert found["window"]["start"].endswith("Z")
    assert found["window"]["seconds"] == pytest.approx(10.0, abs=0.001)
    assert (found["balanced"], found["imbalance_s"]) == (True, 0.0)
    assert (found["skipped_lines"], found["sampled_share"]) == (0, 1.0)
    assert all(isinstance(note, str) for note in found["notes"])


def test_rows(layout):
    first, second = layout()["rows"]
    assert list(first) == ROW
    assert first | {"feature": "a"} == {
        "feature": "a",
        "calls": 1,
        "errors": 0,
        "cancelled": 0,
        "charged_s": 2.0,
        "share": 0.2,
        "cost": 0.02,
        "currency": "EUR",
        "cost_per_1000_calls": 20.0,
        "wall_p50_s": 2.5,
        "wall_p95_s": 2.5,
        "device_p50_s": 2.0,
        "device_p95_s": 2.0,
        "busy_share": None,
        "busy_periods": None,
        "energy_j": None,
        "energy_by_source": None,
        "energy_estimated_share": None,
    }
    assert (second["feature"], second["errors"], second["cost"], second["currency"]) == ("b", 1, None, None)


def test_fields_of_by_follow_the_feature(layout):
    (row, _) = layout(by=("model", "feature"))["rows"]
    assert list(row) == [ROW[0], "model", *ROW[1:]]
    assert row["model"] == "m"


def test_the_feature_is_null_where_rows_are_not_grouped_by_it(layout):
    rows = layout(by=("model",))["rows"]
    assert [row["feature"] for row in rows] == [None, None]
    assert [row["model"] for row in rows] == ["m", None]


def test_devices(layout):
    (device,) = layout()["devices"]
    assert device == {
        "id": "GPU-1",
        "name": "H100",
        "type": "gpu",
        "parent": None,
        "wall_s": 10.0,
        "charged_s": 3.0,
        "untracked_s": 1.0,
        "untracked_upper_s": 1.0,
        "idle_s": 5.5,
        "unknown_s": 0.5,
        "overlap_s": 0.0,
        "cost": None,
        "energy_j": None,
        "energy_by_source": None,
        "energy_estimated_share": None,
    }


def test_a_slice_names_the_gpu_that_it_is_part_of(program, report, lines):
    one = program()
    one.device({**lines.gpu, catalogue.HW_ID: "MIG-1", catalogue.HW_PARENT: "GPU-1"}, idle=1.0)
    one.export()
    assert [(device["id"], device["parent"]) for device in report().to_json()["devices"]] == [
        ("MIG-1", "GPU-1")
    ]


def test_totals(layout):
    totals = layout()["totals"]
    assert list(totals) == [
        "calls",
        "errors",
        "cancelled",
        *TIMES,
        "cost",
        "currency",
        "device_cost",
        "untracked_cost",
        "idle_cost",
        "unknown_cost",
        "energy_j",
        "device_energy_j",
        "device_energy_by_source",
        "device_energy_estimated_share",
        "untracked_energy_j",
        "idle_energy_j",
        "unknown_energy_j",
        "by_type",
        "idle_policy",
        "idle_spread_cost",
        "capacity_s",
        "uncovered_s",
        "uncovered_cost",
    ]
    assert totals["idle_policy"] == "separate"
    assert [totals[name] for name in TIMES] == [3.0, 0.0, 1.0, 1.0, 5.5, 0.5, 10.0, 0.0]
    assert list(totals["by_type"]) == ["gpu"]
    assert list(totals["by_type"]["gpu"]) == TIMES


def test_with_two_types_the_sums_of_seconds_are_null(program, report):
    one = program()
    one.device(charged=1.0)
    one.device({catalogue.HW_ID: "host/i1", catalogue.HW_TYPE: "cpu"}, charged=2.0)
    one.call(1.0, feature="a")
    one.call(2.0, feature="a", hw="cpu")
    one.export()
    found = report().to_json()
    assert [found["totals"][name] for name in TIMES] == [None] * len(TIMES)
    assert {kind: times["wall_s"] for kind, times in found["totals"]["by_type"].items()} == {
        "cpu": 2.0,
        "gpu": 1.0,
    }
    assert [(row["hw_type"], row["charged_s"]) for row in found["rows"]] == [("cpu", 2.0), ("gpu", 1.0)]


def test_costs_of_devices(program, report):
    one = program()
    one.device(charged=1.0)
    bill = {catalogue.HW_ID: "GPU-1", catalogue.PUBLISHER: "p1", catalogue.CURRENCY: "EUR"}
    one.add(catalogue.DEVICE_COST, 1.0, bill | {catalogue.DEVICE_STATE: "charged"})
    one.add(catalogue.DEVICE_COST, 3.0, bill | {catalogue.DEVICE_STATE: "idle"})
    one.export()
    found = report().to_json()
    assert found["devices"][0]["cost"] == 4.0
    assert (found["totals"]["device_cost"], found["totals"]["idle_cost"]) == (4.0, 3.0)
    assert (found["totals"]["untracked_cost"], found["totals"]["cost"]) == (None, None)
