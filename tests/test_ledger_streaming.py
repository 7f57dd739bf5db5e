"""The streaming face: equal to the offline one at every schedule, final, and of bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter, defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from gputrace import ledger_chains
from gputrace.ledger import SCALE, Id, Interval, Ledger, charge

if TYPE_CHECKING:
    from collections.abc import Callable

GPU = "gpu"


def ns(increments: dict[Id, int]) -> dict[Id, float]:
    return {call: amount / SCALE for call, amount in increments.items()}


# Streaming equals offline.


class Replay:
    """Plays one schedule to an exact and to a fast ledger, and checks both at every advance."""

    def __init__(self, rows: list[Interval], rng: random.Random, *, eager: bool) -> None:
        self.rows = rows
        self.rng = rng
        self.eager = eager
        self.exact = Ledger(exact=True)
        self.fast = Ledger()
        self.exact_totals: dict[Id, Counter[Id]] = defaultdict(Counter)
        self.fast_totals: dict[Id, Counter[Id]] = defaultdict(Counter)
        self.call_of = {row.call: row for row in rows}
        self.stops_left = Counter(row.call for row in rows if row.start_ns < row.end_ns)
        self.opened: set[Id] = set()

    def both(self, event: Callable[[Ledger[int] | Ledger[Fraction]], object]) -> None:
        event(self.exact)
        event(self.fast)

    def run(self) -> None:
        """Play the devices against each other in any order, each in its own order of time."""
        if not self.eager:
            for call in self.rng.sample(list(self.call_of), len(self.call_of)):
                self.open(call, with_parents=False)
        devices = {device: self.events(device) for device in dict.fromkeys(row.device for row in self.rows)}
        while devices:
            device = self.rng.choice(list(devices))
            self.play(device, *devices[device].pop(0))
            if not devices[device]:
                del devices[device]

    def play(self, device: Id, at_ns: int, is_stop: bool, call: Id | None) -> None:
        if call is None:
            self.advance(device, at_ns)
        elif is_stop:
            self.both(lambda ledger: ledger.stop(call, device, at_ns))
            self.stops_left[call] -= 1
            if self.eager and not self.stops_left[call]:
                self.both(lambda ledger: ledger.close(call))
        else:
            self.open(call, with_parents=True)
            self.both(lambda ledger: ledger.start(call, device, at_ns))

    def events(self, device: Id) -> list[tuple[int, bool, Id | None]]:
        """Return starts, stops and ticks; at one instant in any order, since no hold is empty."""
        held = [row for row in self.rows if row.device == device and row.start_ns < row.end_ns]
        events: list[tuple[int, bool, Id | None]] = [(row.start_ns, False, row.call) for row in held]
        events += [(row.end_ns, True, row.call) for row in held]
        last = max((row.end_ns for row in held), default=0)
        ticks = self.rng.choices(range(last + 5), k=self.rng.randrange(6))
        events += [(at, False, None) for at in ticks]
        self.rng.shuffle(events)
        starts_first = self.rng.random() < 0.5
        events.sort(key=lambda event: (event[0], event[1] is starts_first))
        return [*events, (last + 5, False, None)]

    def open(self, call: Id, *, with_parents: bool) -> None:
        if call in self.opened:
            return
        row = self.call_of[call]
        if with_parents and row.parent is not None:
            self.open(row.parent, with_parents=True)
        self.opened.add(call)
        self.both(lambda ledger: ledger.open(call, row.root, row.parent, row.weight))

    def advance(self, device: Id, until_ns: int) -> None:
        for ledger, totals in ((self.exact, self.exact_totals), (self.fast, self.fast_totals)):
            increments = ledger.advance(device, until_ns)
            assert all(amount > 0 for amount in increments.values())
            totals[device].update(increments)
            union = {
                at
                for row in self.rows
                if row.device == device
                for at in range(row.start_ns, min(row.end_ns, until_ns))
            }
            assert ledger.held(device) == len(union)
            assert sum(totals[device].values()) == SCALE * len(union)


@st.composite
def schedules(draw: st.DrawFn) -> list[Interval]:
    rng = draw(st.randoms(use_true_random=False))
    rows = []
    for root in range(rng.randint(1, 5)):
        weight = rng.randint(1, 5)
        names = [f"{root}", *(f"{root}.{child}" for child in range(rng.randrange(6)))]
        for at, call in enumerate(names):
            parent = rng.choice(names[:at]) if at else None
            # The empty row makes the parent known to both forms.
            rows.append(Interval(call, f"{root}", 0, 0, 0, parent, weight))
            for _ in range(rng.randrange(4)):
                start = rng.randrange(30)
                end = start + rng.randint(1, 20)
                rows.append(Interval(call, f"{root}", rng.randrange(2), start, end, parent, weight))
    return rows


@given(schedules(), st.randoms(use_true_random=False), st.booleans())
def test_streaming_equals_offline(rows: list[Interval], rng: random.Random, eager: bool) -> None:
    replay = Replay(rows, rng, eager=eager)
    replay.run()
    offline = charge(rows, exact=True)
    events = 3 * len(rows) + 10
    bound = events * (5 * 5 + 6)
    for (call, device), share in offline.shares.items():
        assert replay.exact_totals[device][call] == share * SCALE
        assert abs(replay.fast_totals[device][call] - share * SCALE) < bound
    assert sum(len(totals) for totals in replay.exact_totals.values()) == sum(
        share > 0 for share in offline.shares.values()
    )


def test_the_error_stays_within_its_bound_over_many_events() -> None:
    rng = random.Random(7)
    fast, exact = Ledger(), Ledger(exact=True)
    difference: Counter[Id] = Counter()
    events: Counter[Id] = Counter()
    holding: dict[Id, int] = {}
    for at in range(4_000):
        starts = len(holding) < 3 or rng.random() < 0.5
        call = at if starts else rng.choice(list(holding))
        if starts:
            holding[call] = rng.choice([1, 2, 999, 1_000_003])
        for ledger in (fast, exact):
            if starts:
                ledger.open(call, call, weight=holding[call])
                ledger.start(call, GPU, at)
            else:
                ledger.stop(call, GPU, at)
                ledger.close(call)
        if not starts:
            del holding[call]
        events.update(holding.keys() | {call})
        if at % 10 == 0:
            difference.update(fast.advance(GPU, at))
            difference.subtract(exact.advance(GPU, at))
            events.update(holding)
    difference.update(fast.advance(GPU, 4_000))
    difference.subtract(exact.advance(GPU, 4_000))
    most_weight = 200 * 1_000_003
    assert any(difference.values()), "weights that leave no remainder prove nothing"
    assert all(abs(off) < (events[call] + 1) * (most_weight + 1) for call, off in difference.items())


# What advance says.


def test_an_increment_is_in_parts_of_a_nanosecond() -> None:
    ledger = Ledger()
    ledger.open("a", "a")
    ledger.start("a", GPU, 100)
    ledger.stop("a", GPU, 107)
    assert ledger.advance(GPU, 107) == {"a": 7 * SCALE}


def test_an_exact_increment_is_a_fraction_of_the_same_unit() -> None:
    ledger = Ledger(exact=True)
    for call in "abc":
        ledger.open(call, call)
        ledger.start(call, GPU, 0)
    assert ledger.advance(GPU, 1) == dict.fromkeys("abc", Fraction(SCALE, 3))


def test_what_division_leaves_over_is_not_lost() -> None:
    ledger = Ledger()
    for call in "abc":
        ledger.open(call, call)
        ledger.start(call, GPU, 0)
    increments = ledger.advance(GPU, 1)
    assert sum(increments.values()) == SCALE
    assert max(increments.values()) - min(increments.values()) == 1


def test_what_division_within_an_owner_leaves_over_is_not_lost() -> None:
    ledger = Ledger()
    for call in "abc":
        ledger.open(call, "root")
        ledger.start(call, GPU, 0)
    for call in "abc":
        ledger.stop(call, GPU, 1)
    assert sum(ledger.advance(GPU, 1).values()) == SCALE


def test_a_long_call_is_charged_as_it_runs() -> None:
    ledger = Ledger()
    ledger.open("long", "long")
    ledger.start("long", GPU, 0)
    assert ns(ledger.advance(GPU, 10)) == {"long": 10}
    assert ns(ledger.advance(GPU, 25)) == {"long": 15}


def test_a_call_that_stopped_is_in_the_next_advance_only() -> None:
    ledger = Ledger()
    ledger.open("a", "a")
    ledger.start("a", GPU, 0)
    ledger.stop("a", GPU, 5)
    ledger.close("a")
    assert ns(ledger.advance(GPU, 10)) == {"a": 5}
    assert ledger.advance(GPU, 20) == {}


def test_calls_without_anything_new_are_left_out() -> None:
    ledger = Ledger()
    ledger.open("outer", "outer")
    ledger.open("inner", "outer", "outer")
    ledger.start("outer", GPU, 0)
    ledger.start("inner", GPU, 0)
    assert ns(ledger.advance(GPU, 10)) == {"inner": 10}
    assert ledger.advance(GPU, 10) == {}


def test_held_is_the_union_up_to_the_last_advance() -> None:
    ledger = Ledger()
    for call in "ab":
        ledger.open(call, call)
    assert ledger.held(GPU) == 0
    ledger.start("a", GPU, 0)
    ledger.start("b", GPU, 5)
    ledger.stop("a", GPU, 10)
    ledger.stop("b", GPU, 20)
    assert ledger.held(GPU) == 0
    ledger.advance(GPU, 100)
    assert ledger.held(GPU) == 20


def test_concurrent_starts_of_a_call_are_counted() -> None:
    ledger = Ledger()
    ledger.open("a", "a")
    ledger.start("a", GPU, 0)
    ledger.start("a", GPU, 10)
    ledger.stop("a", GPU, 20)
    ledger.start("a", GPU, 25)
    ledger.stop("a", GPU, 30)
    ledger.stop("a", GPU, 40)
    assert ns(ledger.advance(GPU, 50)) == {"a": 40}


def test_the_clocks_of_devices_are_independent() -> None:
    ledger = Ledger()
    ledger.open("a", "a")
    ledger.start("a", 0, 1_000)
    ledger.start("a", 1, -50)
    assert ns(ledger.advance(1, -40)) == {"a": 10}
    assert ns(ledger.advance(0, 1_005)) == {"a": 5}


# Chains.


def shares_of_three(open_calls: Callable[[Ledger[int]], None]) -> dict[Id, float]:
    """Let g hold for 20 ns and its grandchild c during the last 10 of them."""
    ledger = Ledger()
    open_calls(ledger)
    ledger.start("g", GPU, 0)
    ledger.start("c", GPU, 10)
    ledger.stop("c", GPU, 20)
    ledger.stop("g", GPU, 20)
    return ns(ledger.advance(GPU, 20))


def test_a_closed_parent_still_counts_in_the_chain() -> None:
    def open_calls(ledger: Ledger[int]) -> None:
        ledger.open("g", "g")
        ledger.open("p", "g", "g")
        ledger.close("p")
        ledger.open("c", "g", "p")

    assert shares_of_three(open_calls) == {"g": 10, "c": 10}


def test_a_parent_that_closes_while_the_child_is_open_still_counts() -> None:
    def open_calls(ledger: Ledger[int]) -> None:
        ledger.open("g", "g")
        ledger.open("p", "g", "g")
        ledger.open("c", "g", "p")
        ledger.close("p")

    assert shares_of_three(open_calls) == {"g": 10, "c": 10}


def test_a_parent_may_be_opened_after_its_child() -> None:
    def open_calls(ledger: Ledger[int]) -> None:
        ledger.open("c", "g", "p")
        ledger.open("p", "g", "g")
        ledger.open("g", "g")

    assert shares_of_three(open_calls) == {"g": 10, "c": 10}


def test_the_chain_ends_at_a_parent_that_is_never_opened() -> None:
    def open_calls(ledger: Ledger[int]) -> None:
        ledger.open("g", "g")
        ledger.open("c", "g", "nowhere")

    assert shares_of_three(open_calls) == {"g": 15, "c": 5}


def test_the_oldest_closed_links_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_chains, "REMEMBERED_LINKS", 2)

    def open_calls(ledger: Ledger[int]) -> None:
        ledger.open("g", "g")
        for call in ("p", "q", "r"):
            ledger.open(call, "g", "g")
            ledger.close(call)
        ledger.open("c", "g", "p")

    assert shares_of_three(open_calls) == {"g": 15, "c": 5}


def test_a_parent_opened_late_is_not_forgotten_among_closed_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_chains, "REMEMBERED_LINKS", 2)

    def open_calls(ledger: Ledger[int]) -> None:
        ledger.open("g", "g")
        ledger.open("early", "g", "p")
        ledger.open("p", "g", "g")
        for call in ("q", "r", "s"):
            ledger.open(call, "g", "g")
            ledger.close(call)
        ledger.open("c", "g", "p")

    assert shares_of_three(open_calls) == {"g": 10, "c": 10}


def test_an_id_may_be_used_again_after_it_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_chains, "REMEMBERED_LINKS", 1)
    ledger = Ledger()
    ledger.open("r", "r")
    for _ in range(3):
        ledger.open("a", "r", "r")
        ledger.close("a")
    ledger.open("a", "r", "r")
    ledger.open("b", "r", "r")
    ledger.close("b")
    ledger.start("a", GPU, 0)
    assert ns(ledger.advance(GPU, 10)) == {"a": 10}


def test_a_child_that_starts_first_silences_its_parent() -> None:
    ledger = Ledger()
    ledger.open("outer", "outer")
    ledger.open("inner", "outer", "outer")
    ledger.start("inner", GPU, 0)
    ledger.start("outer", GPU, 5)
    ledger.stop("inner", GPU, 10)
    assert ns(ledger.advance(GPU, 30)) == {"inner": 10, "outer": 20}


# What is refused, and leaves everything as it was.


def ledger_at_50() -> Ledger[int]:
    ledger = Ledger()
    ledger.open("a", "a")
    ledger.start("a", GPU, 10)
    ledger.advance(GPU, 50)
    return ledger


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (lambda ledger: ledger.start("a", GPU, 49), r"call 'a' on device 'gpu' at 49 ns.*is at 50 ns"),
        (lambda ledger: ledger.stop("a", GPU, 49), r"call 'a' on device 'gpu' at 49 ns.*is at 50 ns"),
        (lambda ledger: ledger.advance(GPU, 49), r"advance on device 'gpu' at 49 ns.*is at 50 ns"),
        (lambda ledger: ledger.start("b", GPU, 60), r"start of call 'b': it is not open"),
        (lambda ledger: ledger.stop("b", GPU, 60), r"stop of call 'b': it is not open"),
        (lambda ledger: ledger.close("b"), r"close of call 'b': it is not open"),
        (
            lambda ledger: ledger.stop("a", "other", 60),
            r"stop of call 'a' on device 'other' at 60 ns: it does not",
        ),
        (lambda ledger: ledger.close("a"), r"close of call 'a': it still holds, 1 stops are missing"),
        (lambda ledger: ledger.open("a", "a"), r"call 'a' is open already"),
        (lambda ledger: ledger.open("b", "a", weight=2), r"call 'b' gives root 'a' the weight 2"),
        (lambda ledger: ledger.open("b", "b", weight=0), r"call 'b' has the weight 0"),
        (lambda ledger: ledger.open("b", "b", weight=1.5), r"call 'b' has the weight 1\.5"),
        (lambda ledger: ledger.open("b", "b", "b"), r"call 'b' is its own ancestor"),
        (lambda ledger: ledger.open("b", "b", "a"), r"call 'b' has the root 'b', but its parent 'a' has 'a'"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    event: Callable[[Ledger[int]], object], message: str
) -> None:
    ledger = ledger_at_50()
    with pytest.raises(ValueError, match=message):
        event(ledger)
    ledger.stop("a", GPU, 60)
    assert ns(ledger.advance(GPU, 70)) == {"a": 10}
    ledger.close("a")
    ledger.open("a", "a", weight=5)
    ledger.open("b", "b", weight=3)


def test_a_stop_too_many_is_refused() -> None:
    ledger = ledger_at_50()
    ledger.stop("a", GPU, 60)
    with pytest.raises(ValueError, match=r"stop of call 'a' on device 'gpu' at 60 ns: it does not hold"):
        ledger.stop("a", GPU, 60)


def test_a_refused_stop_does_not_begin_a_device() -> None:
    ledger = ledger_at_50()
    with pytest.raises(ValueError, match=r"stop of call 'a' on device 'other' at 60 ns: it does not hold"):
        ledger.stop("a", "other", 60)
    ledger.start("a", "other", 5)
    assert ns(ledger.advance("other", 10)) == {"a": 5}


def test_a_silent_call_without_a_start_cannot_be_stopped() -> None:
    ledger = Ledger()
    ledger.open("outer", "outer")
    ledger.open("inner", "outer", "outer")
    ledger.start("inner", GPU, 0)
    with pytest.raises(ValueError, match=r"stop of call 'outer'.* does not hold"):
        ledger.stop("outer", GPU, 5)


def test_a_closed_call_is_not_open() -> None:
    ledger = ledger_at_50()
    ledger.stop("a", GPU, 60)
    ledger.close("a")
    with pytest.raises(ValueError, match=r"start of call 'a': it is not open"):
        ledger.start("a", GPU, 70)


def test_a_call_that_only_its_child_has_named_is_not_open() -> None:
    ledger = Ledger()
    ledger.open("child", "root", "parent")
    with pytest.raises(ValueError, match=r"start of call 'parent': it is not open"):
        ledger.start("parent", GPU, 0)


def test_a_cycle_of_parents_is_refused() -> None:
    ledger = Ledger()
    ledger.open("a", "r", "c")
    ledger.open("b", "r", "a")
    with pytest.raises(ValueError, match=r"call 'c' is its own ancestor"):
        ledger.open("c", "r", "b")
    ledger.open("c", "r")


def test_a_parent_named_under_one_root_cannot_be_opened_under_another() -> None:
    ledger = Ledger()
    ledger.open("child", "r", "parent")
    with pytest.raises(ValueError, match=r"call 'parent' has the root 's', but elsewhere it has 'r'"):
        ledger.open("parent", "s")


# Memory.


def sequential(ledger: Ledger[int], first: int, last: int) -> None:
    for call in range(first, last):
        run_one(ledger, call, call, None)


def children_of_one_root(ledger: Ledger[int], first: int, last: int) -> None:
    if not first:
        ledger.open("root", "root")
    for call in range(first, last):
        run_one(ledger, call, "root", "root")


def tasks_that_each_start_the_next(ledger: Ledger[int], first: int, last: int) -> None:
    if not first:
        ledger.open("root", "root")
        ledger.open(0, "root", "root")
    for call in range(first, last):
        ledger.open(call + 1, "root", call)
        ledger.start(call, GPU, 10 * call)
        ledger.stop(call, GPU, 10 * call + 3)
        ledger.close(call)
        ledger.advance(GPU, 10 * call + 3)


def orphans_of_one_root(ledger: Ledger[int], first: int, last: int) -> None:
    if not first:
        ledger.open("root", "root")
    for call in range(first, last):
        run_one(ledger, call, "root", f"never opened {call}")


def run_one(ledger: Ledger[int], call: int, root: Id, parent: Id | None) -> None:
    ledger.open(call, root, parent)
    ledger.start(call, GPU, 10 * call)
    ledger.stop(call, GPU, 10 * call + 3)
    ledger.close(call)
    ledger.advance(GPU, 10 * call + 3)


@pytest.mark.parametrize(
    "load", [sequential, children_of_one_root, tasks_that_each_start_the_next, orphans_of_one_root]
)
def test_memory_does_not_grow_with_the_run(load: Callable[[Ledger[int], int, int], None]) -> None:
    ledger = Ledger()
    load(ledger, 0, 2_500)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    load(ledger, 2_500, 7_500)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # What was there before counts as nothing: what replaces it counts, 1024 links of about 300 bytes.
    assert after - before < 500_000


def test_nothing_of_an_owner_is_left_after_its_last_call() -> None:
    ledger = Ledger()
    ledger.open("root", "root")
    ledger.open("waits", "root", "named only")
    for call in ("a", "b"):
        ledger.open(call, "root", "root")
        ledger.start(call, GPU, 0)
    for call in ("a", "b"):
        ledger.stop(call, GPU, 10)
        ledger.close(call)
    ledger.close("waits")
    ledger.close("root")
    ledger.advance(GPU, 10)
    assert not ledger._chains._calls
    assert not ledger._chains._groups
    timeline = ledger._timelines[GPU]
    assert not timeline._owners
    assert not timeline._due
    assert timeline._virtual == timeline._left == timeline._weight == 0
