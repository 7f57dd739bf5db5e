"""What holds the device: ``hold=`` for each kind of callable, blocks within them, and who is charged."""

from __future__ import annotations

import asyncio
import contextvars
import types

import pytest

import gputrace


@types.coroutine
def pause():
    return (yield)


def run(awaitable, between) -> None:
    """Run to the end; `between` is what others do at each suspension."""
    try:
        while True:
            awaitable.send(None)
            between()
    except StopIteration:
        pass


def wait_100(rig):
    return lambda: rig.work(100)


@pytest.mark.parametrize(("hold", "held"), [("steps", 7), ("call", 107), ("none", 0)])
def test_coroutines(rig, hold, held) -> None:
    @gputrace.track(operation="work", hold=hold)
    async def work():
        rig.work(3)
        await pause()
        rig.work(4)

    run(work(), wait_100(rig))
    call = rig.one()
    assert (call.held_ns, call.charged_ns, call.duration_ns) == (held, held, 107)


@pytest.mark.parametrize(("hold", "held"), [("steps", 7), ("call", 107), ("none", 0)])
def test_generators(rig, hold, held) -> None:
    @gputrace.track(operation="work", hold=hold)
    def work():
        rig.work(3)
        yield
        rig.work(4)

    for _ in work():
        rig.work(100)
    assert (rig.one().held_ns, rig.one().charged_ns, rig.one().duration_ns) == (held, held, 107)


@pytest.mark.parametrize(("hold", "held"), [("steps", 7), ("call", 1107), ("none", 0)])
def test_async_generators(rig, hold, held) -> None:
    @gputrace.track(operation="work", hold=hold)
    async def work():
        rig.work(3)
        yield
        await pause()
        rig.work(4)

    async def main():
        async for _ in work():
            rig.work(1000)

    run(main(), wait_100(rig))
    assert (rig.one().held_ns, rig.one().duration_ns) == (held, 1107)


@pytest.mark.parametrize(("hold", "held"), [("steps", 3), ("call", 3), ("none", 0)])
def test_functions_and_blocks(rig, hold, held) -> None:
    @gputrace.track(operation="work", hold=hold)
    def work():
        rig.work(3)

    work()
    with gputrace.span("work", hold=hold):
        rig.work(3)
    assert [call.held_ns for call in rig.settled()] == [held, held]


@pytest.mark.parametrize(("hold", "held"), [("steps", 7), ("call", 107), ("none", 0)])
def test_what_a_function_returns(rig, hold, held) -> None:
    async def inner():
        await pause()
        rig.work(4)

    @gputrace.track(operation="work", hold=hold)
    def work():
        rig.work(3)
        return inner()

    run(work(), wait_100(rig))
    assert rig.one().held_ns == held


async def test_of_ten_coroutines_that_await_one_tracked_batch_only_the_batch_is_charged(rig) -> None:
    """The requests hold nothing while they wait, the worker holds nothing while it gathers them."""
    waiting: list[tuple[int, asyncio.Future]] = []
    full = asyncio.Event()

    @gputrace.track(operation="batch", feature="batch")
    async def batch():
        rig.work(500)
        for number, answer in waiting:
            answer.set_result(number)

    async def worker() -> None:
        await full.wait()
        await batch()

    @gputrace.track(operation="request", feature="search")
    async def request(number):
        answer = asyncio.get_running_loop().create_future()
        waiting.append((number, answer))
        if len(waiting) == 10:
            full.set()
        return await answer

    working = asyncio.create_task(worker())
    assert await asyncio.gather(*(request(number) for number in range(10))) == list(range(10))
    await working
    assert rig.by_operation("charged_ns") == {"batch": 500, "request": 0}
    assert len(rig.settled()) == 11


async def test_so_too_where_the_first_request_runs_the_batch(rig) -> None:
    """As batchers do that start their task in the context of whoever comes first."""
    batches: list[asyncio.Task] = []

    @gputrace.track(operation="batch")
    async def batch():
        await asyncio.sleep(0)
        rig.work(500)

    @gputrace.track(operation="request")
    async def request():
        rig.work(1)
        if not batches:
            batches.append(asyncio.create_task(batch()))
        await batches[0]

    await asyncio.gather(*(request() for _ in range(10)))
    assert rig.by_operation("charged_ns") == {"batch": 500, "request": 10}


async def test_hold_call_brackets_work_that_is_not_tracked(rig) -> None:
    @gputrace.track(operation="outer", hold="call")
    async def outer():
        await asyncio.to_thread(rig.work, 500)

    await outer()
    assert rig.one().charged_ns == 500


async def test_the_innermost_call_is_charged_also_within_hold_call(rig) -> None:
    @gputrace.track(operation="inner")
    def inner():
        rig.work(500)

    @gputrace.track(operation="outer", hold="call")
    async def outer():
        rig.work(1)
        await asyncio.to_thread(inner)
        rig.work(2)

    await outer()
    assert rig.by_operation("charged_ns") == {"inner": 500, "outer": 3}
    assert rig.by_operation("held_ns") == {"inner": 500, "outer": 503}


def test_a_container_sums_what_is_in_it_and_is_charged_nothing(rig) -> None:
    with gputrace.span("container", hold="none", feature="search"):
        rig.work(10)
        with gputrace.span("work"):
            rig.work(5)
    assert rig.by_operation("charged_ns") == {"container": 0, "work": 5}
    assert rig.by_operation("duration_ns") == {"container": 15, "work": 5}
    assert {call.feature for call in rig.settled()} == {"search"}


@pytest.mark.parametrize("sampled", [True, False])
def test_a_block_in_a_coroutine_holds_nothing_while_that_is_suspended(rig, request, sampled) -> None:
    if sampled:
        request.getfixturevalue("traced")

    @gputrace.track(operation="outer")
    async def outer():
        rig.work(1)
        with gputrace.span("block"):
            rig.work(3)
            await pause()
            with gputrace.attribute_to("inside"), gputrace.span("nested"):
                rig.work(5)
                await pause()
                rig.work(7)
            await pause()
            rig.work(11)
        await pause()
        rig.work(13)

    run(outer(), wait_100(rig))
    assert rig.by_operation("charged_ns") == {"outer": 14, "block": 14, "nested": 12}
    assert rig.by_operation("held_ns") == {"outer": 40, "block": 26, "nested": 12}
    assert rig.by_operation("duration_ns") == {"outer": 440, "block": 326, "nested": 112}


def test_so_does_a_block_in_a_generator_of_either_kind(rig) -> None:
    @gputrace.track(operation="generator")
    def generator():
        with gputrace.span("in generator"):
            for _ in range(3):
                rig.work(3)
                yield

    @gputrace.track(operation="async generator")
    async def async_generator():
        with gputrace.span("in async generator"):
            for _ in range(3):
                rig.work(5)
                yield

    async def main():
        async for _ in async_generator():
            rig.work(1000)

    for _ in generator():
        rig.work(1000)
    run(main(), wait_100(rig))
    held = rig.by_operation("held_ns")
    assert held == {
        "generator": 9,
        "in generator": 9,
        "async generator": 15,
        "in async generator": 15,
    }


@pytest.mark.parametrize(("hold", "held"), [("steps", 7), ("call", 107), ("none", 0)])
def test_hold_of_the_block_itself(rig, hold, held) -> None:
    @gputrace.track(operation="outer", hold="none")
    async def outer():
        with gputrace.span("block", hold=hold):
            rig.work(3)
            await pause()
            rig.work(4)

    run(outer(), wait_100(rig))
    assert rig.by_operation("held_ns") == {"outer": 0, "block": held}


def test_a_block_in_code_that_is_not_tracked_holds_throughout(rig) -> None:
    """As documented: it cannot see its own suspensions."""

    async def outer():
        with gputrace.span("block"):
            rig.work(3)
            await pause()
            rig.work(4)

    run(outer(), wait_100(rig))
    assert rig.one().held_ns == 107


def test_tracked_coroutines_in_a_chain_with_blocks(rig) -> None:
    """Each suspends its own blocks, and no one's twice."""

    @gputrace.track(operation="inner")
    async def inner():
        with gputrace.span("inner block"):
            rig.work(2)
            await pause()
            rig.work(3)

    @gputrace.track(operation="outer")
    async def outer():
        with gputrace.span("outer block"):
            rig.work(5)
            await inner()
            rig.work(7)

    run(outer(), wait_100(rig))
    assert rig.by_operation("charged_ns") == {"outer": 0, "outer block": 12, "inner": 0, "inner block": 5}
    assert rig.by_operation("held_ns") == {"outer": 17, "outer block": 17, "inner": 5, "inner block": 5}


def test_a_block_that_ended_while_a_task_goes_on_in_it_is_not_marked_again(rig) -> None:
    """A task that was started in a block keeps it as its scope."""

    @gputrace.track(operation="task")
    async def task():
        rig.work(3)
        await pause()
        rig.work(4)

    with gputrace.span("block") as block:
        rig.work(1)
        context = contextvars.copy_context()
    context.run(run, task(), wait_100(rig))
    assert rig.by_operation("held_ns") == {"block": 1, "task": 7}
    assert rig.by_operation("charged_ns") == {"block": 1, "task": 7}
    assert block.closed


async def test_two_requests_share_the_device_only_while_both_hold_it(rig) -> None:
    @gputrace.track(operation="a")
    async def a():
        rig.work(10)
        await pause()
        rig.work(10)

    @gputrace.track(operation="b", hold="call")
    async def b():
        rig.work(10)
        await pause()
        rig.work(10)

    running_a, running_b = a(), b()
    running_a.send(None)
    running_b.send(None)
    with pytest.raises(StopIteration):
        running_a.send(None)
    with pytest.raises(StopIteration):
        running_b.send(None)
    assert rig.by_operation("charged_ns") == {"a": 15, "b": 25}
