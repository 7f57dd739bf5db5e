"""The metrics of product events and of units of work."""

from __future__ import annotations

from gputrace.catalogue_attributes import FEATURE, OUTCOME_NAME, TENANT, UNIT_NAME
from gputrace.catalogue_kinds import Kind, Metric

OUTCOMES = Metric(
    "gputrace.outcomes",
    Kind.COUNTER,
    "{event}",
    "Product events, by the feature that brought them about.",
    (FEATURE, TENANT, OUTCOME_NAME),
    "gputrace_outcomes_total",
)
UNITS = Metric(
    "gputrace.units",
    Kind.COUNTER,
    "{unit}",
    "Units of work done, such as tokens.",
    (FEATURE, TENANT, UNIT_NAME),
    "gputrace_units_total",
)
