"""Three boards over two hours, drawn as Grafana would: no panel fails, and the numbers are the report's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gputrace.grafana import escalation_payoff, model_servers, spend_overview
from tests.integration.rendering import draw

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.history import History

pytestmark = pytest.mark.requires("prometheus", "render")

# Two hours, with nothing before them.
NOTHING_BEFORE = {"Against the range before", "Greatest increases (USD)"}
FEW_AUDITS = {"Heavy alone (USD)", "A request costs less by"}


def test_the_overview(history: History, renderer: Path, tmp_path: Path) -> None:
    board = draw(renderer, history.server.url, spend_overview.board(), history.range_s, tmp_path)
    assert board.without_data() == NOTHING_BEFORE
    costs = history.cost_by_feature()
    assert board.number("Spend in range (USD)") == pytest.approx(sum(costs.values()), rel=0.01)
    # Windows of five minutes over exports of one: what is seldom is known less well.
    shown = board.values("Share of spend (USD)")
    assert shown == {name: pytest.approx(cost, rel=0.05, abs=0.01) for name, cost in costs.items()}


def test_the_payoff_of_escalation(history: History, renderer: Path, tmp_path: Path) -> None:
    board = draw(renderer, history.server.url, escalation_payoff.board(), history.range_s, tmp_path)
    assert board.without_data() == FEW_AUDITS
    decided = history.truth.decisions
    escalated = sum(count for (_, decision), count in decided.items() if decision == "escalated")
    assert board.number("Requests escalated") == pytest.approx(escalated / decided.total(), rel=0.05)


def test_the_model_servers(history: History, renderer: Path, tmp_path: Path) -> None:
    """Two processes of them, before they have learnt anything."""
    board = draw(renderer, history.server.url, model_servers.board(), history.range_s, tmp_path)
    whole_s = sum(history.truth.step_s.values())
    assert board.number("Device hours of steps") == pytest.approx(whole_s / 3_600, rel=0.05)
    assert "Tenants" in board.without_data() < set(board.panels)
