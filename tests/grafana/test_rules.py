"""What the rules record and when the alerts fire, as promtool evaluates them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gputrace.grafana import recorded, rules
from tests.grafana.promtool import ALERTS, DEVICE, FILES, HOURS, MONTHS, RATES, SPENT, SUMS, near

pytestmark = pytest.mark.requires("promtool")

CONFIGURATION = Path(__file__).resolve().parents[2] / "grafana" / "prometheus" / "prometheus.yml"
HOURLY = "sum(feature:gputrace_feature_cost:increase1h)"
WINDOW = 'feature:gputrace_feature_cost:increase5m{gputrace_feature="chat", gputrace_currency="USD"}'
COST = 'feature:gputrace_feature_cost:increase1h{gputrace_feature="chat", gputrace_currency="USD"}'


def test_promtool_finds_nothing_wrong(promtool):
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *FILES)
    assert said.count("SUCCESS") == 5


def test_sums_are_recorded_once_a_window():
    """No second counts twice, or not at all; what is read at an instant is younger than five minutes."""
    every = {
        name: re.findall("interval: (.*)", text)
        for name, text in rules.rule_files().items()
        if name != ALERTS
    }
    assert every == {RATES: ["1m"], SUMS: ["5m"], HOURS: ["1m"], MONTHS: ["1m"]}
    assert all(f"[{every[SUMS][0]}]" in rate.expr for rate in recorded.RATES)


def test_prometheus_own_configuration_is_right(promtool, tmp_path):
    """Without what this Prometheus is too old for: it takes no OTLP."""
    text = CONFIGURATION.read_text()
    head, _, tail = text.partition("# For Prometheus 3")
    path = tmp_path / "prometheus.yml"
    path.write_text((head + tail[tail.index("storage:") :]).replace("rules/", ""))
    assert "SUCCESS" in promtool("check", "config", str(path))


def test_spend_survives_a_reset_and_adds_processes(evaluate):
    series = {SPENT % "a": "0+0.1x80 0+0.1x100", SPENT % "b": "0+0.2x180"}
    evaluate(
        [RATES, HOURS],
        series,
        [
            ("60m", near(HOURLY, 18)),
            # Within the hour of the reset too: what one step lost is all that is missing.
            ("120m", near(HOURLY, 18)),
            ("170m", near(HOURLY, 18)),
        ],
    )


def test_a_feature_that_appears_midway_counts_from_its_first_zero(evaluate):
    evaluate(
        [RATES, HOURS],
        {SPENT % "a": "_x90 0+0.1x120"},
        [("120m", near(HOURLY, 3, 0.05)), ("160m", near(HOURLY, 6)), ("80m", f"absent({HOURLY})")],
    )


def test_a_feature_that_ends_leaves_the_hour(evaluate):
    evaluate(
        [RATES, HOURS],
        {SPENT % "a": "0+0.1x60 stale"},
        [("90m", near(HOURLY, 3, 0.05)), ("130m", f"absent({HOURLY})")],
    )


def test_one_publisher_of_a_device_counts(evaluate):
    """Two that cannot see each other each tell all of the device's time."""
    series = {
        DEVICE % ("a", "charged"): "0+30x120",
        DEVICE % ("a", "idle"): "0+30x120",
        DEVICE % ("b", "charged"): "0+12x120",
        DEVICE % ("b", "idle"): "0+48x120",
    }
    fleet = "fleet:gputrace_device_time_seconds:rate5m"
    evaluate(
        [RATES],
        series,
        [
            ("60m", near(f"sum({fleet})", 1)),
            # The one that has seen more: what the other did not see was not idle.
            ("60m", near(f'sum({fleet}{{gputrace_device_state="charged"}})', 0.5)),
        ],
    )


def test_a_device_whose_publisher_changes_is_counted_on(evaluate):
    series = {DEVICE % ("a", "charged"): "0+60x60 stale", DEVICE % ("b", "charged"): "_x61 0+60x90"}
    evaluate(
        [RATES, HOURS],
        series,
        [("110m", near("sum(fleet:gputrace_device_time_seconds:increase1h)", 3600, 0.06))],
    )


def test_the_month_begins_on_the_first(evaluate):
    """Promtool begins in January 1970: 24 × 31 hours, then February."""
    spend = "sum(feature:gputrace_feature_cost:month_to_date)"
    evaluate(
        [MONTHS],
        {WINDOW: f"{1 / 6:.6f}x9100"},
        [
            ("10h", near(spend, 20)),
            ("744h", near(spend, 744 * 2, 0.001)),
            ("746h", near(spend, 4)),
            ("750h", near(spend, 12)),
            ("10h", near("gputrace:month_left:hours", 734)),
            ("750h", near("gputrace:month_left:hours", 28 * 24 - 6)),
        ],
        interval="5m",
        every="2h",
    )


# --- alerts ------------------------------------------------------------------

OTHER_COST = 'feature:gputrace_feature_cost:increase1h{gputrace_feature="mail", gputrace_currency="USD"}'
BUDGET = 'gputrace_budget{instance="%s", gputrace_feature="chat", gputrace_currency="USD"}'
REQUESTS = 'feature:gputrace_requests:increase1h{gputrace_feature="chat"}'
MONTH = {"gputrace:month_length:hours": "720x250"}
FLEET = (
    'fleet:gputrace_device_time_seconds:increase1h{hw_type="gpu", hw_name="H100", gputrace_device_state="%s"}'
)
FEATURE = (
    'feature:gputrace_feature_time_seconds:increase1h{gputrace_feature="chat", hw_type="gpu", hw_name="H100"}'
)
OVERLAP = 'fleet:gputrace_device_overlap_time_seconds:increase1h{hw_type="gpu", hw_name="H100"}'
STAGE_COST = (
    "cascade:gputrace_escalation_cost:increase1h"
    '{gputrace_escalation_cascade="answer", gputrace_stage="%s", gputrace_currency="USD"}'
)
DECIDED = (
    "cascade:gputrace_escalation_requests:increase1h"
    '{gputrace_escalation_cascade="answer", gputrace_escalation_decision="%s"}'
)
QUEUE = 'gputrace_sdk_queue_length{job="api", instance="a"}'
UNPRICED = 'gputrace_sdk_unpriced_time_seconds_total{hw_type="gpu", hw_name="H100"}'
WEEK = 7 * 24 * 6

# Series in which it fires, one value each ten minutes, by the time it does, and what to change so that it
# does not.
CASES: list[tuple[str, dict[str, str], str, dict[str, str]]] = [
    (
        "GputraceBudgetPaceFast",
        # Two processes say the same budget: it is not twice as large.
        {COST: "15x200", BUDGET % "a": "1000x200", BUDGET % "b": "1000x200", **MONTH},
        "60m",
        {COST: "13x200"},
    ),
    (
        "GputraceBudgetPaceSlow",
        {COST: "2x250", BUDGET % "a": "1000x250", **MONTH},
        "1900m",
        {COST: "1.5x250"},
    ),
    (
        "GputraceSpendAnomaly",
        {COST: f"1x{WEEK} 2.1x20", OTHER_COST: f"20x{WEEK + 20}"},
        f"{WEEK * 10 + 90}m",
        # Twice of next to nothing.
        {OTHER_COST: f"60x{WEEK + 20}"},
    ),
    (
        "GputraceUnitCostJump",
        {COST: "1x160 1.7x200", REQUESTS: "1000x200"},
        "1660m",
        # Dearer because there is more of it.
        {REQUESTS: "1000x160 1700x200"},
    ),
    (
        "GputraceUnitCostJump",
        {COST: "1x160 1.7x200", REQUESTS: "101x200"},
        "1660m",
        # Too few to say.
        {REQUESTS: "99x200"},
    ),
    (
        "GputraceFleetIdle",
        {FLEET % "idle": "2400x200", FLEET % "charged": "1200x200"},
        "1600m",
        {FLEET % "idle": "1800x200"},
    ),
    (
        "GputraceLedgerOffBalance",
        {FEATURE: "1000x200", FLEET % "charged": "900x200"},
        "60m",
        # What several processes charged at once.
        {OVERLAP: "100x200"},
    ),
    (
        "GputraceCoverageLow",
        {FLEET % "charged": "1000x200", FLEET % "untracked": "60x200"},
        "90m",
        {FLEET % "untracked": "50x200"},
    ),
    (
        "GputraceEscalationStoppedPaying",
        {
            STAGE_COST % "small": "1x200",
            STAGE_COST % "large": "2x200",
            STAGE_COST % "audit": "0.028x200",
            DECIDED % "kept": "98x200",
            DECIDED % "audited": "2x200",
        },
        "1600m",
        {STAGE_COST % "audit": "0.07x200"},
    ),
    (
        "GputraceEscalationStoppedPaying",
        {
            STAGE_COST % "small": "3x200",
            STAGE_COST % "audit": "0.028x200",
            DECIDED % "kept": "98x200",
            DECIDED % "audited": "2x200",
        },
        "1600m",
        # Not enough audits: 24.
        {DECIDED % "audited": "1x200"},
    ),
    ("GputraceTelemetryGone", {QUEUE: "1x12 stale"}, "150m", {QUEUE: "1x200"}),
    ("GputracePriceMissing", {UNPRICED: "0+100x200"}, "90m", {UNPRICED: "5x200"}),
]


@pytest.mark.parametrize(
    ("name", "series", "at", "calm"), CASES, ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)]
)
def test_an_alert_fires_when_it_should_and_not_otherwise(evaluate, name, series, at, calm):
    firing = f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'
    evaluate([ALERTS], series, [(at, f"{firing} == 1")], interval="10m")
    evaluate([ALERTS], series | calm, [(at, f"absent({firing})")], interval="10m")


def simulated(series):
    month = "gputrace:month_length:hours"
    marked = 'deployment_environment_name="simulation", '
    return {
        name if name == month else name.replace("{", "{" + marked): values for name, values in series.items()
    }


@pytest.mark.parametrize(
    ("name", "series", "at"),
    [case[:3] for case in CASES],
    ids=[f"{case[0]}-{at}" for at, case in enumerate(CASES)],
)
def test_nobody_is_woken_for_a_simulation(evaluate, name, series, at):
    firing = f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'
    evaluate([ALERTS], simulated(series), [(at, f"absent({firing})")], interval="10m")


def test_a_simulated_budget_is_not_the_real_one(evaluate):
    series = {COST: "15x200", BUDGET % "a": "1000x200", **MONTH, **simulated({BUDGET % "b": "900000x200"})}
    firing = 'count(ALERTS{alertname="GputraceBudgetPaceFast", alertstate="firing"})'
    evaluate([ALERTS], series, [("60m", f"{firing} == 1")], interval="10m")


def test_every_alert_is_tried():
    assert {name for name, *_ in CASES} == {alert.name for alert in rules.ALERTS}


def test_nothing_fires_of_an_empty_database(evaluate):
    firing: Any = "absent(ALERTS)"
    evaluate([RATES, SUMS, HOURS, MONTHS, ALERTS], {"up": "1x100"}, [("90m", firing)])
