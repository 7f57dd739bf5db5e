"""``configure``, ``flush`` and ``shutdown``, and the hooks for the first call, for forks and for the exit.

Everything is lazy. The first tracked call starts the settler and binds to
whatever providers there are; ``configure`` makes those that are missing.
"""

from __future__ import annotations

# For its fork hook: the SDK's providers run a thread pool in theirs. Where this module comes after a
# provider, their hook runs first in a forked child, and waits for ever for a lock of the pool's.
import concurrent.futures.thread  # noqa: F401
import os
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gputrace import (
    attribution,
    baggage,
    call as calls,
    cascades,
    cascades_audits,
    faults,
    identity,
    outcomes as outcome_counting,
    settings,
)
from gputrace.devices import cuda
from gputrace.lifecycle_process import Process, record_nothing
from gputrace.lifecycle_runtime import open_costs
from gputrace.telemetry import events, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gputrace.hardware import Hardware

EXIT_TIMEOUT_S = 1.8
#: ``service.name`` of the agent, where ``OTEL_SERVICE_NAME`` says no other.
AGENT_NAME = "gputrace-agent"


def configure(  # noqa: PLR0913 - one argument a setting
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    metric_attributes: Sequence[str] | None = None,
    export_interval: float | None = None,
    prices: str | os.PathLike[str] | None = None,
    features: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    trusted_baggage: Sequence[str] | None = None,
    trust: Callable[[Mapping[str, Any]], bool] | None = None,
    baggage_key: str | None = None,
    outcomes: Sequence[str] | None = None,
    budgets: str | os.PathLike[str] | None = None,
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
        prices: TOML file with what devices cost; ``GPUTRACE_PRICES`` by default. Without
            one there is time and no cost.
        features: Features declared up front, which keep their names on metrics.
        models: Models, likewise.
        trusted_baggage: Entries of incoming baggage that may be believed: ``("gputrace.feature",)``. With
            ``baggage_key`` alone, all that are signed.
        trust: Asked with the ASGI scope of a request; returns True where its baggage is believed unsigned.
        baggage_key: Secret that services share and sign baggage with; several separated by commas while
            they change, of which the first signs. ``GPUTRACE_BAGGAGE_KEY`` by default.
        outcomes: Names of product events that reports show even if none is recorded.
        budgets: TOML file with what features may spend in a month, which boards and alerts compare with;
            ``GPUTRACE_BUDGETS`` by default.

    Raises:
        SettingError: A setting cannot be used; the message names it.
        PriceBookError: The price book cannot be used; the message names file, row and key.
    """
    chosen = settings.read(
        service_name=service_name,
        endpoint=endpoint,
        data_dir=data_dir,
        metric_attributes=metric_attributes,
        export_interval=export_interval,
        prices=prices,
        features=features,
        models=models,
        trusted_baggage=trusted_baggage,
        trust=trust,
        baggage_key=baggage_key,
        outcomes=outcomes,
        budgets=budgets,
    )
    # Before anything is set up: what is wrong with it is told here, not at the first call.
    open_costs(chosen)
    with _process.lock:
        if chosen.disabled:
            # Propagation goes on without an SDK, as OpenTelemetry's own does.
            baggage.use(chosen)
            record_nothing()
            return
        if _process.configured is not None:
            if _process.configured != chosen:
                faults.log_once(
                    "configured-twice",
                    "gputrace.configure() was called again with other settings; the first stay in force",
                )
            chosen = _process.configured
        _process.configured = chosen
        if not _process.make_missing_providers(chosen) and (endpoint or data_dir):
            faults.log_once(
                "providers-set",
                "gputrace.configure(): this program has set OpenTelemetry up itself, which is used as it is; "
                "endpoint and data_dir change nothing",
            )
        _process.start(chosen)


def start_agent(
    *,
    endpoint: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    prices: str | os.PathLike[str] | None = None,
) -> Hardware | None:
    """Publish the devices of this node from this process, in the place of the programs on it.

    Args:
        endpoint: As for ``configure``, likewise the others.
        data_dir: Folder for files.
        prices: TOML file with what devices cost.

    Returns:
        What is published, None where ``OTEL_SDK_DISABLED`` is set.

    Raises:
        SettingError: A setting cannot be used; the message names it.
        PriceBookError: The price book cannot be used; the message names file, row and key.
    """
    chosen = settings.read(
        service_name=os.environ.get("OTEL_SERVICE_NAME") or AGENT_NAME,
        endpoint=endpoint,
        data_dir=data_dir,
        prices=prices,
    )
    open_costs(chosen)
    with _process.lock:
        if chosen.disabled:
            return None
        chosen = _process.configured = replace(chosen, agent=True)
        _process.make_missing_providers(chosen)
        _process.start(chosen)
        runtime = _process.runtime
        return None if runtime is None else runtime.settler.hardware


def ensure_started() -> None:
    """Start the settler at the first tracked call of a process that never called ``configure``."""
    with _process.lock:
        if calls.settling:
            return
        # Whatever fails below, the next call must not try again.
        record_nothing()
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
            Files on a slow disk are waited for five seconds longer.
    """
    with _process.lock:
        _process.stop(timeout)


def _at_exit() -> None:
    shutdown()


def _bind() -> None:
    _process.bind()


def _take_events() -> None:
    _process.take_events()


_process = Process(_at_exit)


def _enclose_by_environment() -> None:
    """Bill all that nobody names to what the variables say, from the first call on, on every thread."""
    try:
        fields = settings.scope()
    except settings.SettingError as error:
        # Told once more, by `configure`, where it can be raised.
        faults.log_once("scope", "gputrace: %s; ignored", error)
        return
    if fields:
        attribution.enclose(attribution.Scope(attribution.UNNAMED.merged(fields), None))


def _after_fork_in_child() -> None:
    identity.reset()
    calls.reset()
    outcome_counting.record(None)
    cascades.reset()
    faults.reset()
    cuda.reset()
    baggage.reset()
    _process.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=cascades_audits.before_fork, after_in_child=_after_fork_in_child)

calls.ensure_settled = ensure_started
spans.on_provider = _bind
events.prepare = _take_events
_enclose_by_environment()
