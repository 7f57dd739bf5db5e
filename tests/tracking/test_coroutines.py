"""Coroutines: rows 01, 02, 18 and 27 of the behaviour matrix, and what they hold."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import types

import pytest
from opentelemetry.trace import StatusCode

import gputrace
from gputrace import catalogue


@types.coroutine
def pause():
    return (yield)


def step(awaitable) -> bool:
    """Run to the next suspension; False at the end."""
    try:
        awaitable.send(None)
    except StopIteration:
        return False
    return True


def test_row_01_a_coroutine_is_covered_to_its_end(rig) -> None:
    @gputrace.track
    async def embed():
        rig.work(3)
        await pause()
        rig.work(4)

    running = embed()
    step(running)
    rig.work(100)
    assert not step(running)
    call = rig.one()
    assert (call.duration_ns, call.held_ns, call.status) == (107, 7, "ok")


async def test_row_01_the_span_covers_the_await(traced) -> None:
    began = asyncio.Event()
    ending = asyncio.Event()

    @gputrace.track(operation="embed")
    async def embed():
        began.set()
        await ending.wait()

    task = asyncio.create_task(embed())
    await began.wait()
    assert traced.ended("embed") == []
    ending.set()
    await task
    assert traced.one("embed").status.status_code is StatusCode.UNSET


def test_row_02_stays_a_coroutine_function() -> None:
    @gputrace.track
    async def embed(text):
        return text

    assert inspect.iscoroutinefunction(embed)
    running = embed("a")
    assert type(running) is types.CoroutineType
    assert running.__qualname__.endswith("embed")
    running.close()


async def test_row_02_arguments_and_result_pass_through() -> None:
    @gputrace.track
    async def embed(*args, **kwargs):
        await asyncio.sleep(0)
        return args, kwargs

    assert await embed(1, two=2) == ((1,), {"two": 2})


def test_a_coroutine_that_is_never_awaited_is_no_call(rig) -> None:
    @gputrace.track
    async def embed(): ...

    embed().close()
    assert rig.settled() == []


@pytest.mark.skipif(not hasattr(inspect, "markcoroutinefunction"), reason="Python before 3.12")
def test_a_function_that_is_only_marked_as_a_coroutine_function(rig) -> None:
    class Answer:
        def __await__(self):
            return (yield)

    @gputrace.track
    @inspect.markcoroutinefunction
    def embed():
        return Answer()

    assert inspect.iscoroutinefunction(embed)
    running = embed()
    step(running)
    with pytest.raises(StopIteration) as stop:
        running.send("answer")
    assert stop.value.value == "answer"
    assert rig.one().operation.endswith("embed")


async def test_row_18_cancellation_is_its_own_status(traced, rig) -> None:
    @gputrace.track(operation="embed")
    async def embed():
        await asyncio.Event().wait()

    task = asyncio.create_task(embed())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.one().status == "cancelled"
    span = traced.one("embed")
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes[catalogue.STATUS] == "cancelled"
    assert span.attributes[catalogue.ERROR_TYPE] == "CancelledError"
    assert span.events == ()


async def test_row_18_a_coroutine_may_refuse_to_be_cancelled(rig) -> None:
    @gputrace.track
    async def embed():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "anyway"

    task = asyncio.create_task(embed())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "anyway"
    assert rig.one().status == "ok"


class Cancelled(BaseException):
    """As anyio and trio call theirs."""


class GivenUp(Cancelled): ...


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (asyncio.CancelledError, "cancelled"),
        (concurrent.futures.CancelledError, "cancelled"),
        (Cancelled, "cancelled"),
        (GivenUp, "cancelled"),
        (asyncio.TimeoutError, "error"),
        (KeyboardInterrupt, "error"),
        (SystemExit, "error"),
        (ValueError, "error"),
    ],
)
def test_row_18_which_exceptions_mean_cancelled(rig, error, status) -> None:
    @gputrace.track
    async def embed():
        await pause()

    running = embed()
    step(running)
    with pytest.raises(error):
        running.throw(error())
    assert rig.one().status == status


def test_row_18_closing_a_coroutine_half_way_cancels_it(rig) -> None:
    seen = []

    @gputrace.track
    async def embed():
        try:
            await pause()
        finally:
            seen.append("finally")

    running = embed()
    step(running)
    running.close()
    assert seen == ["finally"]
    assert rig.one().status == "cancelled"


def test_a_generator_based_coroutine_can_still_be_awaited(rig) -> None:
    @gputrace.track(operation="direct")
    @types.coroutine
    def direct():
        rig.work(1)
        return (yield)

    @gputrace.track(operation="returned")
    def returned():
        return pause()

    async def both():
        return await direct(), await returned()

    running = both()
    running.send(None)
    running.send("a")
    with pytest.raises(StopIteration) as stop:
        running.send("b")
    assert stop.value.value == ("a", "b")
    assert [call.operation for call in rig.settled()] == ["direct", "returned"]


def test_the_coroutine_is_no_longer_handling_what_was_thrown_into_it() -> None:
    """A body that has dealt with an error raises the next one without it as context."""

    @gputrace.track
    async def embed():
        with contextlib.suppress(ValueError):
            await pause()
        raise KeyError

    running = embed()
    step(running)
    with pytest.raises(KeyError) as raised:
        running.throw(ValueError())
    assert raised.value.__context__ is None
