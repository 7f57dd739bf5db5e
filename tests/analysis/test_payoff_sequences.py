"""Bounds that may be looked at all the time."""

from __future__ import annotations

import numpy as np
import pytest

from gputrace.analysis.payoff_figures import Estimate
from gputrace.analysis.payoff_intervals import normal_quantile
from gputrace.analysis.payoff_sequences import asymptotic_sequence, bounded_sequence, watched


def test_a_bounded_sequence_never_loses_the_truth_more_often_than_it_says():
    """300 streams of 400 pair differences, seeds fixed; an interval looked at each time loses many more."""
    random = np.random.default_rng(0)
    streams = random.choice([-1.0, 0.0, 1.0], p=[0.08, 0.88, 0.04], size=(300, 400))
    number = np.arange(1, 401)
    lost = peeked = 0
    for stream in streams:
        found = bounded_sequence(stream, -1, 1)
        lost += ((found.low > -0.04) | (found.high < -0.04)).any()
        mean = np.cumsum(stream) / number
        half = 1.96 * np.sqrt(np.maximum(np.cumsum(stream**2) / number - mean**2, 1e-9) / number)
        peeked += (np.abs(mean + 0.04) > half)[30:].any()
    assert lost <= 15
    assert peeked > 45


def test_a_bounded_sequence_only_ever_narrows():
    found = bounded_sequence(np.random.default_rng(1).choice([-1.0, 0.0, 1.0], size=500), -1, 1)
    assert (np.diff(found.low) >= 0).all()
    assert (np.diff(found.high) <= 0).all()
    assert found.high[-1] - found.low[-1] < 0.4
    assert found.low[0] == -1


def test_an_asymptotic_sequence_keeps_the_truth_and_is_half_as_wide_again_as_an_interval():
    """300 streams of 2000 skewed savings, seeds fixed."""
    streams = np.random.default_rng(2).gamma(1.0, 1.0, (300, 2000))
    lost = 0
    for stream in streams:
        found = asymptotic_sequence(stream)
        lost += ((found.low > 1) | (found.high < 1))[49:].any()
    assert lost <= 24
    interval = 1.96 * streams[-1].std() / np.sqrt(2000)
    assert (found.high[-1] - found.low[-1]) / 2 / interval == pytest.approx(1.56, abs=0.1)


def test_an_interval_is_widened_to_the_sequence_of_so_many_values():
    stream = np.random.default_rng(7).normal(2, 3, size=900)
    error = stream.std() / 30
    z = normal_quantile(0.025)
    mean = float(stream.mean())
    low, high = watched(Estimate(mean, mean - z * error, mean + z * error, n=900, effective_n=900.0))
    sequence = asymptotic_sequence(stream)
    assert (low, high) == pytest.approx((sequence.low[-1], sequence.high[-1]))


@pytest.mark.parametrize(
    "estimate",
    [
        Estimate(None, reason="nothing was audited", n=900, effective_n=900.0),
        Estimate(1.0, n=900, effective_n=900.0),
        Estimate(1.0, 0.5, 1.5, n=900, effective_n=49.0),
    ],
)
def test_nothing_is_promised_for_ever_where_there_is_no_interval_or_little_to_rest_on(estimate):
    assert watched(estimate) is None


def test_an_asymptotic_sequence_waits():
    found = asymptotic_sequence(np.random.default_rng(3).random(80))
    assert np.isnan(found.low[:49]).all()
    assert not np.isnan(found.low[49:]).any()


def test_values_outside_their_bounds_are_refused():
    with pytest.raises(ValueError, match="between -1 and 1"):
        bounded_sequence(np.array([0.0, 2.0]), -1, 1)


@pytest.mark.parametrize(
    "follow", [asymptotic_sequence, lambda values, level: bounded_sequence(values, 0, 1, level=level)]
)
def test_a_level_that_is_none_is_refused(follow):
    with pytest.raises(ValueError, match="level is"):
        follow(np.zeros(60), level=1.0)
