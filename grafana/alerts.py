"""Alerts, each with what to do about it: the rules and the runbook are both made of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.fleet_queries import CHARGED, IDLE, USED
from gputrace.grafana.promql import DAY_OF_STEPS, by, match, ratio, select
from gputrace.grafana.sources import ENVIRONMENT, JOB, Recorded, labels

if TYPE_CHECKING:
    from gputrace.catalogue import Metric

_SPENDER = (catalogue.FEATURE, catalogue.CURRENCY)
_HARDWARE = (catalogue.HW_TYPE, catalogue.HW_NAME)
_CASCADE = (catalogue.ESCALATION_CASCADE, catalogue.CURRENCY)
_AUDIT = match(catalogue.STAGE, "audit")
_NOT_AUDIT = match(catalogue.STAGE, "audit", "!=")
_FEATURE = "Feature {{ $labels.gputrace_feature }}"
_CASCADE_NAMED = "Cascade {{ $labels.gputrace_escalation_cascade }}"
_GPU = match(catalogue.HW_TYPE, "gpu")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        name: What it is called.
        expr: True for as long as something is wrong.
        wait: How long it must have been wrong.
        severity: `page` or `ticket`.
        summary: One line; a template of Prometheus.
        board: Where to look.
        chosen: Variables of that board, each with the label that fills it.
        meaning: Why it fires, for the runbook.
        steps: What to do, in order.
    """

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    board: str
    chosen: tuple[tuple[str, str], ...]
    meaning: str
    steps: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Where the runbook tells of it."""
        return self.name.lower()


def _real(source: Metric | Recorded, *matchers: str) -> str:
    """Return a selector of what no simulation has written: nobody is woken for one, or has its budgets."""
    return select(source, *matchers, match(ENVIRONMENT, catalogue.SIMULATION, "!="))


def _spent(source: Recorded, window: str, per: tuple[str, ...], *matchers: str) -> str:
    return f"sum {by(*per)}(sum_over_time({_real(source, *matchers)}[{window}:1h]))"


_BUDGET = f"max {by(*_SPENDER)}({_real(catalogue.BUDGET)})"
_MONTH = f"scalar({recorded.MONTH_LENGTH.name})"
_LAST_HOUR = f"sum {by(*_SPENDER)}({_real(recorded.FEATURE_COST_HOURLY)})"
_LAST_DAY = _spent(recorded.FEATURE_COST_HOURLY, DAY_OF_STEPS, _SPENDER)
_OF_FEATURE = (("feature", "gputrace_feature"), ("currency", "gputrace_currency"))

BUDGETS = (
    Alert(
        "GputraceBudgetPaceFast",
        f"{_LAST_HOUR} * {_MONTH} / ({_BUDGET} > 0) > 10",
        "15m",
        "page",
        _FEATURE + ' spends its month\'s budget {{ printf "%.0f" $value }} times too fast',
        "gputrace-budget",
        _OF_FEATURE,
        "The spend of the last hour, kept up for the whole month, would be more than ten times the "
        "feature's budget: the month's money would be gone in three days.",
        (
            "Open the feature's board: is it more requests, or dearer ones?",
            "More requests: is it a launch, a retry storm, a load test that forgot to end?",
            "Dearer ones: look at the deploy marks, at the model and at the escalation rate.",
            "If it is meant, raise the budget in the file that `GPUTRACE_BUDGETS` names.",
        ),
    ),
    Alert(
        "GputraceBudgetPaceSlow",
        f"{_LAST_DAY} * {_MONTH} / 24 / ({_BUDGET} > 0) > 1.2",
        "1h",
        "ticket",
        _FEATURE + ' spends {{ printf "%.1f" $value }} times its budget, at the pace of the last day',
        "gputrace-budget",
        _OF_FEATURE,
        "The spend of the last day, kept up for the whole month, would be more than 1.2 times the feature's "
        "budget. Nothing burns; the end of the month will.",
        (
            "See the projection on the board: weekdays and weekends differ, one day says little.",
            "Agree on the budget or on the use with the owner of the feature.",
        ),
    ),
)

_SAME_HOUR = f"sum {by(*_SPENDER)}({_real(recorded.FEATURE_COST_HOURLY)} offset 1w)"
_ALL_SPEND = f"sum {by(catalogue.CURRENCY)}({_real(recorded.FEATURE_COST_HOURLY)})"
_REQUESTS_HOUR = f"sum {by(catalogue.FEATURE)}({_real(recorded.REQUESTS_HOURLY)})"
_UNTIL_THEN = f"[{DAY_OF_STEPS}:1h] offset 1h"
_DAY_BEFORE = f"sum {by(*_SPENDER)}(sum_over_time({_real(recorded.FEATURE_COST_HOURLY)}{_UNTIL_THEN}))"
_REQUESTS_BEFORE = (
    f"sum {by(catalogue.FEATURE)}(sum_over_time({_real(recorded.REQUESTS_HOURLY)}{_UNTIL_THEN}))"
)


def _per_request(cost: str, requests: str) -> str:
    return f"{cost} / on ({labels(catalogue.FEATURE)}) group_left () ({requests} > 100)"


SPEND = (
    Alert(
        "GputraceSpendAnomaly",
        f"({_LAST_HOUR} / ({_SAME_HOUR} > 0) > 2) and on ({labels(*_SPENDER)}) "
        f"({_LAST_HOUR} / on ({labels(catalogue.CURRENCY)}) group_left () ({_ALL_SPEND} > 0) > 0.05)",
        "15m",
        "ticket",
        _FEATURE + ' spends {{ printf "%.1f" $value }} times what it did at this hour last week',
        "gputrace-feature",
        _OF_FEATURE,
        "The feature spent more than twice what it spent in the same hour of last week, and that is more "
        "than 5 % of all spend in its currency. A feature that is younger than a week is never compared.",
        (
            "Open the feature's board over the last week: when did it step up, is there a deploy mark?",
            "Did requests grow as much? If so, it is use. If not, it is the cost of a request.",
        ),
    ),
    Alert(
        "GputraceUnitCostJump",
        f"({_per_request(_LAST_HOUR, _REQUESTS_HOUR)}) / ({_per_request(_DAY_BEFORE, _REQUESTS_BEFORE)} > "
        "0) > 1.5",
        "30m",
        "ticket",
        _FEATURE + ': a request costs {{ printf "%.1f" $value }} times what it did in the day before',
        "gputrace-feature",
        _OF_FEATURE,
        "Over the last hour a request cost more than 1.5 times what it cost in the day before that, with "
        "more than 100 requests in both.",
        (
            "A deploy mark at the step: compare model, variant and stage before and after it.",
            "No deploy: longer inputs, smaller batches, or a device that is shared with somebody new.",
            "A change of price is marked too: then the cost of a request moved, and its device time did not.",
        ),
    ),
)

_FLEET_HOUR = recorded.FLEET_TIME_HOURLY
_FEATURE_HOUR = f"sum {by(*_HARDWARE)}({_real(recorded.FEATURE_TIME_HOURLY)})"
_OVERLAP_HOUR = f"sum {by(*_HARDWARE)}({_real(recorded.FLEET_OVERLAP_HOURLY)})"
_CHARGED_HOUR = f"sum {by(*_HARDWARE)}({_real(_FLEET_HOUR, CHARGED)})"
_OF_HARDWARE = (("hw_type", "hw_type"), ("hw_name", "hw_name"))

FLEET = (
    Alert(
        "GputraceFleetIdle",
        ratio(
            _spent(_FLEET_HOUR, DAY_OF_STEPS, _HARDWARE, IDLE, _GPU),
            _spent(_FLEET_HOUR, DAY_OF_STEPS, _HARDWARE, _GPU),
        )
        + " > 0.6",
        "1h",
        "ticket",
        "{{ $labels.hw_name }}: nobody used {{ $value | humanizePercentage }} of its time in the last day",
        "gputrace-fleet",
        _OF_HARDWARE,
        "Over the last day GPUs of this kind were read as idle for more than 60 % of their time. What "
        "nobody read is not in it.",
        (
            "See which devices are idle, and at which hours.",
            "Give devices back, let features share them, or move work that can wait into the idle hours.",
        ),
    ),
    Alert(
        "GputraceLedgerOffBalance",
        f"abs({_FEATURE_HOUR} - ({_OVERLAP_HOUR} or 0 * {_CHARGED_HOUR}) - {_CHARGED_HOUR}) "
        f"/ ({_CHARGED_HOUR} > 60) > 0.05",
        "30m",
        "ticket",
        "What features were charged for on {{ $labels.hw_name }} and what its devices were charged differ",
        "gputrace-health",
        (),
        "Over the last hour the time charged to features, less what several processes charged at once, "
        "differs by more than 5 % from what the devices' own ledgers say. One of the two is not seen whole.",
        (
            "Does every process that uses the devices reach this Prometheus? See the services on the board.",
            "Containers that do not share `GPUTRACE_NODE_DIR` do not see each other: see `gputrace doctor`.",
            "Were records lost? See the reasons on the board.",
        ),
    ),
    Alert(
        "GputraceCoverageLow",
        ratio(
            f"sum {by(*_HARDWARE)}({_real(_FLEET_HOUR, CHARGED, _GPU)})",
            f"sum {by(*_HARDWARE)}({_real(_FLEET_HOUR, USED, _GPU)})",
        )
        + " < 0.95",
        "1h",
        "ticket",
        "Less than 95 % of the used time of {{ $labels.hw_name }} belongs to tracked calls",
        "gputrace-health",
        (),
        "Over the last hour GPUs of this kind were busy for longer than tracked calls held them: somebody "
        "uses them whom gputrace does not know.",
        (
            "`gputrace doctor` on the node names the processes that use its GPUs.",
            "Decorate what runs there with `@gputrace.track`, or start it with `gputrace run`.",
        ),
    ),
)

_CASCADE_COST = _spent(recorded.ESCALATION_COST_HOURLY, DAY_OF_STEPS, _CASCADE, _NOT_AUDIT)
_AUDIT_COST = _spent(recorded.ESCALATION_COST_HOURLY, DAY_OF_STEPS, _CASCADE, _AUDIT)
_ALL_DECIDED = _spent(recorded.ESCALATION_REQUESTS_HOURLY, DAY_OF_STEPS, (catalogue.ESCALATION_CASCADE,))
_AUDITED = _spent(
    recorded.ESCALATION_REQUESTS_HOURLY,
    DAY_OF_STEPS,
    (catalogue.ESCALATION_CASCADE,),
    match(catalogue.ESCALATION_DECISION, "audited"),
)
_ONE_CASCADE = f"/ on ({labels(catalogue.ESCALATION_CASCADE)}) group_left ()"

ESCALATION = (
    Alert(
        "GputraceEscalationStoppedPaying",
        f"({_CASCADE_COST} {_ONE_CASCADE} ({_ALL_DECIDED} > 0)) / "
        f"(({_AUDIT_COST} {_ONE_CASCADE} ({_AUDITED} > 30)) > 0) > 1",
        "1h",
        "ticket",
        _CASCADE_NAMED + ': a request costs {{ printf "%.2f" $value }} times the heavy model alone',
        "gputrace-escalation",
        (("cascade", "gputrace_escalation_cascade"), ("currency", "gputrace_currency")),
        "Over the last day a request cost more through the cascade than the heavy model cost alone, as its "
        "audits show: the light model is paid for and saves nothing. Fires with more than 30 audits only.",
        (
            "Is the escalation rate higher than it was? Then the threshold, or the light model, has changed.",
            "Run `gputrace payoff` over the files: it says which threshold would pay, with intervals.",
            "Where none pays, send the requests to the heavy model at once.",
        ),
    ),
)

_ALIVE = _real(catalogue.SDK_QUEUE_LENGTH)

TELEMETRY = (
    Alert(
        "GputraceTelemetryGone",
        f"count {by(JOB, ENVIRONMENT)}(last_over_time({_ALIVE}[6h])) "
        f"unless count {by(JOB, ENVIRONMENT)}({_ALIVE})",
        "10m",
        "page",
        "No telemetry of gputrace from {{ $labels.job }} any more",
        "gputrace-health",
        (("job", "job"),),
        "A service that sent telemetry within the last six hours sends none. Its spend is missing from "
        "every board from then on.",
        (
            "Does the service run? If it was taken down on purpose, the alert ends after six hours.",
            "Its log says which exporter failed, and how many records were lost.",
            "`gputrace doctor`, with the service's environment, tries the exporters.",
        ),
    ),
    Alert(
        "GputracePriceMissing",
        f"sum {by(*_HARDWARE)}(increase({_real(catalogue.SDK_UNPRICED_TIME)}[1h])) > 60",
        "15m",
        "ticket",
        "{{ $labels.hw_name }} has no price: its time is counted, and costs nothing",
        "gputrace-budget",
        (),
        "A device was in use for which the price book has no price at this moment. Its time is in every "
        "time and in no sum of money.",
        (
            "Add a row for the device to the price book; `gputrace doctor` shows its name.",
            "A row whose `valid_until` has passed counts as missing.",
        ),
    ),
)

GROUPS = {
    "gputrace-budgets": BUDGETS,
    "gputrace-spend": SPEND,
    "gputrace-fleet": FLEET,
    "gputrace-escalation": ESCALATION,
    "gputrace-telemetry": TELEMETRY,
}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
