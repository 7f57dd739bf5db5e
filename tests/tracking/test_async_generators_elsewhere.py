"""Async generators that end in another task, with their loop, or not at all: row 15 and its reports."""

from __future__ import annotations

import asyncio
import gc

import pytest
from opentelemetry import trace as trace_api

import gputrace
from gputrace import attribution, catalogue


@pytest.mark.usefixtures("silent")
async def test_row_15_opentelemetry_python_2606_closed_in_another_task(traced, rig) -> None:
    """The bug of open-telemetry/opentelemetry-python 2606: "was created in a different Context"."""

    @gputrace.track(operation="stream", feature="inside")
    async def stream():
        with gputrace.span("block"), gputrace.attribute_to(tenant="acme"):
            yield gputrace.current().tenant
            yield 2

    async def close(running) -> str:
        with gputrace.attribute_to("closer"), traced.tracer.start_as_current_span("closer") as closer:
            await running.aclose()
            assert trace_api.get_current_span() is closer
            return gputrace.current().feature

    running = stream()
    assert await asyncio.create_task(running.__anext__()) == "acme"
    assert gputrace.current().feature == catalogue.NO_FEATURE
    assert await asyncio.create_task(close(running)) == "closer"
    assert (gputrace.current().feature, gputrace.current().tenant) == (catalogue.NO_FEATURE, None)
    assert traced.one("stream").attributes[catalogue.STATUS] == "ok"
    assert traced.one("block").parent.span_id == traced.one("stream").context.span_id
    assert rig.open_calls() == 0


@pytest.mark.usefixtures("silent")
async def test_row_15_without_any_provider(rig) -> None:
    @gputrace.track
    async def stream():
        with gputrace.attribute_to("inside"):
            yield gputrace.current().feature
            yield gputrace.current().feature

    running = stream()
    assert await asyncio.create_task(running.__anext__()) == "inside"
    with gputrace.attribute_to("outside"):
        assert await running.__anext__() == "inside"
        assert gputrace.current().feature == "outside"
        await asyncio.create_task(running.aclose())
    assert gputrace.current().feature == catalogue.NO_FEATURE
    assert rig.open_calls() == 0


@pytest.mark.usefixtures("silent")
async def test_row_15_an_untracked_async_generator_with_blocks(traced, rig) -> None:
    async def stream():
        with gputrace.attribute_to("inside"), gputrace.span("block"):
            yield
            yield

    async def close(running) -> str:
        with gputrace.attribute_to("closer") as scope:
            await running.aclose()
            assert attribution.current_scope.get() is scope
            return gputrace.current().feature

    running = stream()
    await asyncio.create_task(running.__anext__())
    assert await asyncio.create_task(close(running)) == "closer"
    assert traced.one("block").attributes[catalogue.STATUS] == "cancelled"
    assert rig.open_calls() == 0


@pytest.mark.usefixtures("silent")
async def test_openllmetry_3061_left_with_break_and_dropped(traced, rig) -> None:
    @gputrace.track(operation="stream")
    async def stream():
        with gputrace.span("block"), gputrace.attribute_to("inside"):
            yield 1
            yield 2

    async def first() -> None:
        async for _ in stream():
            break

    for _ in range(5):
        await asyncio.create_task(first())
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert rig.open_calls() == 0
    assert len(traced.ended("stream")) == len(traced.ended("block")) == 5
    assert {call.status for call in rig.settled()} <= {"ok", "cancelled"}


@pytest.mark.usefixtures("silent")
def test_a_loop_that_shuts_down_closes_each_once(rig) -> None:
    """It knows every async generator that was begun, and closes them all at once."""
    seen, kept = [], []

    @gputrace.track(operation="stream")
    async def stream():
        try:
            yield
        finally:
            await asyncio.sleep(0)
            seen.append("finally")

    async def main() -> None:
        for _ in range(5):
            kept.append(stream())
            await kept[-1].__anext__()

    asyncio.run(main())
    assert seen == ["finally"] * 5
    assert [call.status for call in rig.settled()] == ["ok"] * 5


def test_one_that_outlives_its_event_loop_leaves_no_open_call(rig, traced) -> None:
    """Nobody can run its finally any more; the bare one goes without it just so."""

    @gputrace.track(operation="stream")
    async def stream():
        try:
            yield
        finally:
            await asyncio.sleep(0)

    async def first(running) -> None:
        await running.__anext__()

    loop = asyncio.new_event_loop()
    running = stream()
    loop.run_until_complete(first(running))
    loop.close()
    del running
    gc.collect()
    assert rig.open_calls() == 0
    assert rig.one().status == "cancelled"
    assert traced.one("stream").end_time is not None


def test_one_that_ignores_being_closed(rig) -> None:
    async def stream():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    async def main(make) -> None:
        running = make()
        await running.__anext__()
        assert await running.athrow(GeneratorExit()) == 2
        await running.aclose()
        running = make()
        await running.__anext__()
        with pytest.raises(RuntimeError, match="async generator ignored GeneratorExit"):
            await running.aclose()

    for make in (stream, gputrace.track(stream)):
        asyncio.run(main(make))
    gc.collect()
    assert rig.open_calls() == 0
