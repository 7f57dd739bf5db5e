"""The union over processes, against counting every nanosecond."""

from __future__ import annotations

from hypothesis import given, strategies as st

from gputrace.node_union import Pieces, Shared, Union

SPAN = 60


@st.composite
def unions_of_processes(draw):
    """For each process, disjoint stretches in order."""
    processes = []
    for _ in range(draw(st.integers(1, 4))):
        cuts = sorted(draw(st.sets(st.integers(0, SPAN), max_size=12)))
        processes.append(list(zip(cuts[::2], cuts[1::2], strict=False)))
    return processes


def covered(stretches):
    return {at for start, end in stretches for at in range(start, end)}


def fed(processes, order=None, begins_ns=0):
    union = Union(begins_ns)
    rows = [(number, *stretch) for number, held in enumerate(processes) for stretch in held]
    for number in range(len(processes)):
        union.join(number)
        union.frontier(number, "gpu", 0)
    if order is not None:
        # Between processes any order; each one's own comes as it was.
        order.shuffle(rows)
        by_process = {number: iter(held) for number, held in enumerate(processes)}
        rows = [(number, *next(by_process[number])) for number, *_ in rows]
    for row in rows:
        union.hold(row[0], "gpu", row[1], row[2])
    return union


def release(union, processes, at_ns=SPAN):
    for number in range(len(processes)):
        union.frontier(number, "gpu", at_ns)


@given(unions_of_processes(), st.randoms(use_true_random=False), st.integers(0, SPAN))
def test_union_and_overlap_are_the_sum_in_any_order(processes, order, begins_ns):
    union = fed(processes, order, begins_ns)
    release(union, processes)
    shared = union.advance(SPAN)
    each = [covered(held) - set(range(begins_ns)) for held in processes]
    together = set().union(*each)
    expected = Shared(len(together), sum(map(len, each)) - len(together), 0)
    assert shared == ({"gpu": expected} if begins_ns < SPAN else {})
    assert union.late_ns == 0


@given(unions_of_processes(), st.lists(st.integers(0, SPAN), max_size=8))
def test_increments_are_never_taken_back_and_add_up(processes, instants):
    union = fed(processes)
    release(union, processes)
    together = set().union(*map(covered, processes))
    seen = 0
    for at in [*instants, SPAN]:
        before = union.final_ns("gpu")
        charged = union.advance(at).get("gpu", Shared(0, 0, 0)).charged_ns
        assert charged == len({ns for ns in together if before <= ns < at})
        seen += charged
    assert seen == len(together)


@given(unions_of_processes(), st.lists(st.integers(0, SPAN), min_size=4, max_size=4))
def test_nothing_is_final_before_every_living_process_said_so(processes, frontiers):
    union = fed(processes)
    frontiers = frontiers[: len(processes)]
    for number, at in enumerate(frontiers):
        union.frontier(number, "gpu", at)
    union.advance(SPAN)
    assert union.final_ns("gpu") == min(frontiers)
    slowest = frontiers.index(min(frontiers))
    union.leave(slowest)
    union.advance(SPAN)
    assert union.final_ns("gpu") == min(
        (at for number, at in enumerate(frontiers) if number != slowest), default=SPAN
    )


@given(unions_of_processes(), unions_of_processes())
def test_what_went_by_unread_is_unknown_where_nobody_held(processes, missed):
    union = fed(processes)
    for stretch in missed[0]:
        union.miss("gpu", *stretch)
    release(union, processes)
    shared = union.advance(SPAN)["gpu"]
    together, unread = set().union(*map(covered, processes)), covered(missed[0])
    assert (shared.charged_ns, shared.unknown_ns) == (len(together), len(unread - together))
    assert union.missed_between("gpu", 0, SPAN) == len(unread - together)


@given(unions_of_processes(), st.integers(0, SPAN), st.integers(0, SPAN), st.integers(0, SPAN))
def test_any_period_can_be_asked_for_once_it_is_final(processes, final, one, other):
    union = fed(processes)
    release(union, processes)
    union.advance(final)
    start, end = sorted((one, other))
    together = set().union(*map(covered, processes))
    expected = len(together & set(range(start, end))) if end <= final else None
    assert union.held_between("gpu", start, end) == expected


@given(unions_of_processes())
def test_two_that_do_the_same_overlap_in_half_of_the_sum(processes):
    union = fed([processes[0]] * 2)
    release(union, [0, 0])
    shared = union.advance(SPAN)["gpu"]
    assert shared.overlap_ns == shared.charged_ns == len(covered(processes[0]))


def test_a_process_that_has_not_named_a_device_holds_it_back_up_to_its_floor():
    union = Union(0)
    for process in "ab":
        union.join(process)
    union.hold("a", "gpu", 10, 20)
    union.frontier("a", "gpu", 50)
    union.floor("b", 15)
    assert union.advance(100) == {"gpu": Shared(5, 0, 0)}
    # It may have begun at its floor: that is still in time.
    union.hold("b", "gpu", 15, 18)
    union.floor("b", 60)
    union.frontier("b", "gpu", 30)
    assert union.advance(100) == {"gpu": Shared(5, 3, 0)}
    assert union.late_ns == 0


def test_a_device_that_nobody_names_is_free_up_to_the_least_floor():
    union = Union(5)
    union.join("a")
    union.floor("a", 40)
    union.advance(100)
    assert union.held_between("idle", 5, 40) == 0
    assert union.held_between("idle", 5, 41) is None
    assert union.held_between("idle", 4, 40) is None
    # A device that is named later was free until then.
    union.frontier("a", "idle", 50)
    union.hold("a", "idle", 45, 50)
    assert union.advance(100) == {"idle": Shared(5, 0, 0)}
    assert union.held_between("idle", 5, 50) == 5


def test_what_comes_too_late_is_counted_and_changes_nothing():
    union = Union(0)
    union.join("a")
    union.frontier("a", "gpu", 20)
    union.advance(100)
    union.join("b")
    union.hold("b", "gpu", 10, 30)
    union.frontier("b", "gpu", 40)
    union.frontier("a", "gpu", 40)
    assert union.late_ns == 10
    assert union.advance(100) == {"gpu": Shared(10, 0, 0)}
    assert union.held_between("gpu", 0, 20) == 0


def test_the_past_is_forgotten_and_never_answered_wrongly():
    pieces = Pieces(0, kept=4)
    for start in range(0, 200, 10):
        pieces.add(start, start + 5)
    assert 0 < pieces.horizon_ns < 200
    for at in range(pieces.horizon_ns, 201):
        expected = len({ns for ns in range(pieces.horizon_ns, at) if ns % 10 < 5})
        assert pieces.until(at) - pieces.until(pieces.horizon_ns) == expected


def test_the_memory_of_pieces_is_bounded_and_touching_ones_are_one():
    pieces = Pieces(0, kept=4)
    for start in range(1000):
        pieces.add(start, start + 1)
    assert len(pieces._starts) == 1
    for start in range(2000, 4000, 2):
        pieces.add(start, start + 1)
    assert len(pieces._starts) <= 8
