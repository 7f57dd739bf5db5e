"""Intervals against numbers worked out elsewhere, and at the ends of what they are made for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gputrace.analysis.payoff_bands import simultaneous_quantile
from gputrace.analysis.payoff_intervals import (
    Pairs,
    effective_size,
    hall,
    none_seen,
    normal_quantile,
    paired,
    student_quantile,
    wilson,
)

Z = normal_quantile(0.025)


@pytest.mark.parametrize(("seen", "size"), [(0, 20), (3, 20), (20, 20), (150, 500)])
def test_wilson_is_scipys(seen, size):
    known = stats.binomtest(seen, size).proportion_ci(0.95, method="wilson")
    found = wilson(seen / size, size, 0.025)
    assert (found.low, found.high) == (pytest.approx(known.low, abs=1e-12), pytest.approx(known.high))


def test_student_takes_the_place_of_the_normal():
    assert student_quantile(0.025, 9) == pytest.approx(2.2622, abs=1e-4)
    assert student_quantile(0.025, 1e9) == pytest.approx(Z)


def test_without_skewness_hall_is_students_interval():
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    error = values.std(ddof=1) / math.sqrt(5)
    found = hall(values, 2.0)
    assert (found.low, found.high) == (pytest.approx(3 - 2 * error), pytest.approx(3 + 2 * error))
    assert hall(values, 2.0, widen=1.5).high == pytest.approx(3 + 3 * error)


def test_hall_inverts_its_transformation():
    """At either bound the transformed statistic is the quantile: t + a t^2/3 + a^2 t^3/27 + a/6."""
    values = np.random.default_rng(0).exponential(size=50)
    deviations = values - values.mean()
    skew = (deviations**3).sum() / (deviations**2).sum() ** 1.5
    error = values.std(ddof=1) / math.sqrt(50)
    found = hall(values, 2.0)
    for bound, quantile in ((found.low, 2.0), (found.high, -2.0)):
        t = (values.mean() - bound) / error
        assert t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6 == pytest.approx(quantile)
    assert found.high - values.mean() > values.mean() - found.low


def test_hall_covers_skewed_costs_better_than_students_interval():
    """One request in 100 is 24 times as dear: 1000 samples of 100, seeds fixed."""
    random = np.random.default_rng(1)
    samples = random.gamma(2.0, 0.5, (1000, 100)) * np.where(random.random((1000, 100)) < 0.01, 24, 1)
    true = 0.99 + 0.01 * 24
    t = student_quantile(0.025, 99)
    bounds = np.array([hall(sample, t) for sample in samples])
    plain = t * samples.std(axis=1, ddof=1) / 10
    covered = ((bounds[:, 0] <= true) & (true <= bounds[:, 1])).mean()
    assert covered > (np.abs(samples.mean(axis=1) - true) <= plain).mean() + 0.02


def test_hall_of_equal_values_is_their_value():
    assert hall(np.full(20, 0.1), 2.0) == (pytest.approx(0.1), pytest.approx(0.1))


def test_pairs_have_the_bonett_price_interval():
    """12 better and 4 worse of 100: (13 - 5) / 102, as in the paper's formula."""
    found = paired(Pairs(0.12, 0.04, 100), Z)
    half = Z * math.sqrt((18 / 102 - (8 / 102) ** 2) / 102)
    assert (found.low, found.high) == (pytest.approx(8 / 102 - half), pytest.approx(8 / 102 + half))


def test_pairs_without_a_discordant_one_have_the_exact_limit():
    found = paired(Pairs(0.0, 0.0, 100), Z)
    assert found.high == -found.low == pytest.approx(1 - 0.025 ** (1 / 100))


def test_299_clean_audits_say_below_one_per_cent():
    assert none_seen(299, normal_quantile(0.05)) == pytest.approx(0.01, abs=1e-4)


def test_pairs_that_all_differ_stay_within_one():
    found = paired(Pairs(0.0, 1.0, 40), Z)
    assert -1 == found.low < found.high < -0.8


def test_unequal_weights_are_fewer_observations():
    assert effective_size(np.array([1.0, 1.0, 0.0])) == pytest.approx(2)
    assert effective_size(np.array([10.0, 1.0])) == pytest.approx(121 / 101)
    assert effective_size(np.zeros(3)) == 0


def test_of_independent_estimates_the_band_is_sidaks():
    influences = np.random.default_rng(0).standard_normal((20_000, 8))
    expected = normal_quantile((1 - 0.95 ** (1 / 8)) / 2)
    assert simultaneous_quantile(influences, 0.025) == pytest.approx(expected, abs=0.05)


def test_of_one_estimate_many_times_the_band_is_its_interval():
    influences = np.repeat(np.random.default_rng(0).standard_normal((500, 1)), 6, axis=1)
    assert simultaneous_quantile(influences, 0.025) == pytest.approx(Z, abs=0.06)


def test_estimates_without_spread_need_no_band():
    assert simultaneous_quantile(np.zeros((10, 3)), 0.025) == Z
