"""Estimates of what a cascade costs, and of what always asking the heavy model would have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis.payoff_counterfactual import HeavyCosts, heavy_costs, unidentified
from gputrace.analysis.payoff_figures import LEAST_AUDITS, Estimate, absent
from gputrace.analysis.payoff_intervals import exponential, hall, student_quantile, wilson

if TYPE_CHECKING:
    from gputrace.analysis.payoff_log import Floats, Log

COUNTERFACTUAL = (
    "always_heavy_cost",
    "savings_abs",
    "savings_frac",
    "savings_net_abs",
    "break_even_simple",
    "break_even_mix",
    "cost_weighted_escalation",
)
"""What needs to know the heavy cost of kept requests."""

_NOTHING_ESCALATED = "no request was escalated"
_NO_SPREAD = "one request has no spread"


def costs(log: Log, tail: float, overhead: float, *, heavy: HeavyCosts | None = None) -> dict[str, Estimate]:
    """Estimate everything that is about cost.

    Args:
        log: The log.
        tail: Probability left out on either side of an interval.
        overhead: What the decision costs on every request, in the unit of the costs.
        heavy: What the heavy model would have cost, where it has been estimated part by part.
    """
    found = _seen(log, tail, overhead)
    reason = unidentified(log)
    if reason is not None:
        needs = LEAST_AUDITS if not log.audits else None
        return found | dict.fromkeys(COUNTERFACTUAL, absent(reason, log.size, needs))
    return found | _Counterfactual(log, heavy or heavy_costs(log), tail, overhead).all()


def unsure_below(least: int, estimate: Estimate, seen: int, what: str = "audits") -> Estimate:
    """Return the estimate, without bounds if it rests on too little.

    Args:
        least: How many observations an interval needs.
        estimate: With bounds.
        seen: Observations that there are.
        what: What they are called.
    """
    if seen >= least:
        return estimate
    reason = f"only {seen} {what}: bounds need {least}"
    return replace(estimate, low=None, high=None, reason=reason, needs=least - seen)


def _seen(log: Log, tail: float, overhead: float) -> dict[str, Estimate]:
    """Estimate what every log tells, also without audits."""
    spent = np.where(log.escalated, np.nan_to_num(log.heavy_cost), 0)
    rate = float(log.escalated.mean())
    taxed = np.where(log.audited, np.nan_to_num(log.heavy_cost), 0)
    audits = Estimate(float(log.audits), log.audits, log.audits, "count", log.size, float(log.size))
    tax = _mean(taxed, tail)
    found = {
        "escalation_rate": Estimate(
            rate, *wilson(rate, log.size, tail), method="Wilson", n=log.size, effective_n=float(log.size)
        ),
        "light_cost": _mean(log.light_cost, tail),
        "cascade_cost": _mean(log.light_cost + overhead + spent, tail),
        "wasted_light_cost": _mean(np.where(log.escalated, log.light_cost, 0), tail),
        "heavy_cost_escalated": absent(_NOTHING_ESCALATED, log.size),
        "audit_tax": unsure_below(LEAST_AUDITS, tax, log.audits) if log.kept.any() else tax,
        "audit_count": audits,
    }
    if log.escalated.any():
        found["heavy_cost_escalated"] = _mean(log.heavy_cost[log.escalated], tail)
    return found


def _mean(values: Floats, tail: float) -> Estimate:
    size = len(values)
    value = float(values.mean())
    if size == 1:
        return Estimate(value, method="Hall", n=1, effective_n=1.0, reason=_NO_SPREAD)
    bounds = hall(values, student_quantile(tail, size - 1))
    return _no_less_than_nothing(Estimate(value, *bounds, method="Hall", n=size, effective_n=float(size)))


def _no_less_than_nothing(cost: Estimate) -> Estimate:
    """Return the mean of costs, none of which is below 0, with a lower bound that is not either."""
    return cost if cost.low is None else replace(cost, low=max(0.0, cost.low))


@dataclass(frozen=True, slots=True)
class _Counterfactual:
    """What compares with always-heavy; each is a function of means, bounded by its influence values."""

    log: Log
    heavy: HeavyCosts
    tail: float
    overhead: float

    def all(self) -> dict[str, Estimate]:
        light = self.log.light_cost + self.overhead
        spent = np.where(self.log.escalated, np.nan_to_num(self.log.heavy_cost), 0)
        tax = np.where(self.log.audited, np.nan_to_num(self.log.heavy_cost), 0)
        heavy = self.heavy.values
        # By difference: what an escalated request costs is on both sides, and cancels exactly.
        saved = np.where(self.log.kept, heavy, 0) - light
        found = {
            "always_heavy_cost": _no_less_than_nothing(self._mean(heavy)),
            "savings_abs": self._mean(saved),
            "savings_net_abs": self._mean(saved - tax),
        }
        if not heavy.mean() > 0:
            free = absent("always-heavy costs nothing, so there is no share of it", self.log.size)
            names = ("savings_frac", "break_even_simple", "break_even_mix", "cost_weighted_escalation")
            return found | dict.fromkeys(names, free)
        return found | {
            "savings_frac": self._one_less(light + spent, heavy),
            "break_even_simple": self._one_less(light, heavy),
            "break_even_mix": self._break_even_mix(saved + spent),
            "cost_weighted_escalation": self._escalated_share(spent),
        }

    def _bounded(self, value: float, low: float, high: float, method: str) -> Estimate:
        method = f"{self.heavy.method}, {method}"
        found = Estimate(value, low, high, method, self.log.size, self.heavy.effective_n)
        if self.log.kept.any():
            return unsure_below(LEAST_AUDITS, found, self.log.audits)
        return replace(found, low=None, high=None, reason=_NO_SPREAD) if self.log.size == 1 else found

    def _hall(self, values: Floats) -> tuple[float, float]:
        quantile = student_quantile(self.tail, self.heavy.effective_n - 1)
        return hall(values, quantile, self.heavy.widen)

    def _mean(self, values: Floats) -> Estimate:
        return self._bounded(float(values.mean()), *self._hall(values), "Hall")

    def _log_ratio(self, above: Floats, below: Floats) -> tuple[float, float, float]:
        """Return the ratio of two means and its bounds, by way of the logarithm."""
        over, under = float(above.mean()), float(below.mean())
        low, high = self._hall(np.log(over / under) + (above - over) / over - (below - under) / under)
        return over / under, exponential(low), exponential(high)

    def _one_less(self, above: Floats, below: Floats) -> Estimate:
        if not above.mean() > 0:
            return self._bounded(1.0, 1.0, 1.0, "the cascade cost nothing")
        ratio, low, high = self._log_ratio(above, below)
        return self._bounded(1 - ratio, 1 - high, 1 - low, "log-ratio Hall")

    def _break_even_mix(self, left: Floats) -> Estimate:
        """Return (H - cL - o) / hE, whose numerator may have either sign: no logarithm here."""
        escalated = self.log.escalated
        if not escalated.any():
            return absent(f"{_NOTHING_ESCALATED}, so their cost is unknown", self.log.size)
        dearness = float(self.log.heavy_cost[escalated].mean())
        if not dearness > 0:
            return absent("escalated requests cost nothing", self.log.size)
        value = float(left.mean()) / dearness
        off = np.where(escalated, np.nan_to_num(self.log.heavy_cost) - dearness, 0) / float(escalated.mean())
        influence = value + (left - left.mean()) / dearness - value * off / dearness
        found = self._bounded(value, *self._hall(influence), "Hall")
        if escalated.sum() > 1 or found.low is None:
            return found
        return replace(found, low=None, high=None, reason="one escalated request has no spread")

    def _escalated_share(self, spent: Floats) -> Estimate:
        value = float(spent.mean()) / float(self.heavy.values.mean())
        if not 0 < value < 1:
            why = _NOTHING_ESCALATED if value <= 0 else "every request was escalated"
            method = f"{self.heavy.method}, no bounds"
            return Estimate(value, None, None, method, self.log.size, self.heavy.effective_n, why)
        ratio, low, high = self._log_ratio(spent, self.heavy.values)
        return self._bounded(ratio, low, high, "log-ratio Hall")
