"""What is run under the profiler: five kinds of work that services do.

Most calls are enqueued behind a kernel that keeps the device busy until all of them
are, so that a call's events stand next to its kernels whatever the host does in
between: only then are charge and kernels the same to microseconds. Where a call finds
the device idle, it also holds it while the host launches the first kernel. One
workload shows that, and is not judged.
"""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gputrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_checks.machine import Machine

FEATURE = "gpu-check"
MS = 1_000_000
#: Long enough for the host to enqueue a round of calls behind it, with the profiler on.
AHEAD_NS = 60 * MS
_HOST_NS = 100_000
_LAUNCHES = 100


@dataclass(frozen=True)
class Workload:
    """Calls of one kind.

    Attributes:
        key: Short name, which begins the operations' names.
        title: What it is.
        run: Runs a number of calls, tracked; returns their operations.
        calls: How many.
        judged: Whether its charges must agree with the kernels.
    """

    key: str
    title: str
    run: Callable[[Machine, str, int], list[str]]
    calls: int
    judged: bool = True


def _one_after_another(machine: Machine, key: str, calls: int, work: Callable[[], None]) -> list[str]:
    operations = [f"{key}/{number}" for number in range(calls)]
    for operation in operations:
        with machine.annotate(operation), gputrace.span(operation, feature=FEATURE):
            work()
    return operations


def _products(machine: Machine, key: str, calls: int) -> list[str]:
    def work() -> None:
        for _ in range(8):
            machine.multiply()

    machine.spin(AHEAD_NS)
    return _one_after_another(machine, key, calls, work)


def _blocks(machine: Machine, key: str, calls: int) -> list[str]:
    machine.spin(AHEAD_NS)
    return _one_after_another(machine, key, calls, machine.block)


def _blocks_when_idle(machine: Machine, key: str, calls: int) -> list[str]:
    operations = []
    for number in range(calls):
        machine.synchronize()
        operations += _one_after_another(machine, f"{key}/{number}", 1, machine.block)
    return operations


def _two_streams(machine: Machine, key: str, calls: int) -> list[str]:
    """Pairs of calls of different length, each an owner of its own, as tasks of one event loop are."""
    streams = [machine.new_stream(), machine.new_stream()]
    for lane, stream in enumerate(streams):
        # A library's first call on a stream allocates, which waits for the kernel that is to hide it.
        with machine.on(stream):
            machine.multiply_small(lane)
    machine.synchronize()
    operations: list[str] = []
    for number in range(calls // 2):
        machine.spin(AHEAD_NS)
        pair = [f"{key}/{number}{side}" for side in "ab"]
        _pair(machine, streams, pair)
        operations += pair
        machine.synchronize()
    return operations


def _pair(machine: Machine, streams: list[Any], pair: list[str]) -> None:
    spans = [gputrace.span(operation, feature=FEATURE) for operation in pair]
    contexts = [copy_context() for _ in pair]
    before = machine.cuda.current_stream()
    for stream, context, span in zip(streams, contexts, spans, strict=True):
        # Both start when the kernel ahead of them ends.
        stream.wait_stream(before)
        with machine.on(stream):
            context.run(span.__enter__)
    for chunk in range(30):
        for lane, (stream, operation) in enumerate(zip(streams, pair, strict=True)):
            if chunk >= (30, 20)[lane]:
                continue
            with machine.on(stream), machine.annotate(operation):
                for _ in range(10):
                    machine.multiply_small(lane)
    for stream, context, span in zip(streams, contexts, spans, strict=True):
        with machine.on(stream):
            context.run(span.__exit__, None, None, None)


def _replays(machine: Machine, key: str, calls: int) -> list[str]:
    # Captured while it is profiled: drivers do not show the kernels of graphs made before.
    with machine.capture() as graph:
        for _ in range(300):
            machine.multiply_small()
    graph.replay()
    machine.spin(AHEAD_NS)
    return _one_after_another(machine, key, calls, graph.replay)


def _host_bound(machine: Machine, key: str, calls: int) -> list[str]:
    def work() -> None:
        for _ in range(_LAUNCHES):
            machine.add()
            machine.host_work(_HOST_NS)
        # Still running when the call ends, so that its end event waits for nobody.
        machine.spin(5 * _HOST_NS)

    operations = []
    for number in range(calls):
        machine.synchronize()
        machine.spin(2 * MS)
        operations += _one_after_another(machine, f"{key}/{number}", 1, work)
    return operations


WORKLOADS = (
    Workload("products", "large matrix products", _products, 10),
    Workload("block", "a transformer block, batch 1", _blocks, 20),
    Workload("streams", "two streams at once", _two_streams, 10),
    Workload("graph", "a CUDA graph replayed", _replays, 20),
    Workload("host", "a host-bound loop", _host_bound, 10),
    Workload(
        "idle", "the block on an idle GPU: held from before its launch", _blocks_when_idle, 20, judged=False
    ),
)


def warm_up(machine: Machine) -> None:
    """Run every kernel once, untracked: libraries load, choose and allocate at the first call of each."""
    for _ in range(3):
        machine.multiply()
        machine.block()
        for lane in range(2):
            machine.multiply_small(lane)
        machine.add()
        machine.spin(MS)
    machine.synchronize()
