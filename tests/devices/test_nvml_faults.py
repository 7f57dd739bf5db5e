"""Every error of NVML, by every call that is made, at every moment: no exception, and nothing false."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gputrace.devices import nvml_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.devices.nvml import NvmlSampler
    from gputrace.devices.readings import Reading

# Test folders are no packages, so the file beside this one is loaded by its path.
_spec: Any = importlib.util.spec_from_file_location(
    "nvml_stand_in", Path(__file__).with_name("nvml_stand_in.py")
)
stand_in: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_in)
library, driver, sampler = stand_in.library, stand_in.driver, stand_in.sampler
poll, of, started = stand_in.poll, stand_in.of, stand_in.started
GPU0, GPU1 = stand_in.GPU0, stand_in.GPU1

ERRORS = {name: getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
LIBRARY_CALLS = ("nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2")
CALLS = (*LIBRARY_CALLS, *stand_in.DEVICE_CALLS)
SLICE_CALLS = (
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
)


def assert_true(readings: list[Reading]) -> None:
    """The stand-in's devices are 40 % busy and draw 300 W: of whatever period, only that is true."""
    for reading in readings:
        assert reading.wall_ns > 0
        assert reading.busy_ns in {None, reading.wall_ns * 40 // 100}
        if reading.energy_j is not None:
            assert reading.energy_j == pytest.approx(300 * reading.wall_ns / 1e9, rel=1e-6)
        assert reading.power_w in {None, 300}
        assert reading.temperature_c in {None, 55}
        assert reading.memory_used_bytes in {None, 20 << 30}
        assert reading.memory_limit_bytes in {None, 80 << 30}
    for uuid in (GPU0, GPU1):
        own = of(readings, uuid)
        assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(own))


@pytest.mark.parametrize("call", CALLS)
def test_every_error_from_the_start_and_later(driver: Any, call: str) -> None:
    for name, code in ERRORS.items():
        for after in (0, 3):
            driver.start()
            sampler = stand_in.make(driver)
            driver.script(f"fail {call} {'*' if call in LIBRARY_CALLS else 0} {code} {after}")
            readings = sampler.sample_once() + poll(sampler, driver, 7)
            assert_true(readings)
            if call not in LIBRARY_CALLS:
                busy = [reading.busy_ns for reading in of(readings, GPU1)[2:]]
                assert busy == [400_000_000] * 5, (name, after)
            sampler.stop()


def test_no_call_is_forgotten_here() -> None:
    folder = Path(nvml_library.__file__).parent
    sources = "".join(path.read_text() for path in folder.glob("nvml*.py") if "processes" not in path.name)
    # The binding calls some by a newer name.
    known = {re.sub(r"_v\d$", "", call) for call in (*CALLS, *SLICE_CALLS)}
    assert set(re.findall(r'"(nvml[A-Z]\w+)"', sources)) == known


@pytest.mark.parametrize(
    "call", [*SLICE_CALLS, "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"]
)
def test_every_error_of_a_slice(driver: Any, call: str) -> None:
    for name, code in ERRORS.items():
        driver.start()
        driver.script("mig 0 2", f"fail {call} 0:0 {code}", f"fail {call} 0 {code}")
        sampler = stand_in.make(driver)
        readings = sampler.sample_once() + poll(sampler, driver, 5)
        assert_true(readings)
        assert [reading.busy_ns for reading in of(readings, GPU1)[2:]] == [400_000_000] * 3, name
        assert not [reading for reading in readings if reading.device.startswith("MIG")]
        sampler.stop()


@pytest.mark.parametrize("call", CALLS)
def test_after_an_error_everything_is_read_again(driver: Any, call: str) -> None:
    for code in set(ERRORS.values()) - nvml_library.PERMANENT:
        driver.start()
        sampler = stand_in.make(driver)
        started(sampler, driver)
        where = "*" if call in LIBRARY_CALLS else "0"
        driver.script(f"fail {call} {where} {code}")
        readings = poll(sampler, driver, 3)
        driver.script(f"ok {call} {where}")
        readings += poll(sampler, driver, 10)
        assert_true(readings)
        last = of(readings, GPU0)[-1]
        assert (last.busy_ns, last.energy_j, last.power_w) == (400_000_000, 300, 300), code
        assert sampler.state().up
        sampler.stop()


@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_hang(driver: Any, call: str) -> None:
    where = "*" if call in LIBRARY_CALLS else "0"
    for after in (0, 2):
        driver.start()
        sampler = stand_in.make(driver)
        driver.script(f"hang {call} {where} {after}")
        readings = sampler.sample_once() + poll(sampler, driver, 6)
        if call not in LIBRARY_CALLS:
            assert [reading.busy_ns for reading in of(readings, GPU1)[2:]] == [400_000_000] * 4
        sampler.stop()
        stand_in.release(sampler, driver, f"ok {call} {where}")
        readings += poll(sampler, driver, 70)
        assert_true(readings)
        assert of(readings, GPU0)[-1].busy_ns == 400_000_000
        sampler.stop()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(CALLS),
            st.sampled_from(["0", "1", "*"]),
            st.sampled_from([0, 0, *ERRORS.values()]),
            st.integers(1, 4),
        ),
        max_size=12,
    )
)
def test_any_history_of_errors(driver: Any, history: list[tuple[str, str, int, int]]) -> None:
    driver.start()
    sampler = stand_in.make(driver)
    readings = sampler.sample_once()
    for call, where, code, seconds in history:
        driver.script(f"fail {call} {where} {code}" if code else f"ok {call} {where}")
        readings += poll(sampler, driver, seconds)
    assert_true(readings)
    sampler.stop()


def test_codes_are_those_of_the_binding() -> None:
    ours = {
        name: value
        for name, value in vars(nvml_library).items()
        if name.isupper() and isinstance(value, int) and value > 0
    }
    # Older bindings lack the newest names.
    theirs = {name: ERRORS.get(f"NVML_ERROR_{name}", value) for name, value in ours.items()}
    assert theirs == ours
    assert len(theirs) > 10


def test_every_error_has_words() -> None:
    for code in [*ERRORS.values(), nvml_library.NO_BINDING, nvml_library.HANGS, nvml_library.JUNK, 12345]:
        words = nvml_library.explain(code)
        assert words.reason
        assert words.remedy
    assert str(nvml_library.RefusedError(12345)) == "the driver answers error 12345"


@pytest.mark.parametrize(
    "error", [MemoryError, OverflowError, lambda: UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_go_nvml_51_what_a_scrambled_struct_turns_into_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    """A buffer of a billion samples, a text that is none (pynvml#50)."""

    def scrambled(_: object) -> None:
        raise error()

    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", scrambled)
    with pytest.raises(nvml_library.RefusedError, match="cannot be true"):
        nvml_library.text("nvmlDeviceGetName", None)


def test_a_binding_without_a_function_is_an_old_driver() -> None:
    with pytest.raises(nvml_library.RefusedError, match="does not have"):
        nvml_library.call("nvmlDeviceGetSomethingNew")


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
    """vllm#44252: whatever touches it before a fork poisons the child."""
    program = """
import pathlib, sys
import gputrace
from gputrace.devices.nvml import NvmlSampler
sampler = NvmlSampler()
sampler.state()
assert not {"pynvml", "torch"} & set(sys.modules)
assert "libnvidia-ml" not in pathlib.Path("/proc/self/maps").read_text()
sampler.sample_once()
loaded = pathlib.Path("/proc/self/maps").read_text()
assert "libnvidia-ml" in loaded and "libcuda" not in loaded
"""
    run_python(program, **stand_in.variables(library))


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
