"""Numbers of a report as text."""

from __future__ import annotations

import math

from gputrace.analysis.energy import JOULES_OF

ABSENT = "–"
_DECIMALS = 12
_LEAST_WRITTEN_OUT = 1e-9
_MOST_WRITTEN_OUT = 1e15


def duration(seconds: float | None) -> str:
    """Return a time with three digits and the unit that suits it."""
    if seconds is None:
        return ABSENT
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9995 or unit == "µs":
            value = seconds / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004 - three digits each
            return f"{value:,.{digits}f}{unit}"
    raise AssertionError


def tiny(seconds: float) -> str:
    """Return a time with three digits, down to nanoseconds and parts of them."""
    if seconds >= 1e-6:  # noqa: PLR2004 - a microsecond
        return duration(seconds)
    return f"{seconds * 1e9:.3g}ns"


def seconds(value: float | None) -> str:
    """Return seconds to the millisecond; nothing where they are in another row."""
    if value is None:
        return ""
    return f"{value:,.3f}" if abs(value) < 10_000 else f"{value:,.0f}"  # noqa: PLR2004 - fits the column


def share(value: float | None) -> str:
    """Return a part, 0 to 1, in per cent."""
    if value is None:
        return ABSENT
    return f"{value:.1%}" if abs(value) < _MOST_WRITTEN_OUT else f"{100 * value:.2e}%"


def money(value: float | None) -> str:
    """Return a small number with four decimals, a large one with two."""
    if value is None:
        return ABSENT
    return f"{value:,.4f}" if abs(value) < 100 else f"{value:,.2f}"  # noqa: PLR2004 - fits the column


def unit_cost(value: float | None) -> str:
    """Return what one of something costs with three digits, however little that is."""
    if not value:
        return ABSENT if value is None else "0"
    if not _LEAST_WRITTEN_OUT <= abs(value) < _MOST_WRITTEN_OUT:
        return f"{value:.2e}"
    decimals = max(0, min(_DECIMALS, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:,.{decimals}f}"


def amount(value: float) -> str:
    """Return how many there are of something that need not be whole."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3f}"


def count(value: int | None) -> str:
    """Return a whole number; nothing where it is in another row."""
    return "" if value is None else f"{value:,}"


def joules_in(unit: str, joules: float | None) -> str:
    """Return joules in `Wh` or `kWh`."""
    return ABSENT if joules is None else money(joules / JOULES_OF[unit])
