"""Spans of tracked calls: what they hang under, how they end, and row 33 of the behaviour matrix."""

from __future__ import annotations

import logging
import threading

import pytest
from opentelemetry import baggage, context as context_api, trace as trace_api
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

import gputrace
from gputrace import catalogue, faults


def test_row_33_one_error_through_two_levels_is_one_event_on_each(traced) -> None:
    @gputrace.track(operation="inner")
    def inner():
        raise ValueError("broken")

    @gputrace.track(operation="outer")
    @gputrace.track
    def outer():
        inner()

    with pytest.raises(ValueError, match="broken"):
        outer()
    for name in ("inner", "outer"):
        span = traced.one(name)
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes["exception.message"] == "broken"
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError: broken")
        assert span.attributes[catalogue.ERROR_TYPE] == "ValueError"
        assert span.attributes[catalogue.STATUS] == "error"


def test_row_33_nothing_is_logged_about_the_users_error(traced, silent) -> None:
    with pytest.raises(ValueError, match="broken"), gputrace.span("block"):
        raise ValueError("broken")
    assert traced.one("block").status.status_code is StatusCode.ERROR
    assert silent.records == []


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_still_an_error(traced, rig, monkeypatch) -> None:
    monkeypatch.delenv(faults.RAISE_VARIABLE)

    @gputrace.track(operation="embed")
    def embed():
        raise UntellableError

    with pytest.raises(UntellableError):
        embed()
    span = traced.one("embed")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "UntellableError")
    assert span.attributes[catalogue.ERROR_TYPE] == "UntellableError"
    assert rig.one().status == "error"


def test_a_spans_place_and_attributes(traced, rig) -> None:
    @gputrace.track(feature="search", model="minilm", attributes={"rows": 3})
    def embed():
        rig.work(5)
        with traced.tracer.start_as_current_span("user's own"):
            pass

    with traced.tracer.start_as_current_span("caller") as caller:
        embed()
    span = traced.one(embed.__qualname__)
    assert span.parent.span_id == caller.get_span_context().span_id
    assert traced.one("user's own").parent.span_id == span.context.span_id
    assert span.attributes["rows"] == 3
    assert span.attributes[catalogue.FEATURE] == "search"
    assert span.attributes[catalogue.MODEL] == "minilm"
    assert span.attributes["code.function.name"] == embed.__qualname__
    assert span.attributes[catalogue.CALL_ID] == rig.one().call.id
    assert catalogue.VARIANT not in span.attributes
    assert span.end_time >= span.start_time


def test_a_users_attribute_does_not_hide_the_error(traced) -> None:
    @gputrace.track(operation="embed", attributes={catalogue.ERROR_TYPE: "none"})
    def embed():
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        embed()
    assert traced.one("embed").attributes[catalogue.ERROR_TYPE] == "ValueError"


def test_inside_an_unsampled_trace_nothing_is_made(traced, rig) -> None:
    unsampled = NonRecordingSpan(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(0)))

    @gputrace.track(operation="embed")
    def embed():
        return trace_api.get_current_span()

    with trace_api.use_span(unsampled):
        assert embed() is unsampled
    assert rig.one().call.span is None
    assert traced.ended("embed") == []


@pytest.mark.parametrize("traced", [ParentBased(ALWAYS_OFF)], indirect=True)
@pytest.mark.parametrize("kind", ["function", "generator"])
def test_an_unsampled_root_keeps_traces_from_beginning_below_it(rig, traced, kind) -> None:
    inside = []

    def look() -> None:
        inside.append(trace_api.get_current_span().get_span_context())
        with traced.tracer.start_as_current_span("below") as below:
            inside.append(below.get_span_context())

    @gputrace.track
    def function():
        look()

    @gputrace.track
    def generator():
        yield
        look()

    list(generator()) if kind == "generator" else function()
    root, below = inside
    assert root.is_valid
    assert not root.trace_flags.sampled
    assert below.trace_id == root.trace_id
    assert traced.ended("below") == []
    assert rig.one().status == "ok"


class Failing(SpanProcessor):
    def on_start(self, *_) -> None:
        raise RuntimeError("the user's processor")


def test_a_processor_that_fails_does_not_reach_the_caller(traced, rig, monkeypatch, caplog) -> None:
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    traced.provider.add_span_processor(Failing())

    @gputrace.track(operation="embed")
    def embed():
        rig.work(5)
        return 1

    with caplog.at_level(logging.ERROR, logger="gputrace"):
        assert [embed() for _ in range(3)] == [1, 1, 1]
    assert len(caplog.records) == 1
    assert faults.count() == 3
    assert rig.by_operation("charged_ns") == {"embed": 15}


def test_what_the_body_attaches_stays_within_it_and_with_it(traced) -> None:
    """Baggage that a generator sets is its own, from step to step, and not its consumer's."""

    @gputrace.track
    def stream():
        context_api.attach(baggage.set_baggage("tenant", "acme"))
        for _ in range(2):
            yield baggage.get_baggage("tenant")

    assert [(item, baggage.get_baggage("tenant")) for item in stream()] == [("acme", None)] * 2
    assert traced.ended(stream.__qualname__)


def test_without_a_span_what_the_body_attaches_is_left_alone(rig) -> None:
    """As the bare generator would, whatever blocks of ours are open in it."""
    seen = []

    @gputrace.track
    def stream():
        with gputrace.attribute_to("inside"):
            token = context_api.attach(baggage.set_baggage("tenant", "acme"))
            yield
            seen.append(gputrace.current().feature)
            context_api.detach(token)

    for _ in stream():
        seen.append(baggage.get_baggage("tenant"))
        seen.append(gputrace.current().feature)
    assert seen == ["acme", catalogue.NO_FEATURE, "inside"]
    assert baggage.get_baggage("tenant") is None
    assert rig.one().status == "ok"


def test_two_threads_in_one_tracked_function(traced) -> None:
    """The span of each is its own caller's child."""
    meeting = threading.Barrier(2)

    @gputrace.track(operation="embed")
    def embed():
        meeting.wait()

    def request(name) -> None:
        with traced.tracer.start_as_current_span(name):
            embed()

    threads = [threading.Thread(target=request, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parents = {span.parent.span_id for span in traced.ended("embed")}
    assert parents == {traced.one(name).context.span_id for name in ("a", "b")}
