"""Holds what calls were charged against what the profiler saw of their kernels.

What a call should be charged is computed by the ledger's offline arithmetic from
the profiler's intervals alone, from the start of a call's first kernel to the end of
its last. For calls one after another that is this distance; for calls at once it is
their share of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_checks.kernels import work_of
from gputrace.ledger import Interval, charge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_checks.kernels import Kernel, Work

#: A charge may be off by this share of what it should be, or by so many ns, whichever is more.
ALLOWED_SHARE = 0.02
ALLOWED_NS = 20_000


@dataclass(frozen=True)
class Measured:
    """What gputrace says of one call.

    Attributes:
        charged_ns: What it was charged.
        held_ns: How long it held the device by itself, before sharing.
    """

    charged_ns: int
    held_ns: int


def allowed_ns(expected_ns: int) -> int:
    """Return by how much a charge may differ from what it should be."""
    return max(round(expected_ns * ALLOWED_SHARE), ALLOWED_NS)


def compare(
    measured: Mapping[str, Measured], kernels: Mapping[str, Sequence[Kernel]]
) -> list[dict[str, int | str | bool]]:
    """Compare the calls of one workload.

    Args:
        measured: What gputrace says, by operation.
        kernels: What the profiler says, by operation.

    Returns:
        For each call: ``operation``, ``kernels`` (their number), ``busy_ns``, ``gaps_ns``,
        ``span_ns``, ``held_ns``, ``charged_ns``, ``expected_ns``, ``error_ns``, ``allowed_ns``
        and whether that is ``kept``.

    Raises:
        ValueError: One of the two does not know a call of the other; names it.
    """
    for operation in {*measured, *kernels}:
        if operation not in measured:
            raise ValueError(f"gputrace settled no call {operation}: was it measured?")
        if not kernels.get(operation):
            raise ValueError(f"the profiler shows no kernel of {operation}: is it allowed to trace here?")
    work = {operation: work_of(found) for operation, found in kernels.items()}
    expected = charge(
        Interval(operation, operation, "gpu", one.start_ns, one.end_ns) for operation, one in work.items()
    ).calls
    return [_row(one, measured[one], work[one], expected[one]) for one in measured]


def _row(operation: str, call: Measured, work: Work, expected_ns: int) -> dict[str, int | str | bool]:
    error_ns, may_ns = call.charged_ns - expected_ns, allowed_ns(expected_ns)
    return {
        "operation": operation,
        "kernels": work.kernels,
        "busy_ns": work.busy_ns,
        "gaps_ns": work.gaps_ns,
        "span_ns": work.span_ns,
        "held_ns": call.held_ns,
        "charged_ns": call.charged_ns,
        "expected_ns": expected_ns,
        "error_ns": error_ns,
        "allowed_ns": may_ns,
        "kept": abs(error_ns) <= may_ns,
    }


def worst(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the call whose error is the largest part of what is allowed."""
    return max(rows, key=lambda row: abs(row["error_ns"]) / row["allowed_ns"])
