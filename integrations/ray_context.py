"""What the caller's work is billed to, and its trace, on their way to another process of a Ray cluster.

Inside the cluster the carrier is gputrace's own, not a client's, so that it is believed without a signature.
Traces and baggage are written as W3C says whatever ``OTEL_PROPAGATORS`` names: the two processes need not
have the same environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import context as context_api
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from opentelemetry.context import Context

#: The keyword under which a carrier travels beside the arguments of a call.
KEY = "__gputrace__"

_PROPAGATORS = (TraceContextTextMapPropagator(), W3CBaggagePropagator())
_FIELDS = ("feature", "tenant", "model", "variant", "stage")

_WRITING = faults.contained("hand the context of a call to Ray")
_ENTERING = faults.contained("enter the context that a call came with")
_LEAVING = faults.contained("leave the context that a call came with")


def outgoing() -> dict[str, str]:
    """Return what the current work is billed to and its trace; empty where there is neither. Never raises."""
    carrier: dict[str, str] = {}
    with _WRITING:
        billed = gputrace.current().attribution
        for name in _FIELDS:
            value = getattr(billed, name)
            # Names of gputrace's own, such as the feature of a batch that serves several, mean nothing there.
            if value is not None and not value.startswith("__"):
                carrier[name] = value
        for propagator in _PROPAGATORS:
            propagator.inject(carrier)
    return carrier


class Carried:
    """The caller's context, in force within each ``with`` block: around a whole call, or each of its steps.

    Whatever is tracked in there is an owner of its own, since none spans processes; it is billed to the
    caller's feature, and its span hangs under the caller's.

    Args:
        carrier: What :func:`outgoing` returned in the caller's process; None for a call that came without.
    """

    __slots__ = ("_block", "_carrier", "_inside", "_outside")

    _inside: Context
    _outside: Context

    def __init__(self, carrier: Mapping[str, str] | None) -> None:
        self._carrier = carrier or {}
        self._block: gputrace.attribute_to | None = None
        if self._carrier:
            with _ENTERING:
                fields = {name: self._carrier[name] for name in _FIELDS if name in self._carrier}
                self._block = gputrace.attribute_to(**fields)

    def __enter__(self) -> None:
        if self._block is None:
            return
        with _ENTERING:
            context = self._outside = context_api.get_current()
            for propagator in _PROPAGATORS:
                context = propagator.extract(self._carrier, context)
            self._inside = context
            context_api.attach(context)
            self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is None:
            return
        with _LEAVING:
            self._block.__exit__(kind, error, trace)
            # Not with the token of the attach, which only the task that made it could use: a coroutine may be
            # closed in another one, whose context is not ours to change.
            if context_api.get_current() is self._inside:
                context_api.attach(self._outside)
