"""For tests of code that uses gputrace: record calls in memory, on a virtual GPU or clock.

    with VirtualGpu() as gpu, Recorder(clock=gpu.host_ns) as recorder:
        gpu.init()
        with gputrace.span("rerank", feature="search"):
            gpu.launch(2_000_000)
        gpu.advance(5_000_000)
        assert recorder.settled()[0].charged_ns == 2_000_000

Nothing here needs an exporter, a thread or a GPU. :class:`Stepper` stops a
thread before every line of chosen functions, so that every interleaving of a
call with the settler can be tried.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputrace import call as calls, call_register, cascades_counting, catalogue, ledger, outcomes
from gputrace.accounts import Totals
from gputrace.devices import selection
from gputrace.devices.virtual import VirtualGpu
from gputrace.devices.virtual_driver import VirtualClock
from gputrace.settler import Settler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from gputrace.accounts import Snapshot
    from gputrace.call import Call
    from gputrace.following import Followed
    from gputrace.telemetry.events import Event

__all__ = ["RecordedCall", "Recorder", "Stepper", "VirtualClock", "VirtualGpu"]


@dataclass(frozen=True)
class RecordedCall:
    """One settled call.

    Attributes:
        operation: Name of the work.
        feature: Feature billed, ``__none__`` if nobody named one; likewise the fields below.
        status: ``ok``, ``error`` or ``cancelled``.
        duration_ns: Wall time from its first mark to its last.
        held_ns: Time that it held devices by itself, before sharing.
        charged_ns: What it was charged, rounded to ns.
        charged: The same in the ledger's exact units, 1/``SCALE`` ns.
        device_id: ``hw.id`` of the first device, None where it was timed on none.
        source: How the time was obtained, None where it was timed on none.
        call: The call itself.
    """

    operation: str
    feature: str
    tenant: str | None
    model: str | None
    variant: str | None
    stage: str | None
    status: str
    duration_ns: int
    held_ns: int
    charged_ns: int
    charged: int = field(repr=False)
    device_id: str | None
    source: str | None
    call: Call = field(repr=False, compare=False)


class Recorder:
    """Records the tracked calls of a ``with`` block in memory instead of exporting them.

    It settles when asked, on the caller's thread: nothing depends on time.

    Args:
        clock: Returns ns on the clock that marks are taken with; CLOCK_MONOTONIC by default.
        metric_attributes: As in ``configure``.

    Attributes:
        events: Log events so far: decisions of cascades, and scores.
    """

    def __init__(
        self, clock: Callable[[], int] | None = None, *, metric_attributes: tuple[str, ...] = ()
    ) -> None:
        self._clock = clock
        self._metric_attributes = metric_attributes
        self._settled: list[RecordedCall] = []
        self.events: list[Event] = []

    def __enter__(self) -> Recorder:  # noqa: PYI034 - Self needs Python 3.11
        self._saved = (calls.clock, calls.queue, calls.settling, selection.gpu)
        self._counted = outcomes.in_force(), cascades_counting.in_force()
        if self._clock is not None:
            calls.clock = self._clock
        selection.choose()
        totals = Totals(self._metric_attributes)
        self.settler = Settler(totals, self._keep)
        calls.record(self.settler.queue)
        self.outcomes = outcomes.Outcomes(totals, self._metric_attributes)
        outcomes.record(self.outcomes)
        self.escalations = cascades_counting.Escalations(totals, emit=self.events.append)
        totals.count_more = self._count_more
        self.settler.on_tick = self.escalations.tell
        cascades_counting.record(self.escalations)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calls.clock, calls.queue, calls.settling, selection.gpu = self._saved
        counted, escalations = self._counted
        outcomes.record(counted)
        cascades_counting.record(escalations)

    def _count_more(self, shown: Snapshot) -> None:
        self.outcomes.show(shown)
        self.escalations.show(shown)

    def settle(self) -> None:
        """Settle what has happened so far: one tick of the settler."""
        self.settler.tick(users_thread=True)

    def settled(self) -> list[RecordedCall]:
        """Settle, and return all settled calls in the order in which they were settled."""
        self.settle()
        return list(self._settled)

    def snapshot(self) -> Snapshot:
        """Settle, and return what the instruments would show."""
        self.settle()
        return self.settler.snapshot()

    def time_by(self, attribute: str = catalogue.FEATURE) -> dict[str, float]:
        """Settle, and return the charged time in s by the value of a metric attribute."""
        summed: dict[str, float] = {}
        for attributes, seconds in self.snapshot().feature_time_s:
            value = attributes.get(attribute, "")
            summed[value] = summed.get(value, 0.0) + seconds
        return summed

    def _keep(self, followed: Followed, measured: dict[str, str | float]) -> None:
        call = followed.call
        call_register.ended(call)
        billed = call.attribution
        source = measured.get(catalogue.TIME_SOURCE)
        self._settled.append(
            RecordedCall(
                operation=call.site.operation,
                feature=billed.feature or catalogue.NO_FEATURE,
                tenant=billed.tenant,
                model=billed.model,
                variant=billed.variant,
                stage=billed.stage,
                status=call.status or "ok",
                duration_ns=followed.last_ns - followed.first_ns,
                held_ns=followed.held_ns,
                charged_ns=round(followed.charged / ledger.SCALE),
                charged=followed.charged,
                device_id=followed.lanes[0].account.device.id if followed.lanes else None,
                source=None if source is None else str(source),
                call=call,
            )
        )


class Stepper:
    """Runs a function on a thread of its own and stops it before every instruction of chosen functions.

    Args:
        work: What to run.
        within: The functions at whose bytecode instructions the thread stops.
    """

    def __init__(self, work: Callable[[], Any], within: tuple[Callable[..., Any], ...]) -> None:
        self._work = work
        self._codes = {function.__code__ for function in within}
        self._stopped = threading.Semaphore(0)
        self._go = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.finished = False
        self.error: BaseException | None = None
        #: Where the thread stands: (function name, line number).
        self.position: tuple[str, int] | None = None

    def step(self) -> bool:
        """Let the thread run to its next stop.

        Returns:
            False once the work has ended.

        Raises:
            BaseException: What the work raised.
        """
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error
        return not self.finished

    def finish(self) -> None:
        """Let the thread run to its end without stopping."""
        while self.step():
            pass

    def _run(self) -> None:
        outer = sys.gettrace()
        sys.settrace(self._trace)
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by step()
            self.error = error
        finally:
            sys.settrace(outer)
            self.finished = True
            self._stopped.release()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in self._codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.position = (frame.f_code.co_name, frame.f_lineno)
            self._stopped.release()
            self._go.acquire()
        return self._trace
