"""What outcomes and units of work cost, as a table below the spend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from gputrace.analysis import formats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.analysis.achievements import Achievement

NONE_RECORDED = "none recorded"


def achievement_table(title: str, achieved: Sequence[Achievement]) -> Table:
    """Return a table of outcomes or units, one row each and feature.

    Args:
        title: What they are: `outcome` or `unit`.
        achieved: From `achievements.measure`.
    """
    currencies = {one.currency for one in achieved} - {None}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(title, overflow="fold")
    table.add_column("feature", overflow="fold")
    table.add_column("count", justify="right", no_wrap=True)
    if currencies:
        heading = f"cost per {title}\n{next(iter(currencies)) if len(currencies) == 1 else ''}".strip()
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"time per {title}", justify="right", no_wrap=True)
    for one in achieved:
        # As text: a name such as "[red]" is a name, no markup.
        cells: list[str | Text] = [Text(one.name), Text(one.feature or formats.ABSENT), _count(one)]
        if currencies:
            several = f" {one.currency}" if len(currencies) > 1 and one.currency else ""
            cells.append(f"{formats.unit_cost(one.cost_per)}{several}")
        cells.append(formats.duration(one.seconds_per))
        table.add_row(*cells, style=None if one.feature else "dim")
    return table


def _count(one: Achievement) -> str:
    if one.count is None:
        return ""
    return formats.amount(one.count) if one.feature else NONE_RECORDED
