"""One HTTP request or WebSocket on its way through an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind

from gputrace import baggage, faults
from gputrace.integrations import asgi_routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    from opentelemetry.trace import Span

    from gputrace.integrations.asgi import Options
    from gputrace.requests import Request

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

UNMATCHED = "unmatched"

_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
#: Names of the exceptions with which frameworks and servers say that the client has gone.
_DISCONNECTS = frozenset({"ClientDisconnect", "ClientDisconnected", "WebSocketDisconnect"})
#: Codes with which a WebSocket ends well, or without any.
_GOOD_CODES = frozenset({1000, 1001, 1005})
_SERVER_ERRORS = 500

_RESOLVING = faults.contained("ask which feature a request belongs to")
_JOINING = faults.contained("write to the server span whom a request is billed to")
_TELLING = faults.contained("tell the client what a request came to")


def method_of(scope: Mapping[str, Any]) -> str:
    """Return what stands before the route in the name of a request: of a known few."""
    if scope["type"] == "websocket":
        return "WEBSOCKET"
    method = str(scope.get("method"))
    return method if method in _METHODS else "HTTP"


def _trusted_fields(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return what the caller of this service bills its work to, where the caller is trusted.

    Below everything that this service says itself, above the route.
    """
    return baggage.incoming(scope.get("headers", ()), scope)


class Handling:
    """What is known of one request: of its own, never kept with the middleware.

    Args:
        request: Its container.
        scope: Its ASGI scope.
        options: How the application was instrumented.
        around: The span in force outside; a server span is that of another instrumentation, for this request.
    """

    def __init__(self, request: Request, scope: Scope, options: Options, around: Span) -> None:
        self._request = request
        self._server = around if getattr(around, "kind", None) is SpanKind.SERVER else None
        self._options = options
        self._scope = scope
        self._method = method_of(scope)
        self._prefix = ""
        self._route: Any = None
        self._status_code = 0
        self._gone = False
        # What nobody in this service has said: from here on, it may yet be said.
        self._tentative: str | None = None
        request.describe(route=UNMATCHED)
        given = request.attribution
        missing = {
            name: value for name, value in _trusted_fields(scope).items() if getattr(given, name) is None
        }
        request.set(**missing)
        self._tentative = missing.get("feature")
        self._propose(self._resolved(scope))

    def chosen(self, route: Any, scope: Scope) -> None:
        """Take note of a route that was chosen; of a mount, what is below it chooses again."""
        if route is self._route:
            return
        self._route = route
        effective = asgi_routes.effective(route, scope)
        if not hasattr(route, "endpoint"):
            # Of a mount: its own path, without what stands for the paths below it.
            path = asgi_routes.template(effective).removesuffix("/{path}").rstrip("/")
            self._prefix += path
            if self._prefix:
                self._describe(self._prefix)
            return
        template = self._prefix + asgi_routes.template(effective)
        self._describe(template)
        marked = asgi_routes.marked_feature(effective)
        if marked is not None:
            self._request.set(feature=marked)
            return
        self._propose(
            asgi_routes.declared_feature(effective, self._options.tags) or self._resolved(scope),
            default=template,
        )

    def _describe(self, template: str) -> None:
        self._request.describe(operation=f"{self._method} {template}", route=template)

    def _resolved(self, scope: Scope) -> str | None:
        if self._options.feature is None:
            return None
        with _RESOLVING:
            return self._options.feature(scope)
        return None

    def _propose(self, feature: str | None, default: str | None = None) -> None:
        """Bill to a feature unless the work itself has said another one."""
        now = self._request.attribution.feature
        if now is not None and now != self._tentative:
            return
        if feature is not None:
            self._request.set(feature=feature)
            self._tentative = self._request.attribution.feature
        elif now is None and default is not None:
            self._request.set(feature=default)

    def receiving(self, receive: Receive) -> Receive:
        """Notice when the client goes."""

        async def received() -> Message:
            message = await receive()
            kind = message["type"]
            if kind == "http.disconnect" or (
                kind == "websocket.disconnect" and message.get("code", 1005) not in _GOOD_CODES
            ):
                self._gone = True
            return message

        return received

    def sending(self, send: Send) -> Send:
        """Notice how the response begins, and close the request with its last part."""

        async def sent(message: Message) -> None:
            kind = message["type"]
            if kind == "http.response.start":
                self._status_code = message["status"]
                if self._options.server_timing:
                    with _TELLING:
                        message = self._timed(message)
            last = kind == "http.response.pathsend" or (
                kind == "http.response.body" and not message.get("more_body", False)
            )
            if last:
                # A server span ends with the last part.
                self._tell_server()
            try:
                await send(message)
            except OSError:
                self._gone = True
                raise
            if last:
                self.end()

        return sent

    def end(self, error: BaseException | None = None) -> None:
        """Close the request, unless it is.

        Args:
            error: What the application raised.
        """
        self._tell_server()
        if self._gone:
            self._request.close(status="cancelled")
        elif error is not None:
            # A client that closes a WebSocket ends the endpoint that listens, which is no error.
            normal = type(error).__name__ in _DISCONNECTS
            self._request.close(None if normal else error)
        elif self._status_code >= _SERVER_ERRORS:
            self._request.close(status="error", error_type=str(self._status_code))
        else:
            self._request.close()

    def _tell_server(self) -> None:
        if self._server is not None:
            with _JOINING:
                self._request.describe_to(self._server)

    def _timed(self, message: Message) -> Message:
        calls, charged_ms = self._request.calls, self._request.charged_ns / 1e6
        value = f'gputrace;dur={charged_ms:.3f};desc="charged, {calls} calls"'
        return {**message, "headers": [*message.get("headers", ()), (b"server-timing", value.encode())]}
