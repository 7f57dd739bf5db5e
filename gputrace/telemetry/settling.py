"""The seam to a tracer provider: it flushes and closes after the spans that wait for their device time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor

from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace import ReadableSpan

# A user who shuts a provider down by hand waits no longer than this for devices.
_SHUTDOWN_S = 1.0


class SettlingProcessor(SpanProcessor):
    """Ends the spans that wait for their device time before a provider flushes or shuts down.

    Counts the spans that end on the provider, to tell how many were lost.

    Args:
        settle: Settles what has ended, within a number of seconds.
    """

    def __init__(self, settle: Callable[[float], None]) -> None:
        self._settle = settle
        self.reset()

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self._counting = threading.RLock()
        self.ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Count a sampled span."""
        if span.context is not None and span.context.trace_flags.sampled:
            with self._counting:
                self.ended += 1

    def shutdown(self) -> None:
        """Settle what is open, while the processors behind this one still take spans."""
        with faults.contained("settle before a provider shuts down"):
            self._settle(_SHUTDOWN_S)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Settle what was left."""
        with faults.contained("settle before a provider flushes"):
            self._settle(timeout_millis / 1000)
        return True


def put_first(provider: Any, processor: SettlingProcessor) -> None:
    """Add a processor to a user's tracer provider, before those that export.

    Providers without processors, such as no-op ones, are left alone.
    """
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        return
    add(processor)
    multi: Any = getattr(provider, "_active_span_processor", None)
    processors = getattr(multi, "_span_processors", None)
    if isinstance(processors, tuple) and processors and processors[-1] is processor:
        # No public way to be called first; without it, spans that wait when the
        # user shuts the provider down by hand would be lost.
        multi._span_processors = (processor, *processors[:-1])  # noqa: SLF001
