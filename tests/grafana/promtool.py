"""What tests of the rules share: the files, series to evaluate them over, and how near is near enough."""

from __future__ import annotations

from gputrace.grafana import rules

RATES, SUMS, HOURS, MONTHS, ALERTS = FILES = sorted(rules.rule_files())
# Live, groups are evaluated side by side; promtool takes them in any order unless it is told.
GROUPS = {RATES: "gputrace-rates", SUMS: "gputrace-sums", HOURS: "gputrace-hours", MONTHS: "gputrace-months"}
SPENT = (
    'gputrace_feature_cost_total{job="api", instance="%s", gputrace_feature="chat", gputrace_currency="USD"}'
)
DEVICE = (
    'gputrace_device_time_seconds_total{hw_id="GPU-1", hw_type="gpu", hw_name="H100", '
    'gputrace_publisher="%s", gputrace_device_state="%s"}'
)


def near(expr: str, value: float, share: float = 0.03) -> str:
    return f"abs({expr} - {value}) <= {abs(value) * share}"
