"""A CSV file as columns: numbers where a decision log has numbers, text as it is written everywhere else."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

from gputrace.analysis.payoff_log import ColumnError
from gputrace.analysis.survey import NoDataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import TextIO

    import duckdb
    import numpy.typing as npt

_FLAGS = frozenset({"escalated", "audited"})
_NUMBERS = frozenset(
    {
        "audit_propensity",
        "light_cost",
        "heavy_cost",
        "confidence",
        "threshold",
        "input_size",
        "light_quality",
        "heavy_quality",
        "label_propensity",
        "light_label_propensity",
        "heavy_label_propensity",
    }
)
_ABSENT = "('', 'nan', 'na', 'n/a', 'null', 'none')"
_WRONG = " is wrong"
_DELIMITERS = ",;\t|"


def read_csv(connection: duckdb.DuckDBPyConnection, path: Path, glob: str) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a file: types are those of a decision log, not guessed from what is in them.

    Args:
        connection: To read with.
        path: The file.
        glob: The same as a pattern that matches it alone.

    Raises:
        NoDataError: It is empty, or its header does not fit its rows.
        ColumnError: A number is none; the message names the column and the line.
        duckdb.Error: It is no CSV file.
    """
    with path.open("rb") as file:
        if not any(line.strip() for line in file):
            message = f"{path} is empty."
            raise NoDataError(message)
    relation = connection.read_csv(glob, header=True, all_varchar=True)
    _check_header(path, relation.columns)
    numbers = [name for name in relation.columns if name in _NUMBERS | _FLAGS]
    wanted = [_quoted(name) for name in relation.columns if name not in numbers]
    wanted += [part for name in numbers for part in _cast(name)]
    found = {name: plain(values) for name, values in relation.project(", ".join(wanted)).fetchnumpy().items()}
    for name in numbers:
        wrong = found.pop(name + _WRONG)
        if wrong.any():
            row = int(np.argmax(wrong))
            text = relation.project(_quoted(name)).limit(1, offset=row).fetchall()[0][0]
            what = "neither true nor false" if name in _FLAGS else "no number"
            message = f"column {name!r}, line {line_of(path, row)}: {text!r} is {what}"
            raise ColumnError(message)
    return found


def _check_header(path: Path, columns: Sequence[str]) -> None:
    """Refuse a header that names a column twice, or names fewer columns than a row has values.

    Raises:
        NoDataError: It does.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = _rows(file)
        header = next(rows)
        twice = sorted({name for name in header if name and header.count(name) > 1})
        if twice:
            message = f"{path}: the header names {', '.join(twice)} more than once."
            raise NoDataError(message)
        if set(header) <= set(columns):
            return
        for cells in rows:
            if len(cells) > len(header):
                message = (
                    f"{path}: line {rows.line_num} has {len(cells)} values, and the header names "
                    f"{len(header)} columns."
                )
                raise NoDataError(message)


def _rows(file: TextIO) -> Any:
    header = file.readline()
    file.seek(0)
    return csv.reader(file, delimiter=max(_DELIMITERS, key=header.count))


def _cast(name: str) -> tuple[str, str]:
    column = _quoted(name)
    number = f"TRY_CAST({column} AS DOUBLE)"
    if name in _FLAGS:
        number = f"coalesce({number}, TRY_CAST({column} AS BOOLEAN)::DOUBLE)"
    absent = f"coalesce(lower(trim({column})) IN {_ABSENT}, true)"
    return (
        f"CASE WHEN NOT {absent} THEN {number} END AS {column}",
        f"NOT {absent} AND {number} IS NULL AS {_quoted(name + _WRONG)}",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def line_of(path: Path, row: int) -> int:
    """Return the line of a file, from 1, on which a row begins: text in quotes may have lines of its own.

    Args:
        path: The file.
        row: From 0, without the header.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = _rows(file)
        begin, rows = 1, -2
        for cells in lines:
            rows += bool(cells)
            if rows == row:
                return begin
            begin = lines.line_num + 1
    return row + 2


def plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column with NaN, or `None` among texts, where there is no value.

    Args:
        values: The column as DuckDB gives it.
    """
    if not np.ma.isMaskedArray(values):
        return values
    if values.dtype.kind in "biuf":
        return values.astype(np.float64).filled(np.nan)  # type: ignore[attr-defined,no-any-return]
    # Not `filled(None)`, which fills with what NumPy has for "no value": a question mark.
    texts = np.array(values.data, dtype=object)
    texts[np.ma.getmaskarray(values)] = None
    return texts
