"""The sweep as a picture: one self-contained page, drawn as SVG, that asks no network and no script."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from gputrace.analysis.payoff_verdicts import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gputrace.analysis.payoff_figures import Estimate, SweepPoint
    from gputrace.analysis.payoff_reports import PayoffReport, Row

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 680, 190, 64, 16, 28, 34
_STEPS = 5
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --paper: #fff; --grid: #d9dee4;
  --saved: #1b6ca8; --lost: #b3541e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --paper: #15191d; --grid: #37404a;
    --saved: #6db3e8; --lost: #f0a070; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 720px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; display: block; } text { fill: var(--ink); font-size: 12px; }
.grid { stroke: var(--grid); } .zero { stroke: var(--ink); stroke-width: 1; }
.saved { stroke: var(--saved); fill: var(--saved); } .lost { stroke: var(--lost); fill: var(--lost); }
.line { fill: none; stroke-width: 2; } .band { stroke: none; opacity: .22; }
.now { stroke: var(--ink); stroke-dasharray: 5 4; } .sure { stroke: var(--ink); }
p.said { margin: .3rem 0; }
"""


def page(report: PayoffReport) -> str:
    """Return the page.

    Args:
        report: The numbers.
    """
    parts = "".join(_section(row) for row in report.rows)
    total = "" if report.total is None else f"<p><b>All together</b>: {escape(report.total_verdict)}.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Where escalation pays</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>Where escalation pays</h1>\n<p>{escape(report.source)}. "
        f"Bands hold for all thresholds at once ({report.asked.level:.0%}); gaps are thresholds that the log "
        "says nothing about. Dashed: the threshold in force. Solid: the guaranteed one, for a loss of at "
        f"most {100 * report.asked.target_loss:g} points.</p>{total}\n{parts}</body></html>\n"
    )


def _section(row: Row) -> str:
    name = name_of(row.feature, row.cascade)
    said = f'<h2>{escape(name)}</h2><p class="said">{escape(row.verdict)}.</p>'
    if row.advice is not None:
        said += f'<p class="said">{escape(row.advice.reason)}</p>'
    if len(row.sweep) < 2:  # noqa: PLR2004 - a line has two ends
        return f"<section>{said}</section>\n"
    saved = _panel(row, lambda point: point.savings_frac, "saved", "saved of always-heavy, %")
    lost = _panel(row, lambda point: point.quality_delta, "lost", "quality against always-heavy, points")
    return f"<section>{said}{saved}{lost}</section>\n"


def _panel(row: Row, of: Callable[[SweepPoint], Estimate], kind: str, title: str) -> str:
    points = sorted(row.sweep, key=lambda point: point.threshold)
    first, last = points[0].threshold, points[-1].threshold
    runs = list(_runs(points, of))
    ends = [100 * end for run in runs for _, estimate in run for end in _ends(estimate)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    low, high = (low - 1, high + 1) if high - low < 1e-9 else (low, high)  # noqa: PLR2004 - a flat line

    def across(threshold: float) -> float:
        return _LEFT + (threshold - first) / ((last - first) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    drawn = [
        f'<text x="{_LEFT}" y="16">{escape(title)}</text>',
        *_grid((low, high), (first, last), across, down),
    ]
    for run in runs:
        drawn += _drawn_run(run, kind, across, down)
    sure = None if row.advice is None else row.advice.guaranteed
    for threshold, mark in ((row.threshold, "now"), (sure, "sure")):
        if threshold is not None and first <= threshold <= last:
            at = f"{across(threshold):.1f}"
            drawn.append(f'<line class="{mark}" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
    label = escape(f"{title}, by threshold", quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(drawn)}</svg>\n'


def _ends(estimate: Estimate) -> list[float]:
    return [end for end in (estimate.low, estimate.value, estimate.high) if end is not None]


def _runs(
    points: Sequence[SweepPoint], of: Callable[[SweepPoint], Estimate]
) -> Iterable[list[tuple[float, Estimate]]]:
    """Yield stretches of neighbouring thresholds that the log says something about."""
    run: list[tuple[float, Estimate]] = []
    for point in points:
        estimate = of(point)
        if estimate.value is not None and point.supported:
            run.append((point.threshold, estimate))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _grid(
    values: tuple[float, float],
    thresholds: tuple[float, float],
    across: Callable[[float], float],
    down: Callable[[float], float],
) -> Iterable[str]:
    for value in _ticks(*values):
        at = down(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>'
    for threshold in _ticks(*thresholds):
        x = f"{across(threshold):.1f}"
        yield f'<text x="{x}" y="{_HEIGHT - 12}" text-anchor="middle">{threshold:g}</text>'
    zero = f"{down(0):.1f}"
    yield f'<line class="zero" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{zero}" y2="{zero}"/>'


def _ticks(low: float, high: float) -> Iterable[float]:
    """Yield about as many round numbers as an axis has room for."""
    span = (high - low) or 1.0
    unit = 10 ** math.floor(math.log10(span / _STEPS))
    step = next(times * unit for times in (1, 2, 5, 10) if times * unit >= span / _STEPS)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield round(number * step, 12)


def _drawn_run(
    run: Sequence[tuple[float, Estimate]],
    kind: str,
    across: Callable[[float], float],
    down: Callable[[float], float],
) -> Iterable[str]:
    def line(found: Iterable[tuple[float, float | None]]) -> str:
        return " ".join(
            f"{across(threshold):.1f},{down(100 * value):.1f}"
            for threshold, value in found
            if value is not None
        )

    above = line((threshold, estimate.high) for threshold, estimate in run)
    below = line((threshold, estimate.low) for threshold, estimate in reversed(run))
    if above:
        yield f'<polygon class="band {kind}" points="{above} {below}"/>'
    middle = line((threshold, estimate.value) for threshold, estimate in run)
    yield f'<polyline class="line {kind}" style="fill:none" points="{middle}"/>'
