"""FastAPI applications: whose feature a request is, and what belongs to it."""

import asyncio
import inspect
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from opentelemetry.trace import SpanKind

import gputrace
from gputrace import baggage, settings

pytestmark = pytest.mark.requires("fastapi", "httpx")


@pytest.fixture
def app() -> Any:
    from fastapi import FastAPI

    return FastAPI()


async def test_the_mark_of_the_endpoint_wins(app: Any, bench: Any, fetch: Any) -> None:
    from fastapi import Depends

    @app.get(
        "/a/{number:int}",
        tags=["t"],
        openapi_extra={"x-gputrace-feature": "extra"},
        dependencies=[Depends(gputrace.feature("dependency"))],
    )
    @gputrace.feature("marked")
    def a(number: int) -> int:
        bench.work()
        return number

    gputrace.instrument(app, tags={"t": "tagged"}, feature=lambda _: "resolved")
    (answer,) = await fetch(app, "/a/7")
    assert answer.json() == 7
    assert bench.billed() == [("marked", "ok", "GET /a/{number}")]
    assert bench.requests() == [("/a/{number}", "marked", "ok", 1)]


async def test_the_mark_of_the_nearest_dependency(app: Any, bench: Any, fetch: Any) -> None:
    from fastapi import APIRouter, Depends

    @gputrace.feature("function")
    def marked() -> None:
        """A dependency of the user's own."""

    router = APIRouter(prefix="/r", dependencies=[Depends(gputrace.feature("router"))])

    @router.get("/plain")
    async def plain() -> None:
        bench.work()

    @router.get("/own")
    async def own(_: Annotated[None, Depends(marked)]) -> None:
        bench.work()

    app.include_router(router, prefix="/v1")
    gputrace.instrument(app)
    _, _, schema = await fetch(app, "/v1/r/plain", "/v1/r/own", "/openapi.json")
    assert bench.billed() == [
        ("router", "ok", "GET /v1/r/plain"),
        ("function", "ok", "GET /v1/r/own"),
    ]
    paths = schema.json()["paths"]
    assert [path["get"].get("parameters") for path in paths.values()] == [None, None]


async def test_what_a_dependency_sets_reaches_the_endpoint(app: Any, bench: Any, fetch: Any) -> None:
    """In a thread of the pool, in the event loop, and around a `yield`."""
    from fastapi import Depends

    def in_a_thread() -> None:
        gputrace.current().set(feature="thread", tenant="acme")

    async def in_the_loop() -> None:
        gputrace.current().set(feature="loop")

    def around() -> Iterator[None]:
        gputrace.current().set(feature="around")
        yield
        bench.work()

    for path, dependency in (("/thread", in_a_thread), ("/loop", in_the_loop), ("/around", around)):

        @app.get(path, dependencies=[Depends(dependency)])
        def endpoint() -> None:
            bench.work()

    gputrace.instrument(app, feature=lambda _: "resolved")
    await fetch(app, "/thread", "/loop", "/around")
    assert [feature for feature, *_ in bench.billed()] == ["thread", "loop", "around", "around"]
    assert [row[1] for row in bench.requests()] == ["thread", "loop", "around"]
    assert bench.settled()[0].tenant == "acme"


async def test_then_the_declaration_the_resolver_the_route(app: Any, bench: Any, fetch: Any) -> None:
    from fastapi import APIRouter

    router = APIRouter(prefix="/r", tags=["t"])

    @router.get("/extra", openapi_extra={"x-gputrace-feature": "extra"})
    def extra() -> None:
        bench.work()

    @router.get("/tagged")
    def tagged() -> None:
        bench.work()

    app.include_router(router)

    @app.get("/resolved/{x}")
    def resolved(x: int) -> None:
        bench.work(x)

    @app.get("/route/{x}")
    def route(x: int) -> None:
        bench.work(x)

    def resolve(scope: Any) -> str | None:
        parameters = scope.get("path_params")
        return f"resolved-{parameters['x']}" if parameters and "resolved" in scope["path"] else None

    gputrace.instrument(app, tags={"t": "tagged"}, feature=resolve)
    await fetch(app, "/r/extra", "/r/tagged", "/resolved/3", "/route/4")
    assert [row[0] for row in bench.billed()] == ["extra", "tagged", "resolved-3", "/route/{x}"]


async def test_mounted_applications_and_paths_that_nobody_answers(app: Any, bench: Any, fetch: Any) -> None:
    from fastapi import FastAPI

    inner = FastAPI()

    @inner.get("/in/{y}")
    async def inside(y: int) -> None:
        bench.work(y)

    app.mount("/sub/{k}", inner)
    gputrace.instrument(app)
    gputrace.instrument(inner)
    await fetch(app, "/sub/1/in/2", "/sub/3/nothing", "/nothing/4")
    await fetch(app, "/sub/5/in/6", method="BREW")
    assert [
        (one.operation, one.call.request.route) for one in bench.settled() if one.call.site.is_request
    ] == [
        ("GET /sub/{k}/in/{y}", "/sub/{k}/in/{y}"),
        ("GET /sub/{k}", "/sub/{k}"),
        ("GET", "unmatched"),
        ("HTTP /sub/{k}/in/{y}", "/sub/{k}/in/{y}"),
    ]


async def test_opentelemetry_python_contrib_3586(app: Any, bench: Any, fetch: Any) -> None:
    """What a sync endpoint sets reaches its background tasks and its stream."""
    from fastapi import BackgroundTasks
    from fastapi.responses import StreamingResponse

    async def later() -> None:
        bench.work(3)

    @app.get("/s")
    def endpoint(background: BackgroundTasks) -> StreamingResponse:
        gputrace.current().set(feature="set")
        background.add_task(bench.work, 2)
        background.add_task(later)

        def parts() -> Iterator[str]:
            bench.work(1)
            yield "a"

        return StreamingResponse(parts(), background=background)

    gputrace.instrument(app)
    await fetch(app, "/s")
    assert bench.billed() == [("set", "ok", "GET /s"), ("set", "ok", None), ("set", "ok", None)]
    assert bench.requests() == [("/s", "set", "ok", 1)]


async def test_opentelemetry_python_contrib_4251(app: Any, bench: Any, traced: Any, fetch: Any) -> None:
    """Background work has a span of its own, linked to the request and not under what has ended."""
    from fastapi import BackgroundTasks

    @app.get("/b")
    @gputrace.feature("search")
    async def endpoint(background: BackgroundTasks) -> None:
        background.add_task(background_work)

    async def background_work() -> None:
        # While the span of the request is told, and is over.
        bench.settle()
        with gputrace.span("later"):
            bench.time.advance(5)

    gputrace.instrument(app)
    await fetch(app, "/b")
    request, later = traced.spans()["GET /b"], traced.spans()["later"]
    assert [link.context.span_id for link in later.links] == [request.context.span_id]
    # FastAPI's own telemetry has a span for each background task; without it this begins a trace.
    beneath = traced.spans("fastapi").get("fastapi.background_task")
    assert later.parent == (None if beneath is None else beneath.context)
    assert bench.requests() == [("/b", "search", "ok", 0)]
    assert bench.time_by() == {"search": 5 / 1e9}


async def test_opentelemetry_python_contrib_5081(app: Any, bench: Any) -> None:
    """Requests that run at once keep their own: 1 000 orders of two of them."""
    import httpx

    gates: dict[str, asyncio.Semaphore] = {}

    def who(name: str) -> None:
        gputrace.current().set(feature=name, tenant=f"tenant-{name}")

    from fastapi import Depends
    from fastapi.responses import StreamingResponse

    @app.get("/w/{name}", dependencies=[Depends(gate_of(gates))])
    async def work(name: str) -> StreamingResponse:
        who(name)
        await gates[name].acquire()
        bench.work(1)

        async def parts() -> AsyncIterator[str]:
            await gates[name].acquire()
            bench.work(2)
            yield name

        return StreamingResponse(parts())

    gputrace.instrument(app)
    generator = random.Random(5081)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        for number in range(1_000):
            names = (f"a{number % 7}", f"b{number % 5}")
            gates.update({name: asyncio.Semaphore(0) for name in names})
            tasks = [asyncio.ensure_future(client.get(f"/w/{name}")) for name in names]
            turns = [name for name in names for _ in range(3)]
            generator.shuffle(turns)
            for name in turns:
                gates[name].release()
                for _ in range(generator.randrange(8)):
                    await asyncio.sleep(0)
            assert [answer.text for answer in await asyncio.gather(*tasks)] == list(names)
    calls = bench.settled()
    assert sum(one.call.site.is_request for one in calls) == 2_000
    for one in calls:
        assert one.tenant == f"tenant-{one.feature}"
        if one.call.root is not None:
            assert one.call.root.attribution.feature == one.feature
    assert {one.call.request.calls for one in calls if one.call.site.is_request} == {2}


def gate_of(gates: dict[str, asyncio.Semaphore]) -> Any:
    async def gate(name: str) -> None:
        await gates[name].acquire()

    return gate


async def test_beside_the_frameworks_own_telemetry(app: Any, bench: Any, traced: Any, fetch: Any) -> None:
    """One server span, FastAPI's where it makes one; ours is beneath it, and what is tracked beneath ours."""

    @app.get("/n")
    def endpoint() -> None:
        bench.work()

    gputrace.instrument(app)
    await fetch(app, "/n")
    ours, work = traced.spans()["GET /n"], traced.spans()["work"]
    assert ours.kind is SpanKind.INTERNAL
    server = traced.spans("fastapi").get("GET /n")
    assert ours.parent == (None if server is None else server.context)
    assert work.parent.trace_id == ours.context.trace_id
    assert ours.attributes["http.route"] == "/n"
    assert ours.attributes["gputrace.request.call.count"] == 1


async def test_failures(app: Any, bench: Any, fetch: Any) -> None:
    from fastapi import HTTPException

    @app.get("/raises")
    def raises() -> None:
        bench.work()
        raise KeyError

    @app.get("/busy")
    def busy() -> None:
        raise HTTPException(503)

    @app.get("/refused")
    def refused() -> None:
        raise HTTPException(404)

    gputrace.instrument(app)
    answers = await fetch(app, "/raises", "/busy", "/refused")
    assert [answer.status_code for answer in answers] == [500, 503, 404]
    errors = [(one.status, one.call.error_type) for one in bench.settled() if one.call.site.is_request]
    assert errors == [("error", "KeyError"), ("error", "503"), ("ok", None)]


async def test_a_resolver_that_fails_changes_nothing(
    app: Any, bench: Any, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTRACE_RAISE_FAULTS")

    @app.get("/r")
    def endpoint() -> None:
        bench.work()

    gputrace.instrument(app, feature=lambda scope: scope["no such key"])
    (answer,) = await fetch(app, "/r")
    assert answer.status_code == 200
    assert bench.requests() == [("/r", "/r", "ok", 1)]


async def test_server_timing_tells_what_is_settled(app: Any, bench: Any, fetch: Any) -> None:
    @app.get("/t")
    async def endpoint() -> None:
        bench.work(2_500_000)
        bench.settle()
        bench.work()

    gputrace.instrument(app, server_timing=True)
    (answer,) = await fetch(app, "/t")
    assert answer.headers["server-timing"] == 'gputrace;dur=2.500;desc="charged, 1 calls"'


async def test_twice_is_once_and_removed_is_gone(app: Any, bench: Any, fetch: Any) -> None:
    from gputrace.integrations import asgi

    @app.get("/o")
    def endpoint(x: int = 0) -> int:
        bench.work()
        return x

    signature = inspect.signature(endpoint)
    assert gputrace.instrument(gputrace.instrument(app)) is app
    assert len(app.user_middleware) == 1
    await fetch(app, "/o")
    assert bench.requests() == [("/o", "/o", "ok", 1)]
    assert inspect.signature(endpoint) == signature
    asgi.remove(app)
    await fetch(app, "/o")
    assert len(bench.requests()) == 1
    assert app.user_middleware == []
    # Also an application that has served.
    gputrace.instrument(app)
    await fetch(app, "/o")
    assert len(bench.requests()) == 2


LOADED = """
import asyncio, sys, cloudpickle, httpx
from starlette.datastructures import State
from gputrace.testing import Recorder

# Starlette 1.10 cannot load any application: its State looks up its own attribute for ever.
State.__setstate__ = lambda state, given: state.__dict__.update(given)

app = cloudpickle.load(sys.stdin.buffer)

async def main():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        print((await client.get("/p/3")).text)

with Recorder() as recorder:
    asyncio.run(main())
    for call in recorder.settled():
        print(call.operation, call.feature)
"""


@pytest.mark.parametrize("served", [False, True])
async def test_an_instrumented_application_is_cloudpickled(
    app: Any, bench: Any, fetch: Any, *, served: bool
) -> None:
    import cloudpickle

    def endpoint(x: int) -> int:
        with gputrace.span("work"):
            return x

    # As in a program: this module is none that another interpreter could import.
    endpoint.__module__ = "__main__"
    app.get("/p/{x}")(gputrace.feature("pickled")(endpoint))
    gputrace.instrument(app, feature=lambda _: None)
    if served:
        await fetch(app, "/p/1")
    pickled = cloudpickle.dumps(app)
    process = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", LOADED], input=pickled, capture_output=True, check=False
    )
    assert process.stdout.decode() == "3\nwork pickled\nGET /p/{x} pickled\n", process.stderr.decode()


async def test_the_instrumentor_finds_every_application_and_restores_it(
    app: Any, bench: Any, fetch: Any
) -> None:
    """Those that existed before, too; instrumented by hand as well, a request is still one."""
    from fastapi import FastAPI
    from fastapi.routing import APIRoute
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route, WebSocketRoute

    from gputrace.integrations import asgi_routes
    from gputrace.integrations.fastapi import FastAPIInstrumentor

    def methods() -> list[Any]:
        built = [FastAPI.build_middleware_stack, Starlette.build_middleware_stack]
        return [*built, *(one.handle for one in (APIRoute, Mount, Route, WebSocketRoute))]

    @app.get("/i")
    def endpoint() -> None:
        bench.work()

    asgi_routes.unwatch()
    before = methods()
    FastAPIInstrumentor().instrument(tags={"t": "tagged"})
    try:
        await fetch(app, "/i")
        gputrace.instrument(app)
        await fetch(app, "/i")
        assert bench.requests() == [("/i", "/i", "ok", 1)] * 2
    finally:
        FastAPIInstrumentor().uninstrument()
    assert methods() == before
    await fetch(app, "/i")
    assert len(bench.requests()) == 2


def test_what_cannot_be_instrumented_or_marked_says_so() -> None:
    with pytest.raises(TypeError, match="instrument: 3 is no ASGI application"):
        gputrace.instrument(3)
    with pytest.raises(TypeError, match=r"feature: .* cannot be marked"):
        gputrace.feature("f")(len)
    with pytest.raises(ValueError, match="reserved"):
        gputrace.feature("__f")


@pytest.fixture
def signed() -> Iterator[None]:
    baggage.use(settings.read(environment={"GPUTRACE_BAGGAGE_KEY": "a key that both services know"}))
    yield
    baggage.use(settings.Settings())


@pytest.mark.usefixtures("signed")
async def test_the_feature_of_a_caller_that_signs_is_billed(app: Any, bench: Any, fetch: Any) -> None:
    """Above the route, below what the service says itself; a forged header changes nothing."""

    @app.get("/embed")
    async def embed() -> None:
        bench.work()

    @app.get("/own")
    @gputrace.feature("own")
    async def own() -> None:
        bench.work()

    gputrace.instrument(app)
    headers: dict[str, str] = {}
    with gputrace.attribute_to(feature="support-answer"):
        gputrace.inject(headers)
    await fetch(app, "/embed", "/own", **headers)
    await fetch(app, "/embed", baggage="gputrace.feature=evil,gputrace.tenant=admin")
    assert [feature for feature, _, _ in bench.billed()] == ["support-answer", "own", "/embed"]
