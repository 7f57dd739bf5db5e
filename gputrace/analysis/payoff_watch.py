"""The estimates as metric rows, for dashboards that are looked at all the time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis.payoff_figures import LEAST_AUDITS
from gputrace.analysis.payoff_sequences import LEAST_VALUES, watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gputrace.analysis.payoff_figures import Estimate
    from gputrace.analysis.payoff_reports import PayoffReport

#: How many more audits it takes until all estimates have bounds, as one more quantity.
AUDITS_NEEDED = "audits_needed"


#: `service.name` of who publishes them.
SERVICE_NAME = "gputrace-payoff"


def gauge_rows(report: PayoffReport) -> list[tuple[dict[str, str], float]]:
    """Return the rows of ``gputrace.escalation.estimate``: attributes and value.

    Args:
        report: What `gputrace payoff` reports.
    """
    return [
        found
        for row in report.rows
        for found in rows_of(row.cascade, row.feature, row.estimates, report.asked.level)
    ]


def rows_of(
    cascade: str, feature: str, estimates: Mapping[str, Estimate], level: float
) -> Iterator[tuple[dict[str, str], float]]:
    """Yield those of one cascade and feature.

    A quantity that the log cannot tell has no row, one without bounds only its value. Bounds are those of a
    confidence sequence.

    Args:
        cascade: The cascade.
        feature: The feature.
        estimates: By name.
        level: Confidence of the bounds.
    """
    of = {catalogue.ESCALATION_CASCADE: cascade, catalogue.FEATURE: feature}
    for quantity, bounds in (
        *((name, _bounds(one, level)) for name, one in estimates.items()),
        (AUDITS_NEEDED, iter([("value", float(_needed(estimates, level)))])),
    ):
        for bound, value in bounds:
            named = {catalogue.ESCALATION_QUANTITY: quantity, catalogue.ESCALATION_BOUND: bound}
            yield {**of, **named}, value


def _needed(estimates: Mapping[str, Estimate], level: float) -> int:
    """Return how many more audits it takes until all have bounds that may be watched."""
    needs = max(one.needs or 0 for one in estimates.values())
    if needs:
        return needs + LEAST_VALUES - LEAST_AUDITS
    fewest = [
        one.effective_n
        for one in estimates.values()
        if one.low is not None and watched(one, level=level) is None
    ]
    audits = estimates["audit_count"].value
    # Effective numbers are sums of weights, a little off.
    return math.ceil(LEAST_VALUES - min(fewest) - 1e-6) if fewest and audits else 0


def _bounds(estimate: Estimate, level: float) -> Iterator[tuple[str, float]]:
    if estimate.value is None:
        return
    yield "value", estimate.value
    bounds = watched(estimate, level=level)
    if bounds is not None:
        yield "low", bounds[0]
        yield "high", bounds[1]
