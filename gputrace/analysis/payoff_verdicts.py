"""What the estimates of one cascade say, in one sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.analysis.payoff_figures import Estimate

# Of an interval of 95 %: beyond it the sign is right with a probability of nine in ten.
_PROBABLE = 1.2816 / 1.96
# An interval whose sides differ by less of its width is as good as one with two equal sides.
_NEARLY = 0.1
_MOST_AUDITS = 1_000_000
_MOST_WRITTEN_OUT = 1e6


def verdict(found: Mapping[str, Estimate], target_loss: float | None = None) -> str:
    """Return whether escalation pays.

    Args:
        found: Estimates by name.
        target_loss: Quality that may be lost, in the unit of the grades; `None` where nobody said.
    """
    saved = found["savings_frac"]
    if saved.value is None:
        return f"cannot tell yet: {_missing(saved)}"
    if saved.low is None or saved.high is None:
        return f"cannot tell yet: saves {percent(saved.value)} so far, {_missing(saved)}"
    if (found["escalation_rate"].value or 0.0) >= 1:
        return f"loses money: {percent(saved.value)}, since every request is escalated after its light run"
    half = (saved.high - saved.low) / 2
    said = f"{percent(saved.value)}{_bounds(saved)}"
    if saved.low <= 0 <= saved.high and abs(saved.value) <= _PROBABLE * half:
        return f"cannot tell yet: saves {said}{_more_audits(found, half)}"
    what = f"pays: saves {said}" if saved.value > 0 else f"loses money: {said}"
    sure = "probably " if saved.low <= 0 <= saved.high else ""
    return f"{sure}{what}{_quality(found, target_loss)}"


def name_of(feature: str, cascade: str) -> str:
    """Return what a row is called."""
    return " / ".join(part for part in (feature, cascade) if part) or "all requests"


def left_out(excluded: Mapping[str, int]) -> str:
    """Return which requests no estimate rests on, by reason."""
    return ", ".join(f"{count:,} ({reason.replace('_', ' ')})" for reason, count in sorted(excluded.items()))


def percent(value: float) -> str:
    """Return a share in per cent, with the digits that it is worth."""
    return f"{number(100 * value)} %"


def number(value: float) -> str:
    """Return a number with one decimal below ten and none above, with a true minus sign."""
    if abs(value) >= _MOST_WRITTEN_OUT:
        text = f"{abs(value):.2g}"
    else:
        text = f"{abs(value):.1f}" if abs(value) < 9.95 else f"{abs(value):.0f}"  # noqa: PLR2004 - two digits
    return f"−{text}" if value < 0 and float(text) else text


def _bounds(estimate: Estimate, sense: str = "") -> str:
    """Return how sure a share is, in points: both ways, or from where to where if these differ."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return ""
    up, down = estimate.high - estimate.value, estimate.value - estimate.low
    if abs(up - down) <= _NEARLY * (up + down):
        return f" ± {number(50 * (up + down))}"
    return f" ({number(100 * estimate.low)} to {number(100 * estimate.high)}{sense})"


def _missing(estimate: Estimate) -> str:
    if estimate.needs is None:
        return estimate.reason or "unknown"
    what = "graded audits" if "graded" in (estimate.reason or "") else "audits"
    return f"needs {estimate.needs:,} more {what}"


def _more_audits(found: Mapping[str, Estimate], half: float) -> str:
    value, audits = found["savings_frac"].value or 0.0, found["audit_count"].value or 0.0
    needed = audits * ((half / abs(value)) ** 2 - 1) if value else math.inf
    if not audits or needed > _MOST_AUDITS:
        return ", which may be nothing"
    return f", needs about {math.ceil(needed):,} more audits"


def _quality(found: Mapping[str, Estimate], target_loss: float | None) -> str:
    """Return the half of the sentence that speaks of quality."""
    delta = found["quality_delta"]
    if delta.value is None:
        return f"; quality unknown: {_missing(delta)}"
    points = number(100 * abs(delta.value))
    way = "loses" if delta.value < 0 else "gains"
    if delta.low is None or delta.high is None:
        return f"; {way} {points} pt so far, {_missing(delta)}"
    allowed = "" if target_loss is None else f"the {number(100 * target_loss)} pt allowed"
    may = target_loss is not None and delta.low < -target_loss
    more = f"; a loss above {allowed} is not ruled out" if may else ""
    bounds = _bounds(delta, ", below 0 is a loss")
    if not float(points):
        return f", quality as always-heavy's{bounds} pt{more}"
    said = f"{points} pt{bounds}"
    if delta.low > 0:
        return f", and is better than always-heavy by {said}"
    if target_loss is not None and delta.high < -target_loss:
        return f", but loses {said}, more than {allowed}"
    return f", {way} {said}{more}"
