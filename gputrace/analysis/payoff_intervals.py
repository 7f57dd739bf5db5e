"""Confidence intervals of rates, means, ratios and paired proportions, from weighted observations.

Each takes `tail`, the probability left out on either side: 0.025 for an interval of 95 %.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from gputrace.analysis.payoff_log import Floats


_NORMAL = NormalDist()
_MOST_LOG = 700.0


class Bounds(NamedTuple):
    """An interval."""

    low: float
    high: float


def normal_quantile(tail: float) -> float:
    """Return how many standard deviations leave `tail` on one side."""
    return _NORMAL.inv_cdf(1 - tail)


def student_quantile(tail: float, freedom: float) -> float:
    """Return the same for Student's t, whose `freedom` need not be whole."""
    return float(special.stdtrit(max(1.0, freedom), 1 - tail))


def effective_size(weights: Floats) -> float:
    """Return Kish's effective number of observations; 0 for none.

    Args:
        weights: Their weights; those of 0 do not count.
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def wilson(share: float, size: float, tail: float) -> Bounds:
    """Return the interval of a rate.

    Args:
        share: The rate that was seen.
        size: How many (effective) observations it comes from.
        tail: Probability left out on either side.
    """
    z = normal_quantile(tail)
    shrunk = 1 + z * z / size
    centre = (share + z * z / (2 * size)) / shrunk
    half = z / shrunk * math.sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    return Bounds(max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def hall(values: Floats, quantile: float, widen: float = 1.0) -> Bounds:
    """Return Hall's (1992) skewness-corrected interval of a mean.

    A few dear requests make the distribution of a mean skewed, and the usual interval too short on
    the side that matters. Hall's monotone cubic transformation takes the skewness out.

    Args:
        values: One (influence) value a request; their mean is the estimate.
        quantile: Of Student's t, say; the same for both sides.
        widen: Factor on the standard error, for what estimating a nuisance has used up.
    """
    mean = float(values.mean())
    deviations = values - mean
    squares = float(deviations @ deviations)
    if not squares > (np.finfo(float).eps * abs(mean)) ** 2 * len(values):
        return Bounds(mean, mean)
    size = len(values)
    error = math.sqrt(squares / size / max(1, size - 1)) * widen
    # Skewness over the root of the number: what the mean's own distribution has left of it.
    skew = float((deviations**3).sum()) / squares**1.5
    return Bounds(mean - error * _untwisted(quantile, skew), mean - error * _untwisted(-quantile, skew))


def _untwisted(quantile: float, skew: float) -> float:
    if abs(skew) < 1e-9:  # noqa: PLR2004 - the limit of the formula, where it divides by nothing
        return quantile
    return 3 / skew * (float(np.cbrt(1 + skew * (quantile - skew / 6))) - 1)


def exponential(bound: float) -> float:
    """Return the bound of which this is the logarithm; of two requests it may be more than a float holds."""
    return math.exp(min(bound, _MOST_LOG))


class Pairs(NamedTuple):
    """Two binary grades of the same requests.

    Attributes:
        better: Weighted share where the light answer alone was right.
        worse: Weighted share where the heavy answer alone was right.
        size: Effective number of pairs.
    """

    better: float
    worse: float
    size: float


def paired(pairs: Pairs, quantile: float) -> Bounds:
    """Return the interval of light minus heavy: Bonett and Price (2012), which adds one to either cell.

    Without a discordant pair that is too short, and the exact binomial limit takes its place.

    Args:
        pairs: What was seen.
        quantile: In standard deviations, for both sides.
    """
    better, worse, size = pairs
    difference = better - worse
    if better + worse <= 0:
        limit = none_seen(size, quantile)
        return Bounds(-limit, limit)
    better, worse = ((size * share + 1) / (size + 2) for share in (better, worse))
    centre = better - worse
    half = quantile * math.sqrt((better + worse - centre * centre) / (size + 2))
    return Bounds(max(-1.0, min(difference, centre - half)), min(1.0, max(difference, centre + half)))


def none_seen(size: float, quantile: float) -> float:
    """Return the upper limit of a rate of which no case was seen among `size`."""
    tail = 1 - _NORMAL.cdf(quantile)
    return float(-special.expm1(math.log(max(tail, 1e-300)) / size))


class Proportion(NamedTuple):
    """A share and its variance, both with some successes and failures added."""

    share: float
    variance: float


def agresti_coull(share: float, size: float, quantile: float) -> Proportion:
    """Return a share of one stratum of two that survives being 0 or 1: the strata halve what is added.

    Args:
        share: What was seen.
        size: Effective number of observations.
        quantile: In standard deviations, for both sides.
    """
    added = quantile * quantile / 2
    moved = (share * size + added / 2) / (size + added)
    return Proportion(moved, moved * (1 - moved) / (size + added))
