"""The estimates as metric rows, for dashboards that are looked at all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis.payoff_sequences import watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.analysis.payoff_figures import Estimate
    from gputrace.analysis.payoff_reports import PayoffReport

#: How many more audits it takes until all estimates have bounds, as one more quantity.
AUDITS_NEEDED = "audits_needed"


def gauge_rows(report: PayoffReport) -> list[tuple[dict[str, str], float]]:
    """Return the rows of ``gputrace.escalation.estimate``: attributes and value.

    A quantity that the log cannot tell has no row, one without bounds only its value. Bounds are those of a
    confidence sequence.

    Args:
        report: What `gputrace payoff` reports.
    """
    return [
        (
            {
                catalogue.ESCALATION_CASCADE: row.cascade,
                catalogue.FEATURE: row.feature,
                catalogue.ESCALATION_QUANTITY: quantity,
                catalogue.ESCALATION_BOUND: bound,
            },
            value,
        )
        for row in report.rows
        for quantity, estimate in row.estimates.items()
        for bound, value in _bounds(estimate, report.asked.level)
    ] + [
        (
            {
                catalogue.ESCALATION_CASCADE: row.cascade,
                catalogue.FEATURE: row.feature,
                catalogue.ESCALATION_QUANTITY: AUDITS_NEEDED,
                catalogue.ESCALATION_BOUND: "value",
            },
            float(max(one.needs or 0 for one in row.estimates.values())),
        )
        for row in report.rows
    ]


def _bounds(estimate: Estimate, level: float) -> Iterator[tuple[str, float]]:
    if estimate.value is None:
        return
    yield "value", estimate.value
    bounds = watched(estimate, level=level)
    if bounds is not None:
        yield "low", bounds[0]
        yield "high", bounds[1]
