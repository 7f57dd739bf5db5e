"""Tables: rows that share their labels, one query a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputrace.grafana.panels import NOTHING, Panel, Query, in_unit
from gputrace.grafana.units import Unit, thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputrace.grafana.units import Steps

_NUMBER_PX = 105


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        expr: The instant query that fills it; nothing where it is a label.
        label: The label that it shows.
        unit: Of its numbers.
        bar: Drawn as a bar too.
        steps: Where its colour changes.
        link: Data link of its cells.
        width: In px.
    """

    title: str
    expr: str = ""
    label: str = ""
    unit: Unit | None = None
    bar: bool = False
    steps: Steps | None = None
    link: dict[str, Any] | None = None
    width: int | None = None

    def override(self) -> dict[str, Any]:
        """Return what holds for this column alone."""
        properties: dict[str, Any] = {"noValue": "–"}
        if self.bar:
            properties["custom__cellOptions"] = {
                "type": "gauge",
                "mode": "gradient",
                "valueDisplayMode": "text",
            }
            properties |= {"min": 0, "fieldMinMax": True, "color": {"mode": "continuous-BlPu"}}
        if self.steps is not None:
            properties["thresholds"] = thresholds(self.steps)
            properties["custom__cellOptions"] = {"type": "color-text"}
        if self.link is not None:
            properties["links"] = [self.link]
        if self.width is not None:
            properties["custom__width"] = self.width
        elif self.expr and not self.bar:
            properties["custom__width"] = _NUMBER_PX
        unit = self.unit or Unit("string")
        return in_unit(self.title, unit, **properties)


def table(  # noqa: PLR0913 - one argument a property
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    sort: str,
    width: int = 24,
    height: int = 9,
    nothing: str = NOTHING,
    hidden: tuple[str, ...] = (),
    ascending: bool = False,
) -> Panel:
    """Return a table whose rows share their labels, one query a column.

    Args:
        title: What it is called.
        description: What it means.
        columns: Labels first.
        sort: Title of the column that it is sorted by, greatest first.
        width: Of 24 columns.
        height: In rows of the grid.
        nothing: What it says without data.
        hidden: Labels that tell rows apart and are not shown.
        ascending: Least first.
    """
    asked = [column for column in columns if column.expr]
    values = {f"Value #{chr(ord('A') + place)}": column for place, column in enumerate(asked)}
    if len(asked) == 1:
        values = {"Value": asked[0]}
    return Panel(
        "table", title, description,
        tuple(Query(column.expr, instant=True, table=True) for column in asked),
        Unit("short"), width, height,
        {
            "showHeader": True,
            "cellHeight": "sm",
            "sortBy": [{"displayName": sort, "desc": not ascending}],
            "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        },
        {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": False},
        overrides=tuple(column.override() for column in columns),
        transformations=(
            {"id": "merge", "options": {}},
            {"id": "organize", "options": _organised(columns, values, hidden)},
        ),
        nothing=nothing,
    )  # fmt: skip


def _organised(
    columns: Sequence[Column], values: Mapping[str, Column], hidden: tuple[str, ...]
) -> dict[str, Any]:
    """Return which fields are shown, in which order, and what they are called."""
    names = {column.label: column.title for column in columns if column.label}
    names |= {value: column.title for value, column in values.items()}
    order = {value: columns.index(column) for value, column in values.items()}
    order |= {column.label: columns.index(column) for column in columns if column.label}
    return {
        "excludeByName": {"Time": True, **dict.fromkeys(hidden, True)},
        "indexByName": order,
        "renameByName": names,
    }
