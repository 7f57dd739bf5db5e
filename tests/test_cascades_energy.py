"""The energy of stages: shared from the device's readings, and waited for when a decision is told."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue, hardware_features, ledger, settler_stages
from gputrace.cardinality import Series
from gputrace.devices.energy import EnergySplit
from gputrace.devices.readings import Reading, split_time
from gputrace.hardware_features import FeatureReadings, Stretch
from gputrace.hardware_published import Told
from gputrace.staged import PartOf, StagedWork, Tally

if TYPE_CHECKING:
    from gputrace.testing import Recorder, VirtualClock

S = 1_000_000_000
GPU = "GPU-1"
SEARCH = Series({catalogue.FEATURE: "search", catalogue.HW_TYPE: "gpu"})


def period(start_ns: int, end_ns: int, drawn_uj: int | None) -> Told:
    """A period in which this process held the device throughout."""
    reading = Reading(GPU, start_ns, end_ns, S, energy_uj=drawn_uj, energy_source="counter")
    energy = None if drawn_uj is None else EnergySplit({"charged": drawn_uj}, 0, 0, 0, estimated=False)
    split = split_time(end_ns - start_ns, end_ns - start_ns, S)
    return Told(start_ns, end_ns, split, reading, energy, any_missed=False)


def hold(features: FeatureReadings, start_ns: int, end_ns: int, *shares: tuple[Series | PartOf, int]) -> None:
    features.start(GPU, start_ns)
    features.stop(GPU, end_ns)
    features.charged(
        GPU, Stretch(start_ns, end_ns, tuple((owner, held_ns * ledger.SCALE) for owner, held_ns in shares))
    )


def tally(outer: Tally | None = None) -> Tally:
    one = Tally("light", StagedWork(outer))
    one.measured = 1
    return one


def energy_j(features: FeatureReadings) -> float:
    return sum(drawn_j for _, drawn_j in features.rows()[catalogue.FEATURE_ENERGY.name])


def test_stages_share_the_energy_of_their_feature_by_time() -> None:
    features, one, other = FeatureReadings(), tally(), tally()
    hold(features, 0, S, (PartOf(SEARCH, one), 3 * S // 4), (PartOf(SEARCH, other), S // 8), (SEARCH, S // 8))
    assert one.energy_j is None, "its period is not read yet"
    features.told(GPU, period(0, S, 8_000_000), alone=True)
    assert (one.energy_j, other.energy_j) == (6.0, 1.0)
    assert energy_j(features) == 8.0, "the feature's is what it was"


def test_a_stage_around_another_bears_it_too() -> None:
    features, outer = FeatureReadings(), tally()
    inner = tally(outer)
    hold(features, 0, S, (PartOf(SEARCH, inner), S))
    features.told(GPU, period(0, S, 8_000_000), alone=True)
    assert (inner.energy_j, outer.energy_j) == (8.0, 8.0)


def test_of_a_stage_in_two_periods_both_must_be_read() -> None:
    features, one, other = FeatureReadings(), tally(), tally()
    hold(features, 0, 2 * S, (PartOf(SEARCH, one), 2 * S))
    features.told(GPU, period(0, S, 1_000_000), alone=True)
    assert one.energy_j is None
    features.told(GPU, period(S, 2 * S, 3_000_000), alone=True)
    assert one.energy_j == 4.0
    hold(features, 2 * S, 4 * S, (PartOf(SEARCH, other), 2 * S))
    features.told(GPU, period(2 * S, 3 * S, 1_000_000), alone=True)
    features.told(GPU, period(3 * S, 4 * S, None), alone=True)
    assert other.energy_j is None, "a part of it is not known: absent"
    assert other.unread == 0


def test_what_was_never_read_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    features, one = FeatureReadings(), tally()
    hold(features, 0, S, (PartOf(SEARCH, one), S))
    monkeypatch.setattr(hardware_features, "_MOST_STRETCHES", 1)
    features._devices[GPU].stretches = type(features._devices[GPU].stretches)(
        features._devices[GPU].stretches, maxlen=1
    )
    hold(features, S, 2 * S, (SEARCH, S))
    assert (one.unread, one.energy_j) == (0, None)


def decisions(recorder: Recorder) -> list[dict[str, Any]]:
    return [dict(one.attributes) for one in recorder.events if one.name == catalogue.DECISION_EVENT]


@pytest.fixture
def served(recorder: Recorder, clock: VirtualClock) -> Any:
    """A request that is over, whose light stage waits for a reading."""
    cascade = gputrace.Cascade("answer", threshold=0.8)
    with cascade.request() as request:
        with request.stage("light"):
            clock.advance(10)
        request.stages[0].unread = 1
        request.escalate(0.9)
    recorder.settle()
    assert decisions(recorder) == []
    return request


def test_a_decision_waits_for_the_readings_of_its_last_period(recorder: Recorder, served: Any) -> None:
    served.stages[0].unread = 0
    served.stages[0].read(2_500_000)
    recorder.settle()
    recorder.settle()
    (told,) = decisions(recorder)
    assert told["gputrace.escalation.light.energy"] == 2.5


def test_it_does_not_wait_for_ever(recorder: Recorder, served: Any, clock: VirtualClock) -> None:
    clock.advance(settler_stages.READINGS_NS - 1)
    recorder.settle()
    assert decisions(recorder) == []
    clock.advance(1)
    recorder.settle()
    recorder.settle()
    (told,) = decisions(recorder)
    assert "gputrace.escalation.light.energy" not in told
    assert "gputrace.escalation.excluded" not in told, "its time is known all the same"
    assert served.stages[0].time_s == 1e-8


def test_a_flush_waits_for_none(recorder: Recorder, served: Any) -> None:
    assert recorder.settler.flush(monotonic() + 5)
    assert len(decisions(recorder)) == 1
    assert served.is_told
