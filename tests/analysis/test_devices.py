from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis.devices import bounds_differ, measure
from gputrace.analysis.readings import Series
from gputrace.analysis.stretches import NS, Run


def run(publisher="p1", start=0, end=60, device="GPU-1", wall=None):
    length = end - start
    return Run(
        publisher, publisher, device, start * NS, end * NS, length if wall is None else wall, length, length
    )


def series(value, state=None, metric=catalogue.DEVICE_TIME, publisher="p1", **attributes):
    names = {
        catalogue.HW_ID: "GPU-1",
        catalogue.HW_TYPE: "gpu",
        catalogue.HW_NAME: "H100",
        catalogue.PUBLISHER: publisher,
    }
    if state:
        names[catalogue.DEVICE_STATE] = state
    return Series(publisher, metric.name, {**names, **attributes}, value)


def test_states_sum_to_the_wall():
    found = [series(1.0, "charged"), series(2.0, "untracked"), series(4.0, "idle"), series(8.0, "unknown")]
    (device,) = measure(found, [run()])
    assert (device.charged_s, device.untracked_s, device.idle_s, device.unknown_s) == (1.0, 2.0, 4.0, 8.0)
    assert device.wall_s == 15.0
    assert device.untracked_upper_s == device.untracked_s
    assert (device.id, device.name, device.type) == ("GPU-1", "H100", "gpu")


def test_readings_of_a_publisher_that_was_not_chosen_count_nowhere():
    found = [series(1.0, "charged"), series(1.0, "charged", publisher="p2")]
    (device,) = measure(found, [run("p1")])
    assert device.wall_s == 1.0


def test_runs_of_one_device_add_up():
    found = [series(1.0, "charged"), series(2.0, "charged", publisher="p2")]
    (device,) = measure(found, [run("p1"), run("p2", 60, 120)])
    assert device.charged_s == 3.0


def test_a_state_of_a_later_version_is_unknown_not_lost():
    (device,) = measure([series(1.0, "charged"), series(2.0, "throttled")], [run()])
    assert (device.unknown_s, device.wall_s) == (2.0, 3.0)


def test_costs_are_kept_by_currency_and_state():
    found = [
        series(1.0, "charged"),
        series(3.0, "charged", catalogue.DEVICE_COST, **{catalogue.CURRENCY: "EUR"}),
        series(4.0, "idle", catalogue.DEVICE_COST, **{catalogue.CURRENCY: "EUR"}),
        series(5.0, "idle", catalogue.DEVICE_COST, **{catalogue.CURRENCY: "USD"}),
    ]
    (device,) = measure(found, [run()])
    assert device.costs == {"EUR": {"charged": 3.0, "idle": 4.0}, "USD": {"idle": 5.0}}
    assert device.wall_s == 1.0


@pytest.mark.parametrize(("upper", "differ"), [(2.0, False), (2.02, False), (2.03, True), (6.0, True)])
def test_the_upper_bound_of_untracked_time_counts_where_it_is_more_than_a_hundredth_away(upper, differ):
    found = [series(2.0, "untracked"), series(upper, metric=catalogue.DEVICE_UNTRACKED_UPPER_TIME)]
    (device,) = measure(found, [run()])
    assert (device.untracked_s, device.untracked_upper_s) == (2.0, upper)
    assert device.wall_s == 2.0
    assert bounds_differ(device.untracked_s, device.untracked_upper_s) is differ


def test_a_run_without_an_upper_bound_has_the_lower_one():
    found = [
        series(2.0, "untracked"),
        series(6.0, metric=catalogue.DEVICE_UNTRACKED_UPPER_TIME),
        series(1.0, "untracked", publisher="p2"),
    ]
    (device,) = measure(found, [run("p1"), run("p2", 60, 120)])
    assert (device.untracked_s, device.untracked_upper_s) == (3.0, 7.0)


def test_time_that_several_processes_charged_is_no_wall_time():
    (device,) = measure([series(1.0, "charged"), series(0.5, metric=catalogue.DEVICE_OVERLAP_TIME)], [run()])
    assert (device.overlap_s, device.wall_s) == (0.5, pytest.approx(1.0))
