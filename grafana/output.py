"""Every file that Grafana, Prometheus and their neighbours read, by its path."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from gputrace.grafana import (
    budget_allocation,
    escalation_payoff,
    feature_detail,
    fleet_utilisation,
    model_servers,
    spend_overview,
    telemetry_health,
)
from gputrace.grafana.rules import GRAFANA_URL, RUNBOOK, rule_files

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.grafana.board import Board

#: What is installed as it is: where the boards are mounted, and what feeds them.
STATIC = (
    "compose.yaml",
    "collector.yaml",
    "kubernetes.md",
    "tempo.yaml",
    "prometheus/prometheus.yml",
    "provisioning/dashboards/gputrace.yaml",
    "provisioning/datasources/gputrace.yaml",
)


def boards() -> tuple[Board, ...]:
    """Return all boards, in the order in which they are linked."""
    return (
        spend_overview.board(),
        feature_detail.board(),
        budget_allocation.board(),
        escalation_payoff.board(),
        fleet_utilisation.board(),
        model_servers.board(),
        telemetry_health.board(),
    )


def generated(grafana_url: str = GRAFANA_URL, runbook: str = RUNBOOK) -> dict[str, str]:
    """Return boards and rules by their path.

    Args:
        grafana_url: Where alerts find the boards.
        runbook: Where they find what to do.
    """
    files = {f"dashboards/{board.uid}.json": board.to_json() for board in boards()}
    rules = rule_files(grafana_url, runbook)
    return files | {f"prometheus/rules/{name}": text for name, text in rules.items()}


def static() -> dict[str, str]:
    """Return the files that are installed as they are, by their path."""
    root = resources.files("gputrace.grafana")
    return {name: root.joinpath(*name.split("/")).read_text(encoding="utf-8") for name in STATIC}


def write(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write files below a folder.

    Returns:
        Those that were not there, or not like that.
    """
    changed = []
    for name, text in files.items():
        path = folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        changed.append(path)
    return changed
