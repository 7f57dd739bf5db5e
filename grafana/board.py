"""A board: rows of panels from left to right, the variables that narrow them, links to the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputrace import catalogue
from gputrace.grafana.panels import DATASOURCE, MIN_STEP
from gputrace.grafana.promql import VARIABLES, Scope, select
from gputrace.grafana.sources import JOB, SERVICE_VERSION, label, labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.grafana.panels import Panel

SCHEMA_VERSION = 42
TAG = "gputrace"
_COLUMNS = 24

# uid -> title, in the order in which the links stand.
BOARDS = {
    "gputrace-spend": "GPU spend: overview",
    "gputrace-feature": "GPU spend: feature detail",
    "gputrace-budget": "GPU spend: budget and allocation",
    "gputrace-escalation": "GPU spend: escalation pay-off",
    "gputrace-fleet": "GPU spend: fleet utilisation",
    "gputrace-servers": "GPU spend: model servers",
    "gputrace-health": "GPU spend: telemetry health",
}

# Each is read from a series that is there as soon as anything is: label, metric, narrowed by.
_READ_FROM = {
    "environment": (catalogue.DEVICE_TIME, ()),
    "job": (catalogue.SDK_QUEUE_LENGTH, ("environment",)),
    "feature": (catalogue.FEATURE_TIME, ("environment", "job")),
    "model": (catalogue.FEATURE_TIME, ("environment", "job")),
    "currency": (catalogue.DEVICE_COST, ()),
    "hw_type": (catalogue.DEVICE_TIME, ("environment",)),
    "hw_name": (catalogue.DEVICE_TIME, ("environment", "hw_type")),
    "cascade": (catalogue.ESCALATION_REQUESTS, ("environment", "job")),
}
_LABELS = {"hw_type": "device type", "hw_name": "device"}
_DESCENDING, _ASCENDING = 2, 1


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels below it.

    Attributes:
        title: The heading.
        panels: From left to right, as many lines as they need.
        collapsed: Folded until somebody asks.
    """

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One board.

    Attributes:
        uid: Its identity, and the name of its file.
        description: Whom it is for and what it answers.
        scope: Its variables.
        rows: From top to bottom.
        start: Where its range begins.
    """

    uid: str
    description: str
    scope: Scope
    rows: tuple[Row, ...]
    start: str = "now-7d"

    @property
    def title(self) -> str:
        """Its title."""
        return BOARDS[self.uid]

    def to_json(self) -> str:
        """Return the file that Grafana reads."""
        return json.dumps(self._model(), indent=1, ensure_ascii=False) + "\n"

    def _model(self) -> dict[str, Any]:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": [TAG],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "liveNow": False,
            "timezone": "utc",
            "time": {"from": self.start, "to": "now"},
            "refresh": "",
            "timepicker": {},
            "fiscalYearStartMonth": 0,
            "weekStart": "",
            "annotations": {"list": [_deploys(self.scope), _price_changes()]},
            "links": [board_link(uid) for uid in BOARDS if uid != self.uid],
            "templating": {"list": [_datasource(), *map(_variable, self.scope.variables)]},
            "panels": list(_laid_out(self.rows)),
        }


def _laid_out(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row in rows:
        placed: list[dict[str, Any]] = []
        left, tallest, bottom = 0, 0, top + 1
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                left, bottom, tallest = 0, bottom + tallest, 0
            placed.append(panel.to_json(number + 1 + len(placed), left, bottom))
            left, tallest = left + panel.width, max(tallest, panel.height)
        head = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": top},
            "panels": placed if row.collapsed else [],
        }
        yield head
        if not row.collapsed:
            yield from placed
        number += 1 + len(placed)
        top = top + 1 if row.collapsed else bottom + tallest


def board_link(uid: str) -> dict[str, Any]:
    """Return a link to another board that keeps variables and time."""
    return {
        "type": "link",
        "title": BOARDS[uid].partition(": ")[2].capitalize(),
        "url": f"/d/{uid}",
        "icon": "dashboard",
        "tooltip": BOARDS[uid],
        "tags": [],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def value_link(title: str, uid: str, **chosen: str) -> dict[str, Any]:
    """Return a data link to another board.

    Args:
        title: What the link is called.
        uid: The board.
        chosen: Variable and what it is set to there; the time and the other variables are kept.
    """
    kept = [f"var-{name}=${{{name}}}" for name in ("datasource",)]
    given = [f"var-{name}={value}" for name, value in chosen.items()]
    query = "&".join([*kept, *given, "from=${__from}", "to=${__to}"])
    return {"title": title, "url": f"/d/{uid}?{query}", "targetBlank": False}


def feature_link(value: str = "${__field.labels.gputrace_feature}") -> tuple[dict[str, Any], ...]:
    """Return the links of a value that belongs to one feature."""
    found = value_link(
        "This feature in detail",
        "gputrace-feature",
        feature=value,
        currency="${currency}",
    )
    return (found,)


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "current": {},
        "options": [],
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "skipUrlSync": False,
    }


def _variable(name: str) -> dict[str, Any]:
    attribute, several = VARIABLES[name]
    metric, narrowing = _READ_FROM[name]
    asked = f"label_values({Scope(narrowing).select(metric)}, {label(attribute)})"
    found: dict[str, Any] = {
        "name": name,
        "label": _LABELS.get(name, name),
        "type": "query",
        "datasource": DATASOURCE,
        "definition": asked,
        "query": {"query": asked, "refId": f"variable-{name}"},
        "regex": "",
        "current": {},
        "options": [],
        # On every change of the range: a feature that ran last month is there when last month is asked for.
        "refresh": 2,
        # `gpu` before `cpu`, where there are both.
        "sort": _DESCENDING if name == "hw_type" else _ASCENDING,
        "hide": 0,
        "multi": several,
        "includeAll": several,
        "skipUrlSync": False,
    }
    if several:
        found["allValue"] = ".*"
        found["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return found


def _annotation(name: str, expr: str, title: str, colour: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": MIN_STEP,
        "titleFormat": title,
        "textFormat": "",
        "tagKeys": "",
        "useValueForTime": False,
    }


def _deploys(scope: Scope) -> dict[str, Any]:
    """Mark the first minutes of a version of a service, where services say `service.version`."""
    services = '{job=~"$job"}' if JOB in scope.variables else ""
    running = f"count by ({labels(JOB, SERVICE_VERSION)}) (target_info{services}"
    return _annotation(
        "Deploys",
        f"{running}) unless {running} offset 5m)",
        "{{job}} {{service_version}}",
        "purple",
    )


def _price_changes() -> dict[str, Any]:
    """Mark when a device began to cost something else."""
    price = select(catalogue.DEVICE_PRICE)
    return _annotation(
        "Price changes",
        f"count by ({labels(catalogue.HW_NAME)}) (changes({price}[5m]) > 0)",
        "New price: {{hw_name}}",
        "yellow",
    )
