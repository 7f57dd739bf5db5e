"""What the heavy model would have cost on every request, although it ran on some.

Escalated requests show it, and audits show it for the kept ones. Each request gets a pseudo-outcome whose
mean estimates the mean cost: its own cost where it was escalated; else the audits' mean in the kept
stratum (post-stratified), or what a regression on confidence, light cost and input size predicts, plus
what audits say that the regression missed (doubly robust). The regression need not be right: audits are
drawn by us, with known probability. It only takes out noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis.payoff_figures import LEAST_AUDITS
from gputrace.analysis.payoff_intervals import effective_size

if TYPE_CHECKING:
    from gputrace.analysis.payoff_log import Floats, Log

_FOLDS = 5
_FOLD_SEED = 0


@dataclass(frozen=True, slots=True)
class HeavyCosts:
    """Pseudo-outcomes of the heavy cost.

    Attributes:
        values: One a request.
        method: How they were made.
        effective_n: Effective number of audits, or of requests where none was needed.
        widen: Factor on standard errors for the coefficients that were estimated (HC1).
    """

    values: Floats
    method: str
    effective_n: float
    widen: float


def unidentified(log: Log) -> str | None:
    """Return why the log cannot tell what kept requests would have cost, or `None` where it can."""
    if not log.kept.any():
        return None
    if not log.audits:
        return "no kept request was audited, so nothing says what the heavy model would have done on them"
    if log.unreachable:
        return (
            f"{log.unreachable} kept requests had an audit propensity of 0, so no audit says what the heavy "
            "model would have done on such"
        )
    return None


def heavy_costs(log: Log) -> HeavyCosts:
    """Return the pseudo-outcomes; only where `unidentified` finds nothing."""
    if not log.kept.any():
        return HeavyCosts(log.heavy_cost, "every request was escalated", float(log.size), 1.0)
    effective = effective_size(log.audit_weight)
    plain = _outcomes(log, np.zeros(log.size))
    predicted = _predictions(log) if log.audits >= LEAST_AUDITS else None
    if predicted is None:
        return HeavyCosts(plain, "post-stratified", effective, _hc1(effective, 1))
    predictions, regressors = predicted
    values = _blended(plain, _outcomes(log, predictions))
    return HeavyCosts(values, "doubly robust", effective, _hc1(effective, regressors))


def _blended(plain: Floats, regressed: Floats) -> Floats:
    """Return as much of the regression as lowers the variance.

    One request whose light run was dear drags a line far off. What the regression changes has mean 0
    whether it is right or not, so any part of it may be taken.
    """
    change = regressed - plain
    moved = change - change.mean()
    squares = float(moved @ moved)
    part = -float(moved @ (plain - plain.mean())) / squares if squares else 0.0
    return plain + min(1.0, max(0.0, part)) * change


def _hc1(effective: float, regressors: int) -> float:
    return float(np.sqrt(effective / max(1.0, effective - regressors)))


def _outcomes(log: Log, predictions: Floats) -> Floats:
    """Return predictions, corrected by audits whose weights are made to sum to the kept stratum."""
    weight = log.audit_weight
    missed = np.where(log.audited, np.nan_to_num(log.heavy_cost) - predictions, 0)
    mean_missed = float(weight @ missed) / float(weight.sum())
    scale = float(log.kept.sum()) / float(weight.sum())
    kept = predictions + mean_missed + scale * weight * (missed - mean_missed)
    return np.where(log.escalated, np.nan_to_num(log.heavy_cost), kept)


def _predictions(log: Log) -> tuple[Floats, int] | None:
    """Return what a regression predicts for each request without having seen it, and its coefficients."""
    design = _design(log)
    if design.shape[1] == 1:
        return None
    fold = np.random.default_rng(_FOLD_SEED).permutation(log.size) % _FOLDS
    predicted = np.zeros(log.size)
    for part in range(_FOLDS):
        seen = log.audited & (fold != part)
        root = np.sqrt(log.audit_weight[seen])
        fitted, *_ = np.linalg.lstsq(design[seen] * root[:, None], log.heavy_cost[seen] * root, rcond=1e-6)
        predicted[fold == part] = design[fold == part] @ fitted
    return np.maximum(predicted, 0), design.shape[1]


def _design(log: Log) -> Floats:
    """Return a column of ones and every covariate that is known and varies, in units of its spread."""
    columns = [np.ones(log.size)]
    for values in (log.light_cost, log.confidence, log.input_size):
        audited = values[log.audited]
        if not np.isnan(values[log.kept]).any() and audited.min() < audited.max() and audited.std():
            columns.append((np.nan_to_num(values) - audited.mean()) / audited.std())
    return np.column_stack(columns)
