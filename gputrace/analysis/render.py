"""A spend report as text: reads well at 100 columns, in a pipe, and without colour."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from gputrace import catalogue
from gputrace.analysis.readings import NS, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from gputrace.analysis.figures import Row, SpendReport, Times, Totals

_PIPED_WIDTH = 100
_LISTED_DEVICES = 16
_ABSENT = "–"
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
        console.print(_ledger_line(report))
        for note in report.notes:
            console.print(Text(f"note: {note}", style="dim"))
    finally:
        console.width = width


def _natural_width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=_NO_LIMIT)).maximum


def duration(seconds: float | None) -> str:
    """Return a time with three digits and the unit that suits it."""
    if seconds is None:
        return _ABSENT
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9995 or unit == "µs":
            value = seconds / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004 - three digits each
            return f"{value:,.{digits}f}{unit}"
    raise AssertionError


def _heading(report: SpendReport) -> Text:
    start, end = (utc(moment)[:-8].replace("T", " ") for moment in (report.start_ns, report.end_ns))
    devices = ", ".join(
        f"{sum(device.read and (device.type or '?') == kind for device in report.devices)} × {kind}"
        for kind in report.totals.by_type
    )
    text = Text("Spend report", style="bold")
    text.append(
        f"   {start} to {end} UTC ({(report.end_ns - report.start_ns) / NS:,.1f} s)", style="not bold"
    )
    text.append(f"\n{devices or 'no device'}", style="not bold")
    if report.sampled_share is not None:
        text.append(
            f", percentiles from {report.spans:,} spans ({100 * report.sampled_share:.3g} % of all calls)",
            style="not bold",
        )
    return text


def _spend_table(report: SpendReport, padding: tuple[int, int, int, int]) -> Table:
    priced = report.totals.currency is not None or any(row.cost is not None for row in report.rows)
    busy = any(row.busy_share is not None for row in report.rows)
    timed = report.spans is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)
    for field in report.by:
        table.add_column(field.replace("_", " "), overflow="fold", min_width=_LABEL_WIDTH)
    for name in ("calls", "errors", "charged\ns", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    if priced:
        table.add_column(f"cost\n{report.totals.currency or ''}".strip(), justify="right", no_wrap=True)
        table.add_column("per 1k\ncalls", justify="right", no_wrap=True)
    if timed:
        for name in ("wall\np50", "wall\np95", "device\np50", "device\np95"):
            table.add_column(name, justify="right", no_wrap=True)
    if busy:
        table.add_column("busy", justify="right", no_wrap=True)
    for row in _with_unnamed(report):
        cells = _cells(row, report, priced=priced, timed=timed, busy=busy)
        table.add_row(*cells, style="yellow" if row.unnamed else None)
    table.add_section()
    for label, seconds, share, cost in _remainder(report):
        blanks = [""] * (len(report.by) - 1)
        money = [_money(cost)] if priced else []
        counts = (
            [f"{report.totals.calls:,}", f"{report.totals.errors:,}"]
            if label.startswith("total")
            else ["", ""]
        )
        style = "bold" if label.startswith("total") else "dim"
        table.add_row(label, *blanks, *counts, _seconds(seconds), _share(share), *money, style=style)
    return table


def _with_unnamed(report: SpendReport) -> Sequence[Row]:
    """Return the rows, with one for unnamed work even if there is none: 0 is an answer."""
    from gputrace.analysis.figures import Row

    if report.by[0] != "feature" or any(row.unnamed for row in report.rows):
        return report.rows
    key = dict.fromkeys(report.by) | {"feature": catalogue.NO_FEATURE}
    return (*report.rows, Row(key=key, calls=0, errors=0, cancelled=0, charged_s=0.0, share=0.0))


def _cells(row: Row, report: SpendReport, *, priced: bool, timed: bool, busy: bool) -> Iterable[str | Text]:
    for field in report.by:
        # As text: a feature called "[red]" is a name, no markup.
        yield Text(row.key.get(field) or _ABSENT)
    yield _count(row.calls)
    yield _count(row.errors)
    yield _seconds(row.charged_s)
    yield _share(row.share)
    if priced:
        several = report.totals.currency is None and row.currency is not None
        yield f"{_money(row.cost)} {row.currency}" if several else _money(row.cost)
        yield _money(row.cost_per_1000_calls)
    if timed:
        times = row.percentiles
        for value in (times.wall_p50_s, times.wall_p95_s, times.device_p50_s, times.device_p95_s):
            yield duration(value)
    if busy:
        yield _share(row.busy_share)


def _remainder(report: SpendReport) -> Iterable[tuple[str, float, float | None, float | None]]:
    """Yield label, seconds, share and cost of what no feature was charged, and of the whole."""
    totals = report.totals
    for kind, times in totals.by_type.items():
        suffix = f" ({kind})" if len(totals.by_type) > 1 else ""
        costs = _line_costs(totals) if not suffix else {}
        if times.overlap_s:
            # Rows count this time once a process; without this line they would exceed the whole.
            yield f"counted twice{suffix}", -times.overlap_s, _part(-times.overlap_s, times), None
        for state in ("untracked", "idle", "unknown"):
            seconds = getattr(times, f"{state}_s")
            yield f"{state}{suffix}", seconds, _part(seconds, times), costs.get(state)
        whole = math.fsum(costs.values()) if costs else None
        yield f"total{suffix}", times.wall_s, _part(_accounted(times), times), whole


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


def _accounted(times: Times) -> float:
    return times.charged_s - times.overlap_s + times.untracked_s + times.idle_s + times.unknown_s


def _ledger_line(report: SpendReport) -> Text:
    books = report.balance
    sums = "; ".join(
        f"{_seconds(times.charged_s)} charged"
        + (f" - {_seconds(times.overlap_s)} counted twice" if times.overlap_s else "")
        + f" + {_seconds(times.untracked_s)} untracked + {_seconds(times.idle_s)} idle"
        f" + {_seconds(times.unknown_s)} unknown = {_seconds(_accounted(times))} s"
        f" of {_seconds(times.wall_s)} s wall ({kind})"
        for kind, times in report.totals.by_type.items()
    )
    if books.balanced:
        text = Text("The ledger balances: ", style="green")
    else:
        text = Text("THE LEDGER DOES NOT BALANCE: ", style="bold red")
    off = f"{books.imbalance_s:+.3g} s" if abs(books.imbalance_s) >= 1 / NS else "less than a nanosecond"
    text.append(f"{sums or 'no time'}; off by {off}", style="not bold default")
    text.append(f" (rounding allows {books.tolerance_s:.1g} s).", style="not bold default")
    return text


def _device_table(report: SpendReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=_WIDE)
    table.add_column("device", overflow="fold")
    table.add_column("type")
    for name in ("wall s", "charged", "untracked", "idle", "unknown"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in report.devices[:_LISTED_DEVICES]:
        times = (device.wall_s, device.charged_s, device.untracked_s, device.idle_s, device.unknown_s)
        table.add_row(Text(device.id), Text(device.type or _ABSENT), *map(_seconds, times))
    if len(report.devices) > _LISTED_DEVICES:
        table.add_row(f"… and {len(report.devices) - _LISTED_DEVICES} more (all of them with --json)")
    return table


def _part(seconds: float, times: Times) -> float | None:
    return seconds / times.wall_s if times.wall_s else None


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.3f}" if abs(value) < 10_000 else f"{value:,.0f}"  # noqa: PLR2004 - fits the column


def _share(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:.1%}"


def _money(value: float | None) -> str:
    if value is None:
        return _ABSENT
    return f"{value:,.4f}" if abs(value) < 100 else f"{value:,.2f}"  # noqa: PLR2004 - fits the column


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
