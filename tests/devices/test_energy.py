"""Energy from counters that lie and from power that is seen rarely; its split, exact to the microjoule."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from gputrace.devices.energy import (
    CounterEnergy,
    EnergySplit,
    EnergyTrack,
    IdlePower,
    PowerEnergy,
    apportion,
    split_energy,
)

S = 1_000_000_000
J = 1_000_000  # in µJ
W300 = 300_000  # in mW


def counted(*readings: tuple[float, int], limit_mw: int | None = 700_000) -> CounterEnergy:
    """Readings as (s, J)."""
    energy = CounterEnergy()
    for at_s, joules in readings:
        energy.add(round(at_s * S), joules * 1_000, limit_mw)
    return energy


def test_the_counter_tells_what_was_drawn() -> None:
    energy = counted((0, 5_000), (1, 5_300), (2, 5_400))
    assert energy.track.take(0, S) == (300 * J, None)
    assert energy.track.take(S, 2 * S) == (100 * J, None)


def test_a_period_between_readings_gets_its_part() -> None:
    energy = counted((0, 0), (1, 300), (2, 400))
    assert energy.track.take(S // 2, S + S // 2) == (200 * J, None)


@pytest.mark.parametrize("start", [-1, 0])
def test_a_period_that_is_covered_in_part_has_no_energy(start: int) -> None:
    assert counted((0, 0), (1, 300)).track.take(start, S + 1 + start) == (None, None)


def test_nothing_is_known_before_two_readings() -> None:
    assert counted().track.take(0, S) == (None, None)
    assert counted((0, 300)).track.take(0, S) == (None, None)


def test_xpumanager_130_a_counter_that_goes_backwards_is_missing_not_terawatts() -> None:
    """compute-runtime#938: the unsigned difference was 3.69 TW."""
    energy = counted((0, 5_000), (1, 5_300), (2, 100), (3, 400))
    assert energy.track.take(0, S) == (300 * J, None)
    assert energy.track.take(S, 2 * S) == (None, "reset")
    assert energy.track.take(2 * S, 3 * S) == (300 * J, None)


def test_amdsmi_38_a_frozen_counter_is_missing_not_zero() -> None:
    """And what it jumps by when it thaws is nobody's (amdsmi#115)."""
    energy = counted((0, 0), (1, 300), (2, 300), (3, 300), (4, 900), (5, 1_200))
    taken = [energy.track.take(second * S, (second + 1) * S) for second in range(5)]
    assert taken == [(300 * J, None), *[(None, "frozen")] * 3, (300 * J, None)]


def test_rocm_smi_lib_180_a_jump_beyond_what_the_device_can_draw_is_missing() -> None:
    energy = counted((0, 0), (1, 300), (2, 50_000), (3, 50_300))
    taken = [energy.track.take(second * S, (second + 1) * S) for second in range(3)]
    assert taken == [(300 * J, None), (None, "implausible"), (300 * J, None)]


def test_a_jump_is_judged_without_a_known_limit_too() -> None:
    assert counted((0, 0), (1, 10**9), limit_mw=None).track.take(0, S) == (None, "implausible")
    assert counted((0, 0), (1, 2_000), limit_mw=None).track.take(0, S) == (2_000 * J, None)


def test_a_counter_not_renewed_yet_has_not_frozen() -> None:
    energy = counted((0, 0), (0.1, 0), (0.2, 60), (0.2, 70))
    assert energy.track.take(0, S // 5) == (60 * J, None)


def test_after_a_gap_the_counter_begins_anew() -> None:
    energy = counted((0, 0), (1, 300))
    energy.forget()
    energy.add(5 * S, 900_000)
    energy.add(6 * S, 1_200_000)
    assert energy.track.take(0, 5 * S) == (None, None)
    assert energy.track.take(5 * S, 6 * S) == (300 * J, None)


def test_300_w_for_8_s_are_2400_j_even_if_seen_once() -> None:
    energy = PowerEnergy()
    energy.hold(0)
    energy.add(0, W300)
    energy.hold(8 * S)
    assert energy.track.take(0, 8 * S) == (2_400 * J, None)


def test_each_reading_of_the_power_holds_until_the_next() -> None:
    energy = PowerEnergy()
    for at_s, milliwatts in ((0, 100_000), (3, 200_000), (4, 0)):
        energy.add(at_s * S, milliwatts)
    assert energy.track.take(0, 4 * S) == (500 * J, None)


def test_pai_889_a_power_that_is_stale_stands_for_nothing() -> None:
    energy = PowerEnergy(longest_hold_ns=3 * S)
    energy.add(0, W300)
    energy.hold(2 * S)
    energy.hold(10 * S)
    assert energy.track.take(0, 3 * S) == (900 * J, None)
    assert energy.track.take(3 * S, 4 * S) == (None, None)
    energy.forget()
    energy.hold(20 * S)
    assert energy.track.take(19 * S, 20 * S) == (None, None)


@given(
    st.lists(st.tuples(st.integers(1, 10**10), st.integers(1, 10**13)), min_size=1, max_size=20), st.data()
)
def test_adjacent_periods_sum_to_the_whole(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    whole, parts = EnergyTrack(), EnergyTrack()
    end = 0
    for length, drawn in steps:
        for track in (whole, parts):
            track.add(end, end + length, drawn)
        end += length
    cuts = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=10))})
    taken = [parts.take(start, stop)[0] for start, stop in itertools.pairwise(cuts)]
    assert None not in taken
    assert sum(taken) == whole.take(0, end)[0] == sum(drawn for _, drawn in steps) // 1_000_000


@given(st.lists(st.tuples(st.integers(1, 5 * S), st.integers(0, 2**64 - 1)), max_size=30))
def test_whatever_a_counter_shows_no_period_draws_what_is_impossible(readings: list[tuple[int, int]]) -> None:
    energy, at = CounterEnergy(), 0
    for step, value in readings:
        energy.add(at + step, value, 700_000)
        drawn, _ = energy.track.take(at, at + step)
        at += step
        assert drawn is None or 0 < drawn <= 1.4 * (step + S // 4)


def test_idle_power_is_the_median_of_idle_periods() -> None:
    idle = IdlePower()
    assert idle.uj_per_ns is None
    assert not idle.add(S, 1, 0, 70 * J)
    assert not idle.add(S, 0, 1, 70 * J)
    assert not idle.add(S, 0, None, 70 * J)
    assert not idle.add(S, 0, 0, None)
    assert idle.uj_per_ns is None
    for joules in (70, 71, 500):
        assert idle.add(S, 0, 0, joules * J)
    assert idle.uj_per_ns == Fraction(71 * J, S)


@given(st.integers(0, 10**12), st.dictionaries(st.text(max_size=3), st.integers(0, 10**20), min_size=1))
def test_parts_sum_exactly_and_differ_from_their_share_by_less_than_one(
    total: int, weights: dict[str, int]
) -> None:
    parts = apportion(total, weights)
    assert sum(parts.values()) == total
    whole = sum(weights.values())
    assert all(abs(parts[key] * whole - total * weight) < whole for key, weight in weights.items() if whole)


def test_nobody_gets_nothing() -> None:
    assert apportion(5, {}) == {}
    assert apportion(5, {"a": 0, "b": 0}) == {"a": 3, "b": 2}


IDLE_70_W = Fraction(70 * J, S)


def split(
    joules: int, *, held: float = 0, untracked: float = 0, idle: float = 0, **others: object
) -> EnergySplit:
    return split_energy(
        joules * J,
        {"a": 3, "b": 1},
        held_ns=round(held * S),
        untracked_ns=round(untracked * S),
        idle_ns=round(idle * S),
        **others,
    )


def test_idle_time_bears_idle_power_and_the_rest_goes_to_what_ran() -> None:
    """70 W idle, 700 W busy: 0.5 s charged, 0.2 s untracked, 0.3 s idle."""
    parts = split(511, held=0.5, untracked=0.2, idle=0.3, idle_uj_per_ns=IDLE_70_W)
    assert parts == EnergySplit({"a": 262_500_000, "b": 87_500_000}, 140 * J, 21 * J, 0, estimated=False)


def test_until_idle_power_is_seen_the_split_is_by_time_and_estimated() -> None:
    parts = split(100, held=0.5, untracked=0.2, idle=0.3)
    assert parts == EnergySplit({"a": 37_500_000, "b": 12_500_000}, 20 * J, 30 * J, 0, estimated=True)


def test_a_device_that_draws_less_than_its_idle_power_is_split_by_time() -> None:
    parts = split(50, held=0.5, idle=0.5, idle_uj_per_ns=IDLE_70_W)
    assert (sum(parts.charged_uj.values()), parts.idle_uj) == (25 * J, 25 * J)


def test_what_is_drawn_beyond_idle_power_while_nothing_ran_is_idle() -> None:
    assert split(90, idle=1, idle_uj_per_ns=IDLE_70_W).idle_uj == 90 * J


def test_unread_time_keeps_its_energy() -> None:
    parts = split(100, held=0.5, unknown_ns=S // 2)
    assert (parts.unknown_uj, sum(parts.charged_uj.values())) == (50 * J, 50 * J)


def test_held_time_that_was_charged_to_nobody_is_unknown() -> None:
    parts = split_energy(100 * J, {"a": 0}, held_ns=S, untracked_ns=0, idle_ns=0)
    assert (parts.unknown_uj, parts.charged_uj) == (100 * J, {"a": 0})


def test_a_period_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="0 ns"):
        split(1)


@given(
    energy=st.integers(0, 10**10),
    charged=st.dictionaries(st.integers(0, 20), st.integers(0, 2**80), max_size=8),
    times=st.tuples(*[st.integers(0, S)] * 4).filter(any),
    idle_power=st.none() | st.fractions(0, 2),
)
def test_the_parts_sum_to_the_measurement(
    energy: int, charged: dict[int, int], times: tuple[int, ...], idle_power: Fraction | None
) -> None:
    held, untracked, idle, unknown = times
    parts = split_energy(
        energy,
        charged,
        held_ns=held,
        untracked_ns=untracked,
        idle_ns=idle,
        unknown_ns=unknown,
        idle_uj_per_ns=idle_power,
    )
    every = [*parts.charged_uj.values(), parts.untracked_uj, parts.idle_uj, parts.unknown_uj]
    assert sum(every) == energy
    assert min(every) >= 0
    assert set(parts.charged_uj) == set(charged)
    if not idle and not idle_power:
        assert parts.idle_uj == 0
