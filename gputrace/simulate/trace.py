"""Reads a trace: when requests arrived somewhere, and how large they were."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from gputrace.simulate.plan import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIME, READ, WRITTEN = "t_s", "input_tokens", "output_tokens"
_COLUMNS = (TIME, READ, WRITTEN)
#: Longer ones are no traces: such numbers are times of a calendar, say.
_LONGEST_S = 366 * 86_400
_MOST_TOKENS = 10_000_000

Row = tuple[float, int, int]


def read(path: Path) -> list[Row]:
    """Return when each request arrives, s, what it reads and what it writes, tokens; by time.

    Args:
        path: CSV with ``t_s``, ``input_tokens`` and ``output_tokens``.

    Raises:
        PlanError: It cannot be used; names the file, the line, the column and what is wrong.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path, csv.DictReader(file)))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{path}: a trace is a CSV file in UTF-8, and this is none ({error.reason})"
        ) from error
    except csv.Error as error:
        raise PlanError(f"{path}: a trace is a CSV file, and this is none ({error})") from error
    if not rows:
        raise PlanError(f"{path}: there is no request in it")
    if not any(row[1] or row[2] for row in rows):
        raise PlanError(f"{path}, columns {READ} and {WRITTEN}: no request of it has a token")
    return sorted(rows)


def _rows(path: Path, lines: csv.DictReader[str]) -> Iterator[Row]:
    missing = [column for column in _COLUMNS if column not in (lines.fieldnames or _COLUMNS)]
    if missing:
        raise PlanError(
            f"{path}, line 1: there is no column {missing[0]}; a trace is a CSV file with the columns "
            f"{', '.join(_COLUMNS)} and numbers below them"
        )
    for line in lines:
        where = f"{path}, line {lines.line_num}"
        at_s = _number(where, TIME, line, float, _LONGEST_S)
        read_, written = (_number(where, column, line, int, _MOST_TOKENS) for column in (READ, WRITTEN))
        yield at_s, int(read_), int(written)


def _number(where: str, column: str, line: dict[str, Any], kind: type[float | int], most: int) -> float:
    """Return a number of a line.

    Raises:
        PlanError: It is none, or none that can be.
    """
    text = line[column]
    try:
        number = kind(text)
    except (TypeError, ValueError) as error:
        what = "missing" if text is None else f"{text[:40]!r}, and no {'whole ' * (kind is int)}number"
        raise PlanError(f"{where}, column {column}: it is {what}") from error
    if not 0 <= number <= most:
        since = ", s since the trace began" if kind is float else ""
        raise PlanError(f"{where}, column {column}: {text[:40]} is not from 0 to {most}{since}")
    return number
