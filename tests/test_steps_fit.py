"""Least squares in five unknowns that are not negative, and how far they may be off."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, strategies as st

from gputrace.steps_fit import Solution, Sums, nonnegative, solved

TRUTH = (6.0e-3, 27e-6, 60e-6, 39e-9, 0.9e-6)
#: In a unit of its own, and off by up to a factor of two.
PRIOR = (200.0, 1.0, 1.0, 0.0016, 0.033)


def row(chance: random.Random) -> list[float]:
    """What a step does: nothing in it is a sum of other things."""
    ranges = ((1, 1), (0, 1_000), (0, 40), (0, 60_000), (0, 2_000))
    return [chance.uniform(low, high) for low, high in ranges]


def took(theta: tuple[float, ...], x: list[float]) -> float:
    return sum(a * b for a, b in zip(theta, x, strict=True))


def sums_of(theta: tuple[float, ...], noise: float, steps: int, seed: int) -> Sums:
    chance, sums = random.Random(seed), Sums()
    for _ in range(steps):
        x = row(chance)
        scale = took(theta, x)
        error = chance.gauss(0, noise)
        sums.add([one / scale for one in x], 1 + error, error)
    return sums


def test_what_is_exact_is_found_exactly() -> None:
    solution = sums_of(TRUTH, 0.0, 200, 1).solve(PRIOR)
    assert solution.theta == pytest.approx(TRUTH, rel=1e-4)
    assert all(value < 1e-12 for line in solution.covariance for value in line)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), st.integers(0, 1_000))
def test_unknowns_that_are_zero_are_found_as_zero(on: list[float], seed: int) -> None:
    theta = tuple(a * b for a, b in zip([1.0, *on], TRUTH, strict=True))
    chance, sums = random.Random(seed), Sums()
    for _ in range(300):
        x = row(chance)
        scale = took(theta, x)
        sums.add([one / scale for one in x], 1.0, None)
    found = sums.solve(PRIOR).theta
    for at, value in enumerate(found):
        assert value == pytest.approx(theta[at], rel=1e-2, abs=1e-2 * TRUTH[at])
    assert min(found) >= 0


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=5, max_size=5), min_size=6, max_size=12),
    st.lists(st.floats(-1, 1), min_size=12, max_size=12),
)
def test_no_other_unknowns_that_are_not_negative_fit_better(
    rows: list[list[float]], targets: list[float]
) -> None:
    """The conditions of Karush, Kuhn and Tucker: nothing is gained where an unknown could grow."""
    rows = [[round(value, 3) for value in one] for one in rows]
    outer = [[sum(one[i] * one[j] for one in rows) for j in range(5)] for i in range(5)]
    units = [math.sqrt(outer[at][at]) for at in range(5)]
    seen = [at for at in range(5) if units[at] > 0]
    matrix = [
        [outer[i][j] / (units[i] * units[j]) if i in seen and j in seen else 0.0 for j in range(5)]
        for i in range(5)
    ]
    right = [
        sum(one[i] * target for one, target in zip(rows, targets, strict=False)) / units[i]
        if i in seen
        else 0.0
        for i in range(5)
    ]
    found = nonnegative(matrix, right, seen)
    assert all(value > 0 for value in found.values())
    for at in seen:
        gain = right[at] - sum(matrix[at][other] * value for other, value in found.items())
        free = solved(matrix, right, [*(one for one in found if one != at), at])
        if at in found:
            assert gain == pytest.approx(0, abs=1e-5)
        elif free is not None:
            assert gain <= 1e-5


def test_what_cannot_be_told_from_others_is_as_the_prior_has_it_and_as_uncertain() -> None:
    """Where every step decodes as many tokens as any other, these are as fixed as the step itself."""
    chance, sums = random.Random(5), Sums()
    for _ in range(2_000):
        x = [1.0, 0.0, 8.0, chance.uniform(0, 10_000), 0.0]
        scale, error = took(TRUTH, x), chance.gauss(0, 0.02)
        sums.add([one / scale for one in x], 1 + error, error)
    solution = sums.solve(PRIOR)
    fixed, prefill, decode, context, pairs = solution.theta
    assert fixed + 8 * decode == pytest.approx(TRUTH[0] + 8 * TRUTH[2], rel=1e-2)
    assert fixed / decode == pytest.approx(PRIOR[0] / PRIOR[2], rel=0.1)
    assert context == pytest.approx(TRUTH[3], rel=5e-2)
    assert (prefill, pairs) == (0, 0)
    # The sum is known well, and its parts as the prior knows them.
    assert solution.variance([1, 0, 8, 0, 0]) ** 0.5 < 0.01 * fixed
    assert solution.variance([0, 0, 1, 0, 0]) ** 0.5 == pytest.approx(decode, rel=0.1)


def test_sums_of_parts_are_those_of_the_whole() -> None:
    parts = [sums_of(TRUTH, 0.1, 50, seed) for seed in range(4)]
    whole = Sums()
    for seed in range(4):
        chance = random.Random(seed)
        for _ in range(50):
            x = row(chance)
            scale, error = took(TRUTH, x), chance.gauss(0, 0.1)
            whole.add([one / scale for one in x], 1 + error, error)
    assert Sums.total(parts).steps == 200
    assert Sums.total(parts).solve(PRIOR).theta == pytest.approx(whole.solve(PRIOR).theta, rel=1e-9)
    assert Sums.total(parts).solve(PRIOR).covariance[1][1] == pytest.approx(
        whole.solve(PRIOR).covariance[1][1], rel=1e-9
    )


def test_errors_are_as_large_as_they_are() -> None:
    """Of 100 fits, each unknown is within two standard errors some 95 times."""
    within = [0] * 5
    for seed in range(100):
        solution = sums_of(TRUTH, 0.2, 150, seed).solve(PRIOR)
        for at in range(5):
            error = math.sqrt(solution.covariance[at][at])
            within[at] += abs(solution.theta[at] - TRUTH[at]) <= 2 * error
    assert min(within) >= 88
    assert 92 <= sum(within) / 5 <= 98


def test_without_anything_to_judge_by_there_is_no_error() -> None:
    chance, sums = random.Random(2), Sums()
    for _ in range(50):
        sums.add(row(chance), 1.0, None)
    assert sums.solve(PRIOR).covariance == [[0.0] * 5] * 5
    assert Sums().solve(PRIOR).theta == (0, 0, 0, 0, 0)


def test_the_variance_of_a_sum_is_that_of_its_parts() -> None:
    covariance = [[0.0] * 5 for _ in range(5)]
    covariance[0][0], covariance[1][1], covariance[0][1], covariance[1][0] = 4.0, 9.0, -3.0, -3.0
    solution = Solution((0, 0, 0, 0, 0), covariance)
    assert solution.variance([1, 1, 0, 0, 0]) == 4 + 9 - 6
    assert solution.variance([2, 0, 0, 0, 0]) == 16
