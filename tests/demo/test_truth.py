from __future__ import annotations

import time

import pytest

from gputrace.demo.truth import DriverClock, Phase, Slice, Truth


def one_slice(wall: float = 10.0, cpu: float = 8.0, tracked: float = 5.0, planted: float = 0.0) -> Slice:
    return Slice(wall, cpu, tracked, planted)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (one_slice(), 3.0),
        (one_slice(cpu=4.0), 0.0),  # tracked code that waits uses less CPU than wall time
        (one_slice(cpu=15.0), 5.0),  # a device is busy once, however many threads ran
        (one_slice(tracked=0.0, planted=4.0), 8.0),
    ],
)
def test_untracked_on_the_host_is_cpu_beyond_tracked_code(one: Slice, expected: float) -> None:
    assert one.untracked_s(on_gpu=False) == expected


def test_untracked_on_a_gpu_is_the_planted_run() -> None:
    assert one_slice(planted=4.0).untracked_s(on_gpu=True) == 4.0
    assert one_slice().untracked_s(on_gpu=True) == 0.0


def test_parts_add_up_to_the_wall_time() -> None:
    load, pause = Phase("load", (one_slice(),)), Phase("pause", (one_slice(4.0, 0.1, 0.0),))
    truth = Truth(on_gpu=False, phases=(load, pause), features={"a": 2.0, "b": 3.0})
    assert truth.wall_s == 14.0
    assert truth.untracked_s == pytest.approx(3.1)
    assert truth.idle_s + truth.untracked_s + sum(truth.features.values()) == pytest.approx(truth.wall_s)
    assert truth.phase("pause").wall_s == 4.0
    assert truth.phase("lunch").wall_s == 0.0
    assert truth.as_json()["idle_s"] == truth.idle_s
    assert truth.as_json()["phases"]["load"]["untracked_s"] == 3.0


def test_each_slice_is_clamped_by_itself() -> None:
    crowded = Phase("load", (one_slice(), one_slice(cpu=2.0)))
    assert crowded.untracked_s(on_gpu=False) == 3.0
    assert (crowded.wall_s, crowded.cpu_s, crowded.tracked_s) == (20.0, 10.0, 10.0)


def test_phases_leave_no_gap() -> None:
    clock = DriverClock(["a"])
    began = time.perf_counter()
    clock.begin("one")
    clock.stopwatches["a"].total_s += 0.02
    clock.begin("two")
    sum(range(300_000))
    clock.planted.total_s += 0.001
    clock.end()
    took = time.perf_counter() - began
    truth = clock.truth(on_gpu=False)
    one, two = truth.phases
    assert (one.name, two.name) == ("one", "two")
    assert truth.wall_s == pytest.approx(took, rel=0.05)
    assert one.tracked_s == truth.features["a"] == 0.02
    assert two.tracked_s == 0.0
    assert one.untracked_s(on_gpu=True) == 0.0
    assert two.untracked_s(on_gpu=True) == 0.001
    assert two.cpu_s > 0


def test_a_busy_phase_is_cut_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputrace.demo.truth.SLICE_S", 0.005)
    clock = DriverClock(["a"])
    clock.begin("busy")
    for _ in range(4):
        clock.cut_when_due()
        clock.stopwatches["a"].total_s += 0.006
        time.sleep(0.006)
    clock.end()
    (busy,) = clock.truth(on_gpu=False).phases
    assert len(busy.slices) == 4  # the first three are cut when due, the last by the end
    assert busy.tracked_s == pytest.approx(0.024)


def test_ending_twice_adds_nothing() -> None:
    clock = DriverClock([])
    clock.end()
    clock.begin("one")
    clock.end()
    clock.end()
    assert len(clock.truth(on_gpu=False).phases) == 1
