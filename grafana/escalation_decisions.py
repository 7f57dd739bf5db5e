"""The row of the escalation board on what cascades decide, why, and where that spends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Row
from gputrace.grafana.escalation_queries import ESCALATED, NO_CASCADE, SCOPE
from gputrace.grafana.panels import Query, lines, shares
from gputrace.grafana.promql import ratio
from gputrace.grafana.sources import labels
from gputrace.grafana.units import (
    DECISION_COLOURS,
    HOURS,
    MONEY,
    PER_SECOND,
    SCORE,
    SHARE,
    STAGE_COLOURS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_CASCADE = (catalogue.ESCALATION_CASCADE,)
_DECISION = (catalogue.ESCALATION_DECISION,)
_STAGE = (catalogue.STAGE,)


def row() -> Row:
    """Return the row."""
    return Row("What is decided", (*_decisions(), _reasons(), _spend(), _thresholds(), _device_hours()))


def _decisions() -> tuple[Panel, ...]:
    return (
        lines(
            "Requests by decision",
            "Kept, escalated, or audited: kept, with the larger model in the shadow. They exclude each "
            "other. A rate that climbs without a deploy means that inputs have changed.",
            [
                Query(
                    SCOPE.now(recorded.ESCALATION_REQUESTS, per=_DECISION),
                    "{{gputrace_escalation_decision}}",
                )
            ],
            PER_SECOND,
            stacked=True,
            width=9,
            colours=DECISION_COLOURS,
            nothing=NO_CASCADE,
        ),
        lines(
            "Escalated share by cascade",
            "The share of requests that the larger model answers, over the hour before each point.",
            [
                Query(
                    ratio(
                        SCOPE.now(recorded.ESCALATION_REQUESTS_HOURLY, ESCALATED, per=_CASCADE),
                        SCOPE.now(recorded.ESCALATION_REQUESTS_HOURLY, per=_CASCADE),
                    ),
                    "{{gputrace_escalation_cascade}}",
                )
            ],
            SHARE,
            width=9,
            bounds=(0, 1),
            nothing=NO_CASCADE,
        ),
    )


def _reasons() -> Panel:
    reason = (catalogue.ESCALATION_REASON,)
    return shares(
        "Why",
        "Reasons of decisions, and of audits that did not run.",
        Query(
            f"sort_desc({SCOPE.increase(catalogue.ESCALATION_REQUESTS, per=reason)})",
            "{{gputrace_escalation_reason}}",
            instant=True,
        ),
        WHOLE,
        nothing=NO_CASCADE,
    )


def _spend() -> Panel:
    return lines(
        "Spend an hour by stage ($currency)",
        "What each stage costs. Where `audit` is thick, lower the audit rate once there are enough.",
        [Query(f"3600 * {SCOPE.now(recorded.ESCALATION_COST, per=_STAGE)}", "{{gputrace_stage}}")],
        MONEY,
        stacked=True,
        width=9,
        colours=STAGE_COLOURS,
        nothing=NO_CASCADE,
    )


def _thresholds() -> Panel:
    ruled = labels(catalogue.ESCALATION_CASCADE, catalogue.STAGE, catalogue.ESCALATION_POLICY)
    return lines(
        "Threshold in force",
        "By cascade, stage and version of the rule. A step here is somebody's decision: look for "
        "what it did to the escalated share.",
        [
            Query(
                f"max by ({ruled}) ({SCOPE.select(catalogue.ESCALATION_THRESHOLD)})",
                "{{gputrace_escalation_cascade}} {{gputrace_stage}} {{gputrace_escalation_policy}}",
            )
        ],
        SCORE,
        width=9,
        bounds=(None, None),
        nothing="No threshold: rules of your own have none",
    )


def _device_hours() -> Panel:
    return shares(
        "Device hours by stage",
        "Charged device time of the stages.",
        Query(
            f"sort_desc({SCOPE.increase(catalogue.ESCALATION_TIME, per=_STAGE)} / 3600)",
            "{{gputrace_stage}}",
            instant=True,
        ),
        HOURS,
        colours=STAGE_COLOURS,
        nothing=NO_CASCADE,
    )
