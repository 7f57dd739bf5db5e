from __future__ import annotations

from typing import Any

import pytest

from gputrace.demo.comparison import Check, compare
from gputrace.demo.truth import Phase, Slice, Truth

TRUTH = Truth(
    on_gpu=False,
    phases=(
        Phase("load", (Slice(10.0, 8.0, 5.0, 0.0),)),
        Phase("untracked run", (Slice(4.0, 4.0, 0.0, 4.0),)),
    ),
    features={"preview": 1.0, "audit": 4.0},
)


def report(**totals: float) -> dict[str, Any]:
    return {
        "rows": [
            {"feature": "preview", "charged_s": 1.0},
            {"feature": "audit", "charged_s": 3.0},
            {"feature": "audit", "charged_s": 1.1},
            {"feature": "__none__", "charged_s": 0.5},
        ],
        "totals": {"wall_s": 14.0, "untracked_s": 7.0, "idle_s": 2.0, "unknown_s": 0.0, **totals},
    }


def disagreeing(**totals: float) -> list[str]:
    return [check.name for check in compare(TRUTH, report(**totals)) if not check.agrees]


def test_rows_of_a_feature_are_added_up() -> None:
    audit = next(check for check in compare(TRUTH, report()) if check.name == "audit")
    assert audit.report_s == pytest.approx(4.1)
    assert audit.difference == pytest.approx(0.025)


def test_each_quantity_has_its_tolerance() -> None:
    assert disagreeing() == []
    assert disagreeing(wall_s=14.02) == ["wall"]
    assert disagreeing(untracked_s=0.0) == ["untracked"]
    assert disagreeing(idle_s=2.2) == ["idle"]


def test_unknown_agrees_with_nothing() -> None:
    check = Check("idle", 1.0, None)
    assert check.difference is None
    assert not check.agrees
    assert check.verdict == "not read"


def test_time_that_nothing_read_is_no_measurement() -> None:
    checks = compare(TRUTH, report(untracked_s=0.0, idle_s=0.0, unknown_s=8.9))
    assert {check.name: check.verdict for check in checks} == {
        "wall": "agrees",
        "preview": "agrees",
        "audit": "agrees",
        "untracked": "not read",
        "idle": "not read",
    }


def test_nothing_agrees_with_nothing_spent() -> None:
    assert Check("preview", 0.0, 0.0).agrees
    assert not Check("preview", 0.0, 0.1).agrees
