"""Builders of panels: what is drawn, in which unit, and what it says without data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputrace import catalogue
from gputrace.grafana.recorded import RECORDED
from gputrace.grafana.units import NEUTRAL, Unit, thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputrace.grafana.units import Steps

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: Exports come once a minute where nobody says otherwise; Grafana takes four of them for a rate.
MIN_STEP = "1m"
NOTHING = "No data in this range"
_SUFFIXES = ("", "_bucket", "_count", "_sum")
_EMITTED = {
    f"{metric.prometheus}{suffix}": (metric.prometheus,)
    for metric in catalogue.METRICS
    for suffix in (_SUFFIXES if metric.kind is catalogue.Kind.HISTOGRAM else ("",))
}
_READABLE = {**_EMITTED, **{recorded.name: recorded.metrics for recorded in RECORDED}}
_SERIES_LEGEND = {
    "displayMode": "table",
    "placement": "bottom",
    "showLegend": True,
    "calcs": ["mean", "max", "lastNotNull"],
    "sortBy": "Mean",
    "sortDesc": True,
}
_ONE_LABEL = re.compile(r"^\{\{(\w+)\}\}$")
_WORD = re.compile(r"[a-z_][\w:]*")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL.
        legend: How a series is called; `{{label}}` stands for a value.
        instant: Asked for the end of the range alone.
        table: Answered as a table, one column a label.
        exemplars: With the traces that stand for it.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    exemplars: bool = False
    heatmap: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        kind: Grafana's type of panel.
        title: What it is called.
        description: What it means and what to do.
        queries: What it asks.
        unit: Of its numbers.
        width: Of 24 columns.
        height: In rows of 30 px and a gap.
        options: As the type wants them.
        custom: Custom field options.
        steps: Thresholds.
        color: Colour mode.
        overrides: Of single fields.
        transformations: Applied to the answers.
        nothing: What it says without data.
        links: Data links of its values.
        bounds: Least and greatest value, for gauges.
        mappings: Texts that stand for values.
        named: What a value is called, where Grafana would not say for one alone.
    """

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: Unit
    width: int = 6
    height: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: Mapping[str, Any] = field(default_factory=dict)
    steps: Steps = NEUTRAL
    color: str = "thresholds"
    overrides: tuple[dict[str, Any], ...] = ()
    transformations: tuple[dict[str, Any], ...] = ()
    nothing: str = NOTHING
    links: tuple[dict[str, Any], ...] = ()
    bounds: tuple[float | None, float | None] = (None, None)
    mappings: tuple[dict[str, Any], ...] = ()
    named: str = ""

    def metrics(self) -> list[str]:
        """Return the metrics that it rests on, as Prometheus shows them."""
        words = {word for query in self.queries for word in _WORD.findall(query.expr)}
        return sorted({metric for word in words for metric in _READABLE.get(word, ())})

    def to_json(self, number: int, column: int, row: int) -> dict[str, Any]:
        """Return it as Grafana reads it, at its place."""
        named = ", ".join(f"`{name}`" for name in self.metrics())
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": f"{self.description}\n\nMetrics: {named}" if named else self.description,
            "gridPos": {"h": self.height, "w": self.width, "x": column, "y": row},
            "datasource": DATASOURCE,
            "targets": [
                _target(query, chr(ord("A") + position)) for position, query in enumerate(self.queries)
            ],
            "fieldConfig": {"defaults": self._defaults(), "overrides": list(self.overrides)},
            "options": dict(self.options),
            "transformations": list(self.transformations),
        }

    def _defaults(self) -> dict[str, Any]:
        low, high = self.bounds
        found = {
            "unit": self.unit.id,
            "displayName": self.named or None,
            "decimals": self.unit.decimals,
            "min": low,
            "max": high,
            "noValue": self.nothing,
            "color": {"mode": self.color},
            "thresholds": thresholds(self.steps),
            "mappings": list(self.mappings),
            "links": list(self.links),
            "custom": dict(self.custom),
        }
        return {name: value for name, value in found.items() if value is not None}


def _target(query: Query, reference: str) -> dict[str, Any]:
    return {
        "refId": reference,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "interval": MIN_STEP,
        "instant": query.instant,
        "range": not query.instant,
        "format": "table" if query.table else "heatmap" if query.heatmap else "time_series",
        "exemplar": query.exemplars,
    }


def override(name: str, **properties: Any) -> dict[str, Any]:
    """Return what holds for one field alone.

    Args:
        name: Of the field.
        properties: By id; `__` stands for the dot in it: `custom__width=80`.
    """
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": identity.replace("__", "."), "value": value} for identity, value in properties.items()
        ],
    }


def in_unit(name: str, unit: Unit, **properties: Any) -> dict[str, Any]:
    """Return an override with the unit of one field, and further properties."""
    decimals = {} if unit.decimals is None else {"decimals": unit.decimals}
    return override(name, unit=unit.id, **decimals, **properties)


def coloured(colours: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """Return overrides that give each name its colour, wherever it is drawn."""
    return tuple(
        override(name, color={"mode": "fixed", "fixedColor": colour}) for name, colour in colours.items()
    )


def stat(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    expr: str,
    unit: Unit,
    *,
    steps: Steps = NEUTRAL,
    nothing: str = NOTHING,
    width: int = 4,
    trend: str = "",
    height: int = 4,
    parts: tuple[Query, ...] = (),
) -> Panel:
    """Return one large number, or several with their names.

    Args:
        title: What it is called.
        description: What it means.
        expr: Asked for the end of the range.
        unit: Its unit.
        steps: Where its colour changes.
        nothing: What it says without data.
        width: Of 24 columns.
        trend: Drawn behind the number instead of nothing; then the number is its last value.
        height: In rows of the grid.
        parts: Several numbers instead of the one.
    """
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area" if trend else "none",
        "justifyMode": "auto",
        "textMode": "value_and_name" if parts else "value",
        "orientation": "auto",
        "wideLayout": True,
    }
    one = Query(trend) if trend else Query(expr, instant=True)
    return Panel(
        "stat", title, description, parts or (one,), unit, width, height, options,
        steps=steps, nothing=nothing,
    )  # fmt: skip


def lines(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: Unit,
    *,
    width: int = 12,
    height: int = 9,
    stacked: bool = False,
    colours: Mapping[str, str] | None = None,
    steps: Steps = NEUTRAL,
    nothing: str = NOTHING,
    bounds: tuple[float | None, float | None] = (0, None),
    links: tuple[dict[str, Any], ...] = (),
    overrides: tuple[dict[str, Any], ...] = (),
) -> Panel:
    """Return series over time, stacked where they are parts of a whole."""
    marked = steps is not NEUTRAL
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if marked else "off"},
    }
    options = {"legend": _SERIES_LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}}
    return Panel(
        "timeseries", title, description, tuple(queries), unit, width, height, options, custom,
        steps=steps, color="palette-classic-by-name", overrides=(*coloured(colours or {}), *overrides),
        nothing=nothing, bounds=bounds, links=links,
    )  # fmt: skip


def shares(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    query: Query,
    unit: Unit,
    *,
    width: int = 6,
    height: int = 9,
    colours: Mapping[str, str] | None = None,
    nothing: str = NOTHING,
    links: tuple[dict[str, Any], ...] = (),
) -> Panel:
    """Return a ring of the parts of a whole."""
    options = {
        "pieType": "donut",
        "displayLabels": ["percent"],
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "values": ["value", "percent"],
        },
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(
        "piechart", title, description, (query,), unit, width, height, options,
        color="palette-classic-by-name", overrides=coloured(colours or {}), nothing=nothing, links=links,
    )  # fmt: skip


def ranking(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    query: Query,
    unit: Unit,
    *,
    width: int = 6,
    height: int = 9,
    steps: Steps = NEUTRAL,
    nothing: str = NOTHING,
    bounds: tuple[float | None, float | None] = (0, None),
    links: tuple[dict[str, Any], ...] = (),
    more: tuple[Query, ...] = (),
) -> Panel:
    """Return bars, one a series, longest first where the query sorts."""
    options = {
        "displayMode": "gradient" if steps is NEUTRAL else "basic",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "valueMode": "color",
        "namePlacement": "auto",
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
    }
    return Panel(
        "bargauge", title, description, (query, *more), unit, width, height, options,
        steps=steps, color="thresholds", nothing=nothing, bounds=bounds, links=links,
        named=_ONE_LABEL.sub(r"${__field.labels.\1}", query.legend) if _ONE_LABEL.match(query.legend) else "",
    )  # fmt: skip
