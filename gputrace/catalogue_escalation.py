"""The metrics and events of cascades; see ``gputrace.catalogue``, which shows them all."""

from __future__ import annotations

from gputrace.catalogue_attributes import (
    CURRENCY,
    ESCALATION_BOUND,
    ESCALATION_CASCADE,
    ESCALATION_DECISION,
    ESCALATION_POLICY,
    ESCALATION_QUANTITY,
    ESCALATION_REASON,
    FEATURE,
    SCORE_NAME,
    STAGE,
    VARIANT,
)
from gputrace.catalogue_kinds import Kind, Metric

#: Names of the log events: one a decision, with all that it cost, and one a score.
DECISION_EVENT = "gputrace.escalation.decided"
SCORE_EVENT = "gputrace.scored"

ESCALATION_DECISIONS = ("kept", "escalated", "audited")
ESCALATION_BOUNDS = ("low", "value", "high")

# Most scores are shares, or 0 and 1.
SCORE_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)

ESCALATION_REQUESTS = Metric(
    "gputrace.escalation.requests",
    Kind.COUNTER,
    "{request}",
    "Requests to a cascade by what was decided, and why.",
    (ESCALATION_CASCADE, FEATURE, ESCALATION_DECISION, ESCALATION_REASON),
    "gputrace_escalation_requests_total",
)
ESCALATION_TIME = Metric(
    "gputrace.escalation.time",
    Kind.COUNTER,
    "s",
    "Charged device time of a cascade by stage. Audits are the stage `audit`, no part of what it costs.",
    (ESCALATION_CASCADE, FEATURE, STAGE),
    "gputrace_escalation_time_seconds_total",
)
ESCALATION_COST = Metric(
    "gputrace.escalation.cost",
    Kind.COUNTER,
    "{currency}",
    "What a cascade cost by stage. Audits are the stage `audit`, no part of what it costs.",
    (ESCALATION_CASCADE, FEATURE, STAGE, CURRENCY),
    "gputrace_escalation_cost_total",
)
ESCALATION_THRESHOLD = Metric(
    "gputrace.escalation.threshold",
    Kind.GAUGE,
    "{confidence}",
    "Threshold in force, by the stage whose answer it judges.",
    (ESCALATION_CASCADE, ESCALATION_POLICY, STAGE),
    "gputrace_escalation_threshold",
)
ESCALATION_ESTIMATE = Metric(
    "gputrace.escalation.estimate",
    Kind.GAUGE,
    "{estimate}",
    "What `gputrace payoff` estimates, with its bounds: shares as shares, costs as means a request.",
    (ESCALATION_CASCADE, FEATURE, ESCALATION_QUANTITY, ESCALATION_BOUND),
    "gputrace_escalation_estimate",
)
SCORE = Metric(
    "gputrace.score",
    Kind.HISTOGRAM,
    "{score}",
    "Quality scores of answers, by the stage that gave the answer.",
    (FEATURE, ESCALATION_CASCADE, SCORE_NAME, STAGE, VARIANT),
    "gputrace_score",
)
