"""What the driver names, tells and refuses, as the devices of a node show it."""

from __future__ import annotations

import dataclasses

import pytest

from gputrace import catalogue
from gputrace.devices.nvml_library import explain
from gputrace.hardware_gauges import Errors
from gputrace.hardware_published import PATIENCE_NS
from tests import hardware_programs as programs
from tests.devices import nvml_stand_in as stand_in

S, MS, T0, GPU0, GPU1, H100 = (
    programs.S,
    programs.MS,
    programs.T0,
    programs.GPU0,
    programs.GPU1,
    programs.H100,
)
start = programs.start
library, driver, sampler = stand_in.library, stand_in.driver, stand_in.sampler


def test_what_the_driver_names_and_never_tells_of_is_unknown(start, driver, sampler):
    for call in ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"):
        driver.script(*(f"fail {call} {place} 3" for place in (0, 1)))
    program = start(sampler=sampler)
    sampler.sample_once()
    program.tick(T0 + MS)
    program.tick(T0 + MS + PATIENCE_NS)
    program.tick(T0 + MS + PATIENCE_NS + S)
    assert program.states(GPU1)["idle"] == 0
    assert program.states(GPU1)["unknown"] > 0
    assert program.spent_ns(GPU1) == program.states(GPU1)["unknown"]


def test_what_is_read_is_published_under_the_name_that_the_driver_gives(start, driver):
    taken = []
    sampler = stand_in.make(driver, on_reading=taken.append)
    program = start(at_ns=driver.monotonic_ns(), sampler=sampler)
    for _ in range(5):
        stand_in.poll(sampler, driver)
        while taken:
            program.hardware.take(taken.pop(0))
        program.tick(driver.monotonic_ns())
    program.tick(driver.monotonic_ns() + 100 * MS)
    for device in (GPU0, GPU1):
        found = program.states(device)
        assert found["untracked"] * 6 == found["idle"] * 4 > S
        assert found["charged"] == 0
    assert {account.device.name for account in program.hardware.accounts()} == {H100}
    shown = program.hardware.rows("a")
    assert program.rows(catalogue.HW_GPU_UTILIZATION) == {(GPU0, None): 0.4, (GPU1, None): 0.4}
    drawn = sum(value for _, value in shown[catalogue.DEVICE_ENERGY.name])
    assert drawn == pytest.approx(sum(value for _, value in shown[catalogue.HW_ENERGY.name]))
    sampler.stop()


def test_a_gpu_in_slices_is_not_published_and_its_slices_are(start, driver, sampler):
    driver.script("mig 0 2")
    program = start(sampler=sampler)
    sampler.sample_once()
    program.read(T0, T0 + S)
    program.tick(T0 + S)
    attributes = [account.attributes("a") for account in program.hardware.accounts()]
    assert {one[catalogue.HW_ID]: one.get(catalogue.HW_PARENT) for one in attributes} == {
        "MIG-00000000-0000-5555-6666-777777777777": GPU0,
        "MIG-00000000-0001-5555-6666-777777777777": GPU0,
        GPU1: None,
    }


def test_without_hw_metrics_the_rest_is_shown(start, driver, sampler):
    program = start(sampler=sampler, standard_metrics=False)
    stand_in.started(sampler, driver)
    program.tick(T0 + S)
    shown = program.hardware.rows("a")
    assert shown[catalogue.NVML_UP.name] == [({catalogue.PUBLISHER: "a"}, 1.0)]
    assert not {name for name in shown if name.startswith("hw.")}


def test_what_was_read_long_ago_is_not_shown_as_the_present(start, driver, sampler):
    now_ns = driver.monotonic_ns()
    program = start(at_ns=now_ns, sampler=sampler)
    sampler.sample_once()
    program.tick(now_ns + MS)
    program.read(now_ns, now_ns + 2 * MS, MS)
    program.tick(now_ns + 10 * MS)
    assert program.rows(catalogue.HW_GPU_UTILIZATION) == {(GPU0, None): 0.5}
    # The driver goes on to show its power, but no utilisation any more.
    driver.advance(4)
    sampler.sample_once()
    assert program.rows(catalogue.HW_GPU_UTILIZATION) == {}
    assert program.rows(catalogue.HW_POWER) == {(GPU0, None): 300.0, (GPU1, None): 300.0}
    driver.advance(60)
    assert program.rows(catalogue.HW_POWER) == {}


def test_errors_count_each_time_that_a_device_stops_answering(start, driver, sampler):
    program = start(sampler=sampler)
    stand_in.started(sampler, driver)
    lost = [f"fail {call} 1 15" for call in stand_in.DEVICE_CALLS]
    back = [f"ok {call} 1" for call in stand_in.DEVICE_CALLS]
    for times in (1, 2):
        driver.script(*lost)
        for _ in range(3):
            stand_in.poll(sampler, driver)
            program.tick(T0 + S)
        ((of, reason),) = program.rows(catalogue.HW_ERRORS)
        assert of == GPU1
        assert program.rows(catalogue.HW_ERRORS)[GPU1, reason] == times
        driver.script(*back)
        stand_in.poll(sampler, driver, 200)
        program.tick(T0 + S)


def test_a_gpu_that_fell_off_the_bus_is_unknown_to_the_very_end(start, driver):
    taken = []
    sampler = stand_in.make(driver, on_reading=taken.append)
    began_ns = driver.monotonic_ns()
    program = start(at_ns=began_ns, sampler=sampler)
    for polls in range(8):
        if polls == 4:
            driver.script(*(f"fail {call} 1 15" for call in stand_in.DEVICE_CALLS))
        stand_in.poll(sampler, driver)
        while taken:
            program.hardware.take(taken.pop(0))
        program.tick(driver.monotonic_ns())
    ends_ns = driver.monotonic_ns()
    program.close(ends_ns)
    found = program.states(GPU1)
    assert found["unknown"] > 0
    first = next(one for one in program.hardware.accounts() if one.device.id == GPU1)
    assert program.spent_ns(GPU1) == ends_ns - first.begins_ns
    sampler.stop()


def test_another_trouble_of_the_same_device_is_another_error(driver, sampler):
    errors = Errors()
    stand_in.started(sampler, driver)
    state = sampler.state()
    first, second = (driver_says(state, code) for code in (15, 9))
    for found in (state, first, first, second, state, second):
        errors.count(found)
    assert sorted(errors.counts.values()) == [1, 2]


def driver_says(state, code):
    troubled = dataclasses.replace(state.devices[0], trouble=explain(code))
    return dataclasses.replace(state, devices=(troubled, *state.devices[1:]))


def test_the_driver_is_asked_once_a_tick_however_many_readings_there_are(start, driver, sampler, monkeypatch):
    program = start(sampler=sampler)
    sampler.sample_once()
    asked = []
    monkeypatch.setattr(type(sampler), "state", counting(type(sampler).state, asked))
    for place in range(100):
        program.read(T0 + place, T0 + place + 1, device="GPU-foreign")
    program.tick(T0 + S)
    assert len(asked) == 1
    assert {account.device.id for account in program.hardware.accounts()} == {GPU0, GPU1}


def counting(function, calls):
    def count(self):
        calls.append(self)
        return function(self)

    return count
