"""One simulated process: the real ledger balances, in its own time, the same each time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gputrace import call as calls, cascades_counting, catalogue, clocks, identity, ledger, outcomes
from gputrace.devices import selection
from gputrace.simulate.demand import lost_ns
from tests.simulate.conftest import SHORT, START_NS, Watched, values

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.telemetry.collecting import Collected

FEATURE_TIME, DEVICE_TIME = catalogue.FEATURE_TIME.name, catalogue.DEVICE_TIME.name
NS = 1_000_000_000


@pytest.fixture(scope="module")
def watched(watch: Callable[..., Watched]) -> Watched:
    return watch()


def series(collected: Collected) -> dict[tuple[str, ...], object]:
    found: dict[tuple[str, ...], object] = {
        (one.metric.name, *of): value
        for one in collected.numbers
        for of, value in values(collected, one.metric.name).items()
    }
    for metric, points in collected.histograms:
        for point in points:
            of = (str(value) for value in (point.attributes or {}).values())
            found[(metric.name, *of)] = (point.count, point.sum, tuple(point.bucket_counts))
    return found


def test_the_ledger_balances_to_the_nanosecond(watched: Watched) -> None:
    settler = watched.process._settler
    charged = sum(settler.totals.time.values())
    states = [account.states_ns() for account in settler.hardware.accounts()]  # type: ignore[union-attr]
    held_ns = sum(one["charged"] for one in states)
    assert held_ns > 100 * NS
    assert abs(charged - held_ns * ledger.SCALE) <= ledger.SCALE
    for one in states:
        assert abs(sum(one.values()) - SHORT.span_s * NS) <= 10_000_000, "the states of a device are its time"


def test_features_and_devices_are_told_the_same_in_every_collection(watched: Watched) -> None:
    for _, collected in watched.collected:
        of_features = sum(values(collected, FEATURE_TIME).values())
        of_devices = sum(value for of, value in values(collected, DEVICE_TIME).items() if of[-1] == "charged")
        # A new series is shown as 0 first.
        assert of_features <= of_devices + 1e-6
    assert sum(watched.values(FEATURE_TIME).values()) == pytest.approx(
        sum(value for of, value in watched.values(DEVICE_TIME).items() if of[-1] == "charged"), abs=1e-6
    )


def test_the_same_seed_gives_the_same_numbers(watch: Callable[..., Watched], watched: Watched) -> None:
    again, other = watch(), watch(seed=2)
    assert again.process.truth == watched.process.truth
    assert [at_ns for at_ns, _ in again.collected] == [at_ns for at_ns, _ in watched.collected]
    assert [series(one) for _, one in again.collected] == [series(one) for _, one in watched.collected]
    assert other.process.truth.feature_s != watched.process.truth.feature_s


def test_what_is_counted_is_what_was_asked(watched: Watched) -> None:
    truth = watched.process.truth
    requests = watched.values(catalogue.REQUESTS.name)
    assert sum(requests.values()) == sum(truth.requests.values()) > 200
    by_status = {
        status: sum(v for of, v in requests.items() if of[-1] == status) for status in ("ok", "error")
    }
    assert by_status["ok"] == sum(count for (_, status), count in truth.requests.items() if status == "ok")
    tokens = watched.values(catalogue.UNITS.name)
    assert {of[0]: value for of, value in tokens.items()} == truth.units


def test_decisions_are_counted(watched: Watched) -> None:
    counted: dict[tuple[str, str], float] = {}
    for (cascade, _, decision, *_), value in watched.values(catalogue.ESCALATION_REQUESTS.name).items():
        counted[cascade, decision] = counted.get((cascade, decision), 0) + value
    decided = {key: counted[key] for key in watched.process.truth.decisions}
    assert decided == watched.process.truth.decisions
    assert {decision for _, decision in decided} == set(catalogue.ESCALATION_DECISIONS)


def test_stages_are_charged_what_was_launched_for_them(watched: Watched) -> None:
    by_stage: dict[str, float] = {}
    for (_, _, stage), value in watched.values(catalogue.ESCALATION_TIME.name).items():
        by_stage[stage] = by_stage.get(stage, 0.0) + value
    for stage in ("light", "heavy", "audit"):
        assert by_stage[stage] == pytest.approx(watched.process.truth.stage_s[stage], rel=1e-5)


def test_a_gpu_that_is_lost_is_unknown_from_then_on(watched: Watched) -> None:
    at_ns = lost_ns(SHORT)
    assert at_ns is not None
    lost = watched.process._fleet.ids[-1]

    def states(until_ns: int) -> dict[str, float]:
        collected = [one for at, one in watched.collected if at <= until_ns][-1]
        return {of[-1]: value for of, value in values(collected, DEVICE_TIME).items() if of[0] == lost}

    before, after = states(at_ns), states(SHORT.end_ns + NS)
    assert before["unknown"] == 0
    assert after["unknown"] == pytest.approx((SHORT.end_ns - at_ns) / NS, abs=1.0)
    assert after["idle"] == pytest.approx(before["idle"], abs=0.01)
    assert after["charged"] == pytest.approx(before["charged"], abs=0.01)
    assert [of[0] for of in watched.values(catalogue.HW_ERRORS.name)] == [lost]
    assert lost not in {of[0] for of in watched.values(catalogue.HW_POWER.name)}


def test_without_an_incident_it_does_not_happen(watch: Callable[..., Watched]) -> None:
    steady = watch(incidents=frozenset(), requests=100)
    truth = steady.process.truth
    assert {status for _, status in truth.requests} == {"ok"}
    assert truth.state_s()["unknown"] == truth.state_s()["untracked"] == 0
    assert len(set(steady.values(catalogue.DEVICE_PRICE.name).values())) == 1
    assert steady.values(catalogue.HW_ERRORS.name) == {}


def test_half_way_gpus_cost_more_and_a_threshold_is_raised(watched: Watched) -> None:
    middle_ns = SHORT.part_ns(0.5)
    before, after = (
        [one for at_ns, one in watched.collected if at_ns <= until_ns][-1]
        for until_ns in (middle_ns - NS, middle_ns + 60 * NS)
    )
    assert set(values(before, catalogue.DEVICE_PRICE.name).values()) == {2.4}
    assert set(values(after, catalogue.DEVICE_PRICE.name).values()) == {2.64}
    thresholds = {of[0]: value for of, value in watched.values(catalogue.ESCALATION_THRESHOLD.name).items()}
    assert thresholds["summary"] == 0.65
    assert {of[0]: v for of, v in values(before, catalogue.ESCALATION_THRESHOLD.name).items()}[
        "summary"
    ] == 0.5


def test_every_metric_that_a_service_has_is_there(watched: Watched) -> None:
    shown = {one.metric.name for one in watched.collected[-1][1].numbers if one.observations}
    shown |= {metric.name for metric, points in watched.collected[-1][1].histograms if points}
    missing = {metric.name for metric in catalogue.METRICS} - shown
    # Nothing is lost, without a price or from an untrusted client; estimates are a watcher's; weights are
    # learnt from more steps.
    assert missing <= {
        catalogue.ESCALATION_ESTIMATE.name,
        catalogue.SDK_LOST.name,
        catalogue.SDK_UNMEASURED.name,
        catalogue.SDK_UNPRICED_TIME.name,
        catalogue.SDK_UNTRUSTED.name,
        catalogue.STEP_WEIGHT.name,
        catalogue.STEP_WEIGHT_ERROR.name,
        catalogue.STEP_WEIGHT_RESIDUAL.name,
        catalogue.STEP_SHARE_ERROR.name,
        catalogue.STEP_RECOMPUTED_TIME.name,
    }


def test_tenants_are_on_metrics_if_asked(watch: Callable[..., Watched], watched: Watched) -> None:
    named = watch(tenants=True, requests=60).values(FEATURE_TIME)
    assert any("acme" in of for of in named)
    assert not any("acme" in of for of in watched.values(FEATURE_TIME))


def test_the_process_is_left_as_it_was(watch: Callable[..., Watched]) -> None:
    before = (calls.clock, calls.queue, calls.settling, selection.gpu)
    counting = (outcomes.in_force(), cascades_counting.in_force(), cascades_counting.thresholds)
    watch(requests=20, span_s=120)
    assert (calls.clock, calls.queue, calls.settling, selection.gpu) == before
    assert (outcomes.in_force(), cascades_counting.in_force(), cascades_counting.thresholds) == counting
    assert (clocks.monotonic_ns, clocks.wall_ns) == (time.monotonic_ns, time.time_ns)
    assert not identity.settled()


def test_time_is_the_simulations(watched: Watched) -> None:
    times = [at_ns for at_ns, _ in watched.collected]
    assert times[0] == START_NS
    assert times == sorted(times)
    assert SHORT.end_ns < times[-1] < SHORT.end_ns + NS
