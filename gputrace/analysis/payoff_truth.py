"""What is known to be true beside what was estimated: for demonstrations and tests, where both are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from gputrace.analysis.survey import NoDataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gputrace.analysis.payoff_reports import PayoffReport

_SECTION = "escalation"


class Compared(NamedTuple):
    """One number, estimated and known.

    Attributes:
        name: What it is.
        value: The estimate; `None` where the log could not tell.
        low: Its lower bound.
        high: Its upper bound.
        truth: What it is known to be.
        inside: Whether the truth lies between the bounds; `None` without bounds.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    truth: float
    inside: bool | None


def read_truth(path: Path) -> dict[str, float]:
    """Read numbers by name from a JSON object, or from its member `escalation`.

    Args:
        path: The file.

    Raises:
        NoDataError: It cannot be read, or holds no such numbers.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read as JSON: {error}"
        raise NoDataError(message) from error
    if isinstance(found, dict):
        found = found.get(_SECTION, found)
    numbers = {name: value for name, value in _items(found) if isinstance(value, (int, float))}
    if not numbers:
        message = f"{path} holds no number by name, such as savings_frac."
        raise NoDataError(message)
    return numbers


def _items(found: object) -> list[tuple[str, object]]:
    return list(found.items()) if isinstance(found, dict) else []


def compare(report: PayoffReport, truth: Mapping[str, float]) -> list[Compared]:
    """Return what is known beside what the report's only row says.

    Args:
        report: Of one feature and cascade.
        truth: What is known, by name.

    Raises:
        NoDataError: The report has several rows, and the truth does not say which it is of; or the truth has
            no number that is estimated.
    """
    if len(report.rows) > 1:
        names = ", ".join(sorted({row.feature for row in report.rows}))
        message = f"{report.source} has several features ({names}), and the truth is of one: give --feature."
        raise NoDataError(message)
    compared = []
    for name, known in truth.items():
        found = report.rows[0].estimates.get(name)
        if found is None:
            continue
        bounded = found.low is not None and found.high is not None
        inside = found.low <= known <= found.high if bounded else None  # type: ignore[operator]
        compared.append(Compared(name, found.value, found.low, found.high, float(known), inside))
    if not compared:
        message = (
            f"no number of the truth is an estimate ({', '.join(truth)}): name one such as savings_frac."
        )
        raise NoDataError(message)
    return compared
