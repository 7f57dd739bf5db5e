"""Untracked, idle, unknown and busy share, period by period."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gputrace.devices.readings import BusyShare, Reading, Split, split_time

S = 1_000_000_000
times = st.integers(0, 2 * S)


@pytest.mark.parametrize(
    ("held", "busy", "expected"),
    [
        pytest.param(0, 0, Split(0, 0, S, 0, 0), id="nothing"),
        pytest.param(400, 400, Split(400, 0, S - 400, 0, 400), id="all of it tracked, or all beside it"),
        pytest.param(0, 300, Split(0, 300, S - 300, 0, 300), id="nobody tracked"),
        pytest.param(S, 300, Split(S, 0, 0, 0, 0), id="held throughout"),
        pytest.param(S - 100, S, Split(S - 100, 100, 0, 0, 100), id="busy throughout"),
        pytest.param(700, None, Split(700, 0, 0, S - 700, 0), id="not read is unknown, never idle"),
        pytest.param(2 * S, 2 * S, Split(S, 0, 0, 0, 0), id="more than there is"),
    ],
)
def test_split(held: int, busy: int | None, expected: Split) -> None:
    assert split_time(S, held, busy) == expected


@given(wall=times, held=times, busy=st.none() | times)
def test_the_parts_sum_to_the_wall_time_and_the_bounds_are_in_order(
    wall: int, held: int, busy: int | None
) -> None:
    parts = split_time(wall, held, busy)
    assert parts.charged_ns + parts.untracked_ns + parts.idle_ns + parts.unknown_ns == wall
    assert 0 <= parts.untracked_ns <= parts.untracked_upper_ns <= wall - parts.charged_ns
    assert min(parts.charged_ns, parts.idle_ns, parts.unknown_ns) >= 0


def test_the_bounds_are_both_shown_where_they_differ_by_more_than_one_percent() -> None:
    assert split_time(S, S // 2, S // 2).bounds_differ
    assert not split_time(S, 0, S // 2).bounds_differ
    assert not split_time(S, 1_000, S // 2).bounds_differ


def test_nvidia_docker_807_utilisation_is_no_share_of_the_gpu() -> None:
    """99 % busy while MPS grants one percent of the SMs: what a call held is charged, however busy it was."""
    for percent in (0, 1, 50, 99, 100):
        assert split_time(S, S // 100, S * percent // 100).charged_ns == S // 100
        assert split_time(S, S, S * percent // 100).charged_ns == S
    assert split_time(S, S // 100, None).charged_ns == S // 100


def test_the_busy_share_needs_ten_periods_in_which_the_feature_held_alone() -> None:
    share = BusyShare()
    for _ in range(9):
        assert share.add(S, S // 4, S)
    assert share.share is None
    assert not share.add(S, S, S * 94 // 100)
    assert not share.add(S, None, S)
    assert not share.add(0, 0, 0)
    assert share.share is None
    assert share.add(S, S // 4, S * 95 // 100)
    assert (share.periods, share.share) == (10, 0.25)


@given(st.lists(st.tuples(st.integers(1, S), times), min_size=10))
def test_the_busy_share_is_a_share(periods: list[tuple[int, int]]) -> None:
    share = BusyShare()
    for wall, busy in periods:
        share.add(wall, busy, wall)
    assert share.share is not None
    assert 0 <= share.share <= 1


def test_a_reading_tells_joules() -> None:
    assert Reading("GPU-0", 0, S, energy_uj=1_500_000).energy_j == 1.5
    assert Reading("GPU-0", 0, S).energy_j is None
    assert Reading("GPU-0", 5, S + 5).wall_ns == S
