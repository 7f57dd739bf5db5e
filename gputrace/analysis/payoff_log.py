"""A decision log as arrays: checked once, so that the estimators need not look again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_REQUIRED = ("escalated", "light_cost", "heavy_cost")


class ColumnError(ValueError):
    """A column of the log cannot be used; the message names it, and the row.

    Args:
        message: What is wrong.
        row: Where, from 0, if it is one row.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, slots=True)
class Log:
    """What was decided, spent and graded, one element a request.

    Attributes:
        escalated: The heavy model answered.
        audited: The light model answered, and the heavy one ran in the shadow.
        propensity: How likely a kept request was to be audited; 1 where escalated, NaN where unknown.
        light_cost: Cost of the light stage.
        heavy_cost: Cost of the heavy stage; NaN where it did not run.
        confidence: What was compared with the threshold; NaN where there was none.
        threshold: The threshold in force; NaN where there was none.
        input_size: Size of the input; NaN where unknown.
        light_quality: Grade of the light answer; NaN where not graded.
        heavy_quality: Grade of the heavy answer; NaN where not graded, or never made.
        light_grading: Probability with which the light answer was to be graded.
        heavy_grading: The same of the heavy answer, given that it was made.
    """

    escalated: Flags
    audited: Flags
    propensity: Floats
    light_cost: Floats
    heavy_cost: Floats
    confidence: Floats
    threshold: Floats
    input_size: Floats
    light_quality: Floats
    heavy_quality: Floats
    light_grading: Floats
    heavy_grading: Floats

    @property
    def size(self) -> int:
        """Number of requests."""
        return len(self.escalated)

    @property
    def kept(self) -> Flags:
        """The light model answered, audited or not."""
        return ~self.escalated

    @property
    def audits(self) -> int:
        """Number of audits."""
        return int(self.audited.sum())

    @property
    def unreachable(self) -> int:
        """Number of kept requests that no audit could have drawn."""
        return int((self.kept & (self.propensity == 0)).sum())

    @property
    def audit_weight(self) -> Floats:
        """How many kept requests each audited one stands for; 0 elsewhere."""
        return np.where(self.audited, 1 / np.where(self.audited, self.propensity, 1), 0)


def read(columns: Mapping[str, Any]) -> Log:
    """Check the columns of a log.

    Args:
        columns: Arrays by name, one element a request; see `payoff.estimate`.

    Raises:
        ColumnError: One is missing, has another length, or holds what it cannot hold.
    """
    arrays = _arrays(columns)
    size = len(arrays["escalated"])
    escalated, audited = _flags(arrays, "escalated", size), _flags(arrays, "audited", size)
    _refuse(escalated & audited, "audited", "the request was escalated: only a kept one is audited")
    heavy_ran = escalated | audited
    light_cost = _costs(arrays, "light_cost", np.full(size, fill_value=True))
    heavy_cost = _costs(arrays, "heavy_cost", heavy_ran)
    both = arrays.get("label_propensity")
    light_quality = _grades(arrays, "light_quality", size)
    heavy_quality = np.where(heavy_ran, _grades(arrays, "heavy_quality", size), np.nan)
    return Log(
        escalated=escalated,
        audited=audited,
        propensity=_propensity(arrays, escalated, audited),
        light_cost=light_cost,
        heavy_cost=heavy_cost,
        confidence=_numbers(arrays, "confidence", size),
        threshold=_numbers(arrays, "threshold", size),
        input_size=_numbers(arrays, "input_size", size),
        light_quality=light_quality,
        heavy_quality=heavy_quality,
        light_grading=_grading(arrays, "light_label_propensity", both, light_quality),
        heavy_grading=_grading(arrays, "heavy_label_propensity", both, heavy_quality),
    )


def need(log: Log, name: str) -> Floats:
    """Return a column that must be known on every row.

    Raises:
        ColumnError: It is not.
    """
    found: Floats = getattr(log, name)
    _refuse(np.isnan(found), name, "there is none, and it is needed on every row")
    return found


def _arrays(columns: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    for name in _REQUIRED:
        if columns.get(name) is None:
            message = f"column {name!r} is missing; a log needs {', '.join(_REQUIRED)}"
            raise ColumnError(message)
    arrays = {name: np.asarray(values) for name, values in columns.items() if values is not None}
    size = arrays["escalated"].shape[:1]
    for name, values in arrays.items():
        if values.ndim != 1:
            message = f"column {name!r} has {values.ndim} dimensions; give one value a request"
            raise ColumnError(message)
        if values.shape != size:
            row = min(len(values), len(arrays["escalated"]))
            message = (
                f"column {name!r}, row {row}: there are {len(values)} rows, and 'escalated' has "
                f"{len(arrays['escalated'])}"
            )
            raise ColumnError(message)
    if size == (0,):
        message = "column 'escalated' is empty: there is no request to estimate from"
        raise ColumnError(message)
    return arrays


def _numbers(arrays: Mapping[str, npt.NDArray[Any]], name: str, size: int) -> Floats:
    if name not in arrays:
        return np.full(size, np.nan)
    values = arrays[name]
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        row = next(row for row, value in enumerate(values) if not _is_number(value))
        message = f"column {name!r}, row {row}: {str(values[row])!r} is no number"
        raise ColumnError(message, row) from None
    _refuse(np.isinf(numbers), name, "it is infinite")
    return numbers


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _flags(arrays: Mapping[str, npt.NDArray[Any]], name: str, size: int) -> Flags:
    if name not in arrays:
        return np.zeros(size, dtype=np.bool_)
    numbers = _numbers(arrays, name, size)
    _refuse(~np.isin(numbers, (0, 1)), name, "it must be true or false")
    flags: Flags = numbers == 1
    return flags


def _costs(arrays: Mapping[str, npt.NDArray[Any]], name: str, needed: Flags) -> Floats:
    costs = _numbers(arrays, name, len(needed))
    _refuse(
        needed & np.isnan(costs), name, "the stage ran, and has no cost; leave the request out, and count it"
    )
    _refuse(costs < 0, name, "it is negative")
    # What production cannot have seen is never used, even where a table knows it.
    return np.where(needed, costs, np.nan)


def _grades(arrays: Mapping[str, npt.NDArray[Any]], name: str, size: int) -> Floats:
    return _numbers(arrays, name, size)


def _propensity(arrays: Mapping[str, npt.NDArray[Any]], escalated: Flags, audited: Flags) -> Floats:
    name = "audit_propensity"
    values = _numbers(arrays, name, len(escalated))
    _refuse((values < 0) | (values > 1), name, "it must lie between 0 and 1")
    _refuse(
        audited & ~(values > 0),
        name,
        "an audited request needs the probability with which it was drawn, above 0",
    )
    return np.where(escalated, 1.0, values)


def _grading(
    arrays: Mapping[str, npt.NDArray[Any]], name: str, both: npt.NDArray[Any] | None, grades: Floats
) -> Floats:
    name = name if name in arrays or both is None else "label_propensity"
    values = _numbers(arrays, name, len(grades)) if name in arrays else np.ones(len(grades))
    _refuse((values < 0) | (values > 1), name, "it must lie between 0 and 1")
    graded = ~np.isnan(grades)
    _refuse(graded & (values == 0), name, "the answer was graded, so the probability cannot be 0")
    _refuse(graded & np.isnan(values), name, "a graded answer needs the probability with which it was")
    return values


def _refuse(wrong: Flags, name: str, why: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        message = f"column {name!r}, row {row}: {why}"
        raise ColumnError(message, row)
