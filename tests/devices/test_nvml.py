"""What the sampler reads; the real binding over a stand-in of the driver's library, on a clock of its own."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gputrace import faults

if TYPE_CHECKING:
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

S = 1_000_000_000


def test_a_healthy_device_is_read_completely(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    (reading,) = of(poll(sampler, driver), GPU0)
    assert (reading.busy_ns, reading.wall_ns, reading.busy_source) == (400_000_000, S, "samples")
    assert (reading.energy_j, reading.energy_source, reading.energy_flag) == (300, "counter", None)
    assert (reading.power_w, reading.temperature_c) == (300, 55)
    assert (reading.memory_used_bytes, reading.memory_limit_bytes) == (20 << 30, 80 << 30)
    assert sampler.state().up
    assert sampler.state().devices[0].missing == {}


def test_periods_are_in_order_and_adjacent(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    readings = []
    for step in (1, 0.35, 0.01, 2.5, 0.999, 1):
        driver.advance(step)
        readings += of(sampler.sample_once(), GPU0)
    assert all(one.end_ns == other.start_ns for one, other in itertools.pairwise(readings))
    assert sum(reading.wall_ns for reading in readings) >= 5 * S
    assert sum(reading.busy_ns or 0 for reading in readings) * 10 == sum(r.wall_ns for r in readings) * 4


def test_utilisation_is_that_of_its_period(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    driver.advance(0.5)
    driver.script("set 0 util 100")
    driver.advance(0.5)
    (reading,) = of(sampler.sample_once(), GPU0)
    assert reading.busy_ns == 200_000_000 + 500_000_000


def test_an_idle_device_reads_zero(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    driver.script("set 0 util 0")
    assert [reading.busy_ns for reading in of(poll(sampler, driver), GPU0)] == [0]


def test_a_buffer_that_ran_over_leaves_a_gap(sampler: NvmlSampler, driver: Any) -> None:
    """It holds 120 samples of 100 ms; whoever comes after 20 s has missed 8 of them."""
    started(sampler, driver)
    driver.advance(20)
    readings = of(sampler.sample_once(), GPU0)
    assert [(reading.wall_ns, reading.busy_ns) for reading in readings] == [
        (8 * S, None),
        (12 * S, 4_800_000_000),
    ]
    assert [reading.energy_j for reading in readings] == [2_400, 3_600]
    # What a device shows is of now.
    assert [reading.power_w for reading in readings] == [None, 300]


def test_an_old_driver_is_read_by_rates_and_power(tmp_path: Path) -> None:
    """Its library lacks the newer functions altogether."""
    old = stand_in.build(tmp_path, "-DOLD_DRIVER")
    with stand_in.under_pynvml(old) as driver:
        driver.start()
        sampler = stand_in.make(driver)
        sampler.sample_once()
        (reading,) = of(poll(sampler, driver), GPU0)
        assert (reading.busy_ns, reading.busy_source) == (400_000_000, "rates")
        assert (reading.energy_j, reading.energy_source) == (300, "power")
        assert sampler.state().devices[0].missing["energy counter"].remedy == "update the driver"
        sampler.stop()


def test_a_rate_stands_for_the_time_of_one_poll_only(sampler: NvmlSampler, driver: Any) -> None:
    driver.script(f"fail nvmlDeviceGetSamples * {pynvml.NVML_ERROR_NOT_SUPPORTED}")
    sampler.sample_once()
    poll(sampler, driver)
    driver.advance(10)
    readings = of(sampler.sample_once(), GPU0)
    assert [(reading.wall_ns, reading.busy_ns) for reading in readings] == [(9 * S, None), (S, 400_000_000)]


def test_a_device_that_is_not_supported_is_not_asked_again(sampler: NvmlSampler, driver: Any) -> None:
    driver.script(f"fail nvmlDeviceGetTotalEnergyConsumption * {pynvml.NVML_ERROR_NOT_SUPPORTED}")
    started(sampler, driver)
    poll(sampler, driver, 10)
    assert driver.calls("nvmlDeviceGetTotalEnergyConsumption") == 1
    assert "hardware" in sampler.state().devices[0].missing["energy counter"].remedy


def test_a_quantity_that_is_not_supported_is_not_asked_again_either(
    sampler: NvmlSampler, driver: Any
) -> None:
    driver.script(f"fail nvmlDeviceGetTemperature 0 {pynvml.NVML_ERROR_NOT_SUPPORTED}")
    poll(sampler, driver, 200)
    assert driver.calls("nvmlDeviceGetTemperature", "0") == 1


def test_a_buffer_that_never_holds_a_sample_is_no_source(sampler: NvmlSampler, driver: Any) -> None:
    driver.script(f"fail nvmlDeviceGetSamples 0 {pynvml.NVML_ERROR_NOT_FOUND}")
    assert of(poll(sampler, driver, 5), GPU0)[-1].busy_source == "rates"


def test_a_failing_quantity_is_asked_ever_less_often(sampler: NvmlSampler, driver: Any) -> None:
    driver.script(f"fail nvmlDeviceGetTemperature 0 {pynvml.NVML_ERROR_TIMEOUT}")
    started(sampler, driver)
    poll(sampler, driver, 120)
    assert driver.calls("nvmlDeviceGetTemperature", "0") < 10
    driver.script("ok nvmlDeviceGetTemperature 0")
    assert of(poll(sampler, driver, 60), GPU0)[-1].temperature_c == 55


def test_once_the_library_is_opened_anew_everything_is_asked_at_once(
    sampler: NvmlSampler, driver: Any
) -> None:
    driver.script(f"fail nvmlDeviceGetTemperature * {pynvml.NVML_ERROR_TIMEOUT}")
    poll(sampler, driver, 100)
    driver.script("ok nvmlDeviceGetTemperature *")
    driver.script(f"fail nvmlDeviceGetSamples * {pynvml.NVML_ERROR_UNINITIALIZED}")
    poll(sampler, driver)
    driver.script("ok nvmlDeviceGetSamples *")
    assert of(poll(sampler, driver), GPU0)[-1].temperature_c == 55
    assert driver.references() == 1


def test_a_limit_that_is_lowered_makes_no_energy_implausible(sampler: NvmlSampler, driver: Any) -> None:
    started(sampler, driver)
    driver.script("set 0 limit_mw 100000")
    assert of(poll(sampler, driver), GPU0)[-1].energy_j == 300


def test_slices_are_devices_of_their_own(sampler: NvmlSampler, driver: Any) -> None:
    driver.script("mig 0 2", "set 0:0 used 1048576")
    started(sampler, driver)
    gpu, one, other, _ = sampler.devices()
    assert gpu.sliced
    assert [(slice_.parent, slice_.gpu_instance) for slice_ in (one, other)] == [(GPU0, 7), (GPU0, 8)]
    gauges = sampler.latest(one.uuid)
    assert gauges is not None
    assert (gauges.memory_used_bytes, gauges.power_w) == (1 << 20, None)
    # Their utilisation is not told: that is unknown, not idle. Energy is that of the whole GPU.
    readings = poll(sampler, driver)
    assert of(readings, one.uuid) == []
    assert [(reading.busy_ns, reading.energy_j) for reading in of(readings, GPU0)] == [(None, 300)]


@pytest.mark.parametrize("seconds", [3_600, -3_600, 5, -5, 0.6, -0.6])
def test_a_wall_clock_that_is_set_makes_no_time(sampler: NvmlSampler, driver: Any, seconds: float) -> None:
    started(sampler, driver)
    before = of(poll(sampler, driver), GPU0)
    driver.step_wall_clock(seconds)
    after = of(poll(sampler, driver, 10), GPU0)
    readings = before + after
    assert all(one.end_ns <= other.start_ns for one, other in itertools.pairwise(readings))
    assert readings[-1].end_ns <= driver.monotonic_ns()
    # Percents stand for the time that they are mapped to, at most one period of it is wrong or lost.
    known = [reading for reading in after if reading.busy_ns is not None]
    assert sum(reading.wall_ns for reading in known) >= 5 * S
    assert known[-1].busy_ns == 400_000_000


def test_a_consumer_that_fails_costs_nobody_else(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    taken = []

    def take(reading: Reading) -> None:
        taken.append(reading)
        raise ValueError(reading)

    sampler = stand_in.make(driver, on_reading=take)
    started(sampler, driver)
    assert {reading.device for reading in taken} == {GPU0, GPU1}
    sampler.stop()


def test_stop_gives_the_library_back(sampler: NvmlSampler, driver: Any) -> None:
    sampler.sample_once()
    assert driver.references() == 1
    sampler.stop()
    assert driver.references() == 0
    assert sampler.sample_once() is not None
    assert driver.references() == 1
