"""Panels of many rows over time: how a histogram fills, and which state each series was in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace.grafana.panels import NOTHING, Panel, Query
from gputrace.grafana.units import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping


def heatmap(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    query: Query,
    unit: Unit,
    *,
    width: int = 12,
    height: int = 9,
    nothing: str = NOTHING,
) -> Panel:
    """Return how the buckets of a histogram fill over time.

    Args:
        title: What it is called.
        description: What it means.
        query: Of the buckets, by their upper bound.
        unit: Of the bounds.
        width: Of 24 columns.
        height: In rows of the grid.
        nothing: What it says without data.
    """
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "cps"},
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 32, "exponent": 0.5, "fill": "dark-blue"},
        "rowsFrame": {"layout": "auto"},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit.id},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
    }
    return Panel("heatmap", title, description, (query,), unit, width, height, options, nothing=nothing)


def timeline(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    query: Query,
    states: Mapping[int, tuple[str, str]],
    *,
    width: int = 12,
    height: int = 9,
    nothing: str = NOTHING,
) -> Panel:
    """Return which state each series was in.

    Args:
        title: What it is called.
        description: What it means.
        query: Whose values are numbers of states.
        states: Name and colour by number.
        width: Of 24 columns.
        height: In rows of the grid.
        nothing: What it says without data.
    """
    options = {
        "mergeValues": True,
        "showValue": "never",
        "rowHeight": 0.85,
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    texts = {
        str(number): {"text": name, "color": colour, "index": number}
        for number, (name, colour) in states.items()
    }
    return Panel(
        "state-timeline", title, description, (query,), Unit("none", 0), width, height, options,
        {"lineWidth": 0, "fillOpacity": 75}, color="thresholds",
        mappings=({"type": "value", "options": texts},), nothing=nothing,
    )  # fmt: skip
