"""Whatever is sent, thrown and closed, a tracked generator or coroutine does what the bare one does.

The bug of DataDog/dd-trace-py 14399 as a property: a body with planned reactions, a driver with random
operations, and everything that either of them can see written down.
"""

from __future__ import annotations

import asyncio
import sys
import types
from typing import TYPE_CHECKING, Any

from hypothesis import given, strategies as st

import gputrace
from gputrace.testing import Recorder, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a body does with an exception that reaches one of its yields.
REACTIONS = ["raise it", "raise another", "return", "go on"]
THROWN = [ValueError, GeneratorExit, StopIteration, StopAsyncIteration, KeyboardInterrupt]

plans = st.lists(st.sampled_from(REACTIONS), max_size=4)
operations = st.lists(
    st.one_of(
        st.just(("next", None)),
        st.tuples(st.just("send"), st.sampled_from([None, 1, "two"])),
        st.tuples(st.just("throw"), st.sampled_from(THROWN)),
        st.just(("close", None)),
    ),
    max_size=8,
)


@types.coroutine
def pause():
    return (yield "paused")


def react(reaction: str, error: BaseException, seen: list[Any]) -> bool:
    """True to return, False to go on."""
    seen.append(("caught", type(error), str(error)))
    if reaction == "raise it":
        raise error
    if reaction == "raise another":
        raise KeyError("another")
    return reaction == "return"


def in_blocks(plan: list[str], seen: list[Any]):
    with gputrace.span("block"), gputrace.attribute_to("inside"):
        for number, reaction in enumerate(plan):
            try:
                seen.append(("got", (yield number)))
            except BaseException as error:  # noqa: BLE001 - the plan says what happens
                if react(reaction, error, seen):
                    return "early"
            seen.append(gputrace.current().feature)
        return "end"


def generator(plan: list[str], seen: list[Any]):
    for number, reaction in enumerate(plan):
        try:
            seen.append(("got", (yield number)))
        except BaseException as error:  # noqa: BLE001 - the plan says what happens
            if react(reaction, error, seen):
                return "early"
        finally:
            seen.append("finally")
        seen.append(("handling", sys.exc_info()[0]))
    return "end"


async def async_generator(plan: list[str], seen: list[Any]):
    for number, reaction in enumerate(plan):
        try:
            seen.append(("got", (yield number)))
        except BaseException as error:  # noqa: BLE001 - the plan says what happens
            # One that goes on after that can never be brought to its end.
            obeys = isinstance(error, GeneratorExit) and reaction == "go on"
            if react("raise it" if obeys else reaction, error, seen):
                return
        finally:
            seen.append(("sent to the await", await pause()))
        seen.append(("handling", sys.exc_info()[0]))


async def coroutine(plan: list[str], seen: list[Any]):
    for reaction in plan:
        try:
            seen.append(("got", await pause()))
        except BaseException as error:  # noqa: BLE001 - the plan says what happens
            # What one does that goes on after that, or returns, cannot be told from outside of a wrapper.
            obeys = isinstance(error, GeneratorExit) and reaction in {"go on", "return"}
            if react("raise it" if obeys else reaction, error, seen):
                return "early"
        finally:
            seen.append("finally")
        seen.append(("handling", sys.exc_info()[0]))
    return "end"


def outcome(action: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return "gave", action()
    except (StopIteration, StopAsyncIteration) as stop:
        return type(stop), stop.args
    except BaseException as error:  # noqa: BLE001 - all that a user could see
        chained = [type(one) for one in (error.__cause__, error.__context__)]
        return type(error), str(error), chained


def drive(running: Any, chosen: list[tuple[str, Any]]) -> list[Any]:
    seen = []
    for name, value in chosen:
        if name == "next":
            seen.append(outcome(lambda: next(running)))
        elif name == "send":
            seen.append(outcome(lambda value=value: running.send(value)))
        elif name == "throw":
            seen.append(outcome(lambda value=value: running.throw(value("thrown"))))
        else:
            seen.append(outcome(running.close))
    return seen


#: A body that goes on when it is closed does so once for each of its yields.
CLOSED = [("close", None)] * 6


def to_the_end(awaitable: Any) -> Any:
    """Run one step of an async generator through the awaits in its body."""
    try:
        while True:
            assert awaitable.send(None) == "paused"
    except StopIteration as stop:
        return stop.value


def drive_async(running: Any, chosen: list[tuple[str, Any]]) -> list[Any]:
    steps = {
        "next": lambda _: running.__anext__(),
        "send": running.asend,
        "throw": lambda kind: running.athrow(kind("thrown")),
        "close": lambda _: running.aclose(),
    }
    return [outcome(lambda name=name, value=value: to_the_end(steps[name](value))) for name, value in chosen]


def assert_alike(make: Callable[..., Any], run: Callable[..., Any], plan: list[str], chosen: Any) -> None:
    bare_seen: list[Any] = []
    tracked_seen: list[Any] = []
    with Recorder(VirtualClock(step_ns=1)) as recorder:
        bare = run(make(plan, bare_seen), chosen + CLOSED)
        tracked = run(gputrace.track(make)(plan, tracked_seen), chosen + CLOSED)
        assert tracked == bare
        assert tracked_seen == bare_seen
        recorder.settle()
        assert recorder.settler._followed == []
        assert gputrace.current().call_id is None


@given(plans, operations)
def test_generators(plan, chosen) -> None:
    assert_alike(generator, drive, plan, chosen)


@given(plans, operations)
def test_generators_that_a_function_returns(plan, chosen) -> None:
    def make(*args):
        return generator(*args)

    assert_alike(make, drive, plan, chosen)


@given(plans, operations)
def test_generators_with_a_block_around_their_yields(plan, chosen) -> None:
    assert_alike(in_blocks, drive, plan, chosen)


@given(plans, operations)
def test_async_generators(plan, chosen) -> None:
    assert_alike(async_generator, drive_async, plan, chosen)


@given(plans, operations)
def test_coroutines(plan, chosen) -> None:
    # A coroutine has no next(), and what it awaits is closed where a GeneratorExit is thrown into it.
    alike = {("next", None): ("send", None), ("throw", GeneratorExit): ("close", None)}
    assert_alike(coroutine, drive, plan, [alike.get(one, one) for one in chosen])


@given(st.lists(st.sampled_from(["item", "await"]), max_size=6), st.integers(0, 6))
def test_async_generators_under_asyncio_cancelled_anywhere(plan, after) -> None:
    """The bodies see the same, whichever await or item the cancellation strikes."""

    async def stream(seen):
        try:
            for what in plan:
                if what == "item":
                    yield what
                else:
                    await asyncio.sleep(0)
                seen.append(what)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append("finally")

    async def read(running) -> None:
        async for _ in running:
            await asyncio.sleep(0)

    async def main(make) -> list[Any]:
        seen: list[Any] = []
        task = asyncio.create_task(read(make(seen)))
        for _ in range(after):
            await asyncio.sleep(0)
        task.cancel()
        seen.append(await asyncio.gather(task, return_exceptions=True) == [None])
        await asyncio.sleep(0)
        return seen

    with Recorder(VirtualClock(step_ns=1)):
        assert asyncio.run(main(gputrace.track(stream))) == asyncio.run(main(stream))
