"""Steps as the settler follows them: what it learns, what it counts, and that nothing is lost or made up."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

import gputrace
from gputrace import catalogue, ledger, steps_weights
from gputrace.steps_work import covariates, summed
from gputrace.testing import Recorder, VirtualClock, VirtualGpu
from tests import steps_simulation as simulation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.batching import Member

MS = 1_000_000
Work = gputrace.Work
FEATURE, KIND, PHASE = catalogue.FEATURE, catalogue.STEP_KIND, catalogue.STEP_PHASE


def member(feature: str | None, tenant: str | None = None) -> Member:
    with gputrace.attribute_to(feature=feature, tenant=tenant):
        return gputrace.member()


def shown(recorder: Recorder, metric: catalogue.Metric, *attributes: str) -> dict[Any, float]:
    """Values by those attributes, summed over the others."""
    found: dict[Any, float] = {}
    for row, value in recorder.settler.snapshot().requests.get(metric.name, []):
        assert set(row) <= set(metric.attributes)
        key = tuple(row.get(name) for name in attributes)
        found[key] = found.get(key, 0) + value
    return found


def serve(clock: VirtualClock, steps: int, model: str = "llm", seed: int = 0) -> None:
    """Take steps of a server whose costs add up."""
    chance = random.Random(seed)
    members = {feature: member(feature, f"{feature} ltd") for feature in simulation.FEATURES}
    for step in simulation.steps(seed, steps):
        with gputrace.step([members[feature] for feature in step.features], step.work, model=model):
            clock.advance(round(1e9 * simulation.additive(step.total) * chance.gauss(1, 0.03)))


@pytest.fixture(scope="module")
def served() -> Iterator[Recorder]:
    clock = VirtualClock()
    with Recorder(clock, metric_attributes=("tenant",)) as recorder:
        # As the settler's thread does, every now and then.
        for seed in range(6):
            serve(clock, 150, seed=seed)
            recorder.settle()
        one = member("chat", "chat ltd")
        with gputrace.step([one], [Work(prefill=600, recomputed=400)], model="llm"):
            clock.advance(20 * MS)
        with gputrace.step([], [], model="llm"):
            clock.advance(MS)
        yield recorder


# --- what is counted -----------------------------------------------------------


def test_tokens_are_counted_by_feature_and_kind(recorder: Recorder, clock: VirtualClock) -> None:
    a, b = member("a", "t"), member("b", "t")
    with gputrace.step(
        [a, b], [Work(prefill=100, cached=28, context=28), Work(decode=2, context=70)], model="m"
    ):
        clock.advance(10)
    with gputrace.step([a, b], [Work(decode=1, context=128), Work(prefill=50, recomputed=40)], model="m"):
        clock.advance(10)
    assert shown(recorder, catalogue.STEP_TOKENS, FEATURE, KIND, catalogue.MODEL) == {
        ("a", "prefill", "m"): 100,
        ("a", "cached", "m"): 28,
        ("a", "decode", "m"): 1,
        ("b", "decode", "m"): 2,
        ("b", "prefill", "m"): 50,
        ("b", "recomputed", "m"): 40,
    }
    assert shown(recorder, catalogue.STEP_MEMBERS, FEATURE) == {("a",): 2, ("b",): 2}
    assert shown(recorder, catalogue.STEPS, catalogue.STEP_REGIME) == {("1-127",): 2}


@pytest.mark.parametrize("asked", [(), ("tenant",)])
def test_tenants_are_on_metrics_if_asked(clock: VirtualClock, asked: tuple[str, ...]) -> None:
    with Recorder(clock, metric_attributes=asked) as recorder:
        with gputrace.step([member("a", "t"), member("a", "u")], [Work(decode=1), Work(prefill=9)]):
            clock.advance(10)
        assert shown(recorder, catalogue.STEP_TOKENS, catalogue.TENANT) == (
            {("t",): 1, ("u",): 9} if asked else {(None,): 10}
        )


def test_what_another_rank_counts_is_charged_and_not_counted(recorder: Recorder, clock: VirtualClock) -> None:
    one = member("a")
    for counted in (True, False):
        with gputrace.step([one], [Work(prefill=5, cached=5)], counted=counted):
            clock.advance(10)
    assert shown(recorder, catalogue.STEP_TOKENS, KIND) == {("prefill",): 5, ("cached",): 5}
    assert shown(recorder, catalogue.STEP_MEMBERS) == {(): 1}
    assert shown(recorder, catalogue.STEPS) == {(): 1}
    assert shown(recorder, catalogue.STEP_TIME, PHASE) == {("prefill",): pytest.approx(20e-9)}
    # Each saved time on its own device.
    assert shown(recorder, catalogue.STEP_CACHED_TIME)[()] > 0


def test_time_is_of_the_phase_that_took_it(recorder: Recorder, clock: VirtualClock) -> None:
    work = [Work(prefill=300), Work(decode=1, context=900), Work(prefill=30, decode=10)]
    with gputrace.step([member("a"), member("b"), member("c")], work, model="llm"):
        clock.advance(12 * MS)
    found = shown(recorder, catalogue.STEP_TIME, FEATURE, PHASE, catalogue.STEP_WEIGHTS)
    assert set(found) == {
        (f, p, "constants") for f, p in [("a", "prefill"), ("b", "decode"), ("c", "prefill"), ("c", "decode")]
    }
    assert sum(found.values()) == pytest.approx(0.012)
    theta = steps_weights.CONSTANTS
    of_prompt = theta[0] / 3 * 30 / 40 + 30 * theta[1] + 30 * 31 / 2_000 * theta[4]
    beyond = theta[0] / 3 * 10 / 40 + 10 * theta[2]
    assert found["c", "prefill", "constants"] / found["c", "decode", "constants"] == pytest.approx(
        of_prompt / beyond
    )


def test_cached_tokens_show_what_they_saved_and_recomputed_ones_what_they_took(
    recorder: Recorder, clock: VirtualClock
) -> None:
    """A prompt of which half is cached, and one that is computed for the second time."""
    fixed, prefill, _, _, pairs = steps_weights.CONSTANTS
    with gputrace.step([member("a")], [Work(prefill=500, context=500, cached=500)]):
        clock.advance(10 * MS)
    whole = fixed + 500 * prefill + (500 * 500 + 500 * 501 / 2) / 1_000 * pairs
    saved = 500 * prefill + 500 * 501 / 2_000 * pairs
    assert shown(recorder, catalogue.STEP_CACHED_TIME, FEATURE) == {
        ("a",): pytest.approx(0.01 * saved / whole)
    }
    assert shown(recorder, catalogue.STEP_RECOMPUTED_TIME) == {}
    with gputrace.step([member("b")], [Work(prefill=500, context=500, recomputed=500)]):
        clock.advance(10 * MS)
    again = 500 * prefill + (500 * 500 + 500 * 501 / 2) / 1_000 * pairs
    assert shown(recorder, catalogue.STEP_RECOMPUTED_TIME, FEATURE) == {
        ("b",): pytest.approx(0.01 * again / whole)
    }


def test_what_is_not_known_is_no_phase(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.step([], []):
        clock.advance(10)
    with gputrace.step([member("a"), member("a")], []):
        clock.advance(30)
    assert shown(recorder, catalogue.STEP_TIME, FEATURE, PHASE, catalogue.STEP_WEIGHTS) == {
        ("__overhead__", "other", "none"): pytest.approx(10e-9),
        ("a", "other", "none"): pytest.approx(30e-9),
    }
    assert shown(recorder, catalogue.STEPS) == {}


_TOKENS = st.integers(0, 5_000)
_WORK = st.builds(
    lambda p, d, c, k, r: Work(p, d, c, k, min(p, r)), _TOKENS, st.integers(0, 8), _TOKENS, _TOKENS, _TOKENS
)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", None]), _WORK), max_size=6), min_size=1, max_size=5
    ),
    st.lists(st.integers(1, 10**8), min_size=5, max_size=5),
    st.booleans(),
)
def test_to_the_unit_nothing_is_lost(steps: Any, lengths: list[int], learnt: bool) -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        members = {name: member(name) for name in ("a", "b", None)}
        for step, length_ns in zip(steps, lengths, strict=False):
            if learnt:
                teach(recorder, (1e-3, 1e-6, 2e-6, 1e-9, 1e-8))
            with gputrace.step([members[name] for name, _ in step], [work for _, work in step], model="m"):
                clock.advance(length_ns)
            recorder.settle()
        charged = sum(recorder.settler.totals.time.values())
        assert charged == sum(lengths[: len(steps)]) * ledger.SCALE
        counted = recorder.settler._requests.batches.steps._counting._counted.values()
        assert sum(sum(one.time.values()) for one in counted) == charged
        assert all(amount >= 0 for one in counted for amount in one.time.values())
        for kind, of_one in (("prefill", 0), ("decode", 1), ("cached", 3), ("recomputed", 4)):
            given_ = sum(work[of_one] for step in steps for _, work in step)
            assert sum(one.tokens[kind] for one in counted) == given_


def teach(recorder: Recorder, theta: Any) -> None:
    """Let the weights of every server be those."""
    solution = steps_weights.Solution(theta, [[0.0] * 5] * 5)
    for server in recorder.settler._requests.batches.steps._servers.values():
        for regime in server.weights.regimes:
            regime.fit = steps_weights.Fit(1, solution)


# --- what is learnt ------------------------------------------------------------


def test_steps_are_learnt_from_how_long_they_held(served: Recorder) -> None:
    weights = {
        name: (value, served_error(served, name))
        for (name,), value in of_all(served, catalogue.STEP_WEIGHT, catalogue.STEP_COEFFICIENT).items()
    }
    for name, truth in zip(catalogue.STEP_COEFFICIENTS, simulation.ADDITIVE, strict=True):
        value, error = weights[name]
        assert abs(value - truth) <= 4 * error
        assert error < max(truth, 1e-8)


def of_all(recorder: Recorder, metric: catalogue.Metric, *attributes: str) -> dict[Any, float]:
    """What the fit of all steps together says."""
    found = shown(recorder, metric, catalogue.STEP_REGIME, *attributes)
    return {key[1:]: value for key, value in found.items() if key[0] == "all"}


def served_error(recorder: Recorder, name: str) -> float:
    return of_all(recorder, catalogue.STEP_WEIGHT_ERROR, catalogue.STEP_COEFFICIENT)[(name,)]


def test_what_was_learnt_is_shown_with_how_well(served: Recorder) -> None:
    assert of_all(served, catalogue.STEP_WEIGHT_VERSION)[()] >= 1
    assert of_all(served, catalogue.STEP_WEIGHT_STEPS)[()] == 901 - 250
    # The median of a normal error is 0.67 of its width.
    assert of_all(served, catalogue.STEP_WEIGHT_RESIDUAL)[()] == pytest.approx(0.67 * 0.03, rel=0.3)
    errors = shown(served, catalogue.STEP_SHARE_ERROR, FEATURE)
    assert set(errors) == {(feature,) for feature in simulation.FEATURES}
    assert all(0 < error < 0.02 for error in errors.values())


def test_later_steps_are_split_by_what_was_learnt(served: Recorder) -> None:
    time = shown(served, catalogue.STEP_TIME, catalogue.STEP_WEIGHTS)
    assert time["fitted",] > 0
    assert time["constants",] > 0
    assert sum(time.values()) == pytest.approx(sum(served.settler.totals.time.values()) / ledger.SCALE / 1e9)


def test_every_metric_of_steps_is_as_the_catalogue_says(served: Recorder) -> None:
    rows = served.settler.snapshot().requests
    for metric in catalogue.STEP_METRICS:
        assert rows[metric.name], metric.name
        used = {name for row, _ in rows[metric.name] for name in row}
        assert used == set(metric.attributes), metric.name
        assert all(value >= 0 and math.isfinite(value) for _, value in rows[metric.name])


def test_what_is_learnt_while_a_step_runs_does_not_change_how_it_is_split(
    recorder: Recorder, clock: VirtualClock
) -> None:
    def by_feature() -> dict[str, int]:
        return {name: round(1e9 * seconds) for name, seconds in recorder.time_by(FEATURE).items() if seconds}

    with gputrace.step([member("a"), member("b")], [Work(prefill=900), Work(decode=1)], model="llm"):
        clock.advance(10 * MS)
        first = by_feature()
        # By these, it would be the other way round.
        teach(recorder, (0.0, 0.0, 1.0, 0.0, 0.0))
        with gputrace.span("attention"):
            clock.advance(10 * MS)
    assert sum(first.values()) == 10 * MS
    assert by_feature() == {name: pytest.approx(2 * part, abs=2) for name, part in first.items()}


def test_each_model_has_weights_of_its_own(recorder: Recorder, clock: VirtualClock) -> None:
    for model, each in (("small", 1), ("large", 9)):
        for number in range(600):
            with gputrace.step([member("a")], [Work(decode=1, context=10 * number)], model=model):
                clock.advance(each * 1_000 + number)
        recorder.settle()
    known = shown(
        recorder, catalogue.STEP_WEIGHT, catalogue.MODEL, catalogue.STEP_REGIME, catalogue.STEP_COEFFICIENT
    )
    for model, each in (("small", 1e-6), ("large", 9e-6)):
        # All of them decode one token: that is as fixed as the step itself.
        constant = known[model, "0", "fixed"] + known[model, "0", "decode"]
        assert constant == pytest.approx(each, rel=1e-3)
        assert known[model, "0", "context"] == pytest.approx(1e-10, rel=1e-3)


def test_a_step_that_failed_is_charged_and_teaches_nothing(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.step([member("a")], [Work(decode=1)]):
        clock.advance(10)

    def fail() -> None:
        with gputrace.step([member("a")], [Work(decode=1)]):
            clock.advance(10)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert of_all(recorder, catalogue.STEP_WEIGHT_STEPS) == {(): 1}
    assert shown(recorder, catalogue.STEP_TIME, FEATURE) == {("a",): pytest.approx(20e-9)}


def test_on_several_devices_a_step_took_as_long_as_on_one(clock: VirtualClock) -> None:
    with VirtualGpu(2, clock) as gpu, Recorder(gpu.host_ns) as recorder:
        for device in (0, 1):
            with gpu.device(device):
                gpu.init()
        with gputrace.step([member("a")], [Work(decode=1)], devices=[0, 1]):
            for device in (0, 1):
                with gpu.device(device):
                    gpu.launch(4 * MS)
        gpu.advance(10 * MS)
        recorder.settle()
        (server,) = recorder.settler._requests.batches.steps._servers.values()
        sums = server.weights.regimes[-1]._blocks[0][1]
        # Scaled by what the constants expect.
        scale = sum(a * b for a, b in zip(steps_weights.CONSTANTS, (1, 0, 1, 0, 0), strict=True))
        assert sums._right[0] * scale * scale == pytest.approx(0.004, rel=1e-3)
        assert shown(recorder, catalogue.STEP_TIME) == {(): pytest.approx(0.008, rel=1e-3)}


def test_vectors_of_members_sum_up() -> None:
    work = [Work(prefill=10, context=20), Work(decode=3, context=7), Work()]
    vectors = [covariates(one, 3) for one in work]
    assert vectors[0] == (1 / 3, 10, 0, 0, (10 * 20 + 55) / 1_000)
    assert vectors[1] == (1 / 3, 0, 3, 7, 0)
    assert summed(vectors) == pytest.approx((1, 10, 3, 7, 0.255))
    assert summed([]) == (0, 0, 0, 0, 0)
