"""Requests of a model server in a worker: each a member of its steps, and on one rank a container too.

Its span hangs under the trace that the request came with, and its totals are those of all its steps.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry.trace import INVALID_SPAN, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import faults
from gputrace.integrations.serving_stamps import Stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.batching import Member
    from gputrace.requests import Request

_propagator = TraceContextTextMapPropagator()
_NOTHING = Stamp({}, None, {})


class Containers:
    """The requests that are open in a worker.

    Args:
        counted: This is the rank that counts requests; the others only charge their devices.
        unstamped: Reason under which requests are counted that no front end of ours has stamped.
    """

    def __init__(self, *, counted: bool, unstamped: str) -> None:
        self._counted = counted
        self._unstamped = unstamped
        self._open: dict[str, Request] = {}

    def open(self, operation: str, name: str, stamp: Stamp | None, variant: str | None) -> Member:
        """Return the member that a request is in its steps.

        Args:
            operation: What it is called.
            name: Its id.
            stamp: What the front end wrote.
            variant: Variant of the model that serves it, None for the model as it is.
        """
        if stamp is None:
            if self._counted:
                faults.unmeasured(self._unstamped)
            stamp = _NOTHING
        # In a context of its own: it stays open while the worker's thread goes on to other things.
        return copy_context().run(self._begin, operation, name, stamp, variant)

    def _begin(self, operation: str, name: str, stamp: Stamp, variant: str | None) -> Member:
        if not self._counted:
            with gputrace.attribute_to(**stamp.fields):
                return _member(variant)
        if stamp.trace:
            context_api.attach(_propagator.extract(stamp.trace, context_api.get_current()))
        attributes: dict[str, Any] = {"gen_ai.response.id": name}
        if stamp.request is not None:
            attributes["gputrace.request.id"] = stamp.request
        block = gputrace.request(operation, attributes=attributes, **stamp.fields)
        self._open[name] = block.__enter__()
        return _member(variant)

    def close(
        self, name: str, attributes: Mapping[str, Any], status: str | None = None, reason: str | None = None
    ) -> None:
        """Close a request; one that is not open is left.

        Args:
            name: Its id.
            attributes: More attributes for its span.
            status: ``cancelled`` or ``error``, None for ok.
            reason: The server's own word for an error.
        """
        request = self._open.pop(name, None)
        if request is None:
            return
        request.describe(attributes=attributes)
        if status is None:
            request.close()
        else:
            request.close(status=status, error_type=reason if status == "error" else None)


def _member(variant: str | None) -> Member:
    # Without a span: the steps of a server would each link to all that they serve.
    context_api.attach(set_span_in_context(INVALID_SPAN))
    return gputrace.member(variant=variant)
