"""The rule files, as Prometheus reads them, and the runbook that its alerts lead to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gputrace.grafana.alerts import ALERTS, GROUPS
from gputrace.grafana.board import BOARDS
from gputrace.grafana.promql import SHORT
from gputrace.grafana.recorded import HOURS, MONTHS, RATES, SUMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gputrace.grafana.alerts import Alert
    from gputrace.grafana.sources import Recorded

RUNBOOK = "docs/runbooks.md"
GRAFANA_URL = "http://localhost:3000"
_NOTE = "# Written by `gputrace dashboards` from gputrace.grafana: change it there.\n"
# Each minute: a query for one instant looks back five minutes at most.
_EVERY = "1m"
# Sums once a window, that no second is counted twice: they are read over ranges alone.
_RECORDING = {
    "gputrace-1-rates.yml": ("gputrace-rates", RATES, _EVERY),
    "gputrace-2-sums.yml": ("gputrace-sums", SUMS, SHORT),
    "gputrace-3-hours.yml": ("gputrace-hours", HOURS, _EVERY),
    "gputrace-4-months.yml": ("gputrace-months", MONTHS, _EVERY),
}


def rule_files(grafana_url: str = GRAFANA_URL, runbook: str = RUNBOOK) -> dict[str, str]:
    """Return the rule files by name; each rests on those before it.

    Args:
        grafana_url: Where alerts find the boards.
        runbook: Where they find what to do.
    """
    files = {
        name: _NOTE + "groups:\n" + "".join(_recording_group(group, rules, every))
        for name, (group, rules, every) in _RECORDING.items()
    }
    groups = (_alert_group(group, alerts, grafana_url, runbook) for group, alerts in GROUPS.items())
    return files | {
        "gputrace-5-alerts.yml": _NOTE + "groups:\n" + "".join(line for group in groups for line in group)
    }


def _text(value: str) -> str:
    """Return a string as YAML: one of JSON is one of YAML."""
    return json.dumps(value, ensure_ascii=False)


def _group(name: str, every: str = _EVERY) -> Iterator[str]:
    yield f"  - name: {name}\n"
    yield f"    interval: {every}\n"
    yield "    rules:\n"


def _recording_group(name: str, rules: Sequence[Recorded], every: str) -> Iterator[str]:
    yield from _group(name, every)
    for rule in rules:
        yield f"      - record: {rule.name}\n"
        yield f"        expr: {_text(rule.expr)}\n"


def _alert_group(name: str, alerts: Sequence[Alert], grafana_url: str, runbook: str) -> Iterator[str]:
    yield from _group(name)
    for alert in alerts:
        chosen = "&".join(
            f"var-{variable}={{{{ $labels.{label} | urlquery }}}}" for variable, label in alert.chosen
        )
        board = f"{grafana_url.rstrip('/')}/d/{alert.board}{'?' if chosen else ''}{chosen}"
        yield f"      - alert: {alert.name}\n"
        yield f"        expr: {_text(alert.expr)}\n"
        yield f"        for: {alert.wait}\n"
        yield f"        labels: {{severity: {alert.severity}}}\n"
        yield "        annotations:\n"
        yield f"          summary: {_text(alert.summary)}\n"
        yield f"          description: {_text(alert.meaning)}\n"
        yield f"          runbook_url: {_text(f'{runbook}#{alert.anchor}')}\n"
        yield f"          dashboard_url: {_text(board)}\n"


def runbook_page() -> str:
    """Return the page that says of each alert what it means and what to do."""
    return "".join(_runbook())


def _runbook() -> Iterator[str]:
    yield "# Runbooks\n\n"
    yield "What each alert of `grafana/prometheus/rules` means, and what to do. `gputrace dashboards`\n"
    yield "writes this page from the alerts themselves.\n"
    for alert in ALERTS:
        yield f"\n## {alert.name}\n\n{alert.meaning}\n\n"
        yield f"Severity {alert.severity}, after {alert.wait}. Board: {BOARDS[alert.board]}.\n\n"
        for number, step in enumerate(alert.steps, 1):
            yield f"{number}. {step}\n"
        yield f"\n```promql\n{alert.expr}\n```\n"
