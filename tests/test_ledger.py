"""The rules of charging, case by case, on the offline face of the ledger."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from gputrace.ledger import Id, Interval, charge

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 1_000_000


def in_ms(rows: Sequence[tuple[str, str, int, int, str | None]]) -> dict[Id, float]:
    """Charge rows of (call, root, start ms, end ms, parent) on one device, in ms by call."""
    charged = charge([Interval(c, r, "gpu", s * MS, e * MS, p) for c, r, s, e, p in rows])
    return {call: ns / MS for call, ns in charged.calls.items()}


# The worked cases.


def test_two_owners_at_once_are_charged_half_each() -> None:
    assert in_ms([("a", "a", 0, 100, None), ("b", "b", 0, 100, None)]) == {"a": 50, "b": 50}


def test_only_the_overlap_is_shared() -> None:
    assert in_ms([("a", "a", 0, 100, None), ("b", "b", 60, 160, None)]) == {"a": 80, "b": 80}


def test_the_overlap_is_shared_by_weight() -> None:
    charged = charge(
        [
            Interval("a", "a", "gpu", 0, 100 * MS, weight=3),
            Interval("b", "b", "gpu", 60 * MS, 160 * MS, weight=1),
        ]
    )
    assert charged.roots == {"a": 90 * MS, "b": 70 * MS}


def test_an_owner_on_two_streams_counts_once() -> None:
    assert in_ms([("a", "a", 0, 100, None), ("a", "a", 20, 80, None)]) == {"a": 100}


def test_an_owner_on_two_streams_counts_once_against_another() -> None:
    rows = [("a", "a", 0, 100, None), ("a", "a", 0, 100, None), ("b", "b", 0, 100, None)]
    assert in_ms(rows) == {"a": 50, "b": 50}


def test_two_calls_of_one_owner_count_once_against_another() -> None:
    rows = [("a1", "a", 0, 100, None), ("a2", "a", 0, 100, None), ("b", "b", 0, 100, None)]
    assert in_ms(rows) == {"a1": 25, "a2": 25, "b": 50}


def test_the_inner_call_is_charged_while_it_holds() -> None:
    rows = [("outer", "outer", 0, 100, None), ("inner", "outer", 20, 60, "outer")]
    assert in_ms(rows) == {"outer": 60, "inner": 40}


def test_children_that_overlap_are_charged_equally() -> None:
    rows = [
        ("outer", "outer", 0, 100, None),
        ("first", "outer", 20, 60, "outer"),
        ("second", "outer", 50, 120, "outer"),
    ]
    assert in_ms(rows) == {"outer": 20, "first": 35, "second": 65}


def test_a_call_on_two_devices_is_charged_on_each() -> None:
    charged = charge([Interval("a", "a", 0, 0, 100 * MS), Interval("a", "a", 1, 0, 100 * MS)])
    assert charged.shares == {("a", 0): 100 * MS, ("a", 1): 100 * MS}
    assert charged.calls == charged.roots == {"a": 200 * MS}
    assert charged.devices == {0: 100 * MS, 1: 100 * MS}


def test_three_equal_owners_over_100_ns_get_34_33_33() -> None:
    rows = [Interval(name, name, "gpu", 0, 100) for name in "cab"]
    assert charge(rows).roots == {"a": 34, "b": 33, "c": 33}


def test_the_published_shapley_example() -> None:
    rows = [("a", "a", 0, 100, None), ("b", "b", 60, 160, None), ("c", "c", 90, 200, None)]
    charged = charge([Interval(c, r, "gpu", s, e, p) for c, r, s, e, p in rows], exact=True)
    assert charged.roots == {"a": Fraction(235, 3), "b": Fraction(145, 3), "c": Fraction(220, 3)}


# Nesting.


def test_a_grandchild_silences_its_grandparent_while_the_parent_holds_nothing() -> None:
    rows = [("g", "g", 0, 100, None), ("p", "g", 0, 10, "g"), ("c", "g", 20, 60, "p")]
    assert in_ms(rows) == {"g": 50, "p": 10, "c": 40}


def test_the_chain_also_comes_from_empty_rows() -> None:
    rows = [("g", "g", 0, 100, None), ("p", "g", 0, 0, "g"), ("c", "g", 20, 60, "p")]
    assert in_ms(rows) == {"g": 60, "p": 0, "c": 40}


def test_the_chain_also_comes_from_rows_of_other_devices() -> None:
    charged = charge(
        [
            Interval("g", "g", "gpu", 0, 100),
            Interval("p", "g", "other", 0, 5, "g"),
            Interval("c", "g", "gpu", 20, 60, "p"),
        ]
    )
    assert charged.shares == {("g", "gpu"): 60, ("p", "other"): 5, ("c", "gpu"): 40}


def test_the_chain_ends_at_a_parent_without_any_row() -> None:
    rows = [("g", "g", 0, 100, None), ("c", "g", 20, 60, "nowhere")]
    assert in_ms(rows) == {"g": 80, "c": 20}


def test_a_call_on_another_device_silences_nobody() -> None:
    rows = [Interval("outer", "outer", 0, 0, 100), Interval("inner", "outer", 1, 20, 60, "outer")]
    charged = charge(rows)
    assert charged.shares == {("outer", 0): 100, ("inner", 1): 40}


def test_a_silenced_call_is_given_with_0() -> None:
    rows = [("outer", "outer", 20, 60, None), ("inner", "outer", 0, 100, "outer")]
    assert in_ms(rows) == {"outer": 0, "inner": 100}


def test_a_call_is_silent_until_the_last_of_its_children_stops() -> None:
    rows = [
        ("outer", "outer", 0, 100, None),
        ("long", "outer", 20, 60, "outer"),
        ("short", "outer", 30, 40, "outer"),
        ("again", "outer", 30, 40, "outer"),
    ]
    assert in_ms(rows) == pytest.approx({"outer": 60, "long": 30 + 10 / 3, "short": 10 / 3, "again": 10 / 3})


def test_nesting_splits_what_sharing_left() -> None:
    rows = [
        ("outer", "outer", 0, 100, None),
        ("inner", "outer", 20, 60, "outer"),
        ("other", "other", 0, 100, None),
    ]
    assert in_ms(rows) == {"outer": 30, "inner": 20, "other": 50}


def test_a_chain_of_many_calls_is_no_recursion() -> None:
    depth = 5_000
    rows = [Interval(i, 0, "gpu", i, 2 * depth, i - 1 if i else None) for i in range(depth)]
    charged = charge(rows)
    assert charged.calls[0] == charged.calls[depth // 2] == 1
    assert charged.calls[depth - 1] == depth + 1


# Intervals.


def test_intervals_are_half_open() -> None:
    rows = [("a", "a", 0, 50, None), ("b", "b", 50, 100, None)]
    assert in_ms(rows) == {"a": 50, "b": 50}


def test_overlapping_intervals_of_one_call_are_united() -> None:
    rows = [("a", "a", 0, 60, None), ("a", "a", 40, 100, None), ("a", "a", 200, 250, None)]
    assert in_ms(rows) == {"a": 150}


def test_an_empty_interval_charges_0_and_shares_nothing() -> None:
    charged = charge(
        [Interval("a", "a", 0, 0, 100), Interval("b", "b", 0, 50, 50), Interval("b", "b", 1, 7, 7)]
    )
    assert charged.shares == {("a", 0): 100, ("b", 0): 0, ("b", 1): 0}
    assert charged.roots == {"a": 100, "b": 0}
    assert charged.devices == {0: 100, 1: 0}


def test_nothing_charges_nothing() -> None:
    charged = charge([])
    assert (charged.shares, charged.calls, charged.roots, charged.devices) == ({}, {}, {}, {})


def test_times_may_lie_before_the_origin_of_the_clock() -> None:
    assert charge([Interval("a", "a", 0, -100, -40), Interval("b", "b", 0, -50, 0)]).calls == {
        "a": 55,
        "b": 45,
    }


def test_any_iterable_is_taken() -> None:
    assert charge(Interval(i, i, "gpu", 0, 10) for i in range(2)).calls == {0: 5, 1: 5}


# Rounding.


def test_ties_go_to_the_earlier_first_start() -> None:
    # Both owe x.5 ns; z started first, though the tie could be broken by name.
    charged = charge([Interval("z", "z", 0, 0, 11), Interval("a", "a", 0, 2, 13)])
    assert charged.roots == {"z": 7, "a": 6}


def test_an_empty_interval_is_no_first_start() -> None:
    rows = [Interval("z", "z", 0, 1, 11), Interval("a", "a", 0, 2, 11), Interval("a", "a", 0, 0, 0)]
    assert charge(rows).roots == {"z": 6, "a": 4}


def test_ties_go_to_the_smaller_id() -> None:
    assert charge([Interval(i, i, 0, 0, 5) for i in (10, 9)]).roots == {9: 3, 10: 2}
    assert charge([Interval(i, i, 0, 0, 5) for i in ("b", "a")]).roots == {"a": 3, "b": 2}


def test_ints_come_before_strings() -> None:
    assert charge([Interval(i, i, 0, 0, 5) for i in ("1", 2)]).roots == {2: 3, "1": 2}


def test_the_largest_remainder_comes_before_the_first_start() -> None:
    # 2 owners share 10 ns by 1 : 2, so 3.33 and 6.67.
    charged = charge([Interval("a", "a", 0, 0, 10, weight=1), Interval("b", "b", 0, 0, 10, weight=2)])
    assert charged.roots == {"a": 3, "b": 7}


def test_rounding_is_done_among_roots_before_calls() -> None:
    # Roots 2.5 and 2.5: the first takes 3. Its calls of 1.25 each get 2 and 1; among calls alone,
    # the call of the other root (remainder 0.5) would have come first.
    rows = [Interval("a1", "a", 0, 0, 5), Interval("a2", "a", 0, 0, 5), Interval("b1", "b", 0, 0, 5)]
    assert charge(rows).shares == {("a1", 0): 2, ("a2", 0): 1, ("b1", 0): 2}


def test_rounding_is_done_per_device() -> None:
    rows = [Interval(name, name, device, 0, 1) for name in "ab" for device in (0, 1)]
    assert charge(rows).shares == {("a", 0): 1, ("b", 0): 0, ("a", 1): 1, ("b", 1): 0}


def test_exact_shares_are_fractions_of_a_nanosecond() -> None:
    charged = charge([Interval(name, name, "gpu", 0, 100) for name in "abc"], exact=True)
    assert charged.roots == dict.fromkeys("abc", Fraction(100, 3))
    assert charged.devices == {"gpu": 100}


# What is refused.


def test_a_reversed_interval_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"call 'embed' on device 'gpu' ends at 9 ns, before its start at 10 ns"
    ):
        charge([Interval("embed", "embed", "gpu", 10, 9)])


def test_times_that_are_no_int_are_refused() -> None:
    with pytest.raises(TypeError, match=r"call 'a' on device 'gpu' holds from 0 to 1\.5"):
        charge([Interval("a", "a", "gpu", 0, 1.5)])  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [0, -1, 1.0, None])
def test_a_weight_that_is_no_positive_int_is_refused(weight: object) -> None:
    with pytest.raises(ValueError, match=rf"call 'a' has the weight {weight}; give an int >= 1"):
        charge([Interval("a", "a", "gpu", 0, 1, weight=weight)])  # type: ignore[arg-type]


def test_weights_of_a_root_that_disagree_on_a_device_are_refused() -> None:
    rows = [Interval("a", "r", "gpu", 0, 1, weight=2), Interval("b", "r", "gpu", 5, 5, weight=3)]
    with pytest.raises(ValueError, match=r"call 'b' gives root 'r' the weight 3 on device 'gpu'"):
        charge(rows)


def test_a_root_may_have_another_weight_on_another_device() -> None:
    rows = [
        Interval("a", "a", 0, 0, 12, weight=3),
        Interval("a", "a", 1, 0, 12, weight=1),
        *(Interval("b", "b", device, 0, 12) for device in (0, 1)),
    ]
    assert charge(rows).shares == {("a", 0): 9, ("b", 0): 3, ("a", 1): 6, ("b", 1): 6}


def test_a_cycle_of_parents_is_refused() -> None:
    rows = [
        Interval("a", "a", 0, 0, 1, "c"),
        Interval("b", "a", 0, 0, 1, "a"),
        Interval("c", "a", 0, 0, 0, "b"),
    ]
    with pytest.raises(ValueError, match=r"call '[abc]' is its own ancestor"):
        charge(rows)


def test_a_call_that_is_its_own_parent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call 'a' is its own ancestor"):
        charge([Interval("a", "a", 0, 0, 1, "a")])


def test_a_call_with_two_roots_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call 'a' has the root 's', but elsewhere it has 'r'"):
        charge([Interval("a", "r", 0, 0, 1), Interval("a", "s", 1, 0, 1)])


def test_a_call_with_two_parents_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call 'a' has the parents 'p' and None"):
        charge([Interval("a", "r", 0, 0, 1, "p"), Interval("a", "r", 0, 2, 3)])


def test_a_parent_of_another_root_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call 'a' has the root 'r', but its parent 'p' has 's'"):
        charge([Interval("a", "r", 0, 0, 1, "p"), Interval("p", "s", 0, 0, 1)])
