"""Learnt weights: right where the truth is known, honest about their errors, given up when they are wrong."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gputrace import catalogue, steps_weights
from gputrace.steps_shares import Shares
from gputrace.steps_work import Work, covariates, summed, weight
from tests import steps_simulation as simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.steps_work import Vector

SEEDS = range(5)
#: Steps that a server has taken before anybody looks, and that are looked at.
BEFORE, STEPS = 3_000, 3_500
NOISE = 0.03
#: Raw tokens, as most bills are made: one of a prompt counts as much as one beyond it.
TOKENS: Vector = (0.0, 1.0, 1.0, 0.0, 0.0)


@functools.cache
def taken(seed: int) -> list[simulation.Step]:
    return list(simulation.steps(seed, BEFORE + STEPS))


def points(owed: Counter[str]) -> dict[str, float]:
    """Shares of features, in per cent."""
    whole = sum(owed.values())
    return {feature: 100 * owed[feature] / whole for feature in simulation.FEATURES}


def worst(one: Counter[str], other: Counter[str]) -> float:
    return max(abs(points(one)[feature] - points(other)[feature]) for feature in simulation.FEATURES)


class Split:
    """What features were charged of steps whose truth is known, as learnt and by raw tokens."""

    def __init__(self, seed: int, cost: Callable[[Vector], float], every: int, orders: int) -> None:
        chance = random.Random(seed)
        self.weights = steps_weights.Weights()
        self.truth, self.learnt, self.tokens = (Counter[str]() for _ in range(3))
        for number, step in enumerate(taken(seed)):
            took_s = cost(step.total)
            if number >= BEFORE and number % every == 0:
                theta = self.weights.prices(step.total).theta
                self._add(self.learnt, step, theta, took_s)
                self._add(self.tokens, step, TOKENS, took_s)
                if orders:
                    self.truth.update(simulation.shapley(step, cost, chance, orders))
                else:
                    self._add(self.truth, step, simulation.ADDITIVE, took_s)
            self.weights.learn(step.total, took_s * chance.gauss(1, NOISE))

    @staticmethod
    def _add(owed: Counter[str], step: simulation.Step, theta: Vector, took_s: float) -> None:
        weights = [weight(theta, x) for x in step.vectors]
        whole = sum(weights)
        for feature, one in zip(step.features, weights, strict=True):
            owed[feature] += took_s * one / whole  # type: ignore[assignment]


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_of_a_server_whose_costs_add_up(seed: int) -> None:
    split = Split(seed, simulation.additive, every=4, orders=0)
    assert worst(split.learnt, split.truth) <= 0.2
    assert worst(split.tokens, split.truth) > 5


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_of_a_server_bound_by_arithmetic_or_by_memory(seed: int) -> None:
    """The truth is what each member adds, over many orders in which they may come: its Shapley value."""
    split = Split(seed, simulation.roofline, every=20, orders=20)
    assert worst(split.learnt, split.truth) <= 2.5
    assert worst(split.tokens, split.truth) > 2.5


def by_feature(step: simulation.Step) -> list[tuple[str, Vector]]:
    vectors: dict[str, list[Vector]] = {}
    for feature, x in zip(step.features, step.vectors, strict=True):
        vectors.setdefault(feature, []).append(x)
    return [(feature, summed(of_feature)) for feature, of_feature in vectors.items()]


def owed(done: list[tuple[Vector, list[tuple[str, Vector]]]], feature: str) -> float:
    return math.fsum(weight(simulation.ADDITIVE, x) for _, of in done for f, x in of if f == feature)


def test_errors_cover_the_truth() -> None:
    """Each regime's weights and each feature's share are within two standard errors some 95 times of 100."""
    done = [(step.total, by_feature(step)) for step in taken(0)[:2_500]]
    truths = {feature: owed(done[::10], feature) for feature in simulation.FEATURES}
    truths = {feature: one / sum(truths.values()) for feature, one in truths.items()}
    within, shares_within, seen = 0, 0, 0
    for seed in range(20):
        chance, weights, shares = random.Random(seed), steps_weights.Weights(), Shares()
        for total, _ in done:
            weights.learn(total, simulation.additive(total) * chance.gauss(1, NOISE))
        for total, of_features in done[::10]:
            shares.add(of_features, weights.prices(total))
        fit = weights.regimes[-1].fit.solution
        assert fit is not None
        for at, truth in enumerate(simulation.ADDITIVE):
            seen += 1
            within += abs(fit.theta[at] - truth) <= 2 * math.sqrt(fit.covariance[at][at])
        for feature, (share, error) in shares.of(weights).items():
            shares_within += abs(share - truths[feature]) <= 2 * error
            assert 0 < error < 0.01
    assert 0.88 <= within / seen < 0.99
    assert 0.88 <= shares_within / (20 * len(simulation.FEATURES)) < 1


def monotonous(kind: str, chance: random.Random) -> tuple[list[Work], list[Work]]:
    """What two features do in a step of a server whose steps leave open how their time is made up."""
    if kind == "chunk":
        return [Work(prefill=481)], [Work(decode=1, context=1_000)] * 31
    if kind == "contexts":
        return [Work(decode=1, context=500)] * 24, [Work(decode=1, context=4_000)] * 8
    if kind == "drafts":
        return [Work(decode=5, context=500)] * 8, [Work(decode=1, context=500)] * 8
    decodes = chance.randint(5, 60)
    beyond = [Work(decode=1, context=chance.randint(200, 4_000)) for _ in range(decodes)]
    if kind == "budget" or chance.random() < 0.5:
        return [Work(prefill=512 - decodes, context=chance.choice([0, 512, 1_024]))], beyond
    return [], beyond


@pytest.mark.parametrize("kind", ["chunk", "contexts", "drafts", "budget", "budget or decodes"])
def test_what_steps_leave_open_is_as_the_constants_have_it_and_said_to_be_unsure(kind: str) -> None:
    """A full budget of tokens shows no token of one kind without one less of another."""
    chance, weights, shares = random.Random(3), steps_weights.Weights(), Shares()
    truth, charged = Counter[str](), Counter[str]()
    for number in range(3_000):
        works = dict(zip("ab", monotonous(kind, chance), strict=True))
        size = sum(map(len, works.values()))
        of = {name: summed([covariates(one, size) for one in work]) for name, work in works.items()}
        total = summed(list(of.values()))
        took_s = simulation.additive(total)
        prices = weights.prices(total)
        if number >= 1_000:
            assert prices.parts
            whole = weight(prices.theta, total)
            for name, x in of.items():
                truth[name] += weight(simulation.ADDITIVE, x)  # type: ignore[assignment]
                charged[name] += took_s * weight(prices.theta, x) / whole  # type: ignore[assignment]
            shares.add(list(of.items()), prices)
        weights.learn(total, took_s * chance.gauss(1, NOISE))
    off = abs(charged["a"] - truth["a"]) / sum(truth.values())
    _, error = shares.of(weights)["a"]
    assert off <= 0.1
    assert off <= 2 * error
    assert 0.02 < error < 0.5


def learn(weights: steps_weights.Weights, steps: int, times: float = 1.0, noise: float = NOISE) -> None:
    chance = random.Random(9)
    known = taken(0)
    for number in range(steps):
        total = known[number % len(known)].total
        weights.learn(total, times * simulation.additive(total) * max(0.01, chance.gauss(1, noise)))


def fixed_s(weights: steps_weights.Weights) -> float | None:
    solution = weights.regimes[-1].fit.solution
    return None if solution is None else solution.theta[0]


@pytest.mark.parametrize("times", [2.0, 0.5, 1.15])
def test_a_change_is_followed_within_20_000_steps(times: float) -> None:
    weights = steps_weights.Weights()
    learn(weights, 10_000)
    assert fixed_s(weights) == pytest.approx(simulation.ADDITIVE[0], rel=0.02)
    learn(weights, 22_000, times)
    for step in taken(0)[500:2_000]:
        prices = weights.prices(step.total)
        assert weight(prices.theta, step.total) == pytest.approx(
            times * simulation.additive(step.total), rel=0.1
        )
    assert fixed_s(weights) == pytest.approx(times * simulation.ADDITIVE[0], rel=0.02)


def test_constants_weigh_the_first_500_steps() -> None:
    weights = steps_weights.Weights()
    total = taken(0)[0].total
    learn(weights, steps_weights.LEAST_STEPS - 1)
    assert weights.prices(total) == steps_weights.NO_PRICES
    assert {regime.fit.version for regime in weights.regimes} == {0}
    learn(weights, 100)
    assert weights.prices(total).parts != ()
    assert weights.regimes[-1].fit.version > 0


def test_constants_weigh_while_half_of_the_steps_are_far_off() -> None:
    weights = steps_weights.Weights()
    total = taken(0)[0].total
    learn(weights, 3_000, noise=0.6)
    residual = weights.regimes[-1].residual
    assert residual is not None
    assert residual > steps_weights.WORST_RESIDUAL
    assert weights.prices(total) == steps_weights.NO_PRICES
    # And no longer.
    learn(weights, 8_000, noise=0.05)
    assert weights.prices(total).parts != ()


def test_what_held_once_is_given_up_when_it_does_no_more() -> None:
    weights = steps_weights.Weights()
    learn(weights, 3_000)
    versions = [regime.fit.version for regime in weights.regimes]
    assert versions[-1] > 0
    learn(weights, 6_000, noise=0.7)
    assert weights.regimes[-1].fit.version == 0
    assert weights.prices(taken(0)[0].total) == steps_weights.NO_PRICES
    # A version never comes twice: what was charged by one can be told from what was by the next.
    learn(weights, 9_000, noise=0.02)
    assert weights.regimes[-1].fit.version > versions[-1]


def test_a_regime_that_is_rarely_seen_takes_the_weights_of_all() -> None:
    weights = steps_weights.Weights()
    chance = random.Random(3)
    for number in range(2_000):
        decode = chance.randint(5, 40)
        x: Vector = (1.0, 0.0, float(decode), decode * chance.uniform(500, 900), 0.0)
        weights.learn(x, simulation.additive(x) * chance.gauss(1, NOISE))
        if number == 1_500:
            # Nothing has told yet what a token of a prompt takes: it is not free.
            assert weights.prices((1.0, 100.0, 20.0, 9_000.0, 5.0)) == steps_weights.NO_PRICES
    for _ in range(600):
        prefill = chance.randint(1, 2_000)
        x = (1.0, float(prefill), 20.0, 15_000.0, prefill * prefill / 2_000)
        weights.learn(x, simulation.additive(x) * chance.gauss(1, NOISE))
    seldom = steps_weights.regime_of(100)
    assert weights.regimes[seldom].fit.solution is None
    prices = weights.prices((1.0, 100.0, 20.0, 9_000.0, 5.0))
    assert [number for number, _ in prices.parts] == [0, len(weights.regimes) - 1]
    assert prices.theta[1] == pytest.approx(simulation.ADDITIVE[1], rel=0.2)


def test_each_regime_is_learnt_from_its_own_steps() -> None:
    """A token beyond the prompt takes three times as long beside 600 tokens of one as it does alone."""
    weights, chance = steps_weights.Weights(), random.Random(4)
    each = {0: 60e-6, 600: 180e-6}
    for _ in range(600):
        for prefill, second in each.items():
            decode = chance.randint(1, 40)
            weights.learn((1.0, float(prefill), float(decode), 0.0, 0.0), 5e-3 + second * decode)
    for prefill, second in each.items():
        solution = weights.regimes[steps_weights.regime_of(prefill)].fit.solution
        assert solution is not None
        assert solution.theta[2] == pytest.approx(second, rel=1e-3)


def test_a_large_step_has_the_prices_of_each_regime_that_it_grows_through() -> None:
    weights = steps_weights.Weights()
    thetas = [(10.0 + n, 1.0 + n, 2.0 + n, 3.0 + n, 4.0 + n) for n in range(len(weights.regimes))]
    for number, (regime, theta) in enumerate(zip(weights.regimes, thetas, strict=True)):
        regime.fit = steps_weights.Fit(number, steps_weights.Solution(theta, [[0.0] * 5] * 5))
    assert weights.prices((1, 0, 5, 100, 0)).theta == thetas[0]
    # 127 tokens of 1 024 lie below 128, 384 below 512.
    prices = weights.prices((1, 1_024, 5, 100, 500))
    expected = [10.0] + [
        (128 * thetas[1][at] + 384 * thetas[2][at] + 512 * thetas[3][at]) / 1_024 for at in range(1, 5)
    ]
    assert prices.theta == pytest.approx(tuple(expected))
    assert sum(much[1] for _, much in prices.parts) == pytest.approx(1)


@pytest.mark.parametrize(
    ("prefill", "regime"),
    [(0, "0"), (1, "1-127"), (127, "1-127"), (128, "128-511"), (512, "512+"), (9e9, "512+")],
)
def test_regimes(prefill: float, regime: str) -> None:
    assert catalogue.STEP_REGIMES[steps_weights.regime_of(prefill)] == regime


def test_a_step_that_took_no_time_teaches_nothing() -> None:
    weights = steps_weights.Weights()
    weights.learn(taken(0)[0].total, 0.0)
    assert weights.regimes[-1].steps == 0
