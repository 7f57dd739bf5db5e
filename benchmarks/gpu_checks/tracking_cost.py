"""What tracking costs the thread that launches, and the device, without ever waiting for it."""

from __future__ import annotations

import gc
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import gputrace
from gpu_checks.charging import recording, settled, unmeasured
from gpu_checks.synchronisations import Synchronisations
from gpu_checks.workloads import FEATURE, MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from gpu_checks.machine import Machine

#: Length of the work of one call, ns: calls in a loop, loops. All of a loop fits into a launch queue.
SIZES = {100_000: (200, 9), MS: (150, 5), 10 * MS: (40, 3)}
#: Beyond the two event records, a call on the user's thread may cost so much, µs.
BUDGET_US = 4.0


class Loop(NamedTuple):
    """One loop of calls.

    Attributes:
        host_us: CPU time of this thread for one call.
        wall_us: Time for one call until the device has done them all.
    """

    host_us: float
    wall_us: float


def check(machine: Machine, sizes: dict[int, tuple[int, int]] | None = None) -> dict[str, Any]:
    """Measure calls of several lengths.

    Returns:
        ``rows``, one a length, and ``synchronisations``: what waited for a device meanwhile.
    """
    rows = []
    called: list[str] = []
    left_out: dict[str, int] = {}
    for work_ns, (calls, loops) in (SIZES if sizes is None else sizes).items():
        row, waited, missing = _measure(machine, work_ns, calls, loops)
        rows.append(row)
        called += waited
        left_out |= missing
    return {"rows": rows, "synchronisations": called, "unmeasured": left_out}


def row(work_ns: int, plain: list[Loop], records: list[Loop], tracked: list[Loop]) -> dict[str, Any]:
    """Compare loops: the least CPU time of each kind, since disturbances only add; the median wall time."""
    host = [min(loop.host_us for loop in kind) for kind in (plain, records, tracked)]
    wall = [statistics.median(loop.wall_us for loop in kind) for kind in (plain, tracked)]
    ours_us = host[2] - host[1]
    return {
        "work_ns": work_ns,
        "plain_host_us": host[0],
        "records_us": host[1] - host[0],
        "tracked_us": host[2] - host[0],
        "beyond_records_us": ours_us,
        "plain_wall_us": wall[0],
        "tracked_wall_us": wall[1],
        "wall_share": (wall[1] - wall[0]) / wall[0],
        "kept": ours_us <= BUDGET_US,
    }


def _measure(
    machine: Machine, work_ns: int, calls: int, loops: int
) -> tuple[dict[str, Any], list[str], dict[str, int]]:
    def plain() -> None:
        machine.spin(work_ns)

    @gputrace.track(operation=f"cost/{work_ns}", feature=FEATURE)
    def tracked() -> None:
        machine.spin(work_ns)

    recorded = _between_records(machine, work_ns, calls)
    found: dict[str, list[Loop]] = {"plain": [], "records": [], "tracked": []}
    waits = Synchronisations(machine.waiting_functions())
    with recording(machine) as recorder:
        _run(machine, tracked, calls)
        for _ in range(loops):
            found["plain"].append(_run(machine, plain, calls))
            found["records"].append(_run(machine, recorded, calls))
            found["tracked"].append(_run(machine, tracked, calls, waits, machine.waiting_forbidden()))
        settled(machine, recorder)
        missing = unmeasured(recorder)
    return row(work_ns, found["plain"], found["records"], found["tracked"]), waits.called, missing


def _between_records(machine: Machine, work_ns: int, calls: int) -> Callable[[], None]:
    """The same work between two records of events that exist already, as a pool gives them."""
    events = [machine.cuda.Event(enable_timing=True) for _ in range(2 * calls)]
    stream = machine.cuda.current_stream()
    for event in events:
        event.record(stream)
    position = 0

    def recorded() -> None:
        nonlocal position
        events[position].record(stream)
        machine.spin(work_ns)
        events[position + 1].record(stream)
        position = (position + 2) % len(events)

    return recorded


def _run(
    machine: Machine, work: Callable[[], None], calls: int, *within: AbstractContextManager[Any]
) -> Loop:
    gc.collect()
    machine.synchronize()
    with ExitStack() as stack:
        for block in within:
            stack.enter_context(block)
        began_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        for _ in range(calls):
            work()
        cpu_ns = time.thread_time_ns() - cpu_ns
    # This wait is ours, outside of what is counted and forbidden.
    machine.synchronize()
    return Loop(cpu_ns / calls / 1_000, (time.perf_counter_ns() - began_ns) / calls / 1_000)
