"""Bands that hold for many thresholds at once (sup-t, with a Gaussian multiplier bootstrap)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis.payoff_intervals import normal_quantile

if TYPE_CHECKING:
    from gputrace.analysis.payoff_log import Floats

_DRAWS = 4000
_SEED = 0


def simultaneous_quantile(influences: Floats, tail: float) -> float:
    """Return how many standard errors every one of several estimates stays within, all at once.

    Multiplying each request's influence by its own normal draw gives sums that are jointly normal with the
    influences' covariance; drawing from that directly costs the same however many requests there are.

    Args:
        influences: A row a request, a column an estimate.
        tail: Half the probability with which some estimate may leave its band.
    """
    means = influences.mean(axis=0)
    # Without a centred copy, which would be as large as the whole.
    covariance = influences.T @ influences - len(influences) * np.outer(means, means)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0))
    moving = spread > 1e-9 * math.sqrt(len(influences)) * (np.abs(means) + 1e-9)
    pointwise = normal_quantile(tail)
    if not moving.any():
        return pointwise
    correlation = covariance[np.ix_(moving, moving)] / np.outer(spread[moving], spread[moving])
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0))
    draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, root.shape[1])) @ root.T
    return max(pointwise, float(np.quantile(np.abs(draws).max(axis=1), 1 - 2 * tail)))
