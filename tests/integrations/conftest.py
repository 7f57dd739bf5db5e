from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import context as context_api, trace as trace_api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import gputrace
from gputrace.telemetry import spans
from gputrace.testing import Recorder, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan


class Bench(Recorder):
    """Records calls on a clock that only `work` advances."""

    def __init__(self) -> None:
        self.time = VirtualClock()
        super().__init__(self.time)

    def work(self, ns: int = 10, **fields: Any) -> None:
        with gputrace.span("work", **fields):
            self.time.advance(ns)

    def billed(self) -> list[tuple[str, str, str | None]]:
        """Feature and status of each call that is no request, and the request that it was inside."""
        return [
            (one.feature, one.status, None if one.call.root is None else one.call.root.site.operation)
            for one in self.settled()
            if not one.call.site.is_request
        ]

    def requests(self) -> list[tuple[str, str, str, int]]:
        """Route, feature, status and number of calls of each request."""
        return [
            (one.call.request.route, one.feature, one.status, one.call.request.calls)
            for one in self.settled()
            if one.call.site.is_request
        ]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as bench:
        yield bench


class Traced:
    """A tracer provider of the user's, whose spans are kept in memory."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        keep = bench.settler.on_settled
        assert keep is not None

        def settled(followed: Any, measured: dict[str, str | float]) -> None:
            keep(followed, measured)
            spans.finish(followed.call, followed.last_ns, measured)

        bench.settler.on_settled = settled

    def spans(self, scope: str = "gputrace") -> dict[str, ReadableSpan]:
        """The spans of one instrumentation, by name."""
        self._bench.settle()
        ended = self._exporter.get_finished_spans()
        return {span.name: span for span in ended if span.instrumentation_scope.name == scope}


@pytest.fixture
def traced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    monkeypatch.setattr(spans, "_tracer", None)
    monkeypatch.setattr(spans, "enabled", True)
    monkeypatch.setattr(spans, "on_provider", lambda: None)
    made = Traced(bench)
    monkeypatch.setattr(trace_api, "_TRACER_PROVIDER", made.provider)
    yield made
    context_api.attach(context_api.Context())


@pytest.fixture(scope="session")
def fetch() -> Any:
    """`await fetch(app, path, ...)`: the responses of an application in this process."""
    import httpx

    async def fetched(app: Any, *paths: str, method: str = "GET", **headers: str) -> list[Any]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            return [await client.request(method, path, headers=headers) for path in paths]

    return fetched


@pytest.fixture(scope="session")
def ray_cluster(needs: Any, tmp_path_factory: Any) -> Iterator[Any]:
    """A Ray cluster; this process is no part of it."""
    needs("ray")
    from tests.integrations.ray_cluster import cluster

    with cluster(tmp_path_factory.mktemp("ray")) as made:
        yield made


@pytest.fixture(scope="session")
def ray_address(ray_cluster: Any) -> str:
    """What `ray.init(address=...)` takes."""
    return str(ray_cluster.address)
