"""Async generators: rows 04 and 11 to 17 of the behaviour matrix, and the bug reports about them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types

import pytest
from opentelemetry import trace as trace_api
from opentelemetry.trace import StatusCode

import gputrace
from gputrace import catalogue


def test_row_04_stays_an_async_generator_function() -> None:
    @gputrace.track
    async def stream():
        yield

    assert inspect.isasyncgenfunction(stream)
    made = stream()
    assert type(made) is types.AsyncGeneratorType
    assert made.__qualname__.endswith("stream")


async def test_row_11_is_covered_and_holds_only_its_own_steps(rig) -> None:
    @gputrace.track(operation="stream")
    async def stream():
        for ns in (3, 4, 5):
            rig.work(ns)
            yield ns
        rig.work(6)

    async for _ in stream():
        rig.work(100)
    call = rig.one()
    assert (call.held_ns, call.duration_ns, call.status) == (18, 318, "ok")


async def test_row_11_awaits_within_it_hold_nothing(rig) -> None:
    @gputrace.track(operation="stream")
    async def stream():
        rig.work(3)
        await asyncio.sleep(0)
        rig.work(4)
        yield

    async def others() -> None:
        rig.work(100)

    async def read() -> None:
        async for _ in stream():
            pass

    await asyncio.gather(read(), others())
    call = rig.one()
    assert (call.held_ns, call.duration_ns) == (7, 107)


async def test_row_12_dd_trace_py_14399_asend() -> None:
    """The bug of DataDog/dd-trace-py 14399."""

    @gputrace.track
    async def averages():
        total = count = 0
        mean = None
        while True:
            total += yield mean
            count += 1
            mean = total / count

    running = averages()
    await running.__anext__()
    assert [await running.asend(value) for value in (10, 20, 60)] == [10, 15, 30]
    await running.aclose()


async def test_row_13_the_callers_span_is_current_between_two_yields(traced) -> None:
    inside = []

    @gputrace.track(operation="stream")
    async def stream():
        for _ in range(3):
            await asyncio.sleep(0)
            inside.append(trace_api.get_current_span().name)
            yield

    with traced.tracer.start_as_current_span("caller") as caller:
        async for _ in stream():
            assert trace_api.get_current_span() is caller
            await asyncio.sleep(0)
        assert trace_api.get_current_span() is caller
    assert inside == ["stream"] * 3
    assert traced.one("stream").parent.span_id == caller.get_span_context().span_id


async def test_row_13_so_is_its_scope() -> None:
    seen = []

    @gputrace.track(feature="inside")
    async def stream():
        for _ in range(2):
            seen.append(gputrace.current().feature)
            yield

    with gputrace.attribute_to("outside"):
        async for _ in stream():
            assert gputrace.current().feature == "outside"
    assert seen == ["inside"] * 2


async def test_row_14_aclose_runs_finally_at_once_and_is_no_error(traced, rig) -> None:
    seen = []

    @gputrace.track(operation="stream")
    async def stream():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            rig.work(7)
            seen.append("finally")

    running = stream()
    await running.__anext__()
    await running.aclose()
    assert seen == ["finally"]
    call, span = rig.one(), traced.one("stream")
    assert (call.status, call.held_ns) == ("ok", 7)
    assert (span.status.status_code, span.events) == (StatusCode.UNSET, ())


async def test_row_16_athrow(rig) -> None:
    @gputrace.track
    async def stream():
        try:
            yield 1
        except ValueError as error:
            yield str(error)

    running = stream()
    await running.__anext__()
    assert await running.athrow(ValueError("taken")) == "taken"
    with pytest.raises(KeyError):
        await running.athrow(KeyError())
    assert rig.one().status == "error"


async def test_row_17_dd_trace_py_18718_under_asynccontextmanager(rig) -> None:
    """With DataDog/dd-trace-py 18718, such dependencies answered with HTTP 500."""

    @contextlib.asynccontextmanager
    @gputrace.track(operation="resource", feature="inside")
    async def resource():
        try:
            yield "it"
        except ValueError:
            rig.work(5)

    async with resource() as it:
        rig.work(100)
        assert (it, gputrace.current().feature) == ("it", catalogue.NO_FEATURE)
        raise ValueError
    async with resource():
        pass
    assert rig.by_operation("held_ns") == {"resource": 5}
    assert [call.status for call in rig.settled()] == ["ok", "ok"]


async def test_row_18_cancelled_while_it_awaits(rig) -> None:
    @gputrace.track
    async def stream():
        await asyncio.Event().wait()
        yield

    async def read() -> None:
        async for _ in stream():
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.one().status == "cancelled"


async def test_openllmetry_2290_every_kind_gives_what_the_bare_one_gives() -> None:
    async def coroutine():
        return 1

    async def async_generator():
        yield 1

    def generator():
        yield 1

    def function():
        return 1

    for bare in (coroutine, async_generator, generator, function):
        made, tracked = bare(), gputrace.track(bare)()
        assert type(made) is type(tracked)
        for one in (made, tracked):
            if inspect.iscoroutine(one):
                assert await one == 1
            elif inspect.isasyncgen(one):
                assert [item async for item in one] == [1]
            elif inspect.isgenerator(one):
                assert list(one) == [1]
