"""Graded answers by stratum: weighted means, and pairs of light and heavy on the same request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis.payoff_intervals import Pairs, effective_size

if TYPE_CHECKING:
    from gputrace.analysis.payoff_log import Flags, Floats, Log


@dataclass(frozen=True, slots=True)
class Graded:
    """Values that some requests show, and how many requests each stands for.

    Attributes:
        values: One a request; 0 where it is not known.
        weights: 1 over the probability that it is known; 0 where it is not.
    """

    values: Floats
    weights: Floats

    def within(self, stratum: Flags) -> Graded:
        """Return those of one stratum."""
        return Graded(self.values, np.where(stratum, self.weights, 0))

    @property
    def count(self) -> int:
        """How many are known."""
        return int((self.weights > 0).sum())

    @property
    def size(self) -> float:
        """Effective number."""
        return effective_size(self.weights)

    @property
    def mean(self) -> float:
        """Mean, with weights made to sum to one (Hajek)."""
        return float(self.weights @ self.values) / float(self.weights.sum())

    def influence(self, stratum: Flags) -> Floats:
        """Return a value for each request of the stratum, whose mean over it is `mean`; 0 outside."""
        scale = float(stratum.sum()) / float(self.weights.sum())
        return np.where(stratum, self.mean + scale * self.weights * (self.values - self.mean), 0)


def light(log: Log) -> Graded:
    """Return the grades of light answers."""
    return _graded(log.light_quality, 1 / _positive(log.light_grading))


def heavy(log: Log) -> Graded:
    """Return the grades of heavy answers, escalated and audited."""
    ran = 1 / _positive(np.where(log.kept, log.propensity, 1) * log.heavy_grading)
    return _graded(log.heavy_quality, ran)


def pairs(log: Log, stratum: Flags) -> Graded | None:
    """Return light less heavy where both are graded; `None` where no one knows how likely that was.

    Two labels that are drawn each for itself are both there with the product of their probabilities, and
    two that come together with the one of either. Which it is shows where one is certain, or where they
    always come together; elsewhere it stays unknown, and nobody should guess.

    Args:
        log: The log.
        stratum: Escalated requests, or kept ones.
    """
    ran = stratum & (log.audited | log.escalated)
    known = np.array([~np.isnan(log.light_quality), ~np.isnan(log.heavy_quality)]) & ran
    seen = known.any(axis=0)
    first, second = log.light_grading[seen], log.heavy_grading[seen]
    certain = bool((np.maximum(first, second) == 1).all())
    together = bool((known[0] == known[1]).all() and (first == second).all())
    if not certain and not together:
        return None
    joint = np.minimum(log.light_grading, log.heavy_grading)
    drawn = 1 / _positive(np.where(log.kept, log.propensity, 1) * joint)
    return _graded(log.light_quality - log.heavy_quality, np.where(stratum, drawn, 0))


def cells(differences: Graded) -> Pairs:
    """Return the discordant cells of binary pairs."""
    whole = float(differences.weights.sum())
    if not whole:
        return Pairs(0.0, 0.0, 0.0)
    better = float(differences.weights[differences.values > 0].sum()) / whole
    worse = float(differences.weights[differences.values < 0].sum()) / whole
    return Pairs(better, worse, differences.size)


def is_binary(log: Log) -> bool:
    """Return whether every grade is 0 or 1."""
    seen = np.concatenate((log.light_quality, log.heavy_quality))
    return bool(np.isin(seen[~np.isnan(seen)], (0, 1)).all())


def _graded(values: Floats, weights: Floats) -> Graded:
    known = ~np.isnan(values) & (weights > 0)
    return Graded(np.where(known, values, 0), np.where(known, np.nan_to_num(weights), 0))


def _positive(probability: Floats) -> Floats:
    """Return it with 1 for what is 0 or unknown: no grade hangs on those, the log has been checked."""
    return np.where(probability > 0, probability, 1)
