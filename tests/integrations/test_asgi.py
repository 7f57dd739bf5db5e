"""Applications without FastAPI, driven message by message: WebSockets, disconnects, the lifespan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace.integrations import asgi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.requires("fastapi")

GONE = {"type": "http.disconnect"}
BODY = {"type": "http.request", "body": b"", "more_body": False}


def scope_of(path: str, kind: str = "http", **more: Any) -> dict[str, Any]:
    scope = {"type": kind, "path": path, "raw_path": path.encode(), "root_path": "", "headers": []}
    if kind == "http":
        scope["method"] = "GET"
    return {**scope, "query_string": b"", "asgi": {"version": "3.0", "spec_version": "2.3"}, **more}


class Connection:
    """What a server gives an application: these messages, and then it waits for ever."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = asyncio.Queue[dict[str, Any]]()
        self.sent: list[dict[str, Any]] = []
        self.lost = False
        for message in messages:
            self._messages.put_nowait(message)

    async def receive(self) -> dict[str, Any]:
        return await self._messages.get()

    async def send(self, message: dict[str, Any]) -> None:
        if self.lost:
            raise OSError
        self.sent.append(message)

    async def run(self, app: Any, scope: dict[str, Any]) -> None:
        await app(scope, self.receive, self.send)

    async def streaming(self) -> None:
        """Wait until a first part of the response was sent."""
        while len(self.sent) < 2:  # noqa: ASYNC110 - one turn of the loop at a time
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        self._messages.put_nowait(GONE)


async def test_any_application_is_wrapped(bench: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        bench.work()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        bench.work()
        await send({"type": "http.response.body", "body": b"b"})
        bench.work()

    wrapped = gputrace.instrument(app, feature=lambda scope: f"feature-of-{scope['path']}")
    assert gputrace.instrument(wrapped) is wrapped
    assert asgi.remove(wrapped) is app
    await Connection().run(wrapped, scope_of("/p"))
    inside = ("feature-of-/p", "ok", "GET")
    assert bench.billed() == [inside, inside, ("feature-of-/p", "ok", None)]
    assert bench.requests() == [("unmatched", "feature-of-/p", "ok", 2)]
    assert gputrace.current().feature == "__none__"


async def test_a_scope_around_the_application_is_explicit(bench: Any) -> None:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def endpoint(request: Any) -> Response:
        bench.work()
        return Response()

    app = gputrace.instrument(Starlette(routes=[Route("/e/{x:path}", endpoint)]))
    with gputrace.attribute_to(feature="around"):
        await Connection(BODY).run(app, scope_of("/e/a/b"))
    assert bench.requests() == [("/e/{x}", "around", "ok", 1)]


async def test_a_websocket_is_one_request(bench: Any) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount, WebSocketRoute
    from starlette.websockets import WebSocketDisconnect

    @gputrace.feature("chat")
    async def talk(socket: Any) -> None:
        await socket.accept()
        while True:
            await socket.receive_text()
            bench.work()

    routes = [Mount("/m", routes=[WebSocketRoute("/ws/{room}", talk)])]
    app = gputrace.instrument(Starlette(routes=routes))
    for code in (1000, 1006):
        said = [{"type": "websocket.receive", "text": "a"}] * 3
        connection = Connection(
            {"type": "websocket.connect"}, *said, {"type": "websocket.disconnect", "code": code}
        )
        with pytest.raises(WebSocketDisconnect):
            await connection.run(app, scope_of("/m/ws/7", "websocket", subprotocols=[]))
    assert bench.requests() == [
        ("/m/ws/{room}", "chat", "ok", 3),
        ("/m/ws/{room}", "chat", "cancelled", 3),
    ]
    assert bench.settled()[0].call.root.site.operation == "WEBSOCKET /m/ws/{room}"


def streaming(bench: Any, *, sync: bool) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    go_on = asyncio.Event()

    @gputrace.track(operation="part")
    def compute(number: int) -> str:
        bench.time.advance(number)
        return str(number)

    def parts() -> Iterator[str]:
        for number in range(1, 4):
            yield compute(number)

    async def endless() -> AsyncIterator[str]:
        yield compute(1)
        await go_on.wait()
        yield compute(2)

    async def endpoint(request: Any) -> StreamingResponse:
        return StreamingResponse(parts() if sync else endless())

    app = Starlette(routes=[Route("/s", endpoint)])
    app.state.go_on = go_on
    return gputrace.instrument(app)


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
async def test_a_stream_is_inside_its_request(bench: Any, spec_version: str) -> None:
    app = streaming(bench, sync=True)
    scope = scope_of("/s", asgi={"version": "3.0", "spec_version": spec_version})
    await Connection(BODY).run(app, scope)
    assert [one.held_ns for one in bench.settled()[:-1]] == [1, 2, 3]
    assert bench.requests() == [("/s", "/s", "ok", 3)]


async def test_a_client_that_goes_cancels_its_request(bench: Any) -> None:
    app = streaming(bench, sync=False)
    connection = Connection(BODY)
    running = asyncio.ensure_future(connection.run(app, scope_of("/s")))
    await connection.streaming()
    connection.hang_up()
    await running
    assert bench.requests() == [("/s", "/s", "cancelled", 1)]


async def test_a_server_that_cannot_send_cancels_the_request(bench: Any) -> None:
    app = streaming(bench, sync=False)
    connection = Connection(BODY)
    scope = scope_of("/s", asgi={"version": "3.0", "spec_version": "2.4"})
    running = asyncio.ensure_future(connection.run(app, scope))
    await connection.streaming()
    connection.lost = True
    app.state.go_on.set()
    (outcome,) = await asyncio.gather(running, return_exceptions=True)
    # Older Starlettes run the response in a task group.
    assert type(outcome).__name__ in {"ClientDisconnect", "ExceptionGroup"}
    assert bench.requests() == [("/s", "/s", "cancelled", 2)]


async def test_a_server_that_cancels_the_task(bench: Any) -> None:
    app = streaming(bench, sync=False)
    connection = Connection(BODY)
    running = asyncio.ensure_future(connection.run(app, scope_of("/s")))
    await connection.streaming()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.requests() == [("/s", "/s", "cancelled", 1)]


async def test_middleware_that_runs_the_application_in_a_task_of_its_own(bench: Any) -> None:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    def endpoint(request: Any) -> Response:
        gputrace.current().set(feature="set")
        bench.work()
        return PlainTextResponse("a", background=BackgroundTask(bench.work))

    async def dispatch(request: Any, call_next: Any) -> Response:
        return await call_next(request)

    app = Starlette(routes=[Route("/t", endpoint)])
    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    gputrace.instrument(app)
    await Connection(BODY).run(app, scope_of("/t"))
    assert bench.billed() == [("set", "ok", "GET /t"), ("set", "ok", None)]
    assert bench.requests() == [("/t", "set", "ok", 1)]


async def test_background_work_begins_a_trace_that_is_linked(bench: Any, traced: Any) -> None:
    """Where nobody else has a span for it: nothing may hang under the request, which is over."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"b"})
        with gputrace.span("later"):
            bench.work()

    await Connection().run(gputrace.instrument(app), scope_of("/p"))
    spans = traced.spans()
    assert spans["later"].parent is None
    assert [link.context for link in spans["later"].links] == [spans["GET"].context]
    assert spans["work"].parent == spans["later"].context
    assert not spans["work"].links


async def test_the_lifespan_flushes_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.applications import Starlette

    connection = Connection({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    flushed: list[list[str]] = []

    def flush(timeout: float) -> bool:
        flushed.append([message["type"] for message in connection.sent])
        return True

    monkeypatch.setattr(gputrace, "flush", flush)
    await connection.run(gputrace.instrument(Starlette()), {"type": "lifespan", "asgi": {}, "state": {}})
    assert flushed == [["lifespan.startup.complete"]]
    assert connection.sent[-1]["type"] == "lifespan.shutdown.complete"
