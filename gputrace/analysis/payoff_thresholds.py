"""What other thresholds would have done to the requests of a log.

A threshold above the one in force keeps fewer requests, and audits say what those would have been. One below
it keeps some that were escalated: their light answers exist, and tell where they were graded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gputrace.analysis import payoff_grades
from gputrace.analysis.payoff_bands import simultaneous_quantile
from gputrace.analysis.payoff_costs import unsure_below
from gputrace.analysis.payoff_counterfactual import heavy_costs, unidentified
from gputrace.analysis.payoff_figures import LEAST_AUDITS, Estimate, SweepPoint, absent
from gputrace.analysis.payoff_intervals import (
    Bounds,
    Pairs,
    exponential,
    hall,
    normal_quantile,
    paired,
    student_quantile,
)
from gputrace.analysis.payoff_log import Flags, Floats, Log, need

_LEAST_SEEN = 5
_STEPS = 50


@dataclass(frozen=True, slots=True)
class Kept:
    """The pairs of what a threshold would keep.

    Attributes:
        share: Of all requests, how many it would keep.
        cells: How often one of the two was better.
        influence: A value a request, whose mean is the quality difference.
        reason: Why the pairs do not tell, or `None` where they do.
    """

    share: float
    cells: Pairs
    influence: Floats
    reason: str | None

    @property
    def delta(self) -> float:
        """Quality served less always-heavy's."""
        return float(self.influence.mean())


def quality_bounds(kept: Kept, quantile: float, *, binary: bool) -> Bounds:
    """Return the bounds of a quality difference.

    Args:
        kept: What is kept, and its pairs.
        quantile: In standard errors, to either side.
        binary: Whether every grade is 0 or 1.
    """
    share = kept.share
    if not share or not kept.cells.size:
        return Bounds(0.0, 0.0)
    if not binary:
        return hall(kept.influence, quantile)
    mean = kept.delta / share
    seen = paired(kept.cells, quantile)
    moved = quantile * mean * math.sqrt(share * (1 - share) / len(kept.influence))
    down, up = math.hypot(share * (mean - seen.low), moved), math.hypot(share * (seen.high - mean), moved)
    return Bounds(max(-share, kept.delta - down), min(share, kept.delta + up))


def candidates(log: Log, steps: int = _STEPS) -> Floats:
    """Return thresholds that keep fewer and fewer: quantiles of confidence, and one that escalates all.

    Args:
        log: The log; the thresholds in force are among them if they are few.
        steps: How many quantiles.
    """
    confidence = need(log, "confidence")
    quantiles = np.quantile(confidence, np.linspace(0, 1, steps + 1), method="inverted_cdf")
    in_force = np.unique(log.threshold[~np.isnan(log.threshold)])
    beyond = np.nextafter(confidence.max(), math.inf)
    few = in_force[: len(in_force) if len(in_force) <= _LEAST_SEEN else 0]
    return np.unique(np.concatenate((quantiles, [beyond], few)))


@dataclass(frozen=True)
class Thresholds:
    """One log, asked about thresholds.

    Attributes:
        log: The log.
        overhead: Cost of deciding, on every request.
    """

    log: Log
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Check what the estimators cannot do without.

        Raises:
            ColumnError: A row lacks its confidence or the threshold in force.
        """
        need(self.log, "confidence")
        need(self.log, "threshold")

    @cached_property
    def unidentified(self) -> str | None:
        """Why nothing can be said about kept requests, or `None`."""
        return unidentified(self.log)

    @cached_property
    def pairs(self) -> int:
        """Number of graded audits; of graded pairs at all where everything was escalated."""
        found = self._pairs[1 if self.log.kept.any() else 0][1]
        return 0 if found is None else found.count

    @cached_property
    def binary(self) -> bool:
        """Whether every grade is 0 or 1."""
        return payoff_grades.is_binary(self.log)

    @cached_property
    def _pairs(self) -> tuple[tuple[Flags, payoff_grades.Graded | None], ...]:
        strata = (self.log.escalated, self.log.kept)
        return tuple((stratum, payoff_grades.pairs(self.log, stratum)) for stratum in strata)

    def kept_by(self, threshold: float) -> Kept:
        """Return the pairs of what a threshold would keep, each stratum scaled to its number of requests."""
        log = self.log
        above = log.confidence >= threshold
        weights, influence = np.zeros(log.size), np.zeros(log.size)
        values = np.zeros(log.size)
        reason = None
        for name, (stratum, pairs) in zip(("escalated", "kept"), self._pairs, strict=True):
            members = above & stratum
            rows = int(members.sum())
            if not rows:
                continue
            inside = None if pairs is None else pairs.within(members)
            if inside is None or inside.count < min(rows, _LEAST_SEEN):
                reason = _unseen(name, rows, 0 if inside is None else inside.count)
                continue
            weights += inside.weights * rows / inside.weights.sum()
            values += np.where(inside.weights > 0, inside.values, 0)
            influence += inside.influence(members)
        if (above & log.kept & (log.propensity == 0)).any():
            reason = "some requests that it keeps could not have been audited (propensity 0)"
        cells = payoff_grades.cells(payoff_grades.Graded(values, weights))
        return Kept(float(above.mean()), cells, influence, reason)

    def bounds(self, kept: Kept, quantile: float) -> Bounds:
        """Return the bounds of a quality difference, `quantile` standard errors to either side."""
        return quality_bounds(kept, quantile, binary=self.binary)

    def points(self, thresholds: Floats, tail: float) -> list[SweepPoint]:
        """Return what each threshold would have saved and lost, with bands that hold for all at once."""
        kept = [self.kept_by(threshold) for threshold in thresholds]
        told = [one for one in kept if one.reason is None]
        deltas = np.column_stack([one.influence for one in told]) if told else np.zeros((self.log.size, 1))
        quantile = simultaneous_quantile(deltas, tail)
        savings = self._savings(thresholds, tail)
        return [
            SweepPoint(
                float(threshold),
                saved,
                self._delta(one, quantile),
                one.reason is None and saved.value is not None,
            )
            for threshold, one, saved in zip(thresholds, kept, savings, strict=True)
        ]

    def savings_at(self, threshold: float) -> float | None:
        """Return the share of always-heavy's cost that a threshold would have saved; `None` if unknown."""
        return self._savings(np.array([threshold]), 0.025)[0].value

    def _delta(self, kept: Kept, quantile: float) -> Estimate:
        reason = kept.reason
        if reason is not None:
            needs = LEAST_AUDITS - self.pairs if self.pairs < LEAST_AUDITS else None
            return absent(reason, self.log.size, needs)
        method = "post-stratified, simultaneous"
        bounds = self.bounds(kept, quantile)
        found = Estimate(kept.delta, *bounds, method, self.log.size, kept.cells.size)
        return found if not kept.share else self._bounded(found, self.pairs)

    def _savings(self, thresholds: Floats, tail: float) -> list[Estimate]:
        if self.unidentified is not None:
            return [absent(self.unidentified, self.log.size)] * len(thresholds)
        log, heavy = self.log, heavy_costs(self.log)
        whole = float(heavy.values.mean())
        if not whole > 0:
            return [absent("always-heavy costs nothing, so there is no share of it", log.size)] * len(
                thresholds
            )
        light = log.light_cost + self.overhead
        means = np.empty(len(thresholds))
        influence = np.empty((log.size, len(thresholds)))
        for number, threshold in enumerate(thresholds):
            spent = light + np.where(log.confidence < threshold, heavy.values, 0)
            mean = means[number] = max(float(spent.mean()), np.finfo(float).tiny)
            moved = (spent - mean) / mean - (heavy.values - whole) / whole
            influence[:, number] = math.log(mean / whole) + moved
        freedom = heavy.effective_n - 1
        # Student's t in place of the normal, for as many standard errors as the band asks.
        wide = (
            simultaneous_quantile(influence, tail) / normal_quantile(tail) * student_quantile(tail, freedom)
        )
        found = []
        for number, mean in enumerate(means):
            low, high = map(exponential, hall(influence[:, number], wide, heavy.widen))
            value = Estimate(
                1 - float(mean) / whole,
                1 - high,
                1 - low,
                f"{heavy.method}, log-ratio Hall, simultaneous",
                log.size,
                heavy.effective_n,
            )
            found.append(self._bounded(value, log.audits))
        return found

    def _bounded(self, found: Estimate, seen: int) -> Estimate:
        return unsure_below(LEAST_AUDITS, found, seen) if self.log.kept.any() else found


def _unseen(stratum: str, rows: int, count: int) -> str:
    if stratum == "kept":
        return f"of {rows} kept requests that it keeps, {count} were audited and graded"
    return f"it keeps {rows} requests that were escalated, and {count} of their light answers were graded"
