"""The virtual GPU refuses what torch and the driver refuse, and answers wrongly what they answer wrongly."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gputrace.devices import cuda
from gputrace.devices.virtual import VirtualClock, VirtualEvent, VirtualGpu
from gputrace.devices.virtual_driver import GLOBAL, RELAXED, THREAD_LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000
HOUR = 3_600 * 1_000 * MS


@pytest.fixture
def gpu() -> VirtualGpu:
    gpu = VirtualGpu(devices=2)
    gpu.init()
    return gpu


def recorded(gpu: VirtualGpu) -> VirtualEvent:
    event = gpu.Event(enable_timing=True)
    event.record()
    return event


def in_thread(function: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_stream_runs_in_order_and_streams_run_at_once(gpu: VirtualGpu) -> None:
    now, side = gpu.host_ns(), gpu.Stream()
    kernels = [gpu.launch(5 * MS), gpu.launch(2 * MS), gpu.launch(3 * MS, side)]
    assert [(k.start_ns - now, k.end_ns - now) for k in kernels if k] == [
        (0, 5 * MS),
        (5 * MS, 7 * MS),
        (0, 3 * MS),
    ]
    assert kernels == gpu.log


def test_an_idle_stream_starts_after_the_latency() -> None:
    gpu = VirtualGpu(latency_ns=3_000)
    now = gpu.host_ns()
    kernel = gpu.launch(10)
    assert kernel is not None
    assert (kernel.start_ns, kernel.end_ns) == (now + 3_000, now + 3_010)


def test_a_stream_waits_for_an_event_and_for_a_stream(gpu: VirtualGpu) -> None:
    first, second, third = gpu.Stream(), gpu.Stream(), gpu.Stream()
    kernel = gpu.launch(5 * MS, first)
    event = gpu.Event()
    event.record(first)
    second.wait_event(event)
    third.wait_stream(first)
    third.wait_event(gpu.Event())
    later = [gpu.launch(MS, stream) for stream in (second, third)]
    assert kernel
    assert all(one and one.start_ns == kernel.end_ns for one in later)


def test_an_unrecorded_event_claims_to_have_happened(gpu: VirtualGpu) -> None:
    assert gpu.Event(enable_timing=True).query()


def test_an_event_happens_after_what_was_enqueued_before(gpu: VirtualGpu) -> None:
    gpu.launch(5 * MS)
    event = recorded(gpu)
    assert not event.query()
    gpu.advance(5 * MS - 1)
    assert not event.query()
    gpu.advance(1)
    assert event.query()


def test_elapsed_time_is_refused_before_completion(gpu: VirtualGpu) -> None:
    start = recorded(gpu)
    gpu.launch(5 * MS)
    end = recorded(gpu)
    with pytest.raises(RuntimeError, match="not ready"):
        start.elapsed_time(end)
    gpu.advance(5 * MS)
    assert start.elapsed_time(end) == 5.0


def test_elapsed_time_is_refused_for_what_cannot_be_timed(gpu: VirtualGpu) -> None:
    timed, plain, elsewhere = recorded(gpu), gpu.Event(), gpu.Event(enable_timing=True)
    plain.record()
    elsewhere.record(gpu.current_stream(1))
    with pytest.raises(ValueError, match="enable_timing=True"):
        timed.elapsed_time(plain)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(gpu.Event(enable_timing=True))
    with pytest.raises(RuntimeError, match="different devices"):
        timed.elapsed_time(elsewhere)


def test_elapsed_time_is_a_float32_and_loses_what_that_cannot_hold(gpu: VirtualGpu) -> None:
    start = recorded(gpu)
    gpu.advance(HOUR + 100_000)
    measured = start.elapsed_time(recorded(gpu))
    assert measured == struct.unpack("f", struct.pack("f", measured))[0]
    assert round(measured * 1e6) == HOUR  # a tenth of a millisecond is gone


def test_elapsed_time_of_a_reversed_pair_is_nothing_to_rely_on(gpu: VirtualGpu) -> None:
    start = recorded(gpu)
    gpu.advance(MS)
    assert recorded(gpu).elapsed_time(start) == 0.0


def test_the_clock_of_a_device_may_run_off(gpu: VirtualGpu) -> None:
    gpu.devices[0].skew_ppm, gpu.devices[0].offset_ns = 100.0, 77 * HOUR
    start = recorded(gpu)
    gpu.advance(1_000 * MS)
    assert start.elapsed_time(recorded(gpu)) == pytest.approx(1_000.1, abs=1e-4)


def test_an_event_stays_on_the_device_that_recorded_it_first(gpu: VirtualGpu) -> None:
    event = recorded(gpu)
    with pytest.raises(RuntimeError, match="Event device 0 does not match recording stream's device 1"):
        event.record(gpu.current_stream(1))


def test_a_timing_event_breaks_the_capture_that_records_it(gpu: VirtualGpu) -> None:
    capture = gpu.capture()
    capture.__enter__()
    gpu.Event().record()  # ordering only: fine
    with pytest.raises(RuntimeError, match="when stream is capturing"):
        recorded(gpu)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        capture.__exit__(None, None, None)
    assert not gpu.is_current_stream_capturing()


@pytest.mark.parametrize(
    ("capture_mode", "thread_mode", "survives"),
    [
        ("global", GLOBAL, False),
        ("global", THREAD_LOCAL, True),
        ("global", RELAXED, True),
        ("thread_local", GLOBAL, True),
        ("relaxed", GLOBAL, True),
    ],
)
def test_a_query_from_another_thread_may_break_a_capture(
    gpu: VirtualGpu, capture_mode: str, thread_mode: int, survives: bool
) -> None:
    event = recorded(gpu)

    def poll() -> None:
        gpu.exchange_capture_mode(thread_mode)
        if survives:
            assert event.query()
        else:
            with pytest.raises(RuntimeError, match="when stream is capturing"):
                event.query()

    if survives:
        with gpu.capture(capture_mode):
            in_thread(poll)
    else:
        with pytest.raises(RuntimeError, match="previous error during capture"), gpu.capture(capture_mode):
            in_thread(poll)


@pytest.mark.parametrize(
    ("capture_mode", "thread_mode", "allowed"),
    [
        ("global", THREAD_LOCAL, False),
        ("thread_local", THREAD_LOCAL, False),
        ("thread_local", GLOBAL, False),
        ("relaxed", GLOBAL, True),
        ("global", RELAXED, True),
    ],
)
def test_a_capturing_thread_may_not_query_itself(
    gpu: VirtualGpu, capture_mode: str, thread_mode: int, allowed: bool
) -> None:
    event = recorded(gpu)
    capture = gpu.capture(capture_mode)
    capture.__enter__()
    gpu.exchange_capture_mode(thread_mode)
    if allowed:
        assert event.query()
        capture.__exit__(None, None, None)
    else:
        with pytest.raises(RuntimeError, match="when stream is capturing"):
            event.query()
        with pytest.raises(RuntimeError, match="previous error"):
            capture.__exit__(None, None, None)


def test_a_graph_runs_when_it_is_replayed(gpu: VirtualGpu) -> None:
    with gpu.capture() as graph:
        assert gpu.is_current_stream_capturing()
        assert gpu.launch(2 * MS) is None
        gpu.launch(3 * MS)
    assert gpu.log == []
    side = gpu.Stream()
    with gpu.stream(side):
        graph.replay()
    assert [(entry.stream, entry.end_ns - entry.start_ns) for entry in gpu.log] == [
        (side.stream_id, 2 * MS),
        (side.stream_id, 3 * MS),
    ]


def test_a_lost_device_answers_nothing_and_the_others_go_on(gpu: VirtualGpu) -> None:
    event = recorded(gpu)
    gpu.lose(0)
    attempts: list[Callable[[], object]] = [
        event.query,
        event.record,
        lambda: event.elapsed_time(event),
        lambda: gpu.launch(MS),
        gpu.current_stream,
        gpu.Stream,
        lambda: gpu.get_device_properties(0),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match="lost"):
            attempt()
    assert gpu.launch(MS, gpu.current_stream(1))


def test_waiting_is_counted_and_takes_until_the_stream_is_dry(gpu: VirtualGpu) -> None:
    now, side = gpu.host_ns(), gpu.Stream()
    gpu.launch(5 * MS)
    event = recorded(gpu)
    gpu.launch(9 * MS, side)
    event.synchronize()
    assert gpu.host_ns() == now + 5 * MS
    side.synchronize()
    gpu.synchronize()
    assert gpu.host_ns() == now + 9 * MS
    assert gpu.synchronizations == 3


def test_streams_and_devices_are_current_in_a_block_and_on_one_thread(gpu: VirtualGpu) -> None:
    side = gpu.Stream(device=1)
    with gpu.stream(side):
        assert gpu.current_device() == 1
        assert gpu.current_stream() == side
        assert gpu.current_stream() is not side  # torch makes a new object each time
        assert len({gpu.current_stream(), side}) == 1
        assert repr(side) == "<VirtualStream 1 of cuda:1>"
        assert in_thread(gpu.current_device) == 0
        assert in_thread(lambda: gpu.current_stream(1)) != side
    assert (gpu.current_device(), gpu.current_stream(1).stream_id) == (0, 0)
    guard = gpu.device(1)
    for _ in range(2):
        with guard:
            assert gpu.current_device() == 1
    gpu.set_device(1)
    assert gpu.current_device() == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal 2, there are 2"):
        gpu.current_stream(2)


def test_a_careless_question_creates_a_context(gpu: VirtualGpu) -> None:
    event = gpu.Event()
    event.record(gpu.current_stream(0))
    assert not gpu.has_context(1)

    def careless() -> None:
        gpu.set_device(1)
        gpu.current_stream()
        assert not gpu.has_context(1)
        event.query()

    in_thread(careless)
    assert gpu.has_context(1)


def test_nothing_is_initialised_before_the_first_use() -> None:
    gpu = VirtualGpu()
    gpu.Event(enable_timing=True)
    assert not gpu.is_initialized()
    gpu.current_device()
    assert gpu.is_initialized()
    assert not gpu.has_context(0)


def test_it_is_found_while_it_is_installed() -> None:
    gpu = VirtualGpu()
    with gpu as entered:
        assert entered is gpu
        assert cuda.runtime() is gpu
        assert cuda.gpu_expected()
    assert cuda.runtime() is not gpu


def test_a_forked_child_cannot_use_it() -> None:
    # In a process of its own, where no other thread lives: forking beside threads is deprecated.
    code = """
import os
from gputrace.devices.virtual import VirtualGpu
gpu = VirtualGpu()
gpu.init()
child = os.fork()
if not child:
    try:
        assert not gpu.is_initialized()
        gpu.launch(1)
    except RuntimeError as error:
        os._exit(0 if "forked subprocess" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert gpu.is_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ, timeout=60)


def test_time_stands_unless_it_is_advanced_or_each_look_takes_some() -> None:
    clock = VirtualClock(start_ns=5)
    assert (clock(), clock()) == (5, 5)
    clock.advance(2)
    assert clock() == 7
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(-1)
    stepping = VirtualClock(start_ns=0, step_ns=10)
    assert (stepping(), stepping()) == (10, 20)


def test_tied_to_real_time_kernels_take_their_time_on_many_threads() -> None:
    gpu = VirtualGpu(tied_to_real_time=True)
    gpu.init()
    start = time.monotonic_ns()
    barrier = threading.Barrier(8)

    def work() -> int:
        barrier.wait()
        with gpu.stream(gpu.Stream()) as stream:
            for _ in range(20):
                gpu.launch(MS)
            end = recorded(gpu)
            stream.synchronize()
            assert end.query()
            assert end.at_ns is not None
            return end.at_ns

    with ThreadPoolExecutor(8) as pool:
        ends = [future.result() for future in [pool.submit(work) for _ in range(8)]]
    assert min(ends) - start >= 20 * MS
    assert len(gpu.log) == 8 * 21
    for stream in {entry.stream for entry in gpu.log}:
        ran = [entry for entry in gpu.log if entry.stream == stream]
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(ran))
    with pytest.raises(RuntimeError, match="tied to real time"):
        gpu.advance(1)
