"""A graph is captured while the settler's thread asks for events: neither may disturb the other."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import gputrace
from gpu_checks.charging import conservation, recording, settled, unmeasured
from gpu_checks.workloads import FEATURE, MS
from gputrace.devices import cuda

if TYPE_CHECKING:
    from gpu_checks.machine import Machine
    from gputrace.testing import Recorder

_SETTLER = "gputrace-settler"
#: Longer than the settler takes for the queries that are waited for.
_OUTSTANDING_NS = 600 * MS
_QUERIES = 3
_PATIENCE_S = 20.0


class QueryCount:
    """Counts queries of events by the settler's thread, within a ``with`` block.

    Args:
        kind: The class of the events.

    Attributes:
        asked: How many there were while ``counting``.
        counting: Whether they count.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.asked = 0
        self.counting = False

    def __enter__(self) -> QueryCount:  # noqa: PYI034 - Self needs Python 3.11
        query = self._query = self._kind.query

        def counted(event: Any) -> bool:
            if self.counting and threading.current_thread().name == _SETTLER:
                self.asked += 1
            return bool(query(event))

        self._kind.query = counted
        return self

    def __exit__(self, *_: object) -> None:
        self._kind.query = self._query


def check(machine: Machine) -> dict[str, Any]:
    """Capture a graph while a call of another thread is outstanding, and replay it.

    Returns:
        ``held``: whether capture and replay went well; ``error``: what went wrong, else None;
        ``queries``: how often the settler asked while it was captured; ``in_background``: whether
        it may ask at all; ``calls``: calls that were settled; ``unmeasured``; ``conservation``.
    """
    stream = machine.new_stream()
    with machine.on(stream):
        # What the other thread launches must have been loaded: loading is forbidden during a capture.
        machine.spin(MS)
    machine.synchronize()
    with recording(machine) as recorder, QueryCount(type(machine.cuda.Event(enable_timing=True))) as count:
        _warm_up(machine, recorder)
        error = _capture(machine, stream, count)
        calls = settled(machine, recorder)
        return {
            "held": error is None,
            "error": error,
            "queries": count.asked,
            "in_background": cuda.background_polling(),
            "calls": len(calls),
            "unmeasured": unmeasured(recorder),
            "conservation": conservation(recorder),
        }


def _capture(machine: Machine, stream: Any, count: QueryCount) -> str | None:
    """Capture and replay while another thread's call is outstanding; return what went wrong, if anything."""
    begun = threading.Event()
    other = threading.Thread(target=_call_during_the_capture, args=(machine, stream, begun))
    other.start()
    try:
        with machine.capture() as graph:
            count.counting = True
            machine.multiply_small()
            begun.set()
            _wait_for(count)
            machine.multiply_small()
            count.counting = False
        graph.replay()
        machine.synchronize()
    except RuntimeError as refused:
        return str(refused)
    finally:
        begun.set()
        other.join()
    return None


def _warm_up(machine: Machine, recorder: Recorder) -> None:
    """Have the settler make its own stream and events before the capture begins."""
    with gputrace.span("capture/before", feature=FEATURE):
        machine.spin(MS)
    settled(machine, recorder)


def _call_during_the_capture(machine: Machine, stream: Any, begun: threading.Event) -> None:
    begun.wait()
    with machine.on(stream), gputrace.span("capture/meanwhile", feature=FEATURE):
        machine.spin(_OUTSTANDING_NS)


def _wait_for(count: QueryCount) -> None:
    until = time.monotonic() + _PATIENCE_S
    while count.asked < _QUERIES and time.monotonic() < until:
        time.sleep(0.01)
