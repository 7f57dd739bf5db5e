"""Captures: nothing is recorded in one, and polling breaks none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from gputrace.devices import cuda
from gputrace.devices.base import NotReadableError
from gputrace.devices.virtual import VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gputrace.devices.base import Mark

MS = 1_000_000


@pytest.fixture
def gpu() -> Iterator[VirtualGpu]:
    with VirtualGpu(devices=2) as gpu:
        gpu.init()
        yield gpu
        assert gpu.synchronizations == 0


def begun(gpu: VirtualGpu) -> tuple[cuda.CudaTimer, Mark]:
    timer = cuda.timer()
    assert timer is not None
    start = timer.mark()
    assert start is not None
    gpu.launch(MS)
    return timer, start


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_call_inside_a_capture_is_not_measured_and_the_capture_holds(gpu: VirtualGpu) -> None:
    with gpu.capture() as graph:
        timer = cuda.timer()
        assert timer is not None
        assert timer.unmeasured == "graph_capture"
        start = timer.mark()
        gpu.launch(MS)
        end = timer.mark()
    for mark in (start, end):
        assert mark is not None
        assert mark.events == ()
        assert mark.host_ns == gpu.host_ns()
    assert graph.kernels_ns == [MS]
    assert gpu.log == []


def test_a_replay_is_charged(gpu: VirtualGpu) -> None:
    with gpu.capture() as graph:
        gpu.launch(2 * MS)
        gpu.launch(3 * MS)
    timer = cuda.timer()
    assert timer is not None
    start = timer.mark()
    graph.replay()
    end = timer.mark()
    gpu.advance(5 * MS)
    assert start is not None
    assert end is not None
    device = timer.slots[0].device
    ended, started = device.read(end.events[0]), device.read(start.events[0])
    assert ended is not None
    assert started is not None
    assert ended - started == 5 * MS


def test_a_call_that_ends_inside_a_capture_is_not_measured(gpu: VirtualGpu) -> None:
    timer, start = begun(gpu)
    with gpu.capture():
        assert timer.mark() is None
    assert timer.unmeasured == "graph_capture"
    timer.slots[0].device.release(*start.events)
    assert timer.mark() is not None  # outside again


def test_a_side_stream_that_is_being_captured_is_not_marked(gpu: VirtualGpu) -> None:
    with gpu.capture():
        side, default = gpu.current_stream(), in_thread(gpu.current_stream)
        with gpu.stream(default):
            timer = cuda.timer(streams=[side])
    assert timer is not None
    assert timer.unmeasured == "graph_capture"
    assert timer.slots == ()


def test_polling_in_the_background_breaks_no_capture(gpu: VirtualGpu) -> None:
    timer, start = begun(gpu)

    def poll() -> int | None:
        with cuda.relaxed_capture() as safe:
            assert safe
            value = timer.slots[0].device.read(start.events[0])
        assert gpu.driver.thread.capture_mode == 0
        return value

    with gpu.capture():
        assert in_thread(poll) is not None


def test_polling_unprotected_breaks_it(gpu: VirtualGpu) -> None:
    timer, start = begun(gpu)
    capture = gpu.capture()
    capture.__enter__()
    # A refusal because of the capture says nothing about the device: not lost, only not now.
    with pytest.raises(NotReadableError, match="stream is capturing"):
        in_thread(lambda: timer.slots[0].device.read(start.events[0]))
    with pytest.raises(RuntimeError, match="previous error during capture"):
        capture.__exit__(None, None, None)
    assert timer.slots[0].device.read(start.events[0]) is not None


def test_blocks_nest_and_restore_the_mode(gpu: VirtualGpu) -> None:
    gpu.exchange_capture_mode(1)
    with cuda.relaxed_capture(), cuda.relaxed_capture():
        assert gpu.driver.thread.capture_mode == 2
    assert gpu.driver.thread.capture_mode == 1


def test_without_a_runtime_there_is_nothing_to_break() -> None:
    assert cuda.background_polling()
    with VirtualGpu(exchangeable=False), cuda.relaxed_capture() as safe:
        assert safe  # not initialised


def test_where_the_mode_cannot_be_exchanged_only_users_threads_poll() -> None:
    with VirtualGpu(exchangeable=False) as gpu:
        gpu.init()
        timer, start = begun(gpu)
        device = timer.slots[0].device
        assert not cuda.background_polling()
        with cuda.relaxed_capture() as safe:
            assert not safe
            assert device.read(start.events[0]) is None
            assert in_thread(lambda: device.read(start.events[0])) is not None  # only this thread must not
        assert device.read(start.events[0]) is not None
        with gpu.capture():
            with cuda.relaxed_capture(users_thread=True) as safe:
                assert not safe
                assert device.read(start.events[0]) is None
            in_thread(lambda: poll_in_background(device, start))
        with cuda.relaxed_capture(users_thread=True) as safe:
            assert safe
            assert device.read(start.events[0]) is not None


def poll_in_background(device: Any, mark: Mark) -> None:
    with cuda.relaxed_capture():
        assert device.read(mark.events[0]) is None


def test_a_forked_child_starts_afresh_and_destroys_nothing() -> None:
    # In a process of its own, where no other thread lives: forking beside threads is deprecated.
    code = """
import os, sys
from gputrace.devices import cuda, cuda_device
from gputrace.devices.virtual import VirtualGpu
gpu = VirtualGpu().install()
gpu.init()
timer = cuda.timer()
start = timer.mark()
making = cuda_device._making
making.acquire()  # as if another thread were making a device
devices = cuda_device._devices
held = sys.getrefcount(devices)
child = os.fork()
cuda.reset()
ok = cuda_device.known(0) is None and cuda_device._making is not making
if not child:
    ok = ok and cuda.timer() is None and not cuda.initialised() and sys.getrefcount(devices) == held
    os._exit(0 if ok else 1)
assert ok and sys.getrefcount(devices) == held - 1
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert cuda.timer().slots
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ, timeout=60)


DRIVER = """
static __thread int mode = 0;
int refuse = 0, exchanges = 0;
int cuThreadExchangeStreamCaptureMode(int *other) {
    int before = mode;
    if (refuse) return 3;
    mode = *other; *other = before; exchanges++;
    return 0;
}
int current_mode(void) { return mode; }
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) {
    *flags = 0; *active = device == 1;
    return device > 1 ? 101 : 0;
}
"""

USE_DRIVER = """
import ctypes, sys, types
from gputrace.devices import cuda, cuda_runtime
from gputrace.devices.virtual import VirtualGpu
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda = VirtualGpu(exchangeable=False)
torch.cuda.init()
assert not cuda.background_polling()      # no driver is loaded, and none gets loaded
assert cuda_runtime.has_context(0)
driver = ctypes.CDLL(sys.argv[1])
cuda.reset()
with cuda.relaxed_capture() as safe:
    assert safe and driver.current_mode() == 2
assert driver.current_mode() == 0
assert ctypes.c_int.in_dll(driver, "exchanges").value == 2
assert [cuda_runtime.has_context(device) for device in (0, 1, 2)] == [False, True, True]
ctypes.c_int.in_dll(driver, "refuse").value = 1
assert not cuda.background_polling()
"""


def test_the_capture_mode_is_exchanged_through_the_loaded_driver(tmp_path: Path) -> None:
    """A stand-in with the driver's name; in a process of its own, which then has that driver for good."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: needed to build the stand-in for libcuda")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), "-xc", "-"],
        input=DRIVER.encode(),
        check=True,
    )
    findable = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", USE_DRIVER, str(library)], check=True, env=findable, timeout=60)
