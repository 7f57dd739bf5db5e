"""Runs the workloads under the profiler and the settler's own thread, and compares."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpu_checks import workloads
from gpu_checks.comparison import Measured, compare
from gputrace.ledger import SCALE
from gputrace.testing import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_checks.machine import Machine
    from gpu_checks.workloads import Workload
    from gputrace.testing import RecordedCall

_SETTLE_S = 30.0


@contextmanager
def recording(machine: Machine) -> Iterator[Recorder]:
    """Record tracked calls within a block, while a settler of its own polls as in a service."""
    with Recorder(clock=machine.clock) as recorder:
        recorder.settler.start()
        try:
            yield recorder
        finally:
            recorder.settler.stop()


def settled(machine: Machine, recorder: Recorder) -> list[RecordedCall]:
    """Wait until all calls are settled, and return them.

    Raises:
        RuntimeError: Some are not.
    """
    machine.synchronize()
    if not recorder.settler.flush(time.monotonic() + _SETTLE_S):
        raise RuntimeError(f"calls were not settled within {_SETTLE_S:.0f} s although the device has run dry")
    return recorder.settled()


def conservation(recorder: Recorder) -> dict[str, Any]:
    """Tell whether what was charged is what was held, to the last unit of the ledger.

    Returns:
        What the calls, the counters by feature and the devices say, in ns, and whether the three
        are ``exact`` in the ledger's units and each device's states sum to its wall time.
    """
    settler = recorder.settler
    by_call = sum(call.charged for call in recorder.settled())
    by_feature = sum(settler.totals.time.values())
    states = [account.states_ns() for account in settler.accounts.values()]
    held_ns = sum(state["charged"] for state in states)
    walls = [
        account.frontier_ns - account.begins_ns == sum(state.values())
        for account, state in zip(settler.accounts.values(), states, strict=True)
    ]
    return {
        "calls_ns": by_call / SCALE,
        "features_ns": by_feature / SCALE,
        "held_ns": held_ns,
        "exact": by_call == by_feature == held_ns * SCALE and all(walls),
    }


def check(machine: Machine, chosen: Sequence[Workload] = workloads.WORKLOADS) -> dict[str, Any]:
    """Run the workloads and compare each of their calls.

    One profile for all: before CUDA 13.1u1 a second one mixes up the kernels of graphs.

    Returns:
        ``workloads``, each with its ``calls``; ``conservation``; ``unmeasured`` calls by reason.
    """
    workloads.warm_up(machine)
    with recording(machine) as recorder:
        operations: dict[str, list[str]] = {}
        with machine.profiled() as kernels:
            for workload in chosen:
                operations[workload.key] = workload.run(machine, workload.key, workload.calls)
                machine.synchronize()
        calls = {
            call.operation: Measured(call.charged_ns, call.held_ns) for call in settled(machine, recorder)
        }
        return {
            "workloads": [
                _compared(workload, operations[workload.key], calls, kernels) for workload in chosen
            ],
            "conservation": conservation(recorder),
            "unmeasured": unmeasured(recorder),
        }


def _compared(workload: Workload, operations: list[str], calls: Any, kernels: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"key": workload.key, "title": workload.title, "judged": workload.judged}
    measured = {operation: calls[operation] for operation in operations if operation in calls}
    try:
        rows = compare(measured, {operation: kernels.get(operation, []) for operation in operations})
    except ValueError as error:
        # The other workloads still say what they have to.
        return {**shown, "calls": [], "error": str(error)}
    return {**shown, "calls": rows, "error": None}


def unmeasured(recorder: Recorder) -> dict[str, int]:
    """Return the calls that could not be timed, by reason."""
    return {next(iter(reason.values())): count for reason, count in recorder.snapshot().unmeasured}
