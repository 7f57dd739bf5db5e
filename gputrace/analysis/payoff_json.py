"""A pay-off report as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.analysis.payoff_figures import Estimate
    from gputrace.analysis.payoff_reports import PayoffReport, Row


def to_json(report: PayoffReport) -> dict[str, Any]:
    """Return the report as JSON takes it."""
    total = report.total
    return {
        "source": report.source,
        "level": report.asked.level,
        "overhead": report.asked.overhead,
        "target_loss": report.asked.target_loss,
        "rows": [_row_json(row) for row in report.rows],
        "total": None
        if total is None
        else {
            "requests": total.requests,
            "verdict": report.total_verdict,
            "estimates": _estimates_json(total.estimates),
            "left_out": [
                {"feature": report.rows[number].feature, "cascade": report.rows[number].cascade}
                for number in total.left_out
            ],
        },
        "notes": list(report.notes),
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "feature": row.feature,
        "cascade": row.cascade,
        "requests": row.requests,
        "unit": row.unit,
        "verdict": row.verdict,
        "threshold": row.threshold,
        "estimates": _estimates_json(row.estimates),
        "advice": _fields(row.advice, ("guaranteed", "point", "reason")),
        "signal": _fields(row.signal, ("slope", "low", "high", "audc", "warning")),
        "sweep": [
            {
                "threshold": point.threshold,
                "savings_frac": _fields(point.savings_frac, _ESTIMATE),
                "quality_delta": _fields(point.quality_delta, _ESTIMATE),
                "supported": point.supported,
            }
            for point in row.sweep
        ],
        "top_request_share": row.top_request_share,
        "excluded": row.excluded,
        "notes": list(row.notes),
    }


_ESTIMATE = ("value", "low", "high", "method", "n", "effective_n", "reason", "needs")


def _estimates_json(estimates: dict[str, Estimate]) -> dict[str, Any]:
    return {name: _fields(one, _ESTIMATE) for name, one in estimates.items()}


def _fields(owner: Any, names: Iterable[str]) -> dict[str, Any] | None:
    return None if owner is None else {name: getattr(owner, name) for name in names}
