"""Where conditional escalation pays: what was saved, what quality was lost, and how sure that is.

In production the heavy model's answer is seen on escalated requests and on audits alone. Formulas that take
escalated requests for typical, or that leave audits' probabilities out, are wrong, mostly in the flattering
direction. The estimators here rest on one thing: that audits and grades were drawn with a logged probability.
docs/payoff.md explains them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gputrace.analysis import payoff_log
from gputrace.analysis.payoff_advice import choose
from gputrace.analysis.payoff_costs import costs
from gputrace.analysis.payoff_figures import Advice, Estimate, SweepPoint
from gputrace.analysis.payoff_log import ColumnError
from gputrace.analysis.payoff_quality import quality
from gputrace.analysis.payoff_signal import Signal, judge
from gputrace.analysis.payoff_thresholds import Thresholds, candidates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Advice",
    "ColumnError",
    "Estimate",
    "Signal",
    "SweepPoint",
    "advise",
    "estimate",
    "judge_signal",
    "sweep",
]

_ADVICE_STEPS = 100


def estimate(
    columns: Mapping[str, Any], *, level: float = 0.95, overhead: float = 0.0
) -> dict[str, Estimate]:
    """Estimate what a cascade costs, saves and loses, from a log of its decisions.

    Args:
        columns: Arrays by name, one element a request, NaN where something was not observed. Needed:
            `escalated`, `light_cost`, `heavy_cost`. Without `audited` and `audit_propensity` (how likely
            a kept request was to be audited) only what production sees is told; without
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
    _check_overhead(overhead)
    log = payoff_log.read(columns)
    return costs(log, tail, overhead) | quality(log, tail)


def sweep(
    columns: Mapping[str, Any],
    thresholds: Sequence[float] | None = None,
    *,
    level: float = 0.95,
    overhead: float = 0.0,
) -> list[SweepPoint]:
    """Estimate what other thresholds would have saved and lost on the requests of a log.

    Args:
        columns: As for `estimate`, with `confidence` and `threshold` (the one in force) on every row. A
            request is escalated where its confidence is below the threshold; negate a confidence of which
            lower is better.
        thresholds: Which; `None` for some fifty quantiles of confidence and the thresholds in force.
        level: Confidence with which a band holds for all thresholds at once; there is one for savings and
            one for quality.
        overhead: As for `estimate`.

    Returns:
        A point a threshold, in ascending order.

    Raises:
        ColumnError: As for `estimate`, or a row lacks its confidence or threshold.
        ValueError: `level`, `overhead` or a threshold is no such number.
    """
    tail = _tail(level)
    _check_overhead(overhead)
    log = payoff_log.read(columns)
    asked = Thresholds(log, overhead)
    found = candidates(log) if thresholds is None else np.unique(np.asarray(thresholds, dtype=np.float64))
    if np.isnan(found).any() or found.ndim != 1:
        message = f"thresholds are {thresholds!r}: give numbers"
        raise ValueError(message)
    return asked.points(found, tail)


def advise(
    columns: Mapping[str, Any], *, target_loss: float, level: float = 0.95, overhead: float = 0.0
) -> Advice:
    """Choose the cheapest threshold whose loss of quality stays within a target.

    Args:
        columns: As for `sweep`.
        target_loss: Quality that may be lost against always-heavy, in the unit of the grades: 0.02 for two
            points where grades are 0 and 1.
        level: Probability with which the guaranteed threshold keeps to the target.
        overhead: As for `estimate`.

    Raises:
        ColumnError: As for `sweep`.
        ValueError: `level`, `overhead` or `target_loss` is no such number.
    """
    _tail(level)
    _check_overhead(overhead)
    if not (math.isfinite(target_loss) and target_loss >= 0):
        message = f"target_loss is {target_loss!r}: give a loss of 0 or more"
        raise ValueError(message)
    log = payoff_log.read(columns)
    return choose(Thresholds(log, overhead), candidates(log, _ADVICE_STEPS), target_loss, level)


def judge_signal(columns: Mapping[str, Any], *, level: float = 0.95) -> Signal:
    """Judge whether a confidence tells right answers of the light model from wrong ones.

    Args:
        columns: As for `estimate`, with `confidence` on every row.
        level: Confidence of the slope's interval.

    Raises:
        ColumnError: As for `estimate`, or a row lacks its confidence.
        ValueError: `level` does not lie between 0 and 1.
    """
    return judge(payoff_log.read(columns), _tail(level))


def _check_overhead(overhead: float) -> None:
    if not (math.isfinite(overhead) and overhead >= 0):
        message = f"overhead is {overhead!r}: give a cost of 0 or more"
        raise ValueError(message)


def _tail(level: float) -> float:
    if not 0 < level < 1:
        message = f"level is {level!r}: give a confidence between 0 and 1, 0.95 say"
        raise ValueError(message)
    return (1 - level) / 2
