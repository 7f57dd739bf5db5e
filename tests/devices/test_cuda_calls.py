"""Calls on a GPU from their marks to their charges: what CUDA's events are known for must not show there."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue
from gputrace.devices import virtual_stream
from gputrace.testing import Recorder, VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MS = 1_000_000


@pytest.fixture
def gpu() -> Iterator[VirtualGpu]:
    """Two devices with contexts; whatever the test does, nobody may have waited for a device."""
    with VirtualGpu(devices=2) as gpu:
        gpu.init()
        with gpu.device(1):
            gpu.init()
        yield gpu
        assert gpu.synchronizations == 0


@pytest.fixture
def recorder(gpu: VirtualGpu) -> Iterator[Recorder]:
    with Recorder(gpu.host_ns) as recorder:
        yield recorder


def charges(recorder: Recorder) -> list[tuple[str, str, int]]:
    return sorted((call.operation, call.status, call.charged_ns) for call in recorder.settled())


def unmeasured(recorder: Recorder) -> dict[str, int]:
    return {reason[catalogue.LOSS_REASON]: count for reason, count in recorder.snapshot().unmeasured}


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


#: The second runs beside the first, within it: for that moment the first, which it is part of, pays nothing.
CHARGED = (("first", 7), ("fourth", 1), ("second", 1), ("third", 1))


def test_an_event_is_not_used_again_before_both_of_its_pair_were_read(
    gpu: VirtualGpu, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    make = gpu.Event

    def counting(**options: Any) -> Any:
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(gpu, "Event", counting)
    with gputrace.span("first"):
        gpu.launch(8 * MS)
        gpu.advance(MS)
        # Its start has happened and is read here, its end has not even been recorded.
        assert charges(recorder) == []
        assert len(made) == 2  # its start, and a reference
        with gpu.stream(gpu.Stream()), gputrace.span("second"):
            gpu.launch(MS)
        assert len(made) == 4
    assert len(made) == 5
    gpu.advance(2 * MS)
    # The same of one that was left: the second is read, the end of the first is not.
    assert charges(recorder) == [("second", "ok", MS)]
    with gputrace.span("third"):
        gpu.launch(MS)
    assert len(made) == 5
    with gputrace.span("fourth"):
        gpu.launch(MS)
    assert len(made) == 7
    gpu.advance(20 * MS)
    assert charges(recorder) == [(name, "ok", ns * MS) for name, ns in CHARGED]
    for name in ("fifth", "sixth", "seventh"):
        with gputrace.span(name):
            gpu.launch(MS)
    assert len(made) == 7


def test_a_stream_of_steps_gives_its_events_back_pair_by_pair(gpu: VirtualGpu, recorder: Recorder) -> None:
    """A generator may run for days: read pairs are used again while it does, an open one is not."""

    @gputrace.track(operation="decode")
    def decode() -> Iterator[None]:
        for _ in range(50):
            gpu.launch(3 * MS)
            yield

    steps = decode()
    for _ in range(50):
        next(steps)
        gpu.advance(2 * MS)
        recorder.settle()
    steps.close()
    gpu.advance(200 * MS)
    assert charges(recorder) == [("decode", "ok", 150 * MS)]
    pool = recorder.settler.accounts[f"GPU-{gpu.devices[0].uuid}"].device.pool  # type: ignore[attr-defined]
    # Kernels take longer than the consumer, so that some pairs wait; far fewer than a hundred events.
    assert len(pool._free) + len(pool._in_use) < 60


def test_events_stay_on_the_device_that_recorded_them_first(gpu: VirtualGpu, recorder: Recorder) -> None:
    """An event that was used on one GPU can neither be recorded nor compared on another."""
    gpu.devices[1].offset_ns = 10**15
    for turn in range(20):
        with gpu.device(turn % 2), gputrace.span(f"on-{turn % 2}"):
            gpu.launch(MS)
        gpu.advance(5 * MS)
        recorder.settle()
    with gputrace.span("on-both", devices=(0, 1)):
        for index in (0, 1):
            gpu.launch(MS, gpu.current_stream(index))
    gpu.advance(5 * MS)
    assert charges(recorder) == sorted(
        [("on-0", "ok", MS)] * 10 + [("on-1", "ok", MS)] * 10 + [("on-both", "ok", 2 * MS)]
    )
    assert unmeasured(recorder) == {}


def test_a_failed_call_is_charged_what_its_kernels_take(gpu: VirtualGpu, recorder: Recorder) -> None:
    @gputrace.track(operation="fails")
    def fails() -> None:
        gpu.launch(4 * MS)
        raise ValueError("in the model")

    @gputrace.track(operation="interrupted")
    def interrupted() -> None:
        gpu.launch(2 * MS)
        raise KeyboardInterrupt

    with pytest.raises(ValueError, match="in the model"):
        fails()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gpu.advance(10 * MS)
    assert charges(recorder) == [("fails", "error", 4 * MS), ("interrupted", "error", 2 * MS)]


@pytest.mark.parametrize(("hold", "charged"), [("steps", 5 * MS), ("call", 15 * MS)])
def test_a_cancelled_call_is_charged_what_its_kernels_take(
    gpu: VirtualGpu, recorder: Recorder, hold: str, charged: int
) -> None:
    """The kernels run on after the task that launched them is gone."""

    @gputrace.track(operation="cancelled", hold=hold)
    async def answer() -> None:
        gpu.launch(5 * MS)
        await asyncio.sleep(3_600)

    async def main() -> None:
        task = asyncio.ensure_future(answer())
        await asyncio.sleep(0)
        gpu.advance(15 * MS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gpu.advance(10 * MS)
    assert charges(recorder) == [("cancelled", "cancelled", charged)]


def test_a_device_lost_in_a_call_leaves_it_unmeasured_and_the_rest_as_it_was(
    gpu: VirtualGpu, recorder: Recorder
) -> None:
    """What was charged stands, what came after is unknown and counted; user code sees no error of ours."""
    lost, other = (f"GPU-{gpu.devices[index].uuid}" for index in (0, 1))
    with gputrace.span("before"):
        gpu.launch(2 * MS)
    gpu.advance(3 * MS)
    recorder.settle()
    with gputrace.span("inside"):
        gpu.launch(50 * MS)
        gpu.advance(10 * MS)
        recorder.settle()
        gpu.lose(0)
        gpu.advance(10 * MS)
        recorder.settle()
    with gputrace.span("after"):
        pass
    with gpu.device(1), gputrace.span("on-the-other"):
        gpu.launch(MS)
    gpu.advance(60 * MS)
    charged = {operation: (status, ns) for operation, status, ns in charges(recorder)}
    assert charged["before"] == ("ok", 2 * MS)
    assert charged["on-the-other"] == ("ok", MS)
    # As long as it is known to have run, and no longer.
    assert charged["inside"][0] == charged["after"][0] == "ok"
    assert 9 * MS < charged["inside"][1] <= 10 * MS
    assert charged["after"][1] == 0
    assert unmeasured(recorder) == {"device_lost": 2}
    held = sum(ns for operation, (_, ns) in charged.items() if operation != "on-the-other")
    states = {
        (attributes[catalogue.HW_ID], attributes[catalogue.DEVICE_STATE]): round(seconds * 1e9)
        for attributes, seconds in recorder.snapshot().device_time_s
    }
    assert states[lost, "charged"] == held
    assert states[lost, "idle"] == states[other, "idle"] == 0


def test_a_device_lost_under_a_call_that_goes_on_is_charged_no_further(
    gpu: VirtualGpu, recorder: Recorder
) -> None:
    """Its code still runs, on the host: no mark tells that the device is gone, so it is asked."""
    with gputrace.span("inside"):
        gpu.launch(50 * MS)
        gpu.advance(10 * MS)
        recorder.settle()
        before = recorder.snapshot().feature_time_s
        gpu.lose(0)
        for _ in range(3):
            gpu.advance(10 * MS)
            recorder.settle()
        assert unmeasured(recorder) == {"device_lost": 1}
        with gpu.device(1), gputrace.span("on-the-other"):
            gpu.launch(MS)
    gpu.advance(60 * MS)
    (inside, on_the_other) = charges(recorder)
    assert inside[:2] == ("inside", "ok")
    assert 9 * MS < inside[2] <= 10 * MS
    assert [round(seconds * 1e9) for _, seconds in before] == [inside[2]]
    assert on_the_other == ("on-the-other", "ok", MS)
    assert unmeasured(recorder) == {"device_lost": 1}


def test_a_step_whose_end_cannot_be_recorded_is_charged_no_further(
    gpu: VirtualGpu, recorder: Recorder
) -> None:
    """The call goes on, and its device too; of the step, nothing more is known."""

    @gputrace.track(operation="decode")
    def decode() -> Iterator[None]:
        gpu.launch(MS)
        gpu.advance(10 * MS)
        recorder.settle()
        with gpu.capture():
            yield

    running = decode()
    next(running)
    for _ in range(3):
        recorder.settle()
        gpu.advance(10 * MS)
    running.close()
    (charged,) = charges(recorder)
    assert charged[:2] == ("decode", "ok")
    assert 9 * MS < charged[2] <= 10 * MS
    assert unmeasured(recorder) == {"graph_capture": 1}


def test_a_tick_in_the_background_breaks_no_capture(gpu: VirtualGpu, recorder: Recorder) -> None:
    with gputrace.span("before"):
        gpu.launch(MS)
    gpu.advance(2 * MS)
    with gpu.capture() as graph:
        in_thread(recorder.settler.tick)
        gpu.launch(3 * MS)
    for _ in range(4):
        with gputrace.span("replay"):
            graph.replay()
    gpu.advance(20 * MS)
    assert charges(recorder) == [("before", "ok", MS), *[("replay", "ok", 3 * MS)] * 4]
    assert unmeasured(recorder) == {}


def test_where_the_mode_cannot_be_exchanged_a_capture_waits_for_no_tick() -> None:
    """A background tick leaves the events alone; the user's thread reads them once it no longer captures."""
    with VirtualGpu(exchangeable=False) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        with gputrace.span("before"):
            gpu.launch(MS)
        gpu.advance(2 * MS)
        with gpu.capture():
            in_thread(recorder.settler.tick)
            recorder.settle()
            assert recorder._settled == []
            gpu.launch(MS)
        in_thread(recorder.settler.tick)
        assert recorder._settled == []
        assert charges(recorder) == [("before", "ok", MS)]


def test_a_kernel_that_has_not_ended_is_asked_about_and_never_waited_for(
    gpu: VirtualGpu, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NotReady is normal, and the time to an event that has not happened is an error: it is not asked for."""
    real = virtual_stream.VirtualEvent.elapsed_time

    def strict(event: virtual_stream.VirtualEvent, end_event: virtual_stream.VirtualEvent) -> float:
        for one in (event, end_event):
            assert one.at_ns is not None
            assert one.at_ns <= gpu.host_ns()
        return real(event, end_event)

    monkeypatch.setattr(virtual_stream.VirtualEvent, "elapsed_time", strict)
    with gputrace.span("long"):
        gpu.launch(50 * MS)
    for _ in range(40):
        assert charges(recorder) == []
        gpu.advance(MS)
    gpu.advance(20 * MS)
    assert charges(recorder) == [("long", "ok", 50 * MS)]
    assert unmeasured(recorder) == {}
