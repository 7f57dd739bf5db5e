"""A pay-off report as text: reads well at 100 columns, in a pipe, and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from gputrace.analysis import formats
from gputrace.analysis.payoff_verdicts import left_out, name_of, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from gputrace.analysis.payoff_figures import Estimate
    from gputrace.analysis.payoff_provision import Provision
    from gputrace.analysis.payoff_reports import PayoffReport, Row
    from gputrace.analysis.payoff_truth import Compared

_PIPED_WIDTH = 100
_NO_LIMIT = 10_000
_DETAILED_ROWS = 6
_BASIS = (
    "Costs are what requests were charged: no idle time is in them. Replicas that are paid whether asked or "
    "not save less: --replicas and --replica-price."
)


def print_payoff(report: PayoffReport, console: Console, provision: Provision | None = None) -> None:
    """Print the whole report.

    Args:
        report: The numbers.
        console: Where to; one that is no terminal is at least 100 wide.
        provision: Replicas, where the reader gave their counts.
    """
    width = console.width
    table = _table(report)
    if not console.is_terminal:
        whole = console.measure(table, options=console.options.update(max_width=_NO_LIMIT))
        console.width = max(_PIPED_WIDTH, whole.maximum)
    try:
        console.print(Text("Where escalation pays", style="bold"), Text(f"   {report.source}"), end="")
        console.print(f"   intervals of {report.asked.level:.0%}", "", table, "", sep="\n")
        for row in report.rows:
            console.print(Text(f"{_name(row)}: ", style="bold").append(row.verdict, style="not bold"))
        if report.total is not None:
            text = Text("all together: ", style="bold").append(report.total_verdict, style="not bold")
            console.print(text)
        for row in report.rows:
            if row.excluded:
                console.print(Text(f"{_name(row)}: left out are {left_out(row.excluded)}"))
        if len(report.rows) <= _DETAILED_ROWS:
            for row in report.rows:
                console.print("", Text(_name(row), style="bold"), sep="\n")
                for line in _details(row, report.asked.target_loss):
                    console.print(Text(f"  {line}"))
        else:
            console.print(Text("--feature NAME shows thresholds and costs of one.", style="dim"))
        console.print()
        console.print(Text(_BASIS if provision is None else provision.in_words(), style="dim"))
        for note in report.notes:
            console.print(Text(f"note: {note}", style="dim"))
    finally:
        console.width = width


def _name(row: Row) -> str:
    return name_of(row.feature, row.cascade)


def _table(report: PayoffReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("feature", overflow="fold", min_width=7)
    table.add_column("cascade", overflow="fold")
    for title in ("requests", "escalated\n%", "breaks even\nat %", "saved\n%", "net of\naudits %"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("quality\npt", "audits"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in report.rows:
        cells = _cells(row.estimates, row.requests)
        table.add_row(Text(row.feature or formats.ABSENT), Text(row.cascade or formats.ABSENT), *cells)
    if report.total is not None:
        table.add_section()
        table.add_row("total", "", *_cells(report.total.estimates, report.total.requests), style="bold")
    return table


def _cells(found: Mapping[str, Estimate], requests: int) -> Iterable[str]:
    yield f"{requests:,}"
    yield _points(found["escalation_rate"])
    yield _points(found["break_even_mix"])
    yield _points(found["savings_frac"])
    yield _net(found)
    yield _points(found["quality_delta"])
    yield f"{found['audit_count'].value or 0:,.0f}"


def _points(estimate: Estimate) -> str:
    if estimate.value is None:
        return formats.ABSENT
    value = number(100 * estimate.value)
    if estimate.low is None or estimate.high is None:
        return value
    # Not ±: near 0 and 100 an interval is not as wide both ways.
    return f"{value}\n{number(100 * estimate.low)} to {number(100 * estimate.high)}"


def _net(found: Mapping[str, Estimate]) -> str:
    net, whole = found["savings_net_abs"].value, found["always_heavy_cost"].value
    return formats.ABSENT if net is None or not whole else number(100 * net / whole)


def _details(row: Row, target_loss: float) -> Iterable[str]:
    found = row.estimates
    unit = f" {row.unit}" if row.unit else ""
    yield (
        f"a request costs {_cost(found['cascade_cost'], unit)}, always-heavy would "
        f"{_cost(found['always_heavy_cost'], unit)}; an escalated one's heavy stage "
        f"{_cost(found['heavy_cost_escalated'], unit)}"
    )
    wasted = _cost(found["wasted_light_cost"], unit)
    yield f"wasted light runs: {wasted} a request{_share(row, 'wasted_light_cost')}"
    yield (
        f"audit tax: {_cost(found['audit_tax'], unit)} a request{_share(row, 'audit_tax')}, "
        f"for {found['audit_count'].value or 0:,.0f} audits; in no other number"
    )
    if row.top_request_share is not None:
        yield f"the dearest request is {row.top_request_share:.1%} of what the cascade cost"
    retained = found["quality_retention"]
    if retained.value is not None:
        yield f"retains {percent(retained.value)} of always-heavy's quality ({retained.method})"
    yield from _thresholds(row, target_loss)
    if row.signal is not None:
        yield from _signal(row)
    yield from row.notes


def _cost(estimate: Estimate, unit: str) -> str:
    return "an unknown amount" if estimate.value is None else f"{formats.unit_cost(estimate.value)}{unit}"


def _share(row: Row, name: str) -> str:
    part, whole = row.estimates[name].value, row.estimates["cascade_cost"].value
    return f" ({formats.share(part / whole)} of what the cascade costs)" if part is not None and whole else ""


def _thresholds(row: Row, target_loss: float) -> Iterable[str]:
    if row.advice is None:
        return
    now = "none" if row.threshold is None else f"{row.threshold:.4g}"
    if row.several_thresholds:
        now = f"several, {now} last,"
    sure = "none" if row.advice.guaranteed is None else f"{row.advice.guaranteed:.4g}"
    best = "none" if row.advice.point is None else f"{row.advice.point:.4g}"
    yield (
        f"threshold: {now} in force; cheapest for a loss of at most {number(100 * target_loss)} pt: {sure} "
        f"(guaranteed), {best} (not guaranteed)"
    )
    yield row.advice.reason


def _signal(row: Row) -> Iterable[str]:
    signal = row.signal
    if signal is None:
        return
    if signal.slope is not None and signal.low is not None and signal.high is not None:
        yield (
            f"confidence: calibration slope {signal.slope:.2f} ({signal.low:.2f} to "
            f"{signal.high:.2f}; 1 is calibrated)"
            + ("" if signal.audc is None else f", deferral curve {signal.audc:.2f} (0 chance, 1 perfect)")
        )
    if signal.warning is not None:
        yield f"warning: {signal.warning}"


def print_truth(compared: Sequence[Compared], console: Console) -> None:
    """Print what is known to be true beside the intervals.

    Args:
        compared: The numbers.
        console: Where to.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("estimate")
    for title in ("value", "low", "high", "truth"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("covered")
    for one in compared:
        numbers = (formats.ABSENT if cell is None else f"{cell:.4g}" for cell in one[1:5])
        covered = formats.ABSENT if one.inside is None else "yes" if one.inside else "no"
        table.add_row(one.name, *numbers, covered)
    console.print("", table, sep="\n")
