"""The carrier between two processes of a cluster; needs no Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context as context_api, trace as trace_api

import gputrace
from gputrace.integrations.ray_context import Carried, outgoing

if TYPE_CHECKING:
    from collections.abc import Generator

FIELDS = {"feature": "search", "tenant": "acme", "model": "bge", "variant": "fp16", "stage": "small"}


def test_without_anything_to_say_the_carrier_is_empty() -> None:
    assert outgoing() == {}


def test_every_field_travels() -> None:
    with gputrace.attribute_to(**FIELDS):
        carrier = outgoing()
    assert carrier == FIELDS
    before = context_api.get_current()
    with Carried(carrier):
        billed = gputrace.current().attribution
        assert {name: getattr(billed, name) for name in FIELDS} == FIELDS
    assert gputrace.current().feature == "__none__"
    assert context_api.get_current() is before


def test_names_of_gputraces_own_stay_here(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A batch that serves several features has none that another process could bill."""
    del bench
    members = []
    for feature in ("search", "chat"):
        with gputrace.attribute_to(feature=feature):
            members.append(gputrace.member())
    with gputrace.batch(members, model="bge"):
        assert gputrace.current().feature == "__shared__"
        assert outgoing() == {"model": "bge"}
        headers: dict[str, str] = {}
        gputrace.inject(headers)
    assert "shared" not in str(headers)
    assert caplog.messages == []


def test_trace_and_baggage_travel_whatever_the_propagators(traced: Any) -> None:
    tracer = traced.provider.get_tracer("caller")
    with tracer.start_as_current_span("caller") as caller:
        token = context_api.attach(baggage.set_baggage("colour", "blue"))
        carrier = outgoing()
        context_api.detach(token)
    with Carried(carrier), gputrace.span("callee", hold="none"):
        assert baggage.get_baggage("colour") == "blue"
        assert trace_api.get_current_span().get_span_context().trace_id == caller.get_span_context().trace_id
    assert traced.spans()["callee"].parent.span_id == caller.get_span_context().span_id


def test_a_call_that_comes_with_a_context_owns_what_it_holds(bench: Any) -> None:
    with gputrace.attribute_to(feature="search"), gputrace.span("caller"):
        carrier = outgoing()
    with Carried(carrier), gputrace.span("callee") as callee:
        bench.work()
    assert callee.root is None
    assert [one.feature for one in bench.settled()] == ["search"] * 3


def test_it_is_in_force_step_by_step(bench: Any) -> None:
    def body() -> Generator[str, None, None]:
        while True:
            yield gputrace.current().feature

    carried = Carried(FIELDS)
    generator = body()
    for _ in range(3):
        with carried:
            assert next(generator) == "search"
        assert gputrace.current().feature == "__none__"


def test_what_the_block_raises_passes(bench: Any) -> None:
    with pytest.raises(KeyError), Carried(FIELDS):
        raise KeyError
    assert gputrace.current().feature == "__none__"


def test_a_context_that_another_task_left_is_not_touched() -> None:
    carried = Carried(FIELDS)
    carried.__enter__()
    inside = context_api.get_current()
    foreign = context_api.Context({"foreign": True})
    context_api.attach(foreign)
    carried.__exit__(None, None, None)
    assert context_api.get_current() is foreign
    context_api.attach(context_api.Context())
    assert inside is not foreign
