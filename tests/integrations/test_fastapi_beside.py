"""Beside ``opentelemetry-instrumentation-fastapi``: one server span, its own, which says whom it was for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import SpanKind

import gputrace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.requires("fastapi", "httpx")


@pytest.fixture(params=["before us", "after us"])
def app(request: pytest.FixtureRequest, traced: Any) -> Iterator[Any]:
    from fastapi import FastAPI
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    made = FastAPI()
    if request.param == "before us":
        FastAPIInstrumentor.instrument_app(made, tracer_provider=traced.provider)
        gputrace.instrument(made)
    else:
        gputrace.instrument(made)
        FastAPIInstrumentor.instrument_app(made, tracer_provider=traced.provider)
    yield made
    FastAPIInstrumentor.uninstrument_app(made)


def the_server_span(traced: Any) -> Any:
    theirs = traced.spans("opentelemetry.instrumentation.fastapi").values()
    (server,) = [span for span in theirs if span.kind is SpanKind.SERVER]
    assert not [span for span in traced.spans().values() if span.kind is SpanKind.SERVER]
    return server


async def test_one_server_span_that_says_whom_it_was_for(
    app: Any, bench: Any, traced: Any, fetch: Any
) -> None:
    @app.get("/n/{number}")
    @gputrace.feature("search")
    async def endpoint(number: int) -> int:
        gputrace.current().set(tenant="acme")
        bench.work()
        return number

    (answer,) = await fetch(app, "/n/7")
    assert answer.json() == 7
    server, ours = the_server_span(traced), traced.spans()["GET /n/{number}"]
    assert (ours.kind, ours.parent) == (SpanKind.INTERNAL, server.context)
    assert traced.spans()["work"].parent == ours.context
    assert server.attributes["gputrace.feature"] == "search"
    assert server.attributes["gputrace.tenant"] == "acme"
    assert server.attributes["gputrace.request.id"] == ours.attributes["gputrace.call.id"]
    assert bench.requests() == [("/n/{number}", "search", "ok", 1)]


async def test_what_a_stream_says_at_its_end_is_still_told(
    app: Any, bench: Any, traced: Any, fetch: Any
) -> None:
    from fastapi.responses import StreamingResponse

    @app.get("/stream")
    async def endpoint() -> Any:
        async def parts() -> AsyncIterator[str]:
            yield "a"
            gputrace.current().set(tenant="late")
            bench.work()
            yield "b"

        return StreamingResponse(parts())

    (answer,) = await fetch(app, "/stream")
    assert answer.text == "ab"
    assert the_server_span(traced).attributes["gputrace.tenant"] == "late"


async def test_one_that_fails_is_told_too(app: Any, bench: Any, traced: Any, fetch: Any) -> None:
    @app.get("/fails")
    @gputrace.feature("search")
    async def endpoint() -> None:
        bench.work()
        raise KeyError

    await fetch(app, "/fails")
    assert the_server_span(traced).attributes["gputrace.feature"] == "search"
    assert bench.requests() == [("/fails", "search", "error", 1)]


async def test_a_span_that_is_none_of_a_server_is_left_alone(bench: Any, traced: Any, fetch: Any) -> None:
    from fastapi import FastAPI

    app = gputrace.instrument(FastAPI())
    with traced.provider.get_tracer("batch job").start_as_current_span("job"):
        await fetch(app, "/missing")
    assert not traced.spans("batch job")["job"].attributes
