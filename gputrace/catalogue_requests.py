"""The metrics of requests; see ``gputrace.catalogue``, which shows them all."""

from __future__ import annotations

from gputrace.catalogue_attributes import (
    CURRENCY,
    FEATURE,
    HTTP_ROUTE,
    MODEL,
    OPERATION,
    STAGE,
    STATUS,
    VARIANT,
)
from gputrace.catalogue_kinds import Kind, Metric

_FAMILY = (HTTP_ROUTE, FEATURE)

REQUESTS = Metric(
    "gputrace.requests",
    Kind.COUNTER,
    "{request}",
    "Settled requests by status.",
    (*_FAMILY, STATUS),
    "gputrace_requests_total",
)
REQUEST_CALLS = Metric(
    "gputrace.request.calls",
    Kind.COUNTER,
    "{call}",
    "Tracked calls made inside requests, batches included.",
    _FAMILY,
    "gputrace_request_calls_total",
)
REQUEST_TIME = Metric(
    "gputrace.request.time",
    Kind.COUNTER,
    "s",
    "Device time charged inside requests, their shares of batches included.",
    _FAMILY,
    "gputrace_request_time_seconds_total",
)
REQUEST_COST = Metric(
    "gputrace.request.cost",
    Kind.COUNTER,
    "{currency}",
    "Device time charged inside requests times the price of the device at that moment.",
    (*_FAMILY, CURRENCY),
    "gputrace_request_cost_total",
)
BATCH_MEMBERS = Metric(
    "gputrace.batch.members",
    Kind.COUNTER,
    "{member}",
    "Members of settled batches, by their own feature.",
    (FEATURE, OPERATION, MODEL, VARIANT, STAGE),
    "gputrace_batch_members_total",
)
