"""Faults of gputrace: counted, logged once a place, never the user's; exits and interrupts always are."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gputrace import faults


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    faults.reset()
    yield
    faults.reset()


def fail(where="think"):
    with faults.contained(where):
        raise RuntimeError("boom")


def test_a_fault_is_counted_each_time_and_logged_once_a_place(caplog):
    for _ in range(3):
        fail()
    fail("act")
    assert faults.count() == 4
    assert [record.getMessage() for record in caplog.records] == [
        f"gputrace could not {where}; the program goes on, later faults of this kind are only counted"
        for where in ("think", "act")
    ]
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert "RuntimeError: boom" in caplog.text


def test_a_block_that_succeeds_leaves_no_trace(caplog):
    with faults.contained("think"):
        pass
    assert faults.count() == 0
    assert caplog.records == []


def test_one_instance_serves_any_number_of_blocks_within_each_other():
    thinking = faults.contained("think")
    with thinking:
        with thinking:
            raise RuntimeError("inner")
        raise RuntimeError("outer")
    assert faults.count() == 2


@pytest.mark.parametrize(
    "ending",
    [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError],
    ids=lambda kind: kind.__name__,
)
def test_what_ends_a_program_or_a_task_passes(ending):
    with pytest.raises(ending), faults.contained("think"):
        raise ending
    assert faults.count() == 0


def test_faults_are_let_through_where_gputraces_own_tests_run(monkeypatch):
    monkeypatch.setenv(faults.RAISE_VARIABLE, "1")
    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert faults.count() == 1


def test_a_warning_is_said_once_a_key(caplog):
    for number in range(3):
        faults.log_once("key", "said %d", number)
        faults.log_once("other", "and %d", number)
    assert [record.getMessage() for record in caplog.records] == ["said 0", "and 0"]


def test_a_forked_child_begins_anew(caplog):
    fail()
    faults.log_once("key", "said")
    faults.reset()
    assert faults.count() == 0
    fail()
    faults.log_once("key", "said")
    assert faults.count() == 1
    assert len(caplog.records) == 4


def test_what_integrations_could_not_time_is_counted_by_reason_until_a_fork():
    for reason in ("one", "other", "one"):
        faults.unmeasured(reason)
    assert faults.all_unmeasured() == {"one": 2, "other": 1}
    faults.reset()
    assert faults.all_unmeasured() == {}
