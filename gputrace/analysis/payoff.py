"""Where conditional escalation pays: what was saved, what quality was lost, and how sure that is.

In production the heavy model's answer is seen on escalated requests and on audits alone. Formulas that take
escalated requests for typical, or that leave audits' probabilities out, are wrong, mostly in the flattering
direction. The estimators here rest on one thing: that audits and grades were drawn with a logged probability.
docs/payoff.md explains them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gputrace.analysis import payoff_log
from gputrace.analysis.payoff_costs import costs
from gputrace.analysis.payoff_figures import Advice, Estimate, SweepPoint
from gputrace.analysis.payoff_log import ColumnError
from gputrace.analysis.payoff_quality import quality

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Advice", "ColumnError", "Estimate", "SweepPoint", "estimate"]


def estimate(
    columns: Mapping[str, Any], *, level: float = 0.95, overhead: float = 0.0
) -> dict[str, Estimate]:
    """Estimate what a cascade costs, saves and loses, from a log of its decisions.

    Args:
        columns: Arrays by name, one element a request, NaN where something was not observed. Needed:
            `escalated`, `light_cost`, `heavy_cost`. Without `audited` and `audit_propensity` (the probability
            with which a kept request was to be audited) only what production sees is told; without
            `light_quality` and `heavy_quality` nothing about quality. `label_propensity` is the probability
            with which answers were to be graded, 1 by default; `light_label_propensity` and
            `heavy_label_propensity` where they differ. `confidence` and `input_size` make intervals shorter.
            Others are ignored.
        level: Confidence of the intervals, each for itself.
        overhead: Cost of deciding, on every request, in the unit of the costs.

    Returns:
        Estimates by name. Costs are means over all requests, unless the name ends in `_escalated`. Savings
        are signed. `savings_net_abs` has the audits taken off; no other cost contains them.

    Raises:
        ColumnError: A column is missing or wrong; the message names it and the row.
        ValueError: `level` does not lie between 0 and 1, or `overhead` is no cost.
    """
    tail = _tail(level)
    if not (math.isfinite(overhead) and overhead >= 0):
        message = f"overhead is {overhead!r}: give a cost of 0 or more"
        raise ValueError(message)
    log = payoff_log.read(columns)
    return costs(log, tail, overhead) | quality(log, tail)


def _tail(level: float) -> float:
    if not 0 < level < 1:
        message = f"level is {level!r}: give a confidence between 0 and 1, 0.95 say"
        raise ValueError(message)
    return (1 - level) / 2
