"""What encloses a whole process: in force on every thread, and beneath everything more explicit."""

from __future__ import annotations

import contextvars
import threading

import pytest
from opentelemetry import context as context_api

import gputrace
from gputrace import attribution, call as calls, catalogue
from gputrace.attribution import UNNAMED, Scope


@pytest.fixture
def nightly(monkeypatch):
    monkeypatch.setattr(attribution, "outermost", None)
    scope = Scope(UNNAMED.merged({"feature": "nightly", "tenant": "acme"}), None)
    attribution.enclose(scope)
    return scope


@pytest.fixture
def whole(monkeypatch, rig):
    """A call that encloses the process."""
    monkeypatch.setattr(attribution, "outermost", None)
    call = calls.enter(calls.Site("job", {"feature": "nightly"}, hold=calls.HOLD_CALL))
    calls.suspend(call)
    attribution.enclose(call)
    yield call
    if not call.closed:
        calls.leave(call)


def on_thread(work) -> None:
    thread = threading.Thread(target=lambda: contextvars.Context().run(work))
    thread.start()
    thread.join()


@pytest.mark.parametrize("run", [lambda work: work(), on_thread])
def test_all_that_nobody_names_is_billed_to_it(rig, nightly, run):
    def work():
        assert (gputrace.current().feature, gputrace.current().tenant) == ("nightly", "acme")
        with gputrace.span("plain"):
            rig.work(1)
        with gputrace.attribute_to(tenant="umbrella"), gputrace.span("named", feature="search"):
            rig.work(2)

    run(work)
    found = {call.operation: (call.feature, call.tenant) for call in rig.settled()}
    assert found == {"plain": ("nightly", "acme"), "named": ("search", "umbrella")}


def test_one_part_of_a_process_does_not_change_it_for_all(nightly):
    def work():
        gputrace.current().set(feature="search")
        assert gputrace.current().feature == "search"
        assert gputrace.current().tenant == "acme"

    on_thread(work)
    assert gputrace.current().feature == "nightly"
    assert nightly.attribution.feature == "nightly"


def test_a_call_that_encloses_holds_the_device_and_what_is_inside_is_innermost(rig, whole):
    def work():
        with gputrace.span("inner", feature="search") as inner:
            assert inner.parent is whole
            rig.work(10)

    rig.work(1)
    on_thread(work)
    rig.work(4)
    work()
    assert gputrace.current().call_id == whole.id
    calls.leave(whole)
    assert rig.by_operation("charged_ns") == {"job": 5, "inner": 20}
    assert rig.time_by() == pytest.approx({"nightly": 5e-9, "search": 20e-9})


def test_a_change_inside_it_is_for_that_part(rig, whole):
    def work():
        gputrace.current().set(feature="search")
        with gputrace.span("inner"):
            rig.work(10)

    contextvars.copy_context().run(work)
    calls.leave(whole)
    assert {call.operation: call.feature for call in rig.settled()} == {"job": "nightly", "inner": "search"}


def test_what_outlives_it_is_billed_alike(rig, whole):
    calls.leave(whole)
    with gputrace.span("late") as late:
        assert late.parent is None
    assert {call.operation: call.feature for call in rig.settled()} == {"job": "nightly", "late": "nightly"}


def test_it_is_no_parent_of_the_spans_of_others(traced, monkeypatch):
    """Each decides on sampling itself; a trace of a whole night would hold millions of spans."""
    monkeypatch.setattr(attribution, "outermost", None)
    call = calls.enter(calls.Site("job", {}, hold=calls.HOLD_CALL))
    calls.suspend(call)
    attribution.enclose(call)
    with gputrace.span("inner"):
        pass
    calls.leave(call)
    assert traced.one("inner").parent is None
    assert traced.one("job").parent is None


def test_it_may_hold_for_as_long_as_the_process_lives(rig, whole, monkeypatch):
    monkeypatch.setattr(rig.settler, "_max_hold_ns", 100)
    with gputrace.span("other") as other:
        rig.work(1_000)
        rig.settle()
        assert rig.snapshot().unmeasured == [({catalogue.LOSS_REASON: "max_hold"}, 1)]
        assert other.settled is None
    assert whole.settled is not None
    rig.work(1_000)
    calls.leave(whole)
    assert rig.by_operation("held_ns")["job"] == 2_000


def test_what_came_with_a_request_wins_over_what_holds_for_the_process(nightly):
    """Baggage is below every explicit value, and this is below baggage."""
    came = {"feature": "search"}
    assert attribution.unclaimed(came, attribution.scope_in_force()) == came
    token = context_api.attach(attribution.billed_in(context_api.get_current(), came))
    assert (gputrace.current().feature, gputrace.current().tenant) == ("search", "acme")
    context_api.detach(token)
    with gputrace.attribute_to("explicit"):
        assert attribution.unclaimed(came, attribution.scope_in_force()) == {}


def test_what_goes_out_is_billed_to_it(nightly):
    assert attribution.scope_in(None) is nightly
    assert attribution.scope_in(context_api.Context()) is nightly
