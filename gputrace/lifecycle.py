"""Wires the parts of a process together: providers, exporters, settler; flush, shutdown, fork and exit.

Everything is lazy. The first tracked call starts the settler and binds to
whatever providers there are; ``configure`` makes some where there are none.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api

from gputrace import call as calls
from gputrace import catalogue, faults, identity, settings
from gputrace.accounts import Totals
from gputrace.devices import cuda, selection
from gputrace.settler import Settler
from gputrace.telemetry import spans
from gputrace.telemetry.metrics import Instruments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gputrace.following import Followed
    from gputrace.settings import Settings
    from gputrace.telemetry.providers import OwnProviders, SettlingProcessor

EXIT_TIMEOUT_S = 1.8


def _adopt_identity() -> None:
    """Use ``service.instance.id`` of the user's providers, where they have one."""
    for provider in (trace_api._TRACER_PROVIDER, metrics_api.get_meter_provider()):  # noqa: SLF001
        resource = getattr(provider, "resource", None) or getattr(getattr(provider, "_sdk_config", None), "resource", None)
        value = getattr(resource, "attributes", {}).get("service.instance.id")
        if value:
            identity.use_instance_id(str(value))
            return


class Runtime:
    """What gputrace runs in this process.

    Attributes:
        settings: The settings in force.
        settler: Settles the calls.
        instruments: Show the totals.
        own: Providers that ``configure`` made, None where the user's are used.
    """

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        selection.choose()
        _adopt_identity()
        self.own: OwnProviders | None = None
        self.processor: SettlingProcessor | None = None
        self._bound: object = None
        totals = Totals(chosen.metric_attributes, chosen.value_limit)
        self.settler = Settler(totals, self._settled)
        self.instruments: Instruments | None = None

    def build_providers(self) -> OwnProviders:
        """Make providers of our own, with the exporters that the settings ask for."""
        from gputrace.exporters import file, otlp  # noqa: PLC0415 - the SDK is loaded only when asked for
        from gputrace.telemetry.providers import OwnProviders, resource_of  # noqa: PLC0415

        span_exporters: list[Any] = []
        metric_exporters: list[Any] = []
        if self.settings.data_directory is not None:
            folder = self._folder()
            span_exporters.append(file.span_exporter(folder, identity.instance_id))
            metric_exporters.append(file.metric_exporter(folder, identity.instance_id))
        if self.settings.sends_otlp:
            span_exporters.append(otlp.span_exporter(self.settings.endpoint))
            metric_exporters.append(otlp.metric_exporter(self.settings.endpoint))
        self.own = OwnProviders(
            resource_of(self.settings.service_name),
            span_exporters,
            metric_exporters,
            self.settings.export_interval_s,
            self.settler.tick,
        )
        return self.own

    def _folder(self) -> Path:
        from pathlib import Path  # noqa: PLC0415

        # Absolute, so that a process that changes its directory keeps its files together.
        return Path(self.settings.data_directory or settings.DEFAULT_DATA_DIRECTORY).absolute()

    def start(self) -> None:
        """Create the instruments and start the settler."""
        if self.own is not None:
            self.instruments = Instruments(self.own.meter_provider, self.settler.snapshot)
        else:
            self.instruments = _instruments_of_user(self.settler)
        self.settler.start()
        self.bind()

    def bind(self) -> None:
        """Get in front of the user's tracer provider, once there is one.

        Exit hooks run last in, first out: registered now, ours runs before the provider's.
        """
        provider = trace_api._TRACER_PROVIDER  # noqa: SLF001 - None tells that none is set
        if provider is None or provider is self._bound:
            return
        self._bound = provider
        if self.own is None or provider is not self.own.tracer_provider:
            from gputrace.telemetry.providers import SettlingProcessor, put_first  # noqa: PLC0415

            self.processor = SettlingProcessor(self.settler.tick)
            put_first(provider, self.processor)
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)

    def _settled(self, followed: Followed, measured: dict[str, str | float]) -> None:
        call = followed.call
        duration_s = max(0, followed.last_ns - followed.first_ns) / 1_000_000_000
        account = followed.lanes[0].account if followed.lanes else None
        device_time = measured.get(catalogue.CALL_DEVICE_TIME)
        if self.instruments is not None:
            with faults.contained("record a histogram"):
                series = self.settler.totals.call_series(call, account, call.status or "ok")
                self.instruments.record(
                    call, series.attributes, duration_s, None if device_time is None else float(device_time)
                )
        if call.span is not None:
            spans.finish(call, followed.last_ns, measured)


_lock = threading.RLock()
_runtime: Runtime | None = None
#: What a forked child sets up again at its first call: settings, and whether providers were ours.
_inherited: tuple[Settings, bool] | None = None
#: The instruments on the user's meter provider, which takes each name only once.
_user_instruments: Instruments | None = None


def _instruments_of_user(settler: Settler) -> Instruments:
    global _user_instruments  # noqa: PLW0603 - one a process
    if _user_instruments is None:
        _user_instruments = Instruments(None, settler.snapshot)
    _user_instruments.take_snapshot = settler.snapshot
    return _user_instruments


def configure(  # noqa: PLR0913 - one argument a setting
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
    global _runtime  # noqa: PLW0603 - one runtime a process
    with _lock:
        if chosen.disabled:
            _record_nothing()
            return
        if _runtime is not None:
            if _runtime.own is not None or _runtime.settings == chosen:
                faults.log_once(
                    "configured-twice", "gputrace.configure() was called again; the first call stays in force"
                )
                return
            _stop(_runtime, monotonic() + EXIT_TIMEOUT_S)
        _runtime = Runtime(chosen)
        if trace_api._TRACER_PROVIDER is None:  # noqa: SLF001 - None tells that none is set
            _install_providers(_runtime)
        _start(_runtime)


def _install_providers(runtime: Runtime) -> None:
    own = runtime.build_providers()
    trace_api.set_tracer_provider(own.tracer_provider)
    # A proxy is what there is until somebody sets a provider.
    if "Proxy" in type(metrics_api.get_meter_provider()).__name__:
        metrics_api.set_meter_provider(own.meter_provider)


def _start(runtime: Runtime) -> None:
    runtime.start()
    calls.record(runtime.settler.queue)
    spans.enabled = True
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    process_pool = sys.modules.get("multiprocessing.util")
    if process_pool is not None:
        # Children of multiprocessing leave without running exit hooks.
        process_pool.Finalize(None, _at_exit, exitpriority=100)


def _record_nothing() -> None:
    calls.stop_recording()
    spans.enabled = False


def ensure_started() -> None:
    """Start the settler at the first tracked call of a process that never called ``configure``."""
    global _runtime, _inherited  # noqa: PLW0603 - one runtime a process
    with _lock:
        if calls.settling:
            return
        # Whatever fails below, the next call must not try again.
        _record_nothing()
        with faults.contained("start"):
            chosen, ours = _inherited or (settings.read(), False)
            _inherited = None
            if chosen.disabled:
                return
            _runtime = Runtime(chosen)
            if ours:
                own = _runtime.build_providers()
                trace_api._TRACER_PROVIDER = own.tracer_provider  # noqa: SLF001 - the parent's was ours too
            _start(_runtime)


def flush(timeout: float = 10.0) -> bool:
    """Settle every call that has ended and export what is known.

    Args:
        timeout: Upper bound, s.

    Returns:
        Whether all was settled and exported in time.
    """
    deadline = monotonic() + timeout
    runtime = _runtime
    if runtime is None:
        return True
    with faults.contained("flush"):
        settled = runtime.settler.flush(deadline)
        if runtime.own is not None:
            return runtime.own.flush(deadline) and settled
        exported = True
        for provider in (trace_api.get_tracer_provider(), metrics_api.get_meter_provider()):
            force_flush = getattr(provider, "force_flush", None)
            if force_flush is not None:
                exported = bool(force_flush(max(1, int((deadline - monotonic()) * 1000)))) and exported
        return settled and exported
    return False


def shutdown(timeout: float = EXIT_TIMEOUT_S) -> None:
    """Settle, export and stop. Tracked functions go on to work, unrecorded.

    Args:
        timeout: Upper bound, s; whatever hangs is left behind, with a line that says how much was lost.
    """
    global _runtime  # noqa: PLW0603 - one runtime a process
    with _lock:
        runtime, _runtime = _runtime, None
        if runtime is not None:
            _stop(runtime, monotonic() + timeout)
            _record_nothing()


def _stop(runtime: Runtime, deadline: float) -> None:
    with faults.contained("shut down"):
        runtime.settler.flush(min(deadline, monotonic() + (deadline - monotonic()) / 2))
        runtime.settler.stop()
        if runtime.own is None:
            return
        # Two collections: a series seen first in the one shows its value in the other.
        runtime.own.flush(monotonic() + (deadline - monotonic()) / 2)
        lost = runtime.own.shutdown(deadline)
        if lost:
            faults.logger.warning(
                "gputrace: %d records could not be delivered to %s before the process ended",
                lost,
                runtime.settings.endpoint or "the configured exporters",
            )


def _at_exit() -> None:
    shutdown()


def _after_fork_in_child() -> None:
    """Begin anew: locks, queue and counts are the parent's. Set up again at the first call."""
    global _inherited, _lock, _runtime  # noqa: PLW0603 - state of a process
    runtime, _runtime = _runtime, None
    _lock = threading.RLock()
    identity.reset()
    calls.reset()
    faults.reset()
    cuda.reset()
    if runtime is not None:
        _inherited = (runtime.settings, runtime.own is not None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

calls.ensure_settled = ensure_started
