"""The simulation's own reckoning, against sums that can be done by hand."""

from __future__ import annotations

import pytest

from gputrace.simulate.fleet import united_ns
from gputrace.simulate.truth import Launched, Truth

S = 1_000_000_000


def launched(start_s: int, end_s: int, feature: str, stage: str | None = None) -> Launched:
    return Launched(start_s * S, end_s * S, ((feature, 1),), stage)


def test_who_computes_together_shares() -> None:
    truth = Truth()
    truth.charge(
        [launched(0, 10, "a"), launched(6, 12, "b", "heavy"), launched(20, 21, "a")], lambda _: 3_600.0
    )
    assert truth.feature_s == pytest.approx({"a": 6 + 2 + 1, "b": 2 + 2})
    assert truth.feature_cost == pytest.approx(truth.feature_s)
    assert truth.stage_s == pytest.approx({"heavy": 4})


def test_a_price_that_changes_meanwhile() -> None:
    truth = Truth()
    truth.charge([launched(0, 10, "a")], lambda at_ns: 3_600.0 if at_ns < 4 * S else 7_200.0, (4 * S,))
    assert truth.feature_cost == pytest.approx({"a": 4 + 12})


def test_members_of_a_batch_share_by_weight() -> None:
    truth = Truth()
    truth.charge([Launched(0, 8 * S, (("a", 3), ("b", 1)), None)], lambda _: 0.0)
    assert truth.feature_s == pytest.approx({"a": 6, "b": 2})


def test_processes_are_added_up() -> None:
    one, other = Truth(), Truth()
    one.spend("x", {"idle": 2 * S}, 1_800.0)
    other.spend("y", {"idle": S, "charged": S}, 1_800.0)
    one.add(other)
    assert one.state_s() == {"charged": 1, "untracked": 0, "idle": 3, "unknown": 0}
    assert one.state_cost == pytest.approx({"idle": 1.5, "charged": 0.5})


def test_united() -> None:
    work = [launched(0, 4, "a"), launched(2, 6, "a"), launched(8, 20, "a")]
    assert united_ns(work, 1 * S, 10 * S) == (5 + 2) * S
