"""Whether a confidence is any good: does it rise with being right, and does escalating by it beat chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis import payoff_grades
from gputrace.analysis.payoff_intervals import normal_quantile
from gputrace.analysis.payoff_log import Floats, need

if TYPE_CHECKING:
    from gputrace.analysis.payoff_log import Log

_LEAST_GRADED = 30
_STEPS = 50
_CLOSE = 1e-9
_FARTHEST = 30.0


@dataclass(frozen=True, slots=True)
class Signal:
    """How good a confidence is.

    Attributes:
        slope: Rise of the log-odds that the light answer is right, for one unit of the confidence's log-odds
            (1 if it is calibrated), or for one standard deviation where it is no probability. `None` where
            too few light answers are graded, all alike, or perfectly told apart.
        low: Lower bound of the slope.
        high: Upper bound.
        audc: Area under the deferral curve: 1 escalates first what gains most, 0 is no better than chance,
            below 0 worse. `None` where it is unknown, or nothing is to be gained.
        warning: What is wrong, in words; `None` if nothing is known to be.
    """

    slope: float | None
    low: float | None
    high: float | None
    audc: float | None
    warning: str | None


def judge(log: Log, tail: float) -> Signal:
    """Judge the confidence of a log.

    Args:
        log: The log, with a confidence on every row.
        tail: Probability left out on either side of the slope's interval.
    """
    fitted = _slope(log, need(log, "confidence"), tail)
    audc = _deferral_area(log)
    slope, low, high = fitted if fitted is not None else (None, None, None)
    warning = None
    if high is not None and high < 0:
        warning = "inverted signal: the light model is right more often where its confidence is low"
    elif audc is not None and audc < 0:
        warning = "escalating by this confidence gains less than escalating at random"
    elif low is not None and low <= 0:
        warning = "the log cannot tell that the light model is right more often where its confidence is high"
    return Signal(slope, low, high, audc, warning)


def _slope(log: Log, confidence: Floats, tail: float) -> tuple[float, float, float] | None:
    graded = payoff_grades.light(log)
    seen = graded.weights > 0
    right, weights, sure = graded.values[seen], graded.weights[seen], confidence[seen]
    binary = np.isin(right, (0, 1)).all()
    if len(right) < _LEAST_GRADED or not binary or right.min() == right.max() or sure.min() == sure.max():
        return None
    if ((confidence >= 0) & (confidence <= 1)).all():
        inside = np.clip(sure, 1e-4, 1 - 1e-4)
        sure = np.log(inside / (1 - inside))
    elif sure.std():
        sure = (sure - sure.mean()) / sure.std()
    else:
        return None
    return _logistic(np.column_stack([np.ones(len(sure)), sure]), right, weights / weights.mean(), tail)


def _logistic(
    design: Floats, right: Floats, weights: Floats, tail: float
) -> tuple[float, float, float] | None:
    """Fit by Newton's method; bounds from the sandwich variance, which weights do not mislead."""
    found = np.zeros(2)
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(design @ found, -_FARTHEST, _FARTHEST)))
        curvature = (design * (weights * chance * (1 - chance))[:, None]).T @ design
        if np.linalg.cond(curvature) > 1 / _CLOSE:
            return None
        step = np.linalg.solve(curvature, design.T @ (weights * (right - chance)))
        found = found + step
        if np.abs(step).max() < _CLOSE:
            break
    else:
        return None
    scores = design * (weights * (right - chance))[:, None]
    inverse = np.linalg.inv(curvature)
    error = float(np.sqrt((inverse @ (scores.T @ scores) @ inverse)[1, 1]))
    half = normal_quantile(tail) * error
    return float(found[1]), float(found[1]) - half, float(found[1]) + half


def _deferral_area(log: Log) -> float | None:
    """Return what escalating by confidence gains over chance, as a part of what knowing all would."""
    gains, weights = np.zeros(log.size), np.zeros(log.size)
    for stratum in (log.escalated, log.kept):
        pairs = payoff_grades.pairs(log, stratum)
        if not stratum.any():
            continue
        if pairs is None or pairs.count < _LEAST_GRADED:
            return None
        gains -= pairs.values
        weights += pairs.weights * stratum.sum() / pairs.weights.sum()
    seen = weights > 0
    gains, weights, sure = gains[seen], weights[seen], log.confidence[seen]
    knowing = _gain_over_chance(gains, weights, -gains)
    return _gain_over_chance(gains, weights, sure) / knowing if knowing > 0 else None


def _gain_over_chance(gains: Floats, weights: Floats, order: Floats) -> float:
    """Return the area between the curve of escalating by `order`, lowest first, and the line of chance."""
    _, place = np.unique(order, return_inverse=True)
    mass = np.bincount(place, weights)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    return float(((weights * gains) * (0.5 - middle[place])).sum() / weights.sum())
