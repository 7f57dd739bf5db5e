"""Wires the parts of a process together: configure, flush, shutdown, fork and exit.

Everything is lazy. The first tracked call starts the settler and binds to
whatever providers there are; ``configure`` makes those that are missing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING

from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api
from opentelemetry.metrics import _internal as metrics_internal

from gputrace import call as calls
from gputrace import faults, identity, settings
from gputrace.accounts import Snapshot
from gputrace.devices import cuda
from gputrace.lifecycle_runtime import Runtime, destinations, report_lost
from gputrace.telemetry import spans
from gputrace.telemetry.users import UsersProviders, meter_provider, tracer_provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.settings import Settings
    from gputrace.telemetry.metrics import Instruments
    from gputrace.telemetry.providers import OwnProviders

EXIT_TIMEOUT_S = 1.8

#: Reason under which spans are counted that an exporter gave up on.
EXPORT_FAILED = "export_failed"


class _Process:
    """What there is once in a process.

    Attributes:
        lock: Guards the rest.
        runtime: What runs; None before the first tracked call and after ``shutdown``.
        own: Providers that ``configure`` made and that still work.
        retired: Those that were shut down: globals to be replaced, not respected.
        instruments: On the global meter provider, which takes each name only once.
        configured: What ``configure`` was called with.
        inherited: What a forked child sets up again at its first call.
        parked: What stopped, while its totals are shown by a meter provider of the user's.
        stopped: ``shutdown`` was called.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runtime: Runtime | None = None
        self.own: OwnProviders | None = None
        self.retired: tuple[object, ...] = ()
        self.users = UsersProviders(_settle)
        self.instruments: Instruments | None = None
        self.configured: Settings | None = None
        self.inherited: Settings | None = None
        self.parked: Runtime | None = None
        self.stopped = False
        self._losing = threading.Lock()

    def count_lost(self, spans_lost: int) -> None:
        """Count spans that an exporter gave up on."""
        runtime = self.runtime
        if runtime is not None:
            with self._losing:
                lost = runtime.settler.totals.lost
                lost[EXPORT_FAILED] = lost.get(EXPORT_FAILED, 0) + spans_lost

    def start(self, chosen: Settings) -> None:
        """Start what runs, or start it again; the lock is held."""
        runtime = self.runtime or self.parked
        if runtime is None:
            runtime = Runtime(chosen, self.users, self.own, self.instruments)
        elif runtime.settings != chosen:
            runtime.apply(chosen)
        running = self.runtime is not None
        self.runtime, self.parked, self.stopped = runtime, None, False
        self.instruments = runtime.instruments
        runtime.own, runtime.on_settled = self.own, _bind
        if not running:
            runtime.start()
        calls.record(runtime.settler.queue)
        spans.enabled = True
        self.users.bind(self.own)
        _call_at_exit()

    def stop(self, timeout: float) -> None:
        """Stop what runs; the lock is held."""
        runtime, own = self.runtime, self.own
        self.runtime, self.own, self.configured, self.stopped = None, None, None, True
        _record_nothing()
        deadline = monotonic() + timeout
        with faults.contained("shut down"):
            if runtime is not None:
                runtime.stop(deadline)
            elif own is not None:
                # A forked child that tracked nothing: spans of the user's own may be waiting.
                report_lost(own.shutdown(deadline, lambda: False))
        if own is not None:
            self.retired = (*self.retired, own.tracer_provider, own.meter_provider)
        if own is not None and own.meter_provider is not None:
            self.instruments = None
        else:
            self.parked = runtime

    def after_fork(self) -> None:
        """Begin anew in a forked child: locks, queue and counts are the parent's."""
        self.lock = threading.RLock()
        self._losing = threading.Lock()
        runtime, self.runtime, self.parked = self.runtime, None, None
        if runtime is not None:
            self.inherited = runtime.settings
        self.users.after_fork()
        if self.instruments is not None:
            self.instruments.reset(Snapshot)
        if self.own is not None:
            self.own.after_fork()


def _settle(timeout: float) -> None:
    """Settle what has ended: a provider is about to flush or to shut down."""
    runtime = _process.runtime
    if runtime is not None:
        runtime.settler.flush(monotonic() + timeout)


_process = _Process()


def configure(
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    metric_attributes: Sequence[str] | None = None,
    export_interval: float | None = None,
) -> None:
    """Set gputrace up, and OpenTelemetry where nobody has.

    Optional: where the program has set OpenTelemetry providers, they are used
    as they are and this only applies the settings. Otherwise telemetry is
    written as OTLP/JSON lines under ``./gputrace-data``, or sent to ``endpoint``
    or ``OTEL_EXPORTER_OTLP_ENDPOINT``; with ``data_dir`` given, both.

    Args:
        service_name: Name of the service; ``OTEL_SERVICE_NAME`` by default.
        endpoint: Base URL of an OTLP/HTTP receiver, such as ``http://localhost:4318``.
        data_dir: Folder for the files that ``gputrace report`` reads.
        metric_attributes: Attributes on metrics beyond the defaults: ``("tenant",)``.
        export_interval: Time between two exports of metrics, s; 5 by default.

    Raises:
        SettingError: A setting cannot be used; the message names it.
    """
    chosen = settings.read(
        service_name=service_name,
        endpoint=endpoint,
        data_dir=data_dir,
        metric_attributes=metric_attributes,
        export_interval=export_interval,
    )
    with _process.lock:
        if chosen.disabled:
            _record_nothing()
            return
        if _process.configured is not None:
            if _process.configured != chosen:
                faults.log_once(
                    "configured-twice",
                    "gputrace.configure() was called again with other settings; the first stay in force",
                )
            chosen = _process.configured
        _process.configured = chosen
        if not _make_missing_providers(chosen) and (endpoint or data_dir):
            faults.log_once(
                "providers-set",
                "gputrace.configure(): this program has set OpenTelemetry up itself, which is used as it is; "
                "endpoint and data_dir change nothing",
            )
        _process.start(chosen)


def _make_missing_providers(chosen: Settings) -> bool:
    """Make and set the providers that nobody has set; returns whether telemetry goes through ours."""
    if _process.own is not None:
        return True
    tracer, meter = tracer_provider(), meter_provider()
    no_spans = tracer is None or tracer in _process.retired
    no_metrics = meter is None or meter in _process.retired
    if not (no_spans or no_metrics):
        return False
    from gputrace.telemetry.providers import OwnProviders

    own = _process.own = OwnProviders(
        destinations(chosen),
        service_name=chosen.service_name,
        spans=no_spans,
        metrics=no_metrics,
        export_interval_s=chosen.export_interval_s,
        settle=_settle,
        on_lost=_process.count_lost,
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


def _bind() -> None:
    """Get in front of the providers that are set, once for each."""
    if _process.users.bind(_process.own):
        _call_at_exit()


def _call_at_exit() -> None:
    # Exit hooks run last in, first out: registered now, ours runs before that of any provider set so far.
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    pools = sys.modules.get("multiprocessing.util")
    if pools is not None:
        # Children of multiprocessing leave without running exit hooks.
        pools.Finalize(None, _at_exit, exitpriority=100)


def _record_nothing() -> None:
    calls.stop_recording()
    spans.enabled = False


def ensure_started() -> None:
    """Start the settler at the first tracked call of a process that never called ``configure``."""
    with _process.lock:
        if calls.settling:
            return
        # Whatever fails below, the next call must not try again.
        _record_nothing()
        if _process.stopped:
            return
        try:
            chosen = _process.inherited or settings.read()
        except settings.SettingError as error:
            faults.logger.error("gputrace records nothing: %s", error)
            return
        if not chosen.disabled:
            with faults.contained("start"):
                _process.start(chosen)


def flush(timeout: float = 10.0) -> bool:
    """Settle every call that has ended and export what is known.

    Args:
        timeout: Upper bound, s.

    Returns:
        Whether all was settled and exported in time.
    """
    deadline = monotonic() + timeout
    runtime, own = _process.runtime, _process.own
    with faults.contained("flush"):
        if runtime is not None:
            return runtime.flush(deadline)
        return own is None or own.flush(deadline, lambda: False)
    return False


def shutdown(timeout: float = EXIT_TIMEOUT_S) -> None:
    """Settle, export and stop. Tracked functions go on to work, unrecorded.

    Args:
        timeout: Upper bound, s; whatever hangs is left behind, with a line that says how much was lost.
    """
    with _process.lock:
        _process.stop(timeout)


def _at_exit() -> None:
    shutdown()


def _after_fork_in_child() -> None:
    identity.reset()
    calls.reset()
    faults.reset()
    cuda.reset()
    _process.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

calls.ensure_settled = ensure_started
spans.on_provider = _bind
