"""Generators: rows 03 and 05 to 10 of the behaviour matrix, and the bug reports about them."""

from __future__ import annotations

import contextlib
import gc
import inspect
import types

import pytest
from opentelemetry import trace as trace_api
from opentelemetry.trace import StatusCode

import gputrace
from gputrace import catalogue


def test_row_03_stays_a_generator_function() -> None:
    @gputrace.track
    def stream(n):
        yield n

    assert inspect.isgeneratorfunction(stream)
    made = stream(1)
    assert type(made) is types.GeneratorType
    assert made.__qualname__.endswith("stream")
    assert list(made) == [1]


def test_row_05_a_generator_is_covered_and_holds_only_its_own_steps(rig) -> None:
    @gputrace.track(operation="stream")
    def stream():
        for ns in (3, 4, 5):
            rig.work(ns)
            yield ns
        rig.work(6)

    for _ in stream():
        rig.work(100)
    call = rig.one()
    assert (call.held_ns, call.duration_ns, call.status) == (18, 318, "ok")


def test_row_05_what_it_held_is_settled_while_it_runs(rig) -> None:
    """Long streams are charged as they go, and forget what was charged."""

    @gputrace.track(feature="chat")
    def stream():
        while True:
            rig.work(10)
            yield

    running = stream()
    for _ in range(100):
        next(running)
    assert rig.time_by() == {"chat": pytest.approx(1000e-9)}
    (followed,) = rig.settler._followed
    assert len(followed.call.marks) <= 2
    running.close()
    assert rig.one().charged_ns == 1000


def test_row_05_a_generator_that_is_never_begun_is_no_call(rig) -> None:
    @gputrace.track
    def stream():
        yield

    stream().close()
    stream()
    gc.collect()
    assert rig.settled() == []


def test_row_06_send() -> None:
    @gputrace.track
    def averages():
        total = count = 0
        mean = None
        while True:
            total += yield mean
            count += 1
            mean = total / count

    running = averages()
    next(running)
    assert [running.send(value) for value in (10, 20, 60)] == [10, 15, 30]


def test_row_07_return_value(rig) -> None:
    @gputrace.track
    def stream():
        yield 1
        return "summary"

    def outer():
        return (yield from stream())

    running = outer()
    next(running)
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value == "summary"
    assert rig.one().status == "ok"


def test_row_08_the_callers_span_is_current_between_two_yields(traced) -> None:
    inside = []

    @gputrace.track(operation="stream")
    def stream():
        for _ in range(3):
            inside.append(trace_api.get_current_span().name)
            yield

    with traced.tracer.start_as_current_span("caller") as caller:
        for _ in stream():
            assert trace_api.get_current_span() is caller
        assert trace_api.get_current_span() is caller
    assert inside == ["stream"] * 3
    assert traced.one("stream").parent.span_id == caller.get_span_context().span_id


def test_row_09_the_callers_scope_is_in_force_between_two_yields() -> None:
    seen = []

    @gputrace.track(feature="inside")
    def stream():
        for _ in range(3):
            seen.append(gputrace.current().feature)
            yield

    with gputrace.attribute_to("outside"):
        for _ in stream():
            assert gputrace.current().feature == "outside"
        assert gputrace.current().feature == "outside"
    for _ in stream():
        assert gputrace.current().feature == catalogue.NO_FEATURE
    assert seen == ["inside"] * 6


def test_traceroot_119_work_between_yields_belongs_to_the_generator(traced, rig) -> None:
    """Children of a generator became roots of their own, or those of its consumer."""

    @gputrace.track(operation="stream")
    def stream():
        for _ in range(2):
            with gputrace.span("child"):
                rig.work(1)
            yield

    with traced.tracer.start_as_current_span("caller") as caller:
        for _ in stream():
            with gputrace.span("consumer"):
                rig.work(1)
    parent = traced.one("stream").context.span_id
    assert [span.parent.span_id for span in traced.ended("child")] == [parent, parent]
    assert {span.parent.span_id for span in traced.ended("consumer")} == {caller.get_span_context().span_id}
    calls = {call.operation: call.call for call in rig.settled()}
    assert calls["child"].parent is calls["stream"]
    assert calls["consumer"].parent is None


def test_row_10_early_close_is_no_error_and_runs_finally_at_once(traced, rig) -> None:
    seen = []

    @gputrace.track(operation="stream")
    def stream():
        try:
            yield 1
            yield 2
        finally:
            rig.work(7)
            seen.append("finally")

    running = stream()
    next(running)
    running.close()
    assert seen == ["finally"]
    call, span = rig.one(), traced.one("stream")
    assert (call.status, call.held_ns) == ("ok", 7)
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes[catalogue.STATUS] == "ok"
    assert span.events == ()


def test_row_10_an_error_while_closing_is_one(rig) -> None:
    @gputrace.track
    def stream():
        try:
            yield
        finally:
            raise ValueError("in finally")

    running = stream()
    next(running)
    with pytest.raises(ValueError, match="in finally"):
        running.close()
    assert rig.one().status == "error"


def test_row_10_throw_into_a_generator(rig) -> None:
    @gputrace.track
    def stream():
        try:
            yield 1
        except ValueError as error:
            yield str(error)

    running = stream()
    next(running)
    assert running.throw(ValueError("taken")) == "taken"
    with pytest.raises(KeyError):
        running.throw(KeyError())
    assert rig.one().status == "error"


def test_row_17_under_contextmanager(rig) -> None:
    @contextlib.contextmanager
    @gputrace.track(operation="resource", feature="inside")
    def resource():
        try:
            yield "it"
        except ValueError:
            rig.work(5)

    with resource() as it:
        rig.work(100)
        assert (it, gputrace.current().feature) == ("it", catalogue.NO_FEATURE)
        raise ValueError
    assert (rig.one().held_ns, rig.one().status) == (5, "ok")
