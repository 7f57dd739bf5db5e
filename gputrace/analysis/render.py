"""A spend report as text: reads well at 100 columns, in a pipe, and without colour."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from gputrace.analysis import formats
from gputrace.analysis.achieved_table import achievement_table
from gputrace.analysis.model_servers_table import server_heading, server_table, weight_lines
from gputrace.analysis.readings import utc
from gputrace.analysis.statements import accounted, energy_line, energy_unit, ledger_line
from gputrace.analysis.stretches import NS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from gputrace.analysis.figures import Row, SpendReport, Times, Totals

_PIPED_WIDTH = 100
_LISTED_DEVICES = 16
_LABEL_WIDTH = len("untracked")
_NO_LIMIT = 10_000
# Top, right, bottom, left of a cell; the box adds one column between two cells.
_WIDE = (0, 1, 0, 0)
_TIGHT = (0, 0, 0, 0)


def print_report(report: SpendReport, console: Console) -> None:
    """Print the whole report.

    Args:
        report: The numbers.
        console: Where to. One that is no terminal gets every column unfolded, at least 100 wide.
    """
    width = console.width
    table = _spend_table(report, _WIDE)
    if not console.is_terminal:
        console.width = max(_PIPED_WIDTH, _natural_width(table, console))
    elif _natural_width(table, console) > width:
        table = _spend_table(report, _TIGHT)
    try:
        console.print(_heading(report), "", table, "", sep="\n")
        if len(report.devices) > 1:
            console.print(_device_table(report), "", sep="\n")
        for title, achieved in (("outcome", report.outcomes), ("unit", report.units)):
            if achieved:
                console.print(achievement_table(title, achieved), "", sep="\n")
        for server in report.model_servers:
            console.print(server_heading(server), "", server_table(server), sep="\n")
            console.print(*weight_lines(server), "", sep="\n")
        console.print(ledger_line(report))
        unit = energy_unit(report)
        if report.energy_balance is not None and unit is not None:
            console.print(energy_line(report, report.energy_balance, unit))
        for note in report.notes:
            console.print(Text(f"note: {note}", style="dim"))
    finally:
        console.width = width


def _natural_width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=_NO_LIMIT)).maximum


def _heading(report: SpendReport) -> Text:
    start, end = (utc(moment)[:-8].replace("T", " ") for moment in (report.start_ns, report.end_ns))
    devices = ", ".join(
        f"{sum(device.read and (device.type or '?') == kind for device in report.devices)} × {kind}"
        for kind in report.totals.by_type
    )
    made_up = report.origins.simulated and not report.origins.mixed
    text = Text("Spend report of a simulation" if made_up else "Spend report", style="bold")
    text.append(
        f"   {start} to {end} UTC ({(report.end_ns - report.start_ns) / NS:,.1f} s)", style="not bold"
    )
    text.append(f"\n{devices or 'no device'}", style="not bold")
    if report.sampled_share is not None:
        text.append(
            f", percentiles from {report.spans:,} spans ({100 * report.sampled_share:.3g} % of all calls)",
            style="not bold",
        )
    if report.origins.mixed:
        text.append("\nMEASURED AND SIMULATED DATA ARE MIXED: see the first note below.", style="bold red")
    return text


def _spend_table(report: SpendReport, padding: tuple[int, int, int, int]) -> Table:
    priced = report.totals.currency is not None or any(row.cost is not None for row in report.rows)
    busy = any(row.busy_share is not None for row in report.rows)
    timed = report.spans is not None
    unit = energy_unit(report)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)
    for field in report.by:
        table.add_column(field.replace("_", " "), overflow="fold", min_width=_LABEL_WIDTH)
    for name in ("calls", "errors", "charged\ns", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    if unit:
        table.add_column(f"energy\n{unit}", justify="right", no_wrap=True)
    if priced:
        table.add_column(f"cost\n{report.totals.currency or ''}".strip(), justify="right", no_wrap=True)
        table.add_column("per 1k\ncalls", justify="right", no_wrap=True)
    if timed:
        for name in ("wall\np50", "wall\np95", "device\np50", "device\np95"):
            table.add_column(name, justify="right", no_wrap=True)
    if busy:
        table.add_column("busy", justify="right", no_wrap=True)
    for row in report.rows:
        cells = _cells(row, report, unit=unit, priced=priced, timed=timed, busy=busy)
        table.add_row(*cells, style="yellow" if row.unnamed else None)
    table.add_section()
    for label, seconds, share, joules, cost in _remainder(report):
        blanks = [""] * (len(report.by) - 1)
        drawn = [formats.joules_in(unit, joules)] if unit else []
        money = [formats.money(cost)] if priced else []
        counts = (
            [f"{report.totals.calls:,}", f"{report.totals.errors:,}"]
            if label.startswith("total")
            else ["", ""]
        )
        style = "bold" if label.startswith("total") else "dim"
        times = (formats.seconds(seconds), formats.share(share))
        table.add_row(label, *blanks, *counts, *times, *drawn, *money, style=style)
    return table


def _cells(  # noqa: PLR0913 - which columns there are
    row: Row, report: SpendReport, *, unit: str | None, priced: bool, timed: bool, busy: bool
) -> Iterable[str | Text]:
    for field in report.by:
        # As text: a feature called "[red]" is a name, no markup.
        yield Text(row.key.get(field) or formats.ABSENT)
    yield formats.count(row.calls)
    yield formats.count(row.errors)
    yield formats.seconds(row.charged_s)
    yield formats.share(row.share)
    if unit:
        yield formats.joules_in(unit, row.energy_j)
    if priced:
        several = report.totals.currency is None and row.currency is not None
        yield f"{formats.money(row.cost)} {row.currency}" if several else formats.money(row.cost)
        yield formats.money(row.cost_per_1000_calls)
    if timed:
        times = row.percentiles
        for value in (times.wall_p50_s, times.wall_p95_s, times.device_p50_s, times.device_p95_s):
            yield formats.duration(value)
    if busy:
        yield formats.share(row.busy_share)


def _remainder(
    report: SpendReport,
) -> Iterable[tuple[str, float, float | None, float | None, float | None]]:
    """Yield label, seconds, share, joules and cost of what no feature was charged, and of the whole."""
    totals = report.totals
    for kind, times in totals.by_type.items():
        suffix = f" ({kind})" if len(totals.by_type) > 1 else ""
        costs = _line_costs(totals) if not suffix else {}
        drawn = totals.device_energy.get(kind, {})
        twice_s = times.counted_twice_s
        if twice_s:
            # Rows count this time once a process; without this line they would exceed the whole.
            yield f"counted twice{suffix}", -twice_s, _part(-twice_s, times), None, None
        for state in ("untracked", "idle", "unknown"):
            seconds = getattr(times, f"{state}_s")
            joules = drawn[state].joules if state in drawn else None
            yield f"{state}{suffix}", seconds, _part(seconds, times), joules, costs.get(state)
        whole = math.fsum(costs.values()) if costs else None
        all_of_it = math.fsum(part.joules for part in drawn.values()) if drawn else None
        yield f"total{suffix}", times.wall_s, _part(accounted(times), times), all_of_it, whole


def _line_costs(totals: Totals) -> dict[str, float]:
    """Return what the devices cost by state, as the lines below the rows show it under the idle policy."""
    costs = dict(totals.device_costs)
    if totals.idle_policy == "none":
        costs.pop("idle", None)
    elif totals.idle_spread_cost:
        # The rows bear it; the whole stays what it is.
        costs["idle"] = costs.get("idle", 0.0) - totals.idle_spread_cost
        costs["charged"] = costs.get("charged", 0.0) + totals.idle_spread_cost
    return costs


def _device_table(report: SpendReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=_WIDE)
    table.add_column("device", overflow="fold")
    table.add_column("type")
    for name in ("wall s", "charged", "untracked", "idle", "unknown"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in report.devices[:_LISTED_DEVICES]:
        times = (device.wall_s, device.charged_s, device.untracked_s, device.idle_s, device.unknown_s)
        table.add_row(Text(device.id), Text(device.type or formats.ABSENT), *map(formats.seconds, times))
    if len(report.devices) > _LISTED_DEVICES:
        table.add_row(f"… and {len(report.devices) - _LISTED_DEVICES} more (all of them with --json)")
    return table


def _part(seconds: float, times: Times) -> float | None:
    return seconds / times.wall_s if times.wall_s else None
