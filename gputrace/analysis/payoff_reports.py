"""What `gputrace payoff` reports: a row a feature and cascade, and their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis import payoff, payoff_log
from gputrace.analysis.payoff_cascades import read_folder
from gputrace.analysis.payoff_tables import SUFFIXES, read_table
from gputrace.analysis.payoff_totals import Total, add_up
from gputrace.analysis.payoff_verdicts import left_out, name_of, verdict
from gputrace.analysis.survey import Advance, NoDataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gputrace.analysis.payoff_cascades import Decisions
    from gputrace.analysis.payoff_figures import Advice, Estimate, SweepPoint
    from gputrace.analysis.payoff_log import Log
    from gputrace.analysis.payoff_signal import Signal


_FEW = 0.1
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What the reader wants to know.

    Attributes:
        features: Which features; all if empty.
        target_loss: Quality that may be lost.
        overhead: Cost of deciding, on every request.
        level: Confidence of intervals.
        score: Name of the scores that are the quality.
    """

    features: tuple[str, ...] = ()
    target_loss: float = 0.02
    overhead: float = 0.0
    level: float = 0.95
    score: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One cascade for one feature.

    Attributes:
        feature: The feature.
        cascade: The cascade.
        requests: Decisions that the estimates rest on.
        unit: Of the costs.
        estimates: By name.
        verdict: In one sentence.
        threshold: The threshold in force last; `None` where there was none.
        advice: Which threshold to use; `None` where the log has no confidence.
        signal: How good the confidence is; likewise.
        sweep: What other thresholds would have done; likewise.
        top_request_share: Part of the cascade's cost that its dearest request is.
        excluded: Decisions that are left out, by reason.
        notes: What a reader must know, a sentence each.
        several_thresholds: Others had been in force before.
    """

    feature: str
    cascade: str
    requests: int
    unit: str
    estimates: dict[str, Estimate]
    verdict: str
    threshold: float | None
    advice: Advice | None
    signal: Signal | None
    sweep: tuple[SweepPoint, ...]
    top_request_share: float | None
    excluded: dict[str, int]
    notes: tuple[str, ...]
    several_thresholds: bool = False


@dataclass(frozen=True, slots=True)
class PayoffReport:
    """All rows.

    Attributes:
        source: Where they come from.
        asked: What was asked.
        rows: In order of feature and cascade.
        total: Their sum, where there are several of one unit.
        total_verdict: What it says.
        notes: What a reader must know, a sentence each.
    """

    source: str
    asked: Asked
    rows: tuple[Row, ...]
    total: Total | None
    total_verdict: str
    notes: tuple[str, ...]


def payoff_report(path: Path, asked: Asked, advance: Advance | None = None) -> PayoffReport:
    """Report where escalation pays.

    Args:
        path: Folder that gputrace writes to, one file of it, or a decision log as CSV or Parquet.
        asked: What to report.
        advance: Told how far the reading is.

    Raises:
        NoDataError: There is nothing to report on; the message says why.
        ColumnError: The decision log cannot be used; the message names the column and row.
    """
    is_table = path.suffix.lower() in SUFFIXES and path.is_file()
    found = read_table(path) if is_table else read_folder(path, asked.score, advance)
    if asked.features:
        known = sorted({one.feature for one in found})
        missing = [name for name in asked.features if name not in known]
        if missing:
            named = ", ".join(filter(None, known)) or "no column or attribute that names one"
            message = f"{path} has no feature {', '.join(missing)}; it has {named}."
            raise NoDataError(message)
        found = [one for one in found if one.feature in asked.features]
    usable = [reachable(one) for one in found if len(one.columns["escalated"])]
    if not usable:
        reasons = ", ".join(sorted({reason for one in found for reason in one.excluded}))
        message = f"{path}: no decision can be used ({reasons})."
        raise NoDataError(message)
    notes = dict.fromkeys(note for one in usable for note in one.notes)
    for one in found:
        if not len(one.columns["escalated"]):
            note = f"{name_of(one.feature, one.cascade)}: no decision can be used: {left_out(one.excluded)}."
            notes[note] = None
    if len(usable) > 1 and len({one.unit for one in usable}) > 1:
        notes["Costs are in several units, so there is no sum."] = None
    total, said = _total(usable, asked)
    rows = tuple(_row(one, asked) for one in usable)
    return PayoffReport(str(path), asked, rows, total, said, tuple(notes))


def reachable(one: Decisions) -> Decisions:
    """Take a few kept requests that no audit could have drawn for like the others, and say so.

    Under load audits are ruled out for some moments. Were they many, the estimators would rightly refuse.
    """
    log = payoff_log.read(one.columns)
    kept, unreachable = int(log.kept.sum()), log.unreachable
    if not 0 < unreachable <= _FEW * kept:
        return one
    columns = dict(one.columns)
    columns["audit_propensity"] = np.where(log.kept & (log.propensity == 0), np.nan, log.propensity)
    note = (
        f"{unreachable:,} of {kept:,} kept requests could not have been audited (propensity 0): the heavy "
        "model is taken to be on them as on the others."
    )
    return replace(one, columns=columns, remarks=(*one.remarks, note))


def _row(one: Decisions, asked: Asked) -> Row:
    estimates = payoff.estimate(one.columns, level=asked.level, overhead=asked.overhead)
    log = payoff_log.read(one.columns)
    spent = log.light_cost + asked.overhead + np.where(log.escalated, np.nan_to_num(log.heavy_cost), 0)
    whole = math.fsum(spent)
    row = Row(
        feature=one.feature,
        cascade=one.cascade,
        requests=log.size,
        unit=one.unit,
        estimates=estimates,
        verdict=verdict(estimates, asked.target_loss),
        threshold=None,
        advice=None,
        signal=None,
        sweep=(),
        top_request_share=float(spent.max()) / whole if whole else None,
        excluded=dict(one.excluded),
        notes=one.remarks,
    )
    return _with_thresholds(row, one, log, asked)


def _with_thresholds(row: Row, one: Decisions, log: Log, asked: Asked) -> Row:
    told = ~(np.isnan(log.confidence) | np.isnan(log.threshold))
    silent = log.size - int(told.sum())
    if silent > _FEW * log.size:
        note = f"{silent:,} of {log.size:,} requests have no confidence or threshold: none is advised."
        return replace(row, notes=(*row.notes, note))
    notes = row.notes
    if silent:
        notes += (f"{silent:,} requests without a confidence or threshold are in no advice on thresholds.",)
    columns = {name: np.asarray(values)[told] for name, values in one.columns.items()}
    level, overhead = asked.level, asked.overhead
    advice = payoff.advise(columns, target_loss=asked.target_loss, level=level, overhead=overhead)
    points = payoff.sweep(columns, level=level, overhead=overhead)
    threshold = float(log.threshold[told][-1])
    several = len(np.unique(log.threshold[told])) > 1
    if one.inverted:
        threshold, advice, points = -threshold, _turned(advice), [_turned_point(at) for at in points]
        notes += ("Here a lower confidence is the surer one: requests above the threshold are escalated.",)
    return replace(
        row,
        threshold=threshold,
        advice=advice,
        signal=payoff.judge_signal(columns, level=level),
        sweep=tuple(points),
        notes=notes,
        several_thresholds=several,
    )


def _turned(advice: Advice) -> Advice:
    """Return advice on a confidence that had been negated, in the sign of the program."""
    guaranteed, point = (None if one is None else -one for one in (advice.guaranteed, advice.point))
    reason = advice.reason.replace("Escalating below", "In the negated confidence, escalating below")
    return replace(advice, guaranteed=guaranteed, point=point, reason=reason)


def _turned_point(point: SweepPoint) -> SweepPoint:
    return replace(point, threshold=-point.threshold)


def _total(found: Sequence[Decisions], asked: Asked) -> tuple[Total | None, str]:
    if len(found) == 1 or len({one.unit for one in found}) > 1:
        return None, ""
    logs = [payoff_log.read(one.columns) for one in found]
    total = add_up(logs, (1 - asked.level) / 2, asked.overhead)
    if total is None:
        return None, ""
    said = verdict(total.estimates, asked.target_loss)
    if total.left_out:
        said += f" ({_left_out([found[number] for number in total.left_out])})"
    return total, said


def _left_out(found: Sequence[Decisions]) -> str:
    names = [name_of(one.feature, one.cascade) for one in found]
    named = ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    )
    requests = sum(len(one.columns["escalated"]) for one in found)
    return f"without {named}: {requests:,} requests, of which too few were audited or escalated"
