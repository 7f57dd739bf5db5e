"""Each kind of trouble with NVML that was reported in public, by the name of the report."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gputrace.devices import nvml_library
from gputrace.devices.nvml import Gauges, NvmlSampler

# Test folders are no packages, so the file beside this one is loaded by its path.
_spec: Any = importlib.util.spec_from_file_location(
    "nvml_stand_in", Path(__file__).with_name("nvml_stand_in.py")
)
stand_in: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_in)
library, driver, sampler = stand_in.library, stand_in.driver, stand_in.sampler
poll, of, started = stand_in.poll, stand_in.of, stand_in.started
GPU0, GPU1 = stand_in.GPU0, stand_in.GPU1

S = 1_000_000_000


def test_nvtop_110_junk_samples_are_dropped(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    driver.advance(0.55)
    now = driver.wall_ns() // 1_000
    driver.script(
        "sample 0 0 50",
        f"sample 0 {now - 3_600_000_000} 50",
        f"sample 0 {now + 3_600_000_000} 50",
        f"sample 0 {now} 4000000000",
    )
    driver.advance(0.45)
    readings = of(sampler.sample_once(), GPU0)
    assert sum(reading.wall_ns for reading in readings) == S
    # The one whose moment can be true takes only its own moment with it.
    unknown = sum(reading.wall_ns for reading in readings if reading.busy_ns is None)
    assert 0 < unknown <= 100_000_000
    assert sum(reading.busy_ns or 0 for reading in readings) * 10 == (S - unknown) * 4
    # Nor do those of the future hide what comes next, though the driver tells them again and again.
    after = of(poll(sampler, driver, 5), GPU0)
    assert [(reading.wall_ns, reading.busy_ns) for reading in after] == [(S, 400_000_000)] * 5


def test_nvidia_container_toolkit_48_after_daemon_reload_the_library_is_opened_anew(
    sampler: NvmlSampler, driver: Any
) -> None:
    """#251, #1227: Unknown Error from everything."""
    started(sampler, driver)
    calls = [name for name in stand_in.DEVICE_CALLS if name != "nvmlDeviceGetHandleByIndex_v2"]
    driver.script(*[f"fail {name} * {pynvml.NVML_ERROR_UNKNOWN}" for name in calls])
    assert poll(sampler, driver) == []
    assert not sampler.state().up
    assert "daemon-reload" in sampler.state().trouble.remedy  # type: ignore[union-attr]
    poll(sampler, driver, 200)
    assert driver.calls("nvmlInitWithFlags", "-") < 15
    driver.script(*[f"ok {name} *" for name in calls])
    readings = of(poll(sampler, driver, 130), GPU0)
    assert sampler.state().up
    assert readings[-1].busy_ns == 400_000_000
    assert readings[-1].energy_j == 300
    assert driver.references() == 1


def test_dcgm_exporter_348_a_gpu_off_the_bus_leaves_the_others_alone(
    sampler: NvmlSampler, driver: Any
) -> None:
    """gpu-monitoring-tools#46, prometheus-slurm-exporter#34: the whole exporter failed."""
    started(sampler, driver)
    lost = [name for name in stand_in.DEVICE_CALLS if name != "nvmlDeviceGetHandleByIndex_v2"]
    driver.script(*[f"fail {name} 0 {pynvml.NVML_ERROR_GPU_IS_LOST}" for name in lost])
    readings = poll(sampler, driver, 5)
    assert of(readings, GPU0) == []
    assert [reading.busy_ns for reading in of(readings, GPU1)] == [400_000_000] * 5
    assert "off the bus" in stand_in.trouble(sampler)
    assert sampler.state().up
    assert sampler.latest(GPU0) is None
    assert sampler.latest(GPU1) is not None
    poll(sampler, driver, 100)
    assert driver.calls("nvmlDeviceGetHandleByUUID", "0") < 10


def test_a_lost_gpu_comes_back_where_it_is_now_and_its_counter_is_not_believed(
    sampler: NvmlSampler, driver: Any
) -> None:
    started(sampler, driver)
    driver.script(f"fail nvmlDeviceGetSamples 0 {pynvml.NVML_ERROR_GPU_IS_LOST}")
    poll(sampler, driver, 2)
    # It changes places with the other, whose counter stands just so that the difference could be true.
    driver.script("ok nvmlDeviceGetSamples 0", f"set 0 uuid {GPU1}", f"set 1 uuid {GPU0}", "set 1 util 90")
    counter = pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0))
    driver.script(f"set 1 energy_mj {counter + 100_000}")
    readings = of(poll(sampler, driver, 5), GPU0)
    assert readings[-1].busy_ns == 900_000_000
    energies = {
        reading.energy_j / reading.wall_ns * S for reading in readings if reading.energy_j is not None
    }
    assert energies == {300}


@pytest.mark.parametrize("name", ["nvmlDeviceGetSamples", "nvmlDeviceGetTotalEnergyConsumption"])
def test_dcgm_exporter_348_a_call_that_hangs_holds_up_no_other_device(
    sampler: NvmlSampler, driver: Any, name: str
) -> None:
    started(sampler, driver)
    driver.script(f"hang {name} 0")
    readings = poll(sampler, driver, 5)
    assert of(readings, GPU0) == []
    assert [reading.busy_ns for reading in of(readings, GPU1)] == [400_000_000] * 5
    assert "does not return" in stand_in.trouble(sampler)
    # One thread is lost to it, however often it would have been its turn.
    assert driver.hanging() == 1
    stand_in.release(sampler, driver, f"ok {name} 0")
    back = of(poll(sampler, driver, 70), GPU0)
    assert (back[-1].busy_ns, back[-1].energy_j) == (400_000_000, 300)
    assert all(reading.busy_ns in {None, 400_000_000} for reading in back if reading.wall_ns == S)


def test_a_gpu_that_is_missed_after_opening_anew_is_one_device_when_it_is_back(
    sampler: NvmlSampler, driver: Any
) -> None:
    started(sampler, driver)
    driver.script(f"fail nvmlDeviceGetHandleByIndex_v2 1 {pynvml.NVML_ERROR_GPU_IS_LOST}")
    driver.script(f"fail nvmlDeviceGetSamples * {pynvml.NVML_ERROR_UNINITIALIZED}")
    poll(sampler, driver)
    driver.script(
        "ok nvmlDeviceGetSamples *", f"fail nvmlDeviceGetHandleByUUID 1 {pynvml.NVML_ERROR_UNKNOWN}"
    )
    poll(sampler, driver)
    assert stand_in.trouble(sampler, 2) == nvml_library.explain(nvml_library.GPU_NOT_FOUND).reason
    driver.script("ok nvmlDeviceGetHandleByUUID 1")
    poll(sampler, driver, 3)
    driver.script("ok nvmlDeviceGetHandleByIndex_v2 1")
    poll(sampler, driver, 70)
    assert [device.uuid for device in sampler.devices()] == [GPU0, GPU1]
    assert [reading.busy_ns for reading in of(poll(sampler, driver), GPU1)] == [400_000_000]


def test_the_library_is_not_closed_under_a_call_that_hangs(sampler: NvmlSampler, driver: Any) -> None:
    """Not to open it anew, nor when the sampler stops: a real one could crash the process."""
    started(sampler, driver)
    driver.script("hang nvmlDeviceGetSamples 0")
    driver.script(f"fail nvmlDeviceGetSamples 1 {pynvml.NVML_ERROR_UNINITIALIZED}")
    poll(sampler, driver, 3)
    assert driver.calls("nvmlInitWithFlags", "-") > 1
    sampler.stop()
    assert driver.calls("nvmlShutdown", "-") == 0
    stand_in.release(sampler, driver, "ok nvmlDeviceGetSamples 0")
    sampler.stop()
    assert driver.references() == 0


def test_a_library_that_stays_shut_is_tried_ever_less_often(sampler: NvmlSampler, driver: Any) -> None:
    driver.script(f"fail nvmlInitWithFlags * {pynvml.NVML_ERROR_DRIVER_NOT_LOADED}")
    poll(sampler, driver, 120)
    assert driver.calls("nvmlInitWithFlags", "-") < 10


def test_opening_the_library_may_hang(sampler: NvmlSampler, driver: Any) -> None:
    driver.script("hang nvmlInitWithFlags *")
    assert poll(sampler, driver, 5) == []
    assert sampler.state().trouble == nvml_library.explain(nvml_library.HANGS)
    stand_in.release(sampler, driver, "ok nvmlInitWithFlags *")
    assert of(poll(sampler, driver, 70), GPU1) != []


def test_codecarbon_1316_no_counter_and_no_power_is_no_energy_not_zero(
    sampler: NvmlSampler, driver: Any
) -> None:
    no = pynvml.NVML_ERROR_NOT_SUPPORTED
    names = ("TotalEnergyConsumption", "PowerUsage", "FieldValues")
    driver.script(*[f"fail nvmlDeviceGet{name} 0 {no}" for name in names])
    started(sampler, driver)
    (reading,) = of(poll(sampler, driver), GPU0)
    assert (reading.energy_uj, reading.energy_source, reading.power_w) == (None, None, None)
    assert reading.busy_ns == 400_000_000


def test_zeus_181_two_sources_of_energy_never_stand_in_one_sum(sampler: NvmlSampler, driver: Any) -> None:
    """187 J and 327 J for the same window: a counter that fails later is not replaced by power."""
    started(sampler, driver)
    driver.script(f"fail nvmlDeviceGetTotalEnergyConsumption 0 {pynvml.NVML_ERROR_NOT_SUPPORTED}")
    readings = of(poll(sampler, driver, 10), GPU0)
    assert {reading.energy_source for reading in readings} == {None}
    assert {reading.energy_uj for reading in readings} == {None}


@pytest.mark.parametrize(("command", "flag"), [("set 0 frozen 1", "frozen"), ("set 0 energy_mj 5", "reset")])
def test_xpumanager_130_a_counter_that_lies_is_missing(
    sampler: NvmlSampler, driver: Any, command: str, flag: str
) -> None:
    started(sampler, driver)
    driver.script(command)
    driver.advance(0.0)
    (reading,) = of(poll(sampler, driver), GPU0)
    assert (reading.energy_uj, reading.energy_flag, reading.busy_ns) == (None, flag, 400_000_000)


@pytest.mark.parametrize(
    ("command", "attribute"),
    [
        ("set 0 power_mw 2147483632", "power_w"),
        ("set 0 power_mw 4294967295", "power_w"),
        ("set 0 power_mw 0", "power_w"),
        ("set 0 temperature 2147483632", "temperature_c"),
        ("set 0 used 9223372036854775792", "memory_used_bytes"),
        ("set 0 total 18446744073709551615", "memory_limit_bytes"),
        ("set 0 total 0", "memory_used_bytes"),
        ("set 0 counter_mj 9223372036854775792", "energy_uj"),
        ("set 0 counter_mj 18446744073709551615", "energy_uj"),
    ],
)
def test_dcgm_83_a_sentinel_is_no_value(
    sampler: NvmlSampler, driver: Any, command: str, attribute: str
) -> None:
    started(sampler, driver)
    driver.script(command)
    (reading,) = of(poll(sampler, driver), GPU0)
    assert getattr(reading, attribute) is None
    assert reading.busy_ns == 400_000_000


def test_dcgm_83_a_limit_that_is_a_sentinel_makes_no_energy_implausible(
    sampler: NvmlSampler, driver: Any
) -> None:
    started(sampler, driver)
    driver.script("set 0 limit_mw 4294967295")
    assert of(poll(sampler, driver), GPU0)[-1].energy_j == 300


def test_a_field_of_many_may_be_refused_by_itself(sampler: NvmlSampler, driver: Any) -> None:
    """The call succeeds, and what stands in the field is no value: 0 W, if it were believed."""
    started(sampler, driver)
    driver.script(f"set 0 field_result {pynvml.NVML_ERROR_NOT_SUPPORTED}", "set 0 power_mw 100000")
    assert {reading.power_w for reading in of(poll(sampler, driver, 3), GPU0)} <= {None, 100}
    missing = sampler.state().devices[0].missing
    assert missing["power at this instant"] == nvml_library.explain(nvml_library.NOT_SUPPORTED)


def test_pai_889_what_is_stale_is_not_shown(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    assert sampler.latest(GPU0) is not None
    driver.advance(3)
    assert sampler.latest(GPU0) is not None
    driver.advance(0.1)
    assert sampler.latest(GPU0) is None
    assert sampler.latest("GPU-nobody") is None
    # Nor is a last value told again of a device that has stopped to answer.
    driver.script(*[f"fail {name} 0 {pynvml.NVML_ERROR_TIMEOUT}" for name in stand_in.DEVICE_CALLS])
    after = of(poll(sampler, driver, 10), GPU0)
    assert {(reading.busy_ns, reading.energy_uj, reading.power_w) for reading in after} <= {(None,) * 3}
    assert sampler.latest(GPU0) in {None, Gauges(driver.monotonic_ns())}


def test_gpustack_1633_devices_are_known_by_uuid_wherever_they_stand(
    sampler: NvmlSampler, driver: Any
) -> None:
    """pytorch#92315, #94472, #86539: the order of NVML's indices is not stable."""
    started(sampler, driver)
    driver.script(f"set 0 uuid {GPU1}", f"set 1 uuid {GPU0}", "set 1 util 90", "set 0 util 10")
    driver.script(*[f"fail {name} * {pynvml.NVML_ERROR_UNINITIALIZED} 0" for name in stand_in.DEVICE_CALLS])
    poll(sampler, driver)
    driver.script(*[f"ok {name} *" for name in stand_in.DEVICE_CALLS])
    readings = poll(sampler, driver, 10)
    assert of(readings, GPU0)[-1].busy_ns == 900_000_000
    assert of(readings, GPU1)[-1].busy_ns == 100_000_000


def test_keepgpu_187_some_bindings_take_the_uuid_as_bytes(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pynvml.nvmlDeviceGetHandleByUUID

    def picky(uuid: object) -> object:
        if not isinstance(uuid, bytes):
            raise TypeError("bytes or integer address expected instead of str instance")
        return real(uuid)

    pynvml.nvmlInit()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", picky)
    handle = nvml_library.handle_of(GPU1)
    assert nvml_library.text("nvmlDeviceGetUUID", handle) == GPU1
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _: GPU0.encode())
    assert nvml_library.text("nvmlDeviceGetUUID", handle) == GPU0
    pynvml.nvmlShutdown()
