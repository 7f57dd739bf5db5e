"""ASGI: each request and each WebSocket is a container that sums up what is done for it.

Pure middleware: it runs in the task of the request, so that the scope it opens
reaches endpoints, dependencies, threads of a pool, streams and background
work. Nothing of a request is kept on the middleware, which all requests share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api

import gputrace
from gputrace import faults
from gputrace.integrations import asgi_routes
from gputrace.integrations.asgi_request import Handling, method_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputrace.integrations.asgi_request import Message, Receive, Scope, Send

#: What a server that stops waits at most for exporters, s.
FLUSH_TIMEOUT_S = 1.8

_OPENING = faults.contained("open a request")
_FLUSHING = faults.contained("flush when the server stops")
_SHUT_DOWN = frozenset({"lifespan.shutdown.complete", "lifespan.shutdown.failed"})


@dataclass(frozen=True)
class Options:
    """How an application was instrumented: see ``gputrace.instrument``."""

    feature: Callable[[Mapping[str, Any]], str | None] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    server_timing: bool = False


class RequestMiddleware:
    """Opens a container for each request.

    Args:
        app: The application.
        options: How it was instrumented.
    """

    def __init__(self, app: Any, options: Options | None = None) -> None:
        self.app = app
        self.options = options or Options()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, one WebSocket or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, _flushing(send))
        elif scope["type"] not in {"http", "websocket"} or asgi_routes.SCOPE_KEY in scope:
            # An application that is mounted in an instrumented one: the request is open.
            await self.app(scope, receive, send)
        else:
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        around = trace_api.get_current_span()
        with gputrace.request(method_of(scope)) as request:
            handling = None
            with _OPENING:
                asgi_routes.watch()
                handling = Handling(request, scope, self.options, around)
            if handling is None:
                await self.app(scope, receive, send)
                return
            scope[asgi_routes.SCOPE_KEY] = handling
            try:
                await self.app(scope, handling.receiving(receive), handling.sending(send))
            except BaseException as error:
                handling.end(error)
                raise
            handling.end()


def _flushing(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] in _SHUT_DOWN:
            # A server that was told to stop by a signal runs no exit hooks.
            with _FLUSHING:
                gputrace.flush(timeout=FLUSH_TIMEOUT_S)
        await send(message)

    return sent


def add(app: Any, options: Options) -> Any:
    """Instrument an application; see ``gputrace.instrument``.

    Raises:
        TypeError: ``app`` is nothing that can be called.
    """
    if not callable(app):
        message = f"instrument: {app!r} is no ASGI application; give the object that the server is given"
        raise TypeError(message)
    if isinstance(app, RequestMiddleware):
        return app
    if not _has_own_stack(app):
        return RequestMiddleware(app, options)
    if not any(entry.cls is RequestMiddleware for entry in app.user_middleware):
        from starlette.middleware import Middleware

        app.user_middleware.insert(0, Middleware(RequestMiddleware, options=options))
        # It is built anew with the next request.
        app.middleware_stack = None
    return app


def remove(app: Any) -> Any:
    """Return an application as it was before :func:`add`."""
    if isinstance(app, RequestMiddleware):
        return app.app
    if _has_own_stack(app):
        kept = [entry for entry in app.user_middleware if entry.cls is not RequestMiddleware]
        if len(kept) < len(app.user_middleware):
            app.user_middleware[:] = kept
            app.middleware_stack = None
    return app


def _has_own_stack(app: Any) -> bool:
    return hasattr(app, "user_middleware") and hasattr(app, "build_middleware_stack")
