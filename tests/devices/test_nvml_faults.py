"""Every error of NVML, by every call that is made, at every moment: no exception, and nothing false."""

from __future__ import annotations

import importlib.util
import itertools
import re
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
#: Those that were met in public reports, whatever the version of the binding.
MET = {
    "UNINITIALIZED": 1,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "INSUFFICIENT_SIZE": 7,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "LIB_RM_VERSION_MISMATCH": 18,
    "NO_DATA": 21,
    "ARGUMENT_VERSION_MISMATCH": 25,
    "UNKNOWN": 999,
}
LIBRARY_CALLS = ("nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2")
CALLS = (*LIBRARY_CALLS, *stand_in.DEVICE_CALLS)
SLICE_CALLS = (
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
)


def assert_shown(sampler: NvmlSampler) -> None:
    """What a device shows now is what it has, or nothing; never 0."""
    for device in sampler.devices():
        shown = sampler.latest(device.uuid)
        if shown is not None:
            assert (shown.power_w, shown.temperature_c) in itertools.product((None, 300), (None, 55))
            assert shown.memory_used_bytes in {None, 20 << 30}
            assert shown.memory_limit_bytes in {None, 80 << 30}


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
            assert_shown(sampler)
            if call not in LIBRARY_CALLS:
                busy = [reading.busy_ns for reading in of(readings, GPU1)[2:]]
                assert busy == [400_000_000] * 5, (name, after)
            sampler.stop()


def test_every_error_of_a_field(driver: Any) -> None:
    """It is in the answer, beside what would be a value."""
    for code in ERRORS.values():
        for after in (0, 3):
            driver.start()
            sampler = stand_in.make(driver)
            readings = sampler.sample_once() + poll(sampler, driver, after)
            driver.script(f"set 0 field_result {code}")
            readings += poll(sampler, driver, 4)
            assert_true(readings)
            assert_shown(sampler)
            sampler.stop()


def test_no_error_that_was_met_is_forgotten_here() -> None:
    assert {name: ERRORS.get(f"NVML_ERROR_{name}") for name in MET} == MET
    assert all(nvml_library.explain(code) != nvml_library.explain(12345) for code in MET.values())


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
        assert_shown(sampler)
        assert [reading.busy_ns for reading in of(readings, GPU1)[2:]] == [400_000_000] * 3, name
        assert not [reading for reading in readings if reading.device.startswith("MIG")]
        sampler.stop()


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
    ],
)
def test_an_error_of_a_slice_costs_neither_its_gpu_nor_the_other_slice(driver: Any, call: str) -> None:
    for code in set(ERRORS.values()) - nvml_library.LIBRARY_GONE:
        driver.start()
        driver.script("mig 0 2", f"fail {call} 0:0 {code}")
        sampler = stand_in.make(driver)
        readings = sampler.sample_once() + poll(sampler, driver, 5)
        assert_true(readings)
        assert_shown(sampler)
        assert [reading.energy_j for reading in of(readings, GPU0)[1:]] == [300] * 4, code
        (other,) = [one for one in sampler.devices() if (one.parent, one.gpu_instance) == (GPU0, 8)]
        shown = sampler.latest(other.uuid)
        assert shown is not None
        assert shown.memory_used_bytes == 20 << 30, code
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


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ("nvmlDeviceGetMaxMigDeviceCount", "0"),
        ("nvmlDeviceGetMigDeviceHandleByIndex", "0"),
        ("nvmlDeviceGetGpuInstanceId", "0:0"),
        ("nvmlDeviceGetComputeInstanceId", "0:0"),
        ("nvmlDeviceGetUUID", "0:0"),
        ("nvmlDeviceGetName", "0:0"),
        ("nvmlDeviceGetMemoryInfo", "0:0"),
    ],
)
def test_every_call_of_a_slice_may_hang(driver: Any, call: str, where: str) -> None:
    driver.start()
    driver.script("mig 0 2", f"hang {call} {where}")
    sampler = stand_in.make(driver)
    readings = sampler.sample_once() + poll(sampler, driver, 6)
    assert [reading.busy_ns for reading in of(readings, GPU1)[2:]] == [400_000_000] * 4
    assert_shown(sampler)
    stand_in.release(sampler, driver, f"ok {call} {where}")
    readings += poll(sampler, driver, 70)
    assert_true(readings)
    slices = [device.uuid for device in sampler.devices() if device.parent == GPU0]
    assert len(slices) == 2
    assert all(sampler.latest(uuid).memory_used_bytes == 20 << 30 for uuid in slices)  # type: ignore[union-attr]
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
def test_pynvml_50_what_a_scrambled_struct_turns_into_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    """A buffer of a billion samples, a text that is none."""

    def scrambled(_: object) -> None:
        raise error()

    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", scrambled)
    with pytest.raises(nvml_library.RefusedError, match="cannot be true"):
        nvml_library.text("nvmlDeviceGetName", None)


def test_a_binding_without_a_function_is_an_old_driver() -> None:
    with pytest.raises(nvml_library.RefusedError, match="does not have"):
        nvml_library.call("nvmlDeviceGetSomethingNew")
