"""Loading NVML: not before it is needed, once a process, and whatever comes of it the application runs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gputrace.devices import nvml_library
from gputrace.devices.nvml import NvmlSampler

# Test folders are no packages, so the file beside this one is loaded by its path.
_spec: Any = importlib.util.spec_from_file_location(
    "nvml_stand_in", Path(__file__).with_name("nvml_stand_in.py")
)
stand_in: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_in)
library, driver, sampler = stand_in.library, stand_in.driver, stand_in.sampler
poll, of, started = stand_in.poll, stand_in.of, stand_in.started
GPU0 = stand_in.GPU0


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "reboot"),
        ("NVML_ERROR_DRIVER_NOT_LOADED", "modprobe"),
        ("NVML_ERROR_NO_PERMISSION", "/dev/nvidia"),
        ("NVML_ERROR_UNKNOWN", "restart"),
        ("NVML_ERROR_GPU_IS_LOST", "reboot"),
    ],
)
def test_dask_cuda_949_what_keeps_the_library_shut_is_said_and_stops_nothing(
    sampler: NvmlSampler, driver: Any, code: str, word: str
) -> None:
    """tensorpack#1244, recommenders#1287: the mismatch killed the application, at import."""
    driver.script(f"fail nvmlInitWithFlags * {getattr(pynvml, code)}")
    assert sampler.sample_once() == []
    state = sampler.state()
    assert (state.up, state.devices) == (False, ())
    assert state.trouble is not None
    assert word in state.trouble.remedy
    driver.script("ok nvmlInitWithFlags *")
    assert of(poll(sampler, driver, 4), GPU0) != []


def test_no_library_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: ctypes.CDLL("/nowhere/" + name))
    sampler = NvmlSampler()
    assert sampler.sample_once() == []
    assert sampler.state().trouble == nvml_library.explain(nvml_library.LIBRARY_NOT_FOUND)


def test_no_binding_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sampler = NvmlSampler()
    assert sampler.sample_once() == []
    assert sampler.state().trouble == nvml_library.explain(nvml_library.NO_BINDING)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_pynvml_16_a_forked_child_opens_the_library_for_itself(sampler: NvmlSampler, driver: Any) -> None:
    """scalene#169, distributed#4873, cuCascade#138: UNINITIALIZED. The parent's locks may be held, too."""
    started(sampler, driver)
    pynvml.libLoadLock.acquire()
    sampler._lock.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a lock that is held for good must not outlive the test
        status = 1
        try:
            known_to_parent = sampler.state().devices
            sampler.sample_once()
            readings = poll(sampler, driver, 3)
            healthy = [reading.busy_ns for reading in of(readings, GPU0)[1:]] == [400_000_000] * 2
            status = 0 if healthy and known_to_parent == () else 2
        finally:
            os._exit(status)
    sampler._lock.release()
    pynvml.libLoadLock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert of(poll(sampler, driver), GPU0)[0].busy_ns == 400_000_000


def test_the_thread_reads_until_it_is_stopped(library: Path, run_python: Any) -> None:
    """In a process of its own, which finds the library as it would find the driver's: by name."""
    program = """
import sys, threading
from gputrace.devices.nvml import NvmlSampler
enough = threading.Event()
seen = []
def take(reading):
    seen.append(reading)
    if sum(one.busy_ns is not None for one in seen) > 3:
        enough.set()
sampler = NvmlSampler(0.1, take)
sampler.start()
sampler.start()
assert enough.wait(50), sampler.state()
assert sum(thread.name == "gputrace-nvml-sampler" for thread in threading.enumerate()) == 1
sampler.stop()
assert not [thread for thread in threading.enumerate() if thread.name == "gputrace-nvml-sampler"]
assert all(0 <= one.busy_ns <= one.wall_ns for one in seen if one.busy_ns is not None)
print(sampler.state().devices[0].device.name)
"""
    assert "H100" in run_python(program, **stand_in.variables(library)).stdout


def test_vllm_32611_importing_and_making_a_sampler_touch_no_driver(library: Path, run_python: Any) -> None:
    """vllm#44252: whatever touches it before a fork poisons the child. Both drivers are there to be found."""
    cuda = run_python.folder / "cuda" / "libcuda.so.1"
    cuda.parent.mkdir()
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{cuda.name}", "-o", str(cuda), "-xc", "-"],
        input=b"int cuInit(unsigned flags) { __builtin_trap(); }",
        check=True,
    )
    program = """
import pathlib, sys
import gputrace
from gputrace.devices.nvml import NvmlSampler
sampler = NvmlSampler()
sampler.state()
assert not {"pynvml", "torch"} & set(sys.modules)
with gputrace.span("work"):
    pass
gputrace.flush()
loaded = pathlib.Path("/proc/self/maps").read_text()
assert "libnvidia-ml" not in loaded and "libcuda" not in loaded
sampler.sample_once()
loaded = pathlib.Path("/proc/self/maps").read_text()
assert "libnvidia-ml" in loaded and "libcuda" not in loaded
# The test could tell.
import ctypes
ctypes.CDLL("libcuda.so.1")
assert "libcuda" in pathlib.Path("/proc/self/maps").read_text()
"""
    paths = f"{stand_in.variables(library)['LD_LIBRARY_PATH']}{os.pathsep}{cuda.parent}"
    run_python(program, LD_LIBRARY_PATH=paths)


def test_tensorpack_1244_calls_are_timed_while_the_library_does_not_fit(
    library: Path, run_python: Any
) -> None:
    """recommenders#1287: an application must start, and its calls be timed, whatever NVML says."""
    script = run_python.folder / "script"
    script.write_text(f"gpus 2\nfail nvmlInitWithFlags * {pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}\n")
    program = """
import gputrace
from gputrace.devices.nvml import NvmlSampler
from gputrace.testing import Recorder, VirtualGpu
with VirtualGpu() as gpu, Recorder(clock=gpu.host_ns) as recorder:
    gpu.init()
    sampler = NvmlSampler()
    assert sampler.sample_once() == []
    with gputrace.span("work"):
        gpu.launch(2_000_000)
    gpu.advance(5_000_000)
    assert [call.charged_ns for call in recorder.settled()] == [2_000_000]
print(sampler.state().up, sampler.state().trouble.reason)
"""
    finished = run_python(program, **stand_in.variables(library), NVML_STAND_IN=str(script))
    assert finished.stdout == "False the driver's library and its kernel module differ in version\n"


def test_a_script_file_changes_the_stand_in_of_another_process(library: Path, run_python: Any) -> None:
    script = run_python.folder / "script"
    script.write_text("gpus 3\nfail nvmlDeviceGetUUID 1 4\n")
    program = """
from gputrace.devices.nvml import NvmlSampler
sampler = NvmlSampler()
sampler.sample_once()
for state in sampler.state().devices:
    print(state.index, state.device and state.device.uuid, state.trouble and state.trouble.remedy)
"""
    output = run_python(program, **stand_in.variables(library), NVML_STAND_IN=str(script)).stdout.splitlines()
    assert output[1].startswith("1 None run as a user")
    assert [line[:6] for line in output] == ["0 GPU-", "1 None", "2 GPU-"]
