"""Confidence sequences: bounds that hold at every moment at once, for whoever watches continuously.

An interval promises its coverage to who looks once. A dashboard is looked at all the time, and an alert on an
interval goes off sooner or later without cause. A sequence may be looked at, and stopped, whenever one likes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gputrace.analysis.payoff_intervals import normal_quantile

if TYPE_CHECKING:
    from gputrace.analysis.payoff_figures import Estimate
    from gputrace.analysis.payoff_log import Floats


LEAST_VALUES = 50
"""Before it an asymptotic sequence says nothing."""

_LARGEST_BET = 0.5


class Sequence(NamedTuple):
    """Bounds after each value."""

    low: Floats
    high: Floats


def bounded_sequence(values: Floats, least: float, most: float, *, level: float = 0.95) -> Sequence:
    """Return a sequence for the mean of bounded values, valid from the first on.

    Predictable plug-in empirical Bernstein (Waudby-Smith and Ramdas, 2024), the running intersection. For
    audited pair differences: `least` -1, `most` 1.

    Args:
        values: In the order in which they came, each with the same mean given those before.
        least: No value is below it.
        most: No value is above it.
        level: Probability that the mean stays inside for ever.

    Raises:
        ValueError: A value lies outside, or `level` not between 0 and 1.
    """
    _check(level)
    if not least < most or not ((values >= least) & (values <= most)).all():
        message = f"every value must lie between {least} and {most}, which differ"
        raise ValueError(message)
    scaled = (np.asarray(values, dtype=np.float64) - least) / (most - least)
    number = np.arange(1, len(scaled) + 1)
    means = (0.5 + np.cumsum(scaled)) / (number + 1)
    spreads = (0.25 + np.cumsum((scaled - means) ** 2)) / (number + 1)
    # Each bet, and the mean it is judged against, knows only what came before.
    known_mean = np.concatenate(([0.5], means[:-1]))
    known_spread = np.concatenate(([0.25], spreads[:-1]))
    needed = math.log(2 / (1 - level))
    bets = np.minimum(np.sqrt(2 * needed / (known_spread * number * np.log(1 + number))), _LARGEST_BET)
    costs = np.cumsum((scaled - known_mean) ** 2 * (-np.log1p(-bets) - bets))
    centre = np.cumsum(bets * scaled) / np.cumsum(bets)
    half = (needed + costs) / np.cumsum(bets)
    low = np.maximum.accumulate(np.maximum(centre - half, 0))
    high = np.minimum.accumulate(np.minimum(centre + half, 1))
    return Sequence(least + (most - least) * low, least + (most - least) * high)


def asymptotic_sequence(values: Floats, *, level: float = 0.95, horizon: int = 2000) -> Sequence:
    """Return a sequence for the mean of any values, valid for large numbers of them.

    The asymptotic sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, for pseudo-outcomes of
    savings. NaN before `LEAST_VALUES`.

    Args:
        values: In the order in which they came.
        level: Probability that the mean stays inside for ever.
        horizon: After how many values it shall be tightest.

    Raises:
        ValueError: `level` does not lie between 0 and 1.
    """
    _check(level)
    number = np.arange(1, len(values) + 1)
    means = np.cumsum(values) / number
    squares = np.maximum(np.cumsum(np.square(values)) / number - means**2, 0)
    miss = 1 - level
    tuned = _tuned(miss, horizon)
    grown = number * tuned**2 + 1
    half = np.sqrt(squares) * np.sqrt(2 * grown / (number**2 * tuned**2) * np.log(np.sqrt(grown) / miss))
    half[: LEAST_VALUES - 1] = np.nan
    return Sequence(means - half, means + half)


def watched(estimate: Estimate, *, level: float = 0.95, horizon: int = 2000) -> tuple[float, float] | None:
    """Return bounds of an estimate that may be looked at all the time.

    Its interval, made wider by as much as the asymptotic sequence is wider than a normal interval for so many
    observations. That holds for all estimators here, which are means of influence values up to terms that
    vanish.

    Args:
        estimate: An estimate whose interval has confidence `level`.
        level: Probability that the truth stays inside for ever.
        horizon: After how many observations they shall be tightest.

    Returns:
        `None` where it has no bounds or rests on fewer than `LEAST_VALUES` observations.

    Raises:
        ValueError: `level` does not lie between 0 and 1.
    """
    _check(level)
    value, low, high, number = estimate.value, estimate.low, estimate.high, estimate.effective_n
    if value is None or low is None or high is None or number < LEAST_VALUES:
        return None
    miss = 1 - level
    grown = number * _tuned(miss, horizon) ** 2 + 1
    wider = math.sqrt(2 * grown / (grown - 1) * math.log(math.sqrt(grown) / miss))
    wider /= normal_quantile(miss / 2)
    return value - wider * (value - low), value + wider * (high - value)


def _tuned(miss: float, horizon: int) -> float:
    return math.sqrt((-2 * math.log(miss) + math.log(-2 * math.log(miss) + 1)) / horizon)


def _check(level: float) -> None:
    if not 0 < level < 1:
        message = f"level is {level!r}: give a confidence between 0 and 1, 0.95 say"
        raise ValueError(message)
