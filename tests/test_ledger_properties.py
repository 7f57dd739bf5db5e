"""What holds for every set of intervals, against a slow and obvious implementation."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import event, example, given, settings, strategies as st

from gputrace.ledger import Id, Interval, charge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

Rows = list[Interval]
Shares = dict[tuple[Id, Id], Fraction]

END = 30
DEVICES: tuple[Id, ...] = (0, "gpu")


# A slow and obvious implementation.


def points(rows: Iterable[Interval]) -> set[int]:
    return {ns for row in rows for ns in range(row.start_ns, row.end_ns)}


def ancestors(rows: Rows) -> dict[Id, set[Id]]:
    parents = {row.call: row.parent for row in rows}
    above: dict[Id, set[Id]] = {}
    for call, parent in parents.items():
        above[call] = set()
        while parent is not None:
            above[call].add(parent)
            parent = parents.get(parent)  # noqa: PLW2901
    return above


def shares_by_brute_force(rows: Rows) -> Shares:
    """Divide each elementary interval among those that hold it, by enumeration."""
    above = ancestors(rows)
    shares = {(row.call, row.device): Fraction(0) for row in rows}
    for device in {row.device for row in rows}:
        on_device = [row for row in rows if row.device == device]
        cuts = sorted({row.start_ns for row in on_device} | {row.end_ns for row in on_device})
        for start, end in pairwise(cuts):
            holding = [row for row in on_device if row.start_ns <= start and end <= row.end_ns]
            weights = {row.root: row.weight for row in holding}
            for root, weight in weights.items():
                calls = {row.call for row in holding if row.root == root}
                innermost = [call for call in calls if not any(call in above[other] for other in calls)]
                for call in innermost:
                    share = Fraction((end - start) * weight, sum(weights.values()) * len(innermost))
                    shares[call, device] += share
    return shares


def largest_remainder(exact: dict[Id, Fraction], total: int, first: dict[Id, int]) -> dict[Id, int]:
    whole = {name: int(share) for name, share in exact.items()}
    order = sorted(
        exact, key=lambda name: (whole[name] - exact[name], first[name], isinstance(name, str), name)
    )
    for name in order[: total - sum(whole.values())]:
        whole[name] += 1
    return whole


def rounded_by_brute_force(rows: Rows) -> dict[tuple[Id, Id], int]:
    exact = shares_by_brute_force(rows)
    rounded = dict.fromkeys(exact, 0)
    for device in {row.device for row in rows}:
        held = [row for row in rows if row.device == device and row.start_ns < row.end_ns]
        by_root: dict[Id, dict[Id, Fraction]] = {row.root: {} for row in held}
        for row in held:
            by_root[row.root][row.call] = exact[row.call, device]
        first_of_root = {root: min(row.start_ns for row in held if row.root == root) for root in by_root}
        roots = {root: sum(parts.values(), Fraction(0)) for root, parts in by_root.items()}
        for root, total in largest_remainder(roots, len(points(held)), first_of_root).items():
            parts = by_root[root]
            first = {call: min(row.start_ns for row in held if row.call == call) for call in parts}
            for call, share in largest_remainder(parts, total, first).items():
                rounded[call, device] = share
    return rounded


# Sets of intervals: few instants, so that much touches, overlaps and ties.


@st.composite
def owners(draw: st.DrawFn, root: Id, weights: st.SearchStrategy[int]) -> Rows:
    """Draw the rows of one root: a tree of calls, some without any time, some without any row."""
    weight = {device: draw(weights) for device in DEVICES}
    names: list[Id] = [root, *(f"{root}.{child}" for child in range(draw(st.integers(0, 4))))]
    rows = []
    for at, call in enumerate(names):
        parent = draw(st.sampled_from([*names[:at], f"{root}.unseen"])) if at else None
        # Empty rows are drawn as well: they only carry the parent.
        for start, length in draw(st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=3)):
            device = draw(st.sampled_from(DEVICES))
            rows.append(Interval(call, root, device, start, start + length, parent, weight[device]))
    return rows


def several_owners(weights: st.SearchStrategy[int]) -> st.SearchStrategy[Rows]:
    roots: st.SearchStrategy[Id] = st.sampled_from([0, 1, 2, 10, "a", "b"])
    return (
        st.lists(roots, max_size=5, unique=True)
        .flatmap(lambda names: st.tuples(*(owners(name, weights) for name in names)))
        .map(lambda groups: [row for group in groups for row in group])
    )


SMALL_WEIGHTS = st.integers(1, 4)
#: Sums of these have hardly a divisor in common, so that the common one is huge.
DIVERSE_WEIGHTS = st.integers(2**80, 2**90)
any_rows = several_owners(SMALL_WEIGHTS)


@given(any_rows)
def test_exact_shares_are_those_of_the_enumeration(rows: Rows) -> None:
    charged = charge(rows, exact=True)
    expected = shares_by_brute_force(rows)
    assert charged.shares == expected
    assert charged.calls == {
        name: sum(share for (call, _), share in expected.items() if call == name)
        for name in {r.call for r in rows}
    }
    calls_of = {root: {row.call for row in rows if row.root == root} for root in {row.root for row in rows}}
    assert charged.roots == {
        root: sum(share for (call, _), share in expected.items() if call in calls)
        for root, calls in calls_of.items()
    }


@given(any_rows)
def test_rounding_is_by_largest_remainder(rows: Rows) -> None:
    expected = rounded_by_brute_force(rows)
    event(f"rounded: {expected != shares_by_brute_force(rows)}")
    assert charge(rows).shares == expected


@given(any_rows)
def test_the_sums_are_sums_of_the_shares(rows: Rows) -> None:
    charged = charge(rows)
    root_of = {row.call: row.root for row in rows}
    for name, total in charged.calls.items():
        assert total == sum(share for (call, _), share in charged.shares.items() if call == name)
    for root, total in charged.roots.items():
        assert total == sum(share for (call, _), share in charged.shares.items() if root_of[call] == root)
    assert charged.calls.keys() == root_of.keys()
    assert charged.roots.keys() == set(root_of.values())


@given(st.one_of(any_rows, several_owners(DIVERSE_WEIGHTS)))
def test_every_device_is_charged_its_union_to_the_nanosecond(rows: Rows) -> None:
    charged = charge(rows)
    assert charged.devices.keys() == {row.device for row in rows}
    for device, union in charged.devices.items():
        assert union == len(points(row for row in rows if row.device == device))
        assert union == sum(share for (_, on), share in charged.shares.items() if on == device)


@given(any_rows, st.randoms(use_true_random=False))
def test_the_order_of_intervals_does_not_matter(rows: Rows, rng: Random) -> None:
    shuffled = rng.sample(rows, len(rows))
    assert charge(shuffled) == charge(rows)
    assert charge(shuffled, exact=True) == charge(rows, exact=True)


@given(st.one_of(any_rows, several_owners(DIVERSE_WEIGHTS)), st.data())
def test_cutting_an_interval_in_two_changes_nothing(rows: Rows, data: st.DataObject) -> None:
    cut = []
    for row in rows:
        at = data.draw(st.integers(row.start_ns, row.end_ns))
        cut += [row._replace(end_ns=at), row._replace(start_ns=at)]
    assert charge(cut) == charge(rows)


@given(st.one_of(any_rows, several_owners(DIVERSE_WEIGHTS)))
def test_no_call_is_charged_less_than_0_or_more_than_it_held(rows: Rows) -> None:
    for (call, device), share in charge(rows).shares.items():
        assert 0 <= share <= len(points(row for row in rows if (row.call, row.device) == (call, device)))


@given(st.one_of(any_rows, several_owners(DIVERSE_WEIGHTS)))
def test_every_charge_is_within_1_ns_of_the_exact_share(rows: Rows) -> None:
    exact = shares_by_brute_force(rows)
    for key, share in charge(rows).shares.items():
        assert abs(share - exact[key]) < 1


@given(any_rows, owners("another", SMALL_WEIGHTS))
def test_another_owner_raises_nobodys_exact_share(rows: Rows, another: Rows) -> None:
    before = charge(rows, exact=True).shares
    after = charge(rows + another, exact=True).shares
    assert all(after[key] <= share for key, share in before.items())


#: Two owners alike at the end: their tie must survive what the division by their weights leaves over.
ALIKE = [*((at, 69, 2**80 + at**5) for at in range(11)), *((300, 1, 2**80 + 1),) * 2]


@settings(max_examples=20)
@example(drawn=ALIKE)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 200), DIVERSE_WEIGHTS), min_size=10, max_size=20)
)
def test_diverse_weights_are_rounded_as_well(drawn: list[tuple[int, int, int]]) -> None:
    rows = [
        Interval(at, at, 0, start, start + length, None, w) for at, (start, length, w) in enumerate(drawn)
    ]
    assert charge(rows).shares == rounded_by_brute_force(rows)
    assert charge(rows, exact=True).shares == shares_by_brute_force(rows)
