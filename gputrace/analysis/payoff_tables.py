"""A decision log in a CSV or Parquet file, by feature and cascade."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from gputrace.analysis import payoff_log
from gputrace.analysis.payoff_cascades import Decisions
from gputrace.analysis.payoff_contradictions import refuse_forgotten_audits, remarks
from gputrace.analysis.payoff_csv import line_of, plain, read_csv
from gputrace.analysis.survey import NoDataError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

_PARQUET = ".parquet"
SUFFIXES = (".csv", _PARQUET, ".tsv")

_GROUPS = ("feature", "cascade")
_MOST = 1e50
_LEAST_CHANCE = 1e-20
_CHANCES = {
    "propensity": "audit_propensity",
    "light_grading": "light_label_propensity",
    "heavy_grading": "heavy_label_propensity",
}
_COUNTED = ("light_cost", "heavy_cost", "light_quality", "heavy_quality")
_NEEDED = ("escalated", "light_cost", "heavy_cost")


def read_table(path: Path) -> list[Decisions]:
    """Read a table with the columns of `payoff.estimate`, and `feature` and `cascade` if it has them.

    Args:
        path: The file.

    Raises:
        NoDataError: It cannot be read, lacks a column, or is empty.
        ColumnError: A value cannot be used.
    """
    table = _read(path)
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        message = f"{path}: no column {', '.join(missing)}; it has {', '.join(table)}."
        raise NoDataError(message)
    size = len(table["escalated"])
    if not size:
        message = f"{path} has no row."
        raise NoDataError(message)
    keys = [_texts(table.pop(name, None), size) for name in _GROUPS]
    unit = table.pop("cost_unit", None)
    units = sorted(set(_texts(unit, size))) if unit is not None else [""]
    if len(units) > 1:
        message = f"{path}: costs in several units, which cannot be compared: {', '.join(units)}."
        raise NoDataError(message)
    # Before it is taken apart, so that a row in a message is one of the file.
    _check(path, table)
    refuse_forgotten_audits(table)
    pairs = list(zip(*keys, strict=True))
    found = []
    for key in sorted(set(pairs)):
        chosen = np.array([pair == key for pair in pairs])
        columns = {name: values[chosen] for name, values in table.items()}
        found.append(Decisions(key[0], key[1], columns, units[0], {}, remarks=remarks(columns)))
    return found


def _check(path: Path, table: dict[str, npt.NDArray[Any]]) -> None:
    try:
        _reckonable(payoff_log.read(table))
    except payoff_log.ColumnError as error:
        if error.row is None or path.suffix.lower() == _PARQUET:
            raise
        row, line = f", row {error.row}:", f", line {line_of(path, error.row)}:"
        raise payoff_log.ColumnError(str(error).replace(row, line, 1)) from None


def _reckonable(log: payoff_log.Log) -> None:
    """Refuse numbers whose squares and cubes a float does not hold.

    Raises:
        ColumnError: There is one; the message names the column and the row.
    """
    for one in fields(log):
        size = np.abs(np.asarray(getattr(log, one.name), dtype=np.float64))
        least = _LEAST_CHANCE if one.name in _CHANCES else 1 / _MOST if one.name in _COUNTED else 0
        for wrong, what in ((size > _MOST, "large"), ((size > 0) & (size < least), "small")):
            if wrong.any():
                row = int(np.argmax(wrong))
                value = getattr(log, one.name)[row]
                name = _CHANCES.get(one.name, one.name)
                message = (
                    f"column {name!r}, row {row}: {value:.3g} is too {what} to reckon with; use another unit"
                )
                raise payoff_log.ColumnError(message, row)


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    # A report never goes to the network.
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    try:
        if path.suffix.lower() == _PARQUET:
            relation = connection.read_parquet(_literal(path))
            return {name: plain(values) for name, values in relation.fetchnumpy().items()}
        return read_csv(connection, path, _literal(path))
    except duckdb.Error as error:
        lines = str(error).splitlines()
        foreign = any("not utf-8" in line for line in lines)
        message = f"{path} cannot be read: {'it is not UTF-8' if foreign else lines[0]}"
        raise NoDataError(message) from error
    finally:
        connection.close()


def _literal(path: Path) -> str:
    # DuckDB takes every path for a glob.
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in str(path))


def _texts(values: npt.NDArray[Any] | None, size: int) -> list[str]:
    if values is None:
        return [""] * size
    return ["" if value is None or value != value else str(value) for value in values]  # noqa: PLR0124 - NaN
