"""The hot path: the order in which a call is written, and what an interrupt leaves behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import pickle
from collections import deque

import pytest

import gputrace
from gputrace import call as calls
from gputrace.call_site import HOLDS


def function(rig) -> None:
    gputrace.track(operation="work")(rig.work)(1)


def block(rig) -> None:
    with gputrace.span("work"):
        rig.work(1)


def coroutine(rig) -> None:
    @gputrace.track(operation="work")
    async def work():
        rig.work(1)
        await asyncio.sleep(0)
        rig.work(1)

    asyncio.run(work())


def generator(rig) -> None:
    @gputrace.track(operation="work")
    def work():
        for _ in range(3):
            rig.work(1)
            yield

    for _ in work():
        rig.work(1)


def generator_with_a_block(rig) -> None:
    @gputrace.track(operation="work")
    def work():
        for _ in range(2):
            with gputrace.span("block"), gputrace.attribute_to("inside"):
                yield

    for _ in work():
        rig.work(1)


def async_generator(rig) -> None:
    @gputrace.track(operation="work")
    async def work():
        for _ in range(2):
            await asyncio.sleep(0)
            yield

    async def main() -> None:
        async for _ in work():
            pass

    asyncio.run(main())


def returned(rig) -> None:
    @gputrace.track(operation="work")
    def work():
        return (rig.work(1) for _ in range(2))

    for _ in work():
        rig.work(1)


KINDS = [function, block, coroutine, generator, generator_with_a_block, async_generator, returned]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampled", [False, True])
def test_each_mark_is_taken_while_its_call_is_queued_and_pending(
    rig, request, monkeypatch, kind, sampled
) -> None:
    """What the settler relies on: see the module's text. Here for every mark, inlined ones too."""
    if sampled:
        request.getfixturevalue("traced")
    readings = []

    def clock() -> int:
        open_calls = [call for call in calls.queue if not call.closed]
        readings.append([call.pending for call in open_calls].count(True))
        return rig.time()

    monkeypatch.setattr(calls, "clock", clock)
    kind(rig)
    queued = list(calls.queue)
    assert queued
    marks = [len(call.marks) for call in queued]
    assert readings == [1] * sum(marks)
    assert all(count % 2 == 0 for count in marks)
    assert not any(call.pending for call in queued)
    assert all(call.closed for call in queued)
    assert all(list(call.marks) == sorted(call.marks) for call in queued)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupt_at_any_mark_leaves_no_call_that_holds_up_the_settler(
    rig, request, monkeypatch, kind, sampled
) -> None:
    """Ctrl-C strikes anywhere: before, the accounts of the whole process stood still from then on."""
    if sampled:
        request.getfixturevalue("traced")
    for strikes_at in itertools.count():
        readings = itertools.count()

        def clock(strikes_at=strikes_at, readings=readings) -> int:
            if next(readings) == strikes_at:
                raise KeyboardInterrupt
            return rig.time()

        with monkeypatch.context() as patch:
            patch.setattr(calls, "clock", clock)
            try:
                kind(rig)
            except KeyboardInterrupt:
                struck = True
            else:
                struck = False
        rig.work(1)
        rig.settle()
        assert rig.open_calls() == 0
        assert gputrace.current().call_id is None
        # What was never awaited warns here, where that is expected.
        gc.collect()
        if not struck:
            break
    assert strikes_at >= 2
    (account,) = rig.settler.accounts.values()
    assert account.frontier_ns == rig.time()


def test_an_interrupt_before_the_first_mark_is_an_error_that_held_nothing(rig, traced, monkeypatch) -> None:
    def clock() -> int:
        raise KeyboardInterrupt

    work = gputrace.track(operation="work")(lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(calls, "clock", clock)
        with pytest.raises(KeyboardInterrupt):
            work()
    assert (rig.one().status, rig.one().held_ns) == ("error", 0)
    assert traced.one("work").attributes["error.type"] == "KeyboardInterrupt"


def test_parents_and_roots(rig) -> None:
    with gputrace.span("a") as a, gputrace.attribute_to("search"), gputrace.span("b") as b:
        with gputrace.span("c") as c:
            pass
        with gputrace.span("d") as d:
            pass
    assert [call.parent for call in (a, b, c, d)] == [None, a, b, b]
    assert [call.root for call in (a, b, c, d)] == [None, a, a, a]
    assert rig.open_calls() == 0


def test_identities_are_unique_and_stay(rig) -> None:
    with gputrace.span("a") as a, gputrace.span("b") as b:
        assert gputrace.current().call_id == b.id
    assert a.id != b.id
    assert a.id == a.id
    assert len({call.call.id for call in rig.settled()}) == 2


def test_nothing_is_kept_when_nothing_records(monkeypatch) -> None:
    monkeypatch.setattr(calls, "queue", calls.queue)
    monkeypatch.setattr(calls, "settling", True)
    calls.stop_recording()
    work = gputrace.track(operation="work")(lambda: gputrace.current().call_id)
    assert work() is not None
    assert len(calls.queue) == 0
    replaced: deque[calls.Call] = deque()
    calls.record(replaced)
    work()
    assert len(replaced) == 1


def test_the_first_call_of_a_process_starts_what_settles_calls(monkeypatch) -> None:
    started = []

    def start() -> None:
        started.append(True)
        calls.settling = True

    monkeypatch.setattr(calls, "settling", False)
    monkeypatch.setattr(calls, "ensure_settled", start)
    gputrace.track(lambda: None)()
    gputrace.track(lambda: None)()
    assert started == [True]


def test_a_forked_child_begins_anew(monkeypatch) -> None:
    monkeypatch.setattr(calls, "queue", deque(["the parent's"]))
    monkeypatch.setattr(calls, "settling", True)
    monkeypatch.setattr(calls, "_numbering", calls._numbering)
    with calls._numbering:
        calls.reset()
        assert calls._numbering.acquire(blocking=False)
    assert (len(calls.queue), calls.settling) == (0, False)


@pytest.mark.parametrize("hold", HOLDS)
def test_a_site_travels_without_its_caches(hold) -> None:
    """Caches are keyed by identity; and ``hold`` is compared by it."""
    site = calls.Site("work", {"model": "minilm"}, hold="".join(hold), weight=2, attributes={"a": 1})
    site.attribution_under(gputrace.current().attribution)
    copy = pickle.loads(pickle.dumps(site))  # noqa: S301 - ours
    assert any(copy.hold is constant for constant in HOLDS)
    assert (copy.operation, copy.overrides, copy.hold) == ("work", {"model": "minilm"}, hold)
    assert (copy.weight, copy.attributes, copy.merged) == (2, {"a": 1}, {})
