"""Generators: rows 03 and 05 to 10 of the behaviour matrix, and the bug reports about them."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import inspect
import sys
import threading
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


def test_mlflow_25790_generators_stopped_early_leave_nothing_behind(rig) -> None:
    """Spans of generators that were stopped early never ended, and memory grew."""

    @gputrace.track(operation="stream")
    def stream():
        yield 1
        yield 2

    for _ in range(10_000):
        running = stream()
        next(running)
        running.close()
    assert rig.open_calls() == 0
    assert len(rig.settled()) == 10_000
    assert {call.status for call in rig.settled()} == {"ok"}


@pytest.mark.usefixtures("silent")
def test_generators_dropped_half_way_leave_nothing_behind(rig, traced) -> None:
    @gputrace.track(operation="stream")
    def stream():
        with gputrace.span("inside"), gputrace.attribute_to("inside"):
            yield 1
            yield 2

    for _ in range(10):
        next(stream())
    gc.collect()
    assert rig.open_calls() == 0
    assert len(traced.ended("stream")) == len(traced.ended("inside")) == 10


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


def test_row_26_a_function_that_returns_a_generator_is_covered(rig) -> None:
    def inner():
        rig.work(5)
        yield 1
        rig.work(6)
        return "summary"

    @gputrace.track(operation="outer")
    def outer():
        rig.work(2)
        return inner()

    made = outer()
    assert type(made) is types.GeneratorType
    assert made.__qualname__ == inner.__qualname__
    rig.work(100)
    next(made)
    rig.work(100)
    with pytest.raises(StopIteration) as stop:
        next(made)
    assert stop.value.value == "summary"
    assert (rig.one().held_ns, rig.one().duration_ns) == (13, 213)


def test_row_26_a_returned_generator_that_is_dropped_leaves_no_open_call(rig, traced) -> None:
    @gputrace.track(operation="outer")
    def outer():
        return (item for item in range(3))

    outer()
    with gputrace.attribute_to("elsewhere"):
        gc.collect()
        assert gputrace.current().feature == "elsewhere"
    assert rig.open_calls() == 0
    assert rig.one().status == "cancelled"
    assert traced.one("outer").end_time is not None


def test_the_generator_is_no_longer_handling_what_was_thrown_into_it() -> None:
    @gputrace.track
    def stream():
        with contextlib.suppress(ValueError):
            yield
        yield sys.exc_info()

    running = stream()
    next(running)
    assert running.throw(ValueError()) == (None, None, None)


def test_a_generator_may_catch_generator_exit_and_go_on(rig) -> None:
    def stream():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    for make in (stream, gputrace.track(stream)):
        running = make()
        next(running)
        assert running.throw(GeneratorExit()) == 2
        running.close()
        running = make()
        next(running)
        with pytest.raises(RuntimeError, match="generator ignored GeneratorExit"):
            running.close()
        assert list(running) == []
    assert rig.open_calls() == 0


def test_context_variables_that_a_generator_sets_reach_its_consumer() -> None:
    """As a dependency that yields does; a copied context would hide them."""
    tenant = contextvars.ContextVar("tenant", default=None)

    @gputrace.track
    def dependency():
        token = tenant.set("acme")
        yield
        tenant.reset(token)

    running = dependency()
    next(running)
    assert tenant.get() == "acme"
    assert list(running) == []
    assert tenant.get() is None


def test_a_generator_read_by_its_own_consumers_consumer(rig) -> None:
    """Tracked generators in a chain: each holds only while its own code runs."""

    @gputrace.track(operation="source")
    def source():
        for _ in range(2):
            rig.work(3)
            yield

    @gputrace.track(operation="filter")
    def filtered():
        for _ in source():
            rig.work(5)
            yield

    for _ in filtered():
        rig.work(100)
    assert rig.by_operation("charged_ns") == {"source": 6, "filter": 10}
    calls = {call.operation: call.call for call in rig.settled()}
    assert calls["source"].parent is calls["filter"]


def test_steps_on_different_threads(rig) -> None:
    @gputrace.track(operation="stream", feature="inside")
    def stream():
        for _ in range(3):
            rig.work(2)
            yield gputrace.current().feature

    running, seen = stream(), []

    def read() -> None:
        with gputrace.attribute_to("thread"):
            seen.append(next(running))
            seen.append(gputrace.current().feature)

    for _ in range(3):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    running.close()
    assert seen == ["inside", "thread"] * 3
    assert rig.one().held_ns == 6
