"""Stepping: the short way of a generator's step does what the long way does, on the host and on GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from unittest import mock

import pytest
from hypothesis import given, strategies as st
from opentelemetry import trace as trace_api
from opentelemetry.sdk.trace import TracerProvider

import gputrace
from gputrace import call as calls
from gputrace.telemetry import spans
from gputrace.testing import Recorder, Stepper, VirtualClock, VirtualGpu

MS = 1_000_000

AROUND_TWO_YIELDS = {
    "nothing": contextlib.nullcontext,
    "a block": lambda: gputrace.span("block"),
    "a scope": lambda: gputrace.attribute_to(tenant="inside"),
    "a block that holds throughout": lambda: gputrace.span("held block", hold="call"),
}
BEFORE_THE_NEXT = {
    "nothing": contextlib.nullcontext,
    "a block": lambda: gputrace.span("consumer"),
    "a scope": lambda: gputrace.attribute_to(tenant="outside", model="outside"),
}


def where() -> tuple[object, ...]:
    now = gputrace.current()
    return now.feature, now.tenant, now.attribution.model


@gputrace.track(operation="stream", feature="stream")
def stream(plan, clock):
    for name in plan:
        clock.advance(2)
        with AROUND_TWO_YIELDS[name]():
            for _ in range(2):
                clock.advance(3)
                gputrace.track(operation="leaf")(clock.advance)(4)
                with contextlib.suppress(ValueError):
                    yield where()


def asked(running, *, throws: bool) -> object:
    try:
        return running.throw(ValueError()) if throws else next(running)
    except StopIteration:
        return "end"


def consumed(plan, consumer) -> list[object]:
    """Everything that anybody sees of a stream, and what it is charged."""
    clock = VirtualClock(start_ns=0)
    seen: list[object] = []
    with Recorder(clock) as recorder:
        running = stream(plan, clock)
        item = asked(running, throws=False)
        for name, throws in consumer:
            clock.advance(50)
            with BEFORE_THE_NEXT[name]():
                item = asked(running, throws=throws and item != "end")
                seen += [item, where(), gputrace.current().call_id is None]
        running.close()
        settled = recorder.settled()
        assert recorder.settler._followed == []
    return seen + [(call.operation, call.held_ns, call.charged_ns, call.duration_ns) for call in settled]


@given(
    st.lists(st.sampled_from(list(AROUND_TWO_YIELDS)), max_size=4),
    st.lists(st.tuples(st.sampled_from(list(BEFORE_THE_NEXT)), st.booleans()), max_size=8),
)
def test_the_short_way_and_the_long_way_are_alike(plan, consumer) -> None:
    """Without a provider most steps take the short way, with one none does."""
    short = consumed(plan, consumer)
    with (
        mock.patch.object(trace_api, "_TRACER_PROVIDER", TracerProvider()),
        mock.patch.object(spans, "enabled", new=True),
    ):
        assert consumed(plan, consumer) == short


def test_the_short_way_is_taken(rig, monkeypatch) -> None:
    """What is alike could also be one and the same."""
    long_steps = []

    def counted(step):
        def counting(call):
            long_steps.append(step.__name__)
            step(call)

        return counting

    monkeypatch.setattr(calls, "suspend", counted(calls.suspend))
    monkeypatch.setattr(calls, "resume", counted(calls.resume))

    @gputrace.track
    def items():
        for _ in range(100):
            rig.work(1)
            yield

    assert len(list(items())) == 100
    assert long_steps == ["suspend"]
    assert rig.one().held_ns == 100


def test_ticks_at_every_instruction_of_a_generators_steps() -> None:
    """The short way writes a call in the order that the settler relies on: what is published stays."""
    ticking = VirtualClock(step_ns=7)
    marks: list[int] = []
    settling = threading.current_thread()

    def clock() -> int:
        now = ticking()
        if threading.current_thread() is not settling:
            marks.append(now)
        return now

    @gputrace.track
    def items():
        yield from range(4)

    with Recorder(clock) as recorder:
        # Its code is that of the wrapper.
        stepper = Stepper(lambda: list(items()), (items,))
        stops = published = 0
        while stepper.step():
            stops += 1
            recorder.settle()
            total = sum(recorder.settler.totals.time.values())
            assert total >= published
            published = total
        (call,) = recorder.settled()
    assert stops > 200
    assert len(marks) == 10
    assert call.charged_ns == call.held_ns == sum(marks[1::2]) - sum(marks[::2])


def test_a_generator_on_a_gpu_is_timed_step_by_step() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()

        @gputrace.track(operation="stream")
        def stream():
            for _ in range(3):
                gpu.launch(2 * MS)
                yield

        for _ in stream():
            gpu.advance(10 * MS)
        gpu.advance(10 * MS)
        (call,) = recorder.settled()
        assert call.source == "cuda_event"
        assert call.charged_ns == pytest.approx(6 * MS, rel=0.001)


def test_a_coroutine_on_a_gpu_is_timed_step_by_step() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()

        @gputrace.track(operation="work")
        async def work():
            for _ in range(3):
                gpu.launch(2 * MS)
                await asyncio.sleep(0)

        running = work()
        with contextlib.suppress(StopIteration):
            while True:
                running.send(None)
                gpu.advance(10 * MS)
        gpu.advance(10 * MS)
        (call,) = recorder.settled()
        assert call.charged_ns == pytest.approx(6 * MS, rel=0.001)
