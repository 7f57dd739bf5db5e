"""The providers that the program itself has set, before or after the first tracked call."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from opentelemetry import metrics as metrics_api, trace as trace_api

from gputrace.telemetry import events
from gputrace.telemetry.closing import ANOTHER_MOMENT_S, Closer, milliseconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.telemetry.providers import OwnProviders


def tracer_provider() -> trace_api.TracerProvider | None:
    """Return the global tracer provider, None while nobody has set one."""
    # get_tracer_provider() builds a proxy each time.
    return trace_api._TRACER_PROVIDER  # noqa: SLF001


def meter_provider() -> metrics_api.MeterProvider | None:
    """Return the global meter provider, None while nobody has set one."""
    provider = metrics_api.get_meter_provider()
    # A proxy is what there is until then.
    return None if type(provider).__name__ == "_ProxyMeterProvider" else provider


class UsersProviders:
    """What gputrace does with providers that are not its own.

    Args:
        settle: Settles what has ended, within a number of seconds.
    """

    def __init__(self, settle: Callable[[float], None]) -> None:
        self._settle = settle
        self._seen: tuple[object, object, object] = (None, None, None)
        self._tracer_provider: trace_api.TracerProvider | None = None
        self._meter_provider: metrics_api.MeterProvider | None = None
        self._binding = threading.RLock()
        self._closer: Closer | None = None

    def after_fork(self) -> None:
        """Begin anew in a forked child, with the same providers."""
        self._binding = threading.RLock()
        if self._closer is not None:
            self._closer.start()

    def bind(self, own: OwnProviders | None) -> bool:
        """Get in front of the exporters of the tracer provider that is set now.

        Returns:
            Whether a provider is seen for the first time.
        """
        tracer, meter, logger = tracer_provider(), meter_provider(), events.users_provider()
        if (tracer, meter, logger) == self._seen:
            return False
        with self._binding:
            if tracer is not self._seen[0]:
                self._bind_tracer(tracer, own)
            self._seen = (tracer, meter, logger)
            self._meter_provider = None if own is not None and meter is own.meter_provider else meter
            if self._closer is None and (self._tracer_provider or self._meter_provider or logger) is not None:
                self._closer = Closer("gputrace-closer")
        return True

    def _bind_tracer(self, tracer: trace_api.TracerProvider | None, own: OwnProviders | None) -> None:
        self._tracer_provider = None
        if tracer is not None and (own is None or tracer is not own.tracer_provider):
            from gputrace.telemetry.settling import SettlingProcessor, put_first

            put_first(tracer, SettlingProcessor(self._settle))
            self._tracer_provider = tracer

    def flush(self, deadline: float, owes: Callable[[], bool]) -> bool:
        """Ask these providers to export, until ``deadline``.

        Args:
            deadline: ``time.monotonic()`` value, s.
            owes: Tells whether a metric reader has seen a 0 in place of a value.

        Returns:
            Whether they say that they have.
        """
        if self._closer is None:
            return True
        tasks = [
            self._closer.submit(lambda: _force_flush(self._tracer_provider, deadline)),
            self._closer.submit(lambda: self._collect(deadline, owes)),
            self._closer.submit(lambda: _force_flush(events.users_provider(), deadline)),
        ]
        return all([task.succeeded(deadline) for task in tasks])  # noqa: C419 - each gets its chance

    def _collect(self, deadline: float, owes: Callable[[], bool]) -> bool:
        done = _flush_readers(self._meter_provider, deadline)
        if owes():
            # A series that was new has been seen as 0: once more, with its value.
            time.sleep(ANOTHER_MOMENT_S)
            done = _flush_readers(self._meter_provider, deadline) and done
        return done

    def collect_once(self, deadline: float) -> None:
        """Let the metric readers collect, ahead of their last time, when their provider shuts down."""
        if self._closer is not None:
            self._closer.submit(lambda: _flush_readers(self._meter_provider, deadline)).succeeded(deadline)


def _flush_readers(provider: object, deadline: float) -> bool:
    """Flush a meter provider, but for readers that Prometheus asks when it wants to.

    Those keep what they collect when they are flushed, and show every series
    twice at the next scrape.
    """
    readers = tuple(getattr(provider, "_metric_readers", ()))
    pushing = [reader for reader in readers if type(reader).__name__ != "PrometheusMetricReader"]
    if len(pushing) == len(readers):
        return _force_flush(provider, deadline)
    return all([_force_flush(reader, deadline) for reader in pushing])  # noqa: C419 - each gets its chance


def _force_flush(provider: object, deadline: float) -> bool:
    force_flush: Callable[[int], object] | None = getattr(provider, "force_flush", None)
    return force_flush is None or force_flush(milliseconds_until(deadline)) is not False
