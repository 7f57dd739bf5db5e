"""Tracked calls in virtual time: tests see exact integers, and nothing depends on how fast anything runs."""

from __future__ import annotations

import gc
import logging
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import context as context_api, trace as trace_api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from gputrace import attribution, call as calls, faults
from gputrace.devices import selection
from gputrace.telemetry import spans
from gputrace.testing import RecordedCall, Recorder, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer


class Rig(Recorder):
    """Records calls, on a clock that only `work` advances."""

    def __init__(self) -> None:
        self.time = VirtualClock()
        super().__init__(self.time)

    def work(self, ns: int) -> None:
        self.time.advance(ns)

    def one(self) -> RecordedCall:
        """The only call that was settled."""
        (call,) = self.settled()
        return call

    def by_operation(self, what: str) -> dict[str, int]:
        """Sums of `charged_ns`, `held_ns` or `duration_ns`."""
        summed: dict[str, int] = {}
        for call in self.settled():
            summed[call.operation] = summed.get(call.operation, 0) + getattr(call, what)
        return summed

    def open_calls(self) -> int:
        self.settle()
        return len(self.settler._followed)


class Traced:
    """A user's tracer provider whose spans are kept in memory."""

    def __init__(self, rig: Rig, sampler: Sampler) -> None:
        self._rig = rig
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("user")

    def ended(self, name: str) -> list[ReadableSpan]:
        self._rig.settle()
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span of that name, ended."""
        (span,) = self.ended(name)
        return span


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Every test begins and ends outside of any scope, in both contexts."""
    # Not the fixture monkeypatch: what tests patch with that must be as before when the rig is taken down.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attribution, "mirrored", False)
        patch.setattr(trace_api, "_TRACER_PROVIDER", None)
        faults.reset()
        attribution.current_scope.set(None)
        context_api.attach(context_api.Context())
        yield
        assert attribution.current_scope.get() is None
        assert not any(context_api.get_current().values())
    assert (calls.clock, selection.gpu) == (monotonic_ns, False)


@pytest.fixture(autouse=True)
def rig(nothing_leaks: None) -> Iterator[Rig]:
    with Rig() as recorder:
        yield recorder


@pytest.fixture
def traced(rig: Rig, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Traced:
    """Sampled always, or as an indirect parameter says."""
    made = Traced(rig, getattr(request, "param", ALWAYS_ON))
    monkeypatch.setattr(trace_api, "_TRACER_PROVIDER", made.provider)
    monkeypatch.setattr(spans, "enabled", True)
    keep = rig.settler.on_settled
    assert keep is not None

    def settled(followed: Any, measured: dict[str, str | float]) -> None:
        keep(followed, measured)
        spans.finish(followed.call, followed.last_ns, measured)

    rig.settler.on_settled = settled
    return made


@pytest.fixture
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Nothing may be logged at WARNING or above, by anyone."""
    with caplog.at_level(logging.WARNING):
        yield caplog
        gc.collect()
        assert [record.getMessage() for record in caplog.records] == []
