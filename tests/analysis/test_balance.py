from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis import balance
from gputrace.analysis.devices import Device
from gputrace.analysis.readings import Readings, Series
from gputrace.analysis.stretches import NS, Run


def feature(value, kind="gpu"):
    return Series("i1", catalogue.FEATURE_TIME.name, {catalogue.HW_TYPE: kind}, value)


def device(charged, overlap=0.0, kind="gpu"):
    return Device("d", None, kind, 100.0, charged, 0.0, 0.0, 100.0 - charged, 0.0, overlap, {})


def check(series, devices, runs, **corrected):
    return balance.check(Readings(tuple(series), tuple(runs), 0, 100 * NS, corrected_s=corrected), devices)


def run(states, elapsed):
    return Run("i1", "p1", "d", 0, 100 * NS, states, elapsed, states)


def test_what_features_were_charged_is_what_the_device_was_held():
    books = check([feature(10.0), feature(20.0)], [device(30.0)], [run(100.0, 100.0)])
    assert books.balanced
    assert books.imbalance_s == 0.0
    assert books.notes == ()


def test_time_charged_by_several_processes_is_corrected():
    assert check([feature(30.0)], [device(25.0, overlap=5.0)], []).balanced
    assert not check([feature(30.0)], [device(25.0)], []).balanced
    assert check([feature(26.0)], [device(25.0, overlap=5.0)], [], gpu=4.0).balanced
    assert not check([feature(26.0)], [device(25.0, overlap=5.0)], [], gpu=3.9).balanced


@pytest.mark.parametrize(("charged", "sign", "word"), [(30.001, 1, "more"), (29.999, -1, "less")])
def test_a_millisecond_too_much_or_too_little_is_seen(charged, sign, word):
    books = check([feature(charged)], [device(30.0)], [])
    assert not books.balanced
    assert books.imbalance_s == pytest.approx(sign * 0.001)
    assert word in books.notes[0]


def test_rounding_of_each_series_is_allowed():
    books = check([feature(10.0000004)] * 10, [device(100.0)], [])
    assert books.balanced
    assert books.imbalance_s <= books.tolerance_s


def test_errors_of_gpus_and_hosts_do_not_cancel_out():
    books = check([feature(11.0), feature(9.0, "cpu")], [device(10.0), device(10.0, kind="cpu")], [])
    assert not books.balanced
    assert len(books.notes) == 2


def test_features_without_any_device_do_not_balance():
    assert not check([feature(1.0)], [], []).balanced


@pytest.mark.parametrize(("states", "balanced"), [(100.0, True), (99.0, True), (98.0, False), (102.0, False)])
def test_states_that_lose_time_against_the_clock_do_not_balance(states, balanced):
    books = check([], [], [run(states, 100.0)])
    assert books.balanced is balanced
    assert bool(books.notes) is not balanced
