"""Estimates of the quality that a cascade serves, and of what always-heavy would have served."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis import payoff_grades
from gputrace.analysis.payoff_costs import unsure_below
from gputrace.analysis.payoff_counterfactual import unidentified
from gputrace.analysis.payoff_figures import LEAST_AUDITS, Estimate, absent
from gputrace.analysis.payoff_intervals import (
    Bounds,
    agresti_coull,
    hall,
    none_seen,
    normal_quantile,
    paired,
    student_quantile,
)

if TYPE_CHECKING:
    from gputrace.analysis.payoff_grades import Graded
    from gputrace.analysis.payoff_log import Flags, Floats, Log


def quality(log: Log, tail: float) -> dict[str, Estimate]:
    """Estimate everything that is about quality.

    Args:
        log: The log.
        tail: Probability left out on either side of an interval.
    """
    grades = _Grades(log, tail)
    delta = grades.delta()
    heavy = grades.heavy_level(delta)
    return {
        "quality_light": grades.level(grades.light, grades.light, "light"),
        "quality_cascade": grades.cascade,
        "quality_heavy": heavy,
        "quality_delta": delta,
        "quality_retention": _retention(delta, heavy, grades),
    }


def _retention(delta: Estimate, heavy: Estimate, grades: _Grades) -> Estimate:
    """Return served / (served - delta), whose two parts rest on different requests.

    A ratio of means is biased by their noise. What is due to the answers that nobody saw is taken off, by
    the second-order expansion (W. G. Cochran, Sampling Techniques, 1977, section 6.8): where all were seen,
    the ratio stays what it is by definition.
    """
    served = grades.cascade
    if delta.value is None or heavy.value is None or served.value is None:
        unknown = next(one for one in (delta, heavy, served) if one.value is None)
        return absent(unknown.reason or "", unknown.n, unknown.needs)
    if not heavy.value > 0:
        return absent("the heavy model was never right, so there is nothing to retain", delta.n)
    value = 1 + delta.value / heavy.value
    low, high = delta.low, delta.high
    method = "ratio (MOVER)"
    if low is None or high is None or served.half_width is None or heavy.low is None:
        return replace(delta, value=value, low=None, high=None, method=method)
    level = heavy.value + delta.value
    of_delta, of_served = (((high - low) / 2 / grades.z) ** 2, (served.half_width / grades.z) ** 2)
    bias = grades.unseen_share * (level * of_delta + delta.value * of_served) / heavy.value**3
    # Where always-heavy would have been at either end, kept off the pole.
    least = max(1e-9, min(heavy.low, heavy.value))
    ends = [level / max(least, level - end) for end in (low, high)]
    moved = delta.value * served.half_width / heavy.value**2
    down, up = math.hypot(value - ends[0], moved), math.hypot(ends[1] - value, moved)
    return replace(delta, value=value - bias, low=value - down, high=value + up, method=method)


@dataclass(frozen=True)
class _Grades:
    """The grades of one log, and what follows from them."""

    log: Log
    tail: float

    @cached_property
    def light(self) -> Graded:
        return payoff_grades.light(self.log)

    @cached_property
    def heavy(self) -> Graded:
        return payoff_grades.heavy(self.log)

    @cached_property
    def binary(self) -> bool:
        return payoff_grades.is_binary(self.log)

    @cached_property
    def cascade(self) -> Estimate:
        return self.level(self.heavy, self.light, "served")

    @property
    def z(self) -> float:
        return normal_quantile(self.tail)

    @property
    def unseen_share(self) -> float:
        """Of the kept requests, those for which no grade of a heavy answer is known."""
        return 1 - self.heavy.within(self.log.kept).count / max(1, int(self.log.kept.sum()))

    @property
    def kept_share(self) -> float:
        return float(self.log.kept.mean())

    def level(self, escalated: Graded, kept: Graded, whose: str) -> Estimate:
        """Estimate a mean grade, stratum by stratum.

        Args:
            escalated: Grades that speak of escalated requests.
            kept: Grades that speak of kept ones.
            whose: Whose answers these are.
        """
        parts: list[tuple[str, Flags, Graded]] = []
        for name, stratum, graded in (
            ("escalated", self.log.escalated, escalated),
            ("kept", self.log.kept, kept),
        ):
            inside = graded.within(stratum)
            if stratum.any() and not inside.count:
                return absent(f"no {whose} answer to {name} requests was graded", self.log.size)
            if stratum.any():
                parts.append((name, stratum, inside))
        if self.binary:
            return self._binary_level([(stratum, part) for _, stratum, part in parts])
        influence = np.sum([part.influence(stratum) for _, stratum, part in parts], axis=0)
        return self._numeric(influence, sum(part.size for *_, part in parts), "post-stratified, Hall")

    def _binary_level(self, parts: list[tuple[Flags, Graded]]) -> Estimate:
        value = centre = variance = 0.0
        for stratum, part in parts:
            share = float(stratum.mean())
            moved = agresti_coull(part.mean, part.size, self.z)
            value += share * part.mean
            centre += share * moved.share
            variance += share**2 * moved.variance
        if len(parts) == 2:  # noqa: PLR2004 - escalated and kept
            gap = parts[0][1].mean - parts[1][1].mean
            variance += gap**2 * self.kept_share * (1 - self.kept_share) / self.log.size
        effective = sum(part.size for _, part in parts)
        return self._share(value, centre, variance, effective)

    def _share(self, value: float, centre: float, variance: float, effective: float) -> Estimate:
        half = self.z * math.sqrt(variance)
        low, high = max(0.0, min(value, centre - half)), min(1.0, max(value, centre + half))
        return Estimate(value, low, high, "post-stratified, Agresti-Coull", self.log.size, effective)

    def _numeric(self, influence: Floats, effective: float, method: str) -> Estimate:
        value = float(influence.mean())
        bounds = hall(influence, student_quantile(self.tail, effective - 1))
        return Estimate(value, *bounds, method=method, n=self.log.size, effective_n=effective)

    @cached_property
    def differences(self) -> Graded | None:
        """Pairs of kept requests; `None` where their probability is unknown."""
        return payoff_grades.pairs(self.log, self.log.kept)

    def delta(self) -> Estimate:
        """Estimate what the served quality differs by from that of always-heavy."""
        size = self.log.size
        if not self.log.kept.any():
            return Estimate(0.0, 0.0, 0.0, "every request was escalated", size, float(size))
        reason = unidentified(self.log) or self._ungraded()
        if reason is not None:
            enough = self.log.audits >= LEAST_AUDITS
            return absent(reason, size, None if enough else LEAST_AUDITS - self.log.audits)
        pairs = self.differences
        if pairs is None:
            return self._unpaired()
        bounds = self._paired_bounds(pairs)
        method = "post-stratified, " + ("Bonett-Price" if self.binary else "Hall")
        found = Estimate(self.kept_share * pairs.mean, *bounds, method, size, pairs.size)
        return unsure_below(LEAST_AUDITS, found, pairs.count, "graded audits")

    def _ungraded(self) -> str | None:
        """Return why grades do not tell, or `None` where they do."""
        kept = self.log.kept
        if not self.heavy.within(kept).count:
            return "no heavy answer of an audit was graded"
        if not self.light.within(kept).count:
            return "no light answer to a kept request was graded"
        if self.differences is not None and not self.differences.count:
            return "no audit has both answers graded"
        return None

    def _paired_bounds(self, pairs: Graded) -> Bounds:
        share, mean = self.kept_share, pairs.mean
        seen = paired(payoff_grades.cells(pairs), self.z) if self.binary else self._numeric_pairs(pairs)
        # The share kept is itself estimated; it moves the difference in proportion.
        moved = self.z * mean * math.sqrt(share * (1 - share) / self.log.size)
        down = math.hypot(share * (mean - seen.low), moved)
        up = math.hypot(share * (seen.high - mean), moved)
        return Bounds(share * mean - down, share * mean + up)

    def _numeric_pairs(self, pairs: Graded) -> Bounds:
        seen = pairs.weights > 0
        values = pairs.values[seen]
        if values.min() == values.max():
            grades = np.concatenate((self.log.light_quality, self.log.heavy_quality))
            reach = none_seen(pairs.size, self.z) * float(np.nanmax(grades) - np.nanmin(grades))
            return Bounds(pairs.mean - reach, pairs.mean + reach)
        return hall(pairs.influence(seen)[seen], student_quantile(self.tail, pairs.size - 1))

    def _unpaired(self) -> Estimate:
        """Compare two means: labels of light and heavy answers were not drawn together."""
        kept = self.log.kept
        light, heavy = self.light.within(kept), self.heavy.within(kept)
        influence = np.where(kept, light.influence(kept) - heavy.influence(kept), 0)
        found = self._numeric(influence, heavy.size, "post-stratified, unpaired, Hall")
        return unsure_below(LEAST_AUDITS, found, heavy.count, "graded audits")

    def heavy_level(self, delta: Estimate) -> Estimate:
        """Estimate always-heavy's quality, as what was served less the difference: so that they add up."""
        pairs = self.differences
        direct = self.level(self.heavy, self.heavy, "heavy")
        if not self.log.kept.any() or direct.value is None or pairs is None or not pairs.count:
            return self._audited(direct)
        if delta.value is None or self.cascade.value is None:
            return self._audited(direct)
        value = self.cascade.value - delta.value
        if not self.binary:
            return self._audited(self._by_difference(pairs))
        if not 0 <= value <= 1:
            return self._audited(direct)
        return self._audited(self._binary_by_difference(value, pairs))

    def _audited(self, level: Estimate) -> Estimate:
        if level.value is None or not self.log.kept.any():
            return level
        count = self.heavy.within(self.log.kept).count
        return unsure_below(LEAST_AUDITS, level, count, "graded audits")

    def _by_difference(self, pairs: Graded) -> Estimate:
        kept, escalated = self.log.kept, self.log.escalated
        influence = self.light.within(kept).influence(kept) - pairs.influence(kept)
        if escalated.any():
            influence = influence + self.heavy.within(escalated).influence(escalated)
        return self._numeric(influence, pairs.size, "by difference, Hall")

    def _binary_by_difference(self, value: float, pairs: Graded) -> Estimate:
        kept, escalated = self.log.kept, self.log.escalated
        share = self.kept_share
        light = self.light.within(kept)
        right = min(1.0, max(0.0, light.mean - pairs.mean))
        moved = agresti_coull(right, light.size, self.z)
        spread = paired(payoff_grades.cells(pairs), self.z)
        centre = share * moved.share
        variance = share**2 * (moved.variance + ((spread.high - spread.low) / 2 / self.z) ** 2)
        if escalated.any():
            above = self.heavy.within(escalated)
            high = agresti_coull(above.mean, above.size, self.z)
            centre += (1 - share) * high.share
            variance += (1 - share) ** 2 * high.variance
            variance += (above.mean - right) ** 2 * share * (1 - share) / self.log.size
        found = self._share(value, centre, variance, pairs.size)
        return replace(found, method="by difference, Agresti-Coull and Bonett-Price")
