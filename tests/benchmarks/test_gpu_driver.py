"""Devices and energy through the real binding, on a stand-in for the driver's library."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gpu_checks import driver as driver_check
from gpu_checks.driver import compare_energy, counter_mj, watch

from gputrace.devices.readings import Reading
from gputrace.testing import VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.devices.nvml import NvmlSampler

SPEC = importlib.util.spec_from_file_location(
    "nvml_stand_in", Path(__file__).parent.parent / "devices" / "nvml_stand_in.py"
)
assert SPEC is not None
assert SPEC.loader is not None
stand_in = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(stand_in)
library, driver, sampler = stand_in.library, stand_in.driver, stand_in.sampler

S = 1_000_000_000


def reading(start_s: int, energy_uj: int | None, **others: Any) -> Reading:
    given = {"energy_source": "counter", "busy_ns": S // 2, **others}
    return Reading("GPU-1", start_s * S, (start_s + 1) * S, energy_uj=energy_uj, **given)


def test_the_counter_is_read_between_its_samples() -> None:
    samples = [(0, 1_000), (10, 2_000), (30, 2_600)]
    assert [counter_mj(samples, at) for at in (0, 5, 10, 20, 30)] == [1_000, 1_500, 2_000, 2_300, 2_600]
    for outside in (-1, 31):
        with pytest.raises(ValueError, match="was not read around"):
            counter_mj(samples, outside)
    with pytest.raises(ValueError, match="was not read around"):
        counter_mj([], 0)


@pytest.mark.parametrize(
    ("drawn_uj", "kept"),
    [(100_000_000, True), (102_000_000, True), (103_000_000, False), (97_000_000, False)],
)
def test_the_sum_of_the_readings_is_held_against_the_counter(drawn_uj: int, kept: bool) -> None:
    # 100 J a second for 20 s: 2 % allowed, since a renewal is worth less.
    samples = [(second * S, second * 100_000) for second in range(22)]
    found = compare_energy([reading(second, drawn_uj) for second in range(20)], samples)
    assert (found["readings"], found["seconds"], found["busy_share"]) == (20, 20.0, 0.5)
    assert (found["sum_j"], found["counter_j"]) == (drawn_uj * 20 / 1e6, pytest.approx(2_000.0))
    assert found["allowed_j"] == pytest.approx(40.0)
    assert found["kept"] is kept


def test_in_a_short_time_as_much_as_one_renewal_is_allowed() -> None:
    found = compare_energy([reading(0, 100_000_000)], [(0, 0), (S, 100_000)])
    assert found["allowed_j"] == pytest.approx(25.0)


def test_what_cannot_be_compared_is_not_judged() -> None:
    samples = [(0, 0), (2 * S, 200_000)]
    assert compare_energy([], samples)["kept"] is None
    assert compare_energy([reading(0, 1)], [])["kept"] is None
    assert compare_energy([reading(5, 1)], samples)["readings"] == 0  # outside the samples
    assert compare_energy([reading(0, None)], samples)["readings"] == 0
    without = compare_energy([reading(0, 100_000_000, energy_source="power", busy_ns=None)], samples)
    assert (without["kept"], without["busy_share"], without["sum_j"]) == (None, None, 100.0)


@pytest.fixture
def machine(driver: Any) -> Iterator[Any]:
    """A virtual GPU under the UUID of the stand-in's first, on the stand-in's clock."""
    with VirtualGpu(devices=1) as gpu:
        gpu.driver.clock = driver.monotonic_ns
        gpu.devices[0].uuid = stand_in.GPU0.removeprefix("GPU-")
        gpu.init()
        yield OnTheStandIn(gpu, driver)


class OnTheStandIn:
    def __init__(self, gpu: VirtualGpu, driver: Any) -> None:
        self.cuda = gpu
        self.clock = driver.monotonic_ns
        self._driver = driver

    def multiply(self) -> None:
        self.cuda.launch(10_000_000)

    def synchronize(self) -> None:
        # Eight products, and time for the clocks to be told apart.
        self._driver.advance(0.1)


def test_readings_and_counter_of_the_driver_agree(machine: Any, sampler: NvmlSampler, driver: Any) -> None:
    found = driver_check.check(machine, sampler, driver.monotonic_ns, seconds=8)
    assert (found["up"], found["trouble"], found["split"]) == (True, None, True)
    assert found["mapping"]["found"] == [True]
    assert found["energy"]["source"] == "counter"
    assert found["energy"]["readings"] >= 5
    assert found["energy"]["kept"], found["energy"]
    # Eight products of 10 ms in every tenth of a second.
    assert 6 * S < found["held_ns"] < 7 * S


def test_a_device_that_nvml_does_not_know_is_found_out(
    machine: Any, sampler: NvmlSampler, driver: Any
) -> None:
    machine.cuda.devices[0].uuid = "99999999-1111-2222-3333-444444444444"
    found = driver_check.check(machine, sampler, driver.monotonic_ns, seconds=1)
    assert found["mapping"]["found"] == [False]
    assert not found["mapping"]["kept"]
    assert found["energy"] is None


def test_a_driver_that_does_not_answer_says_why(machine: Any, sampler: NvmlSampler, driver: Any) -> None:
    driver.script("fail nvmlInitWithFlags * 9")
    found = driver_check.check(machine, sampler, driver.monotonic_ns, seconds=1)
    assert not found["up"]
    assert found["trouble"]


def test_a_device_without_a_counter_is_watched_all_the_same(sampler: NvmlSampler, driver: Any) -> None:
    readings, samples = watch(
        sampler, lambda: None, lambda: driver.advance(0.5), driver.monotonic_ns, seconds=4
    )
    assert samples == []
    assert readings
