"""The sum of several logs: each part is estimated for itself, so that the parts add up to the whole."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis import payoff_grades
from gputrace.analysis.payoff_costs import costs, unsure_below
from gputrace.analysis.payoff_counterfactual import HeavyCosts, heavy_costs, unidentified
from gputrace.analysis.payoff_figures import LEAST_AUDITS, Estimate, absent
from gputrace.analysis.payoff_intervals import effective_size, normal_quantile
from gputrace.analysis.payoff_log import Log
from gputrace.analysis.payoff_thresholds import Kept, quality_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST_AUDITS_OF_A_PART = 2


@dataclass(frozen=True, slots=True)
class Total:
    """Several logs as one.

    Attributes:
        estimates: By name, as `payoff.estimate` gives them; of quality, `quality_delta` alone.
        left_out: Positions of parts that have too few audits, or requests, to be in the sum.
        requests: Requests in the sum.
    """

    estimates: dict[str, Estimate]
    left_out: tuple[int, ...]
    requests: int


def add_up(logs: Sequence[Log], tail: float, overhead: float) -> Total | None:
    """Estimate the sum of several logs.

    Args:
        logs: Of one unit.
        tail: Probability left out on either side of an interval.
        overhead: Cost of deciding, on every request.

    Returns:
        The sum of all parts that their audits or, where all was escalated, requests tell something about;
        `None` if there is none.
    """
    told = [number for number, log in enumerate(logs) if _is_told(log)]
    if not told:
        return None
    parts = [logs[number] for number in told]
    merged = Log(*(np.concatenate([getattr(log, one.name) for log in parts]) for one in fields(Log)))
    found = costs(merged, tail, overhead, heavy=_heavy_costs(parts))
    found["quality_delta"] = _delta(merged, parts, tail)
    found = {name: replace(one, method=f"sum of {len(parts)}; {one.method}") for name, one in found.items()}
    left_out = tuple(number for number in range(len(logs)) if number not in told)
    return Total(found, left_out, merged.size)


def _is_told(log: Log) -> bool:
    # A dear request or two that were escalated would leave the sum of thousands without a use.
    enough = log.audits >= _LEAST_AUDITS_OF_A_PART if log.kept.any() else log.size >= LEAST_AUDITS
    return enough and unidentified(log) is None


def _heavy_costs(parts: Sequence[Log]) -> HeavyCosts:
    """Return the pseudo-outcomes of all parts, each scaled for what its own mean has used up."""
    values, weights = [], []
    for log in parts:
        heavy = heavy_costs(log)
        # Escalated requests show their own cost; only what stands for the kept ones is uncertain.
        centre = heavy.values[log.kept].mean() if log.kept.any() else 0.0
        widened = centre + (heavy.values - centre) * heavy.widen
        values.append(np.where(log.kept, widened, heavy.values))
        # Of the part, as a whole of one request each: an audit of a small feature speaks of few requests.
        scale = float(log.kept.sum()) / max(float(log.audit_weight.sum()), 1e-300)
        weights.append(log.audit_weight[log.audited] * scale)
    effective = effective_size(np.concatenate(weights)) or float(sum(log.size for log in parts))
    return HeavyCosts(np.concatenate(values), "post-stratified by part", effective, 1.0)


def _delta(merged: Log, parts: Sequence[Log], tail: float) -> Estimate:
    weights, values, influences = [], [], []
    count = 0
    for log in parts:
        pairs = payoff_grades.pairs(log, log.kept)
        rows = int(log.kept.sum())
        if rows and (pairs is None or not pairs.count):
            return absent("some parts have no audit with both answers graded", merged.size)
        if pairs is None or not rows:
            weights.append(np.zeros(log.size))
            values.append(np.zeros(log.size))
            influences.append(np.zeros(log.size))
            continue
        count += pairs.count
        weights.append(pairs.weights * rows / pairs.weights.sum())
        values.append(pairs.values)
        influences.append(pairs.influence(log.kept))
    together = payoff_grades.Graded(np.concatenate(values), np.concatenate(weights))
    share = float(merged.kept.mean())
    kept = Kept(share, payoff_grades.cells(together), np.concatenate(influences), None)
    binary = payoff_grades.is_binary(merged)
    bounds = quality_bounds(kept, normal_quantile(tail), binary=binary)
    found = Estimate(kept.delta, *bounds, "post-stratified by part", merged.size, kept.cells.size)
    return unsure_below(LEAST_AUDITS, found, count, "graded audits") if merged.kept.any() else found
