"""What a function returns and does not run itself: rows 26 and 27 of the behaviour matrix."""

from __future__ import annotations

import gc
import types

import pytest

import gputrace


def step(awaitable) -> bool:
    """Run to the next suspension; False at the end."""
    try:
        awaitable.send(None)
    except StopIteration:
        return False
    return True


@types.coroutine
def pause():
    return (yield)


def test_row_27_a_function_that_returns_a_coroutine_is_covered(rig) -> None:
    async def inner():
        rig.work(5)
        await pause()
        rig.work(6)
        return "done"

    @gputrace.track(operation="outer")
    def outer():
        rig.work(2)
        return inner()

    running = outer()
    assert type(running) is types.CoroutineType
    assert running.__qualname__ == inner.__qualname__
    rig.work(100)
    step(running)
    rig.work(100)
    with pytest.raises(StopIteration) as stop:
        running.send(None)
    assert stop.value.value == "done"
    call = rig.one()
    assert (call.operation, call.held_ns, call.duration_ns) == ("outer", 13, 213)


def test_row_27_a_returned_coroutine_may_have_begun(rig) -> None:
    async def inner():
        await pause()
        return "done"

    begun = inner()
    step(begun)
    running = gputrace.track(lambda: begun)()
    assert not step(running)
    assert rig.one().status == "ok"


@pytest.mark.filterwarnings("ignore:coroutine .*inner.* was never awaited:RuntimeWarning")
def test_row_27_a_returned_coroutine_that_is_dropped_leaves_no_open_call(rig) -> None:
    async def inner(): ...

    outer = gputrace.track(lambda: inner())  # noqa: PLW0108 - the lambda is what is tested
    outer()
    gc.collect()
    assert rig.open_calls() == 0
    assert rig.one().status == "cancelled"


def test_row_26_a_function_that_returns_a_generator_is_covered(rig) -> None:
    def inner():
        rig.work(5)
        yield 1
        rig.work(6)
        return "summary"

    @gputrace.track(operation="outer")
    def outer():
        rig.work(2)
        return inner()

    made = outer()
    assert type(made) is types.GeneratorType
    assert made.__qualname__ == inner.__qualname__
    rig.work(100)
    next(made)
    rig.work(100)
    with pytest.raises(StopIteration) as stop:
        next(made)
    assert stop.value.value == "summary"
    assert (rig.one().held_ns, rig.one().duration_ns) == (13, 213)


def test_row_26_a_returned_generator_that_is_dropped_leaves_no_open_call(rig, traced) -> None:
    @gputrace.track(operation="outer")
    def outer():
        return (item for item in range(3))

    outer()
    with gputrace.attribute_to("elsewhere"):
        gc.collect()
        assert gputrace.current().feature == "elsewhere"
    assert rig.open_calls() == 0
    assert rig.one().status == "cancelled"
    assert traced.one("outer").end_time is not None


async def test_row_26_a_function_that_returns_an_async_generator_is_covered(rig) -> None:
    async def inner():
        rig.work(5)
        yield 1
        rig.work(6)

    @gputrace.track(operation="outer")
    def outer():
        rig.work(2)
        return inner()

    made = outer()
    assert type(made) is types.AsyncGeneratorType
    assert made.__qualname__ == inner.__qualname__
    rig.work(100)
    assert [item async for item in made] == [1]
    assert (rig.one().held_ns, rig.one().duration_ns) == (13, 113)


async def test_row_26_a_returned_async_generator_that_is_dropped_leaves_no_open_call(rig) -> None:
    async def inner():
        yield

    gputrace.track(lambda: inner())()  # noqa: PLW0108 - the lambda is what is tested
    gc.collect()
    assert rig.open_calls() == 0
    assert rig.one().status == "cancelled"


async def test_row_26_a_returned_async_generator_may_be_closed_by_who_keeps_it(rig) -> None:
    async def inner():
        yield 1
        yield 2

    kept = inner()
    made = gputrace.track(lambda: kept)()
    await made.__anext__()
    await kept.aclose()
    await made.aclose()
    assert rig.one().status == "ok"
