"""The middleware of a model server's API: requests are billed to what their trusted baggage says."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api, trace as trace_api
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import baggage, faults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

_ENTERING = faults.contained("read the headers of a request of a model server")
_TRACE_HEADERS = ("traceparent", "tracestate")

_propagator = TraceContextTextMapPropagator()


class Middleware:
    """Bills what a request makes the engine do, for vLLM's ``--middleware`` and SGLang's application.

    It opens no container: that of a request of the engine is the worker's.

    Args:
        app: The application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle one request or WebSocket with its attribution and its trace in force."""
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        with ExitStack() as stack:
            with _ENTERING:
                _enter(stack, scope)
            await self.app(scope, receive, send)


def _enter(stack: ExitStack, scope: MutableMapping[str, Any]) -> None:
    headers = scope.get("headers", ())
    if not trace_api.get_current_span().get_span_context().is_valid:
        # Nobody else has read it: without an instrumentation of the server's own.
        names = {name.encode(): name for name in _TRACE_HEADERS}
        carrier = {
            names[name.lower()]: value.decode("latin-1") for name, value in headers if name.lower() in names
        }
        if carrier:
            token = context_api.attach(_propagator.extract(carrier, context_api.get_current()))
            stack.callback(context_api.detach, token)
    fields = baggage.incoming(headers, scope)
    if fields:
        stack.enter_context(gputrace.attribute_to(**fields))
