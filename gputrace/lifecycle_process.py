"""What there is once in a process: what runs, the providers it leads to; and what a fork makes of them."""

from __future__ import annotations

import atexit
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING

from opentelemetry import metrics as metrics_api, trace as trace_api
from opentelemetry.metrics import _internal as metrics_internal

from gputrace import baggage, call as calls, cascades_counting, faults, outcomes
from gputrace.accounts import Snapshot
from gputrace.cardinality import Cap
from gputrace.lifecycle_runtime import Runtime, destinations, report_lost
from gputrace.telemetry import events, spans
from gputrace.telemetry.users import UsersProviders, meter_provider, tracer_provider

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.settings import Settings
    from gputrace.telemetry.metrics import Instruments
    from gputrace.telemetry.providers import OwnProviders

#: Reason under which spans are counted that an exporter gave up on.
EXPORT_FAILED = "export_failed"


class Process:
    """The state of a process.

    Args:
        at_exit: Called when the process ends.

    Attributes:
        lock: Guards the rest.
        runtime: What runs; None before the first tracked call and after ``shutdown``.
        own: Providers that ``configure`` made and that still work.
        users: Those that the program has set.
        instruments: On the global meter provider, which takes each name only once.
        configured: What ``configure`` was called with.
        inherited: What a forked child sets up again at its first call.
        cap: The names on metrics. For the life of the process, and of a forked child too: the user's metric
            readers go on with what they know, and may come to know no more than so many.
        stopped: ``shutdown`` was called.
    """

    def __init__(self, at_exit: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.runtime: Runtime | None = None
        self.own: OwnProviders | None = None
        self.users = UsersProviders(self.settle)
        self.instruments: Instruments | None = None
        self.configured: Settings | None = None
        self.inherited: Settings | None = None
        self.cap = Cap()
        self.stopped = False
        self._at_exit = at_exit
        # Providers that were shut down: globals to be replaced, not respected.
        self._retired: tuple[object, ...] = ()
        # What stopped, while a meter provider of the user's goes on to show its totals.
        self._parked: Runtime | None = None
        self._losing = threading.RLock()

    def make_missing_providers(self, chosen: Settings) -> bool:
        """Make and set the providers that nobody has set; the lock is held.

        Returns:
            Whether telemetry goes through providers of ours, made now or before.
        """
        if self.own is not None:
            return True
        tracer, meter = tracer_provider(), meter_provider()
        no_spans = tracer is None or tracer in self._retired
        no_metrics = meter is None or meter in self._retired
        if not (no_spans or no_metrics):
            return False
        from gputrace.telemetry.providers import OwnProviders

        own = self.own = OwnProviders(
            destinations(chosen),
            service_name=chosen.service_name,
            spans=no_spans,
            metrics=no_metrics,
            export_interval_s=chosen.export_interval_s,
            settle=self.settle,
            on_lost=self.count_lost,
        )
        # The API takes a provider once: where one of ours was shut down, it is replaced by hand.
        if own.tracer_provider is not None:
            if tracer is None:
                trace_api.set_tracer_provider(own.tracer_provider)
            else:
                trace_api._TRACER_PROVIDER = own.tracer_provider  # noqa: SLF001
        if own.meter_provider is not None:
            if meter is None:
                metrics_api.set_meter_provider(own.meter_provider)
            else:
                metrics_internal._METER_PROVIDER = own.meter_provider  # noqa: SLF001
        return True

    def start(self, chosen: Settings) -> None:
        """Start what runs, start it again, or let it run by other settings; the lock is held."""
        baggage.use(chosen)
        runtime = self.runtime or self._parked
        if runtime is None:
            runtime = Runtime(chosen, self.users, self.own, self.instruments, self.cap)
        elif runtime.settings != chosen:
            runtime.apply(chosen)
        running = self.runtime is not None
        self.runtime, self._parked, self.stopped = runtime, None, False
        self.instruments = runtime.instruments
        runtime.own, runtime.on_settled = self.own, self.bind
        if not running:
            runtime.start()
        if self.own is not None:
            runtime.settler.counts.exports_tell = self.own.meter_provider is not None
            self.own.begin(runtime.instruments.owes_to, runtime.settler.exported)
        calls.record(runtime.settler.queue)
        outcomes.record(runtime.outcomes)
        cascades_counting.record(runtime.escalations)
        spans.enabled = True
        self.users.bind(self.own)
        self._call_at_exit()

    def take_events(self) -> None:
        """Take log events, where the program has nothing that does: there will be some."""
        with self.lock:
            if self.own is not None and events.users_provider() is None:
                self.own.take_logs()
            self.bind()

    def bind(self) -> None:
        """Get in front of the providers that are set, once for each."""
        if self.users.bind(self.own):
            self._call_at_exit()

    def _call_at_exit(self) -> None:
        # Exit hooks run last in, first out: registered now, ours runs before that of any provider set so far.
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)
        pools = sys.modules.get("multiprocessing.util")
        if pools is not None:
            # Children of multiprocessing leave without running exit hooks.
            pools.Finalize(None, self._at_exit, exitpriority=100)

    def settle(self, timeout: float) -> None:
        """Settle what has ended, within ``timeout`` s: a provider is about to flush or to shut down."""
        runtime = self.runtime
        if runtime is not None:
            runtime.settle(monotonic() + timeout)

    def count_lost(self, refused: int) -> None:
        """Count spans and log events that an exporter gave up on."""
        runtime = self.runtime
        if runtime is not None:
            with self._losing:
                lost = runtime.settler.totals.lost
                lost[EXPORT_FAILED] = lost.get(EXPORT_FAILED, 0) + refused

    def stop(self, timeout: float) -> None:
        """Stop what runs; the lock is held."""
        runtime, own = self.runtime, self.own
        deadline = monotonic() + timeout
        if runtime is not None:
            # While what they do is still recorded.
            runtime.escalations.finish(monotonic() + timeout / 4)
        self.runtime, self.own, self.configured, self.stopped = None, None, None, True
        record_nothing()
        with faults.contained("shut down"):
            if runtime is not None:
                runtime.stop(deadline)
                if own is None and tracer_provider() is None and meter_provider() is None:
                    _tell_of_calls_that_went_nowhere(runtime)
            elif own is not None:
                # A forked child that tracked nothing: spans of the user's own may be waiting.
                report_lost(own.shutdown(deadline, lambda: False))
        if own is not None:
            self._retired = (*self._retired, own.tracer_provider, own.meter_provider)
        if own is not None and own.meter_provider is not None:
            self.instruments = None
        elif runtime is not None:
            self._parked = runtime

    def after_fork(self) -> None:
        """Begin anew in a forked child: locks, queue and counts are the parent's."""
        self.lock = threading.RLock()
        self._losing = threading.RLock()
        if self.runtime is not None:
            self.inherited = self.runtime.settings
            self.runtime.after_fork()
        self.runtime = self._parked = None
        self.users.after_fork()
        if self.instruments is not None:
            self.instruments.reset(Snapshot)
        if self.own is not None:
            self.own.after_fork()


def record_nothing() -> None:
    """Let tracked functions run on unrecorded."""
    calls.stop_recording()
    outcomes.record(None)
    cascades_counting.record(None)
    spans.enabled = False


def _tell_of_calls_that_went_nowhere(runtime: Runtime) -> None:
    count = sum(runtime.settler.totals.calls.values())
    if count:
        faults.log_once(
            "nowhere",
            "gputrace: %d tracked calls went nowhere, since this program has set up no OpenTelemetry; "
            "gputrace.configure() writes them to files or sends them",
            count,
        )
