"""What a call is timed on, and what each mark records; the virtual GPU's log is the truth."""

from __future__ import annotations

import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from gputrace.devices import cuda, cuda_events, cuda_runtime
from gputrace.devices.base import DeviceLostError, Mark, NotReadableError
from gputrace.devices.cuda_clock import SLACK_NS
from gputrace.devices.cuda_events import EventPool
from gputrace.devices.virtual import VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MS = 1_000_000
NO_STREAM = types.SimpleNamespace()


@pytest.fixture
def gpu() -> Iterator[VirtualGpu]:
    """Two devices with contexts on both; whatever the test does, nobody may have waited for a device."""
    with VirtualGpu(devices=2) as gpu:
        gpu.init()
        with gpu.device(1):
            gpu.init()
        yield gpu
        assert gpu.synchronizations == 0


def timer(devices: Any = None, streams: Any = None) -> cuda.CudaTimer:
    made = cuda.timer(devices, streams)
    assert made is not None
    return made


def marked(timer: cuda.CudaTimer) -> Mark:
    mark = timer.mark()
    assert mark is not None, timer.unmeasured
    return mark


def read(timer: cuda.CudaTimer, mark: Mark, slot: int = 0) -> int | None:
    return timer.slots[slot].device.read(mark.events[slot])


def assert_true(timer: cuda.CudaTimer, mark: Mark, slot: int = 0) -> None:
    """The value read for a mark keeps its promise."""
    event: Any = mark.events[slot]
    value = read(timer, mark, slot)
    assert value is not None
    assert value <= event.at_ns <= value + timer.slots[slot].device.mapping_error_ns


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_without_torch_there_is_no_runtime_and_torch_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert cuda.runtime() is None
    assert cuda.timer() is None
    assert not cuda.initialised()
    assert "torch" not in sys.modules


def test_torch_is_used_once_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert cuda.runtime() is None  # half imported, by another thread
    torch.cuda = VirtualGpu()  # type: ignore[attr-defined]
    assert cuda.runtime() is torch.cuda
    assert not cuda.initialised()


def test_cuda_is_not_initialised_by_looking() -> None:
    with VirtualGpu() as gpu:
        assert cuda.timer() is None
        assert cuda.timer(devices=[0, 1]) is None
        assert not gpu.is_initialized()
        gpu.current_device()
        assert cuda.initialised()


def test_a_call_is_timed_on_the_current_stream_of_the_current_device(gpu: VirtualGpu) -> None:
    gpu.set_device(1)
    with gpu.stream(gpu.Stream()) as stream:
        made = timer()
        start = marked(made)
        kernel = gpu.launch(5 * MS)
        end = marked(made)
    (slot,) = made.slots
    assert slot.stream == stream
    assert slot.device.id == f"GPU-{gpu.devices[1].uuid}"
    assert (slot.device.type, slot.device.name, slot.device.source) == ("gpu", "Virtual GPU", "cuda_event")
    assert read(made, end) is None
    gpu.advance(5 * MS)
    assert_true(made, start)
    assert_true(made, end)
    started, ended = read(made, start), read(made, end)
    assert started is not None
    assert ended is not None
    assert kernel is not None
    assert ended - started == kernel.end_ns - kernel.start_ns
    assert not made.estimated
    assert made.unmeasured is None


def test_a_slice_is_named_as_the_driver_names_it(gpu: VirtualGpu) -> None:
    """torch leaves the prefix out for both."""
    gpu.devices[1].name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    (slot,) = cuda.timer(1, None).slots
    assert slot.device.id == f"MIG-{gpu.devices[1].uuid}"


def test_a_mark_tells_the_host_time_before_its_events(gpu: VirtualGpu) -> None:
    gpu.launch(5 * MS)
    made = timer()
    assert marked(made).host_ns == made.host_ns == gpu.host_ns()


def test_calls_outstanding_together_are_read_in_any_order(gpu: VirtualGpu) -> None:
    timers, marks = [], []
    for number in range(5):
        made = timer()
        start = marked(made)
        gpu.launch((number + 1) * MS)
        timers.append(made)
        marks.append((start, marked(made)))
    gpu.advance(6 * MS)
    assert [read(made, end) is not None for made, (_, end) in zip(timers, marks, strict=True)] == [
        *[True] * 3,
        *[False] * 2,
    ]
    gpu.advance(60 * MS)
    for made, (start, end) in reversed(list(zip(timers, marks, strict=True))):
        assert_true(made, end)
        assert_true(made, start)


def test_two_devices_are_two_slots(gpu: VirtualGpu) -> None:
    gpu.devices[1].offset_ns = 10**15
    made = timer(devices=["cuda:1", 0, 1])
    assert [slot.stream.device_index for slot in made.slots] == [1, 0]
    start = marked(made)
    for index in (0, 1):
        gpu.launch((index + 1) * MS, gpu.current_stream(index))
    end = marked(made)
    gpu.advance(1 * MS)
    assert read(made, end, 0) is None
    assert_true(made, end, 1)
    gpu.advance(1 * MS)
    for slot in (0, 1):
        assert_true(made, start, slot)
        assert_true(made, end, slot)


def test_side_streams_are_slots_of_their_own(gpu: VirtualGpu) -> None:
    side, far = gpu.Stream(), gpu.Stream(device=1)
    made = timer(streams=[side, far, gpu.current_stream()])
    assert [slot.stream for slot in made.slots] == [gpu.current_stream(), side, far]
    assert [slot.stream for slot in timer(streams=side).slots] == [gpu.current_stream(), side]
    marked(made)
    gpu.launch(3 * MS, side)
    end = marked(made)
    assert read(made, end, 0) is not None
    assert read(made, end, 1) is None
    gpu.advance(3 * MS)
    assert_true(made, end, 1)
    assert_true(made, end, 2)
    assert not made.estimated


def test_leaving_on_another_stream_is_an_estimate(gpu: VirtualGpu) -> None:
    made = timer()
    start = marked(made)
    with gpu.stream(gpu.Stream()):
        end = marked(made)
    assert made.estimated
    assert read(made, end) == read(made, start)  # still on the stream of the entry


def test_leaving_on_another_device_is_an_estimate_unless_devices_are_named(gpu: VirtualGpu) -> None:
    timers = implicit, sided, explicit = timer(), timer(streams=[gpu.Stream()]), timer(devices=[0])
    for made in timers:
        marked(made)
    gpu.set_device(1)
    for made in timers:
        marked(made)
    assert implicit.estimated
    assert sided.estimated
    assert not explicit.estimated
    with gpu.device(0), gpu.stream(gpu.Stream()):
        marked(explicit)
    assert explicit.estimated


def test_a_device_without_a_context_gets_none_from_us() -> None:
    with VirtualGpu(devices=2) as gpu:
        with gpu.device(1):
            gpu.init()
        for made in (timer(), timer(devices=[0])):
            assert made.unmeasured == "no_context"
            assert marked(made).events == ()
        made = timer(devices=[1])
        start = marked(made)
        marked(made)
        assert not gpu.has_context(0)
        in_thread(lambda: read(made, start))
        assert not gpu.has_context(0)


def test_a_device_that_is_not_there_is_refused_early_and_never_raises_later(gpu: VirtualGpu) -> None:
    assert timer(devices=[7]).unmeasured == "no_such_device"
    assert timer(devices="cpu").unmeasured == "no_such_device"
    assert [slot.stream.device_index for slot in timer(devices=[7, 1]).slots] == [1]
    cuda.check()
    cuda.check(devices=[0, "cuda", "cuda:1"], streams=gpu.Stream())
    for wrong in ("cpu", -1, "cuda:x", [0, 1.5]):
        with pytest.raises(ValueError, match="devices= takes CUDA devices"):
            cuda.check(devices=wrong)
    with pytest.raises(TypeError, match=r"streams= takes torch\.cuda\.Stream objects"):
        cuda.check(streams=[NO_STREAM])


@pytest.mark.usefixtures("gpu")
def test_the_current_device_can_be_named() -> None:
    assert [slot.stream.device_index for slot in timer(devices="cuda").slots] == [0]


def test_a_uuid_that_torch_does_not_tell_is_replaced(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = types.SimpleNamespace(name="Old GPU")
    monkeypatch.setattr(gpu, "get_device_properties", lambda _: nameless)
    assert timer().slots[0].device.id.endswith("/cuda:0")


def test_a_lost_device_is_one_error_when_read_and_none_in_the_call(gpu: VirtualGpu) -> None:
    made, other = timer(), timer(devices=[1])
    start = marked(made)
    gpu.lose(0)
    assert made.mark() is None
    assert made.unmeasured == "device_lost"
    with pytest.raises(DeviceLostError, match=r"GPU-.* \(cuda:0\) no longer answers"):
        read(made, start)
    assert timer().unmeasured == "device_lost"
    assert marked(timer()).events == ()
    assert_true(other, marked(other))


def test_a_mark_that_fails_halfway_gives_its_events_back(gpu: VirtualGpu) -> None:
    made = timer(devices=[0, 1])
    gpu.lose(1)
    assert made.mark() is None
    assert made.unmeasured == "device_lost"
    assert len(gpu.log) == 1
    pools = [slot.device.pool for slot in made.slots]  # type: ignore[attr-defined]
    assert [(len(pool._in_use), len(pool._free)) for pool in pools] == [(0, 1), (0, 1)]


def test_a_device_lost_while_its_reference_is_recorded_is_lost_too(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = timer()
    start = marked(made)
    make = gpu.Stream

    def lose_then_make(**options: Any) -> Any:
        gpu.lose(0)
        return make(**options)

    monkeypatch.setattr(gpu, "Stream", lose_then_make)
    with pytest.raises(DeviceLostError):
        read(made, start)


def test_full_memory_passes_by(gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made = timer()
    start = marked(made)
    make = gpu.Stream

    def refuse(**_: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate a stream")

    monkeypatch.setattr(gpu, "Stream", refuse)
    for _ in range(3):
        with pytest.raises(NotReadableError, match=r"cannot be read now: CUDA out of memory"):
            read(made, start)
    assert len(made.slots[0].device.pool._in_use) == 1  # type: ignore[attr-defined]
    monkeypatch.setattr(gpu, "Stream", make)
    assert_true(made, start)


def test_marks_of_several_threads_do_not_share_events(gpu: VirtualGpu) -> None:
    barrier = threading.Barrier(4)

    def call() -> list[Mark]:
        barrier.wait()
        made = timer()
        return [marked(made) for _ in range(500)]

    with ThreadPoolExecutor(4) as pool:
        marks = [mark for future in [pool.submit(call) for _ in range(4)] for mark in future.result()]
    assert len({id(mark.events[0]) for mark in marks}) == 2_000
    assert len(gpu.log) == 2_000


def test_events_are_used_again_once_they_are_released(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = gpu.Event

    def counting(**options: Any) -> Any:
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(gpu, "Event", counting)
    for _ in range(100):
        one = timer()
        marks = (marked(one), marked(one))
        gpu.advance(MS)
        for mark in marks:
            assert_true(one, mark)
            one.slots[0].device.release(*mark.events)
    assert len(made) == 3  # a pair, and the reference of the first tenth of a second


def test_a_call_that_finds_no_event_gives_back_those_it_has(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_events, "MOST_IN_USE", 1)
    first = timer()
    mark = marked(first)
    second = timer(devices=[1, 0])
    assert second.mark() is None
    assert second.unmeasured == "too_many_events"
    assert marked(timer(devices=[1])).events
    first.slots[0].device.release(*mark.events)
    assert marked(timer()).events
    assert len(gpu.log) == 4


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=200))
def test_an_event_has_one_holder_until_it_is_released(steps: list[tuple[bool, int]]) -> None:
    pool = EventPool(VirtualGpu().Event)
    held: list[Any] = []
    released: list[Any] = []
    for take, which in steps:
        if take or not held:
            event = pool.acquire()
            assert all(event is not other for other in held)
            held.append(event)
        else:
            event = held.pop(which % len(held))
            pool.release(event)
            released.append(event)
            pool.release(*(one for one in released if all(one is not other for other in held)))


def test_the_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_events, "MOST_IN_USE", 8)
    monkeypatch.setattr(cuda_events, "MOST_FREE", 3)
    pool = EventPool(VirtualGpu().Event)
    events = [pool.acquire() for _ in range(8)]
    assert pool.acquire() is None
    pool.release(*events)  # type: ignore[arg-type]
    assert len(pool._free) == 3
    assert not pool._in_use
    assert pool.acquire() in events


def test_slack_is_part_of_the_stated_error(gpu: VirtualGpu) -> None:
    made = timer()
    start = marked(made)
    assert made.slots[0].device.mapping_error_ns == 1_000_000_000  # before anything was read
    assert read(made, start) == start.events[0].at_ns - SLACK_NS  # type: ignore[attr-defined]
    assert made.slots[0].device.mapping_error_ns == 2 * SLACK_NS
    assert gpu.log


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ((), {}, False),
        (("nvidia0", "nvidiactl"), {}, True),
        (("nvidia3",), {"CUDA_VISIBLE_DEVICES": "3"}, True),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "GPU-8f0e"}, True),
        (("kfd",), {}, True),
        (("nvidiactl", "nvidia-uvm"), {}, False),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": ""}, False),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "-1"}, False),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, False),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "-1,0"}, False),
        (("kfd",), {"HIP_VISIBLE_DEVICES": "-1"}, False),
    ],
)
def test_a_gpu_is_expected_where_device_files_are_and_are_visible(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    environment: dict[str, str],
    expected: bool,
) -> None:
    for name in files:
        (tmp_path / name).touch()
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cuda_runtime, "DEVICE_FILES", tmp_path)
    cuda.reset()
    try:
        assert cuda.gpu_expected() is expected
    finally:
        monkeypatch.undo()
        cuda.reset()
