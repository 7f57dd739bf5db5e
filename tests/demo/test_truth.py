from __future__ import annotations

import time

import pytest

from gputrace.demo.truth import DriverClock, Phase, Stopwatch, Truth


def phase(
    name: str = "load", wall: float = 10.0, cpu: float = 8.0, tracked: float = 5.0, planted: float = 0.0
) -> Phase:
    return Phase(name, wall, cpu, tracked, planted)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (phase(), 3.0),
        (phase(cpu=4.0), 0.0),  # tracked code that waits uses less CPU than wall time
        (phase(cpu=15.0), 5.0),  # a device is busy once, however many threads ran
        (phase(tracked=0.0, planted=4.0), 8.0),
    ],
)
def test_untracked_on_the_host_is_cpu_beyond_tracked_code(one: Phase, expected: float) -> None:
    assert one.untracked_s(on_gpu=False) == expected


def test_untracked_on_a_gpu_is_the_planted_run() -> None:
    assert phase(planted=4.0).untracked_s(on_gpu=True) == 4.0
    assert phase().untracked_s(on_gpu=True) == 0.0


def test_parts_add_up_to_the_wall_time() -> None:
    truth = Truth(
        on_gpu=False, phases=(phase(), phase("pause", 4.0, 0.1, 0.0)), features={"a": 2.0, "b": 3.0}
    )
    assert truth.wall_s == 14.0
    assert truth.untracked_s == pytest.approx(3.1)
    assert truth.idle_s + truth.untracked_s + sum(truth.features.values()) == pytest.approx(truth.wall_s)
    assert truth.phase_s("pause") == 4.0
    assert truth.phase_s("lunch") == 0.0
    assert truth.as_json()["idle_s"] == truth.idle_s


def test_phases_leave_no_gap() -> None:
    watch = Stopwatch()
    clock = DriverClock({"a": watch})
    began = time.perf_counter()
    clock.begin("one")
    with watch:
        time.sleep(0.02)
    clock.begin("two")
    with clock.planted:
        sum(range(300_000))
    clock.end()
    took = time.perf_counter() - began
    truth = clock.truth(on_gpu=False)
    one, two = truth.phases
    assert (one.name, two.name) == ("one", "two")
    assert truth.wall_s == pytest.approx(took, rel=0.05)
    assert one.tracked_s == truth.features["a"] == pytest.approx(0.02, rel=0.9)
    assert two.tracked_s == one.planted_s == 0.0
    assert 0 < two.planted_s <= two.wall_s
    assert two.cpu_s > 0


def test_stopwatch_counts_what_failed() -> None:
    def fail() -> None:
        with watch:
            time.sleep(0.001)
            raise ValueError("no")

    watch = Stopwatch()
    with pytest.raises(ValueError, match="no"):
        fail()
    assert watch.total_s >= 0.001


def test_ending_twice_adds_nothing() -> None:
    clock = DriverClock({})
    clock.end()
    clock.begin("one")
    clock.end()
    clock.end()
    assert len(clock.truth(on_gpu=False).phases) == 1
