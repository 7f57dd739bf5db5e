"""What a decision log says against itself, so that its numbers are not what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gputrace.analysis import payoff_log
from gputrace.analysis.payoff_log import ColumnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


def refuse_forgotten_audits(columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse a log that has audits, and no column that says which they are.

    Args:
        columns: The log.

    Raises:
        ColumnError: `audited` is missing, although kept requests have a heavy cost and a propensity.
    """
    if "audited" in columns or "audit_propensity" not in columns:
        return
    kept = payoff_log.read(columns).kept
    known = [_numbers(columns, name) > 0 for name in ("heavy_cost", "audit_propensity")]
    count = int((kept & known[0] & known[1]).sum())
    if count:
        message = (
            f"column 'audited' is missing: {count:,} kept requests have a heavy_cost and an "
            "audit_propensity: say with 1 or 0 which were audited"
        )
        raise ColumnError(message)


def remarks(columns: Mapping[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    """Return what contradicts itself, a sentence each.

    Args:
        columns: The log.
    """
    log = payoff_log.read(columns)
    found = []
    unused = int((log.kept & ~log.audited & ~np.isnan(_numbers(columns, "heavy_cost"))).sum())
    if unused:
        found.append(f"{unused:,} kept requests have a heavy_cost, but were not audited: it is not used.")
    told = ~(np.isnan(log.confidence) | np.isnan(log.threshold))
    against = int((told & ((log.confidence < log.threshold) != log.escalated)).sum())
    if against > int(told.sum()) / 2:
        found.append(
            f"{against:,} of {int(told.sum()):,} requests were escalated at a confidence above the "
            "threshold, or kept below: if a lower confidence is the surer one, negate both columns."
        )
    return tuple(found)


def _numbers(columns: Mapping[str, npt.NDArray[Any]], name: str) -> payoff_log.Floats:
    return np.asarray(columns[name]).astype(np.float64)
