"""Generators that are dropped, closed, read by others or on other threads."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import sys
import threading

import pytest

import gputrace


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
