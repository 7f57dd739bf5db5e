"""Outcomes and units of work: whom they are counted for, what is refused, and that no count is ever lost."""

from __future__ import annotations

import fractions
import gc
import threading

import pytest
from opentelemetry import trace as trace_api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

import gputrace
from gputrace import call_register, catalogue, faults, outcomes
from gputrace.testing import Recorder

ELSEWHERE = "0b8a3d52-53a1-4a53-9d76-6b40aa9d4b6f/1f"


@pytest.fixture(autouse=True)
def recorder():
    faults.reset()
    call_register.reset()
    with Recorder() as made:
        yield made


@pytest.fixture
def logged(caplog):
    return lambda: [record.getMessage() for record in caplog.records]


def counted(recorder, what="outcomes"):
    """The counts by feature (and tenant, where there is one) and name."""
    found = {}
    for attributes, value in getattr(recorder.snapshot(), what):
        feature, *rest = attributes.values()
        assert next(iter(attributes)) == catalogue.FEATURE
        found[(feature, *rest)] = value
    return found


# --- whom they are counted for


def test_an_outcome_is_counted_for_what_it_happens_in(recorder):
    with gputrace.attribute_to("search"):
        gputrace.outcome("solved")
        with gputrace.span("block", feature="answer"):
            gputrace.outcome("solved", 2)
            gputrace.outcome("opened", 0.5)
    gputrace.outcome("solved", feature="chat")
    gputrace.outcome("solved")
    assert counted(recorder) == {
        ("search", "solved"): 1,
        ("answer", "solved"): 2,
        ("answer", "opened"): 0.5,
        ("chat", "solved"): 1,
        (catalogue.NO_FEATURE, "solved"): 1,
    }


def test_units_are_counted_for_what_is_billed_then(recorder):
    with gputrace.span("block", feature="search"):
        current = gputrace.current()
        current.add_units(tokens=800, items=3)
        current.set(feature="answer")
        current.add_units(tokens=12)
    assert counted(recorder, "units") == {
        ("search", "tokens"): 800,
        ("search", "items"): 3,
        ("answer", "tokens"): 12,
    }
    assert counted(recorder) == {}


@pytest.mark.parametrize("ask", [lambda call: call.id, lambda _: gputrace.current().call_id])
def test_a_late_outcome_is_counted_for_its_request(recorder, ask):
    """While it is open for what it is billed to by now, and afterwards too."""
    with gputrace.span("request", feature="search") as call:
        request = ask(call)
        with gputrace.attribute_to("elsewhere"):
            gputrace.outcome("seen", request_id=request)
        gputrace.current().set(feature="answer")
        gputrace.outcome("seen", request_id=request)
    gputrace.outcome("accepted", request_id=request)
    recorder.settle()
    gputrace.outcome("accepted", request_id=request)
    gputrace.outcome("accepted", request_id=request, feature="given")
    assert counted(recorder) == {
        ("search", "seen"): 1,
        ("answer", "seen"): 1,
        ("answer", "accepted"): 2,
        ("given", "accepted"): 1,
    }


def test_a_request_is_referred_to_by_its_id(recorder):
    with gputrace.request("GET /answers", feature="search") as request:
        pass
    recorder.settle()
    gputrace.outcome("accepted", request_id=request.id)
    assert counted(recorder) == {("search", "accepted"): 1}


def test_an_ended_call_is_not_kept_alive(recorder):
    with gputrace.span("request", feature="search") as call:
        request = call.id
    recorder.settle()
    recorder._settled.clear()
    kept = [one for one in gc.get_referrers(call) if one is call_register._known]
    assert kept == []
    assert call_register.attribution_of(request) is call.attribution


def test_asking_after_the_end_is_soon_enough(recorder):
    with gputrace.span("request", feature="search") as call:
        pass
    recorder.settle()
    gputrace.outcome("accepted", request_id=call.id)
    assert counted(recorder) == {("search", "accepted"): 1}


def test_the_requests_asked_for_first_are_forgotten_first(recorder, monkeypatch):
    monkeypatch.setattr(call_register, "LIMIT", 3)
    asked = []
    for number in range(5):
        with gputrace.span("request", feature=f"f{number}") as call:
            asked.append(call.id)
        recorder.settle()
    for request in asked:
        gputrace.outcome("accepted", request_id=request)
    expected = {(f"f{number}", "accepted"): 1 for number in (2, 3, 4)}
    assert counted(recorder) == {**expected, (catalogue.NO_FEATURE, "accepted"): 2}


def test_the_spans_own_look_at_identities_makes_nothing_forgotten(recorder, monkeypatch):
    monkeypatch.setattr(call_register, "LIMIT", 1)
    with gputrace.span("request", feature="search") as call:
        request = call.id
        for _ in range(5):
            with gputrace.span("inner") as inner:
                assert inner.label
    gputrace.outcome("accepted", request_id=request)
    assert counted(recorder) == {("search", "accepted"): 1}


@pytest.mark.parametrize("request_id", [ELSEWHERE, "", "/", "nonsense", "/ff", 17, "x" * 10_000, "\ud800/1"])
def test_a_request_of_another_process_is_counted_for_nobody_here(recorder, request_id):
    with gputrace.span("block", feature="search"):
        gputrace.outcome("accepted", request_id=request_id)
        gputrace.outcome("accepted", request_id=request_id, feature="given")
    assert counted(recorder) == {(catalogue.NO_FEATURE, "accepted"): 1, ("given", "accepted"): 1}


def test_a_call_of_another_process_with_a_number_that_this_one_knows_is_not_ours(recorder):
    with gputrace.span("block", feature="search") as call:
        _, _, number = call.id.rpartition("/")
        gputrace.outcome("accepted", request_id=f"{ELSEWHERE.partition('/')[0]}/{number}")
    assert counted(recorder) == {(catalogue.NO_FEATURE, "accepted"): 1}


def test_a_malformed_number_of_this_process_is_no_request(recorder):
    with gputrace.span("block", feature="search") as call:
        gputrace.outcome("accepted", request_id=call.id.partition("/")[0] + "/no number")
    assert counted(recorder) == {(catalogue.NO_FEATURE, "accepted"): 1}


# --- what readers of all spans are told


@pytest.fixture(params=[ALWAYS_ON, ALWAYS_OFF], ids=["sampled", "unsampled"])
def told(request, monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=request.param)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace_api, "_TRACER_PROVIDER", provider)
    exporter.sampled = request.param is ALWAYS_ON
    return exporter


def test_what_this_process_cannot_tell_is_left_to_the_spans(recorder, told):
    with gputrace.span("request", feature="search") as call:
        gputrace.outcome("accepted", request_id=call.id)
        gputrace.outcome("accepted", request_id=ELSEWHERE, feature="given")
        gputrace.outcome("accepted", 3, request_id=ELSEWHERE)
        gputrace.outcome("accepted", request_id="x" * 300)
        recorder.outcomes.tell()
    found = [span for span in told.get_finished_spans() if span.name == "gputrace.outcome"]
    assert counted(recorder)[catalogue.NO_FEATURE, "accepted"] == 4, "sampling changes no count"
    assert [dict(span.attributes) for span in found] == [
        {
            catalogue.OUTCOME_NAME: "accepted",
            catalogue.OUTCOME_VALUE: 3.0,
            catalogue.REQUEST_ID: ELSEWHERE,
        }
    ] * told.sampled
    for span in found:
        assert span.start_time == span.end_time
        assert span.parent is None, "of no trace that happens to be current"


def test_events_that_nobody_takes_do_not_pile_up(recorder, monkeypatch):
    for _ in range(10_050):
        gputrace.outcome("accepted", request_id=ELSEWHERE)
    assert len(recorder.outcomes._events) == 10_000
    assert counted(recorder) == {(catalogue.NO_FEATURE, "accepted"): 10_050}
    recorder.outcomes.tell()
    assert len(recorder.outcomes._events) == 0, "without a tracer provider there is nobody to tell"


# --- what is refused


class Unprintable:
    def __repr__(self):
        raise RuntimeError

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-1, "a int"),
        (-0.5, "-0.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        pytest.param(10**5000, "a int", id="huge"),
        (2e15, "2e+15"),
        ("3", "a str"),
        (None, "a NoneType"),
        (3j, "a complex"),
        (Unprintable(), "a Unprintable"),
    ],
)
def test_an_amount_that_is_none_is_dropped_with_one_line(recorder, logged, value, shown):
    for _ in range(3):
        gputrace.outcome("solved", value)
        gputrace.current().add_units(tokens=value, items=1)
    assert counted(recorder) == {}
    assert counted(recorder, "units") == {(catalogue.NO_FEATURE, "items"): 3}
    said = logged()
    assert [line.split(":")[0] for line in said] == ["outcome", "add_units"]
    assert all(f", {shown}, is no number from 0 to 1e+15; ignored" in line for line in said)
    assert "'solved'" in said[0]
    assert "'tokens'" in said[1]


@pytest.mark.parametrize("value", [0, 1, True, 0.25, fractions.Fraction(1, 4), 10**15])
def test_every_real_number_is_an_amount(recorder, logged, value):
    gputrace.outcome("solved", value)
    assert counted(recorder) == {(catalogue.NO_FEATURE, "solved"): float(value)}
    assert logged() == []


@pytest.mark.parametrize("name", ["__mine", "", None])
def test_a_name_that_is_none_is_dropped_with_one_line(recorder, logged, name):
    for _ in range(3):
        gputrace.outcome(name)
    assert counted(recorder) == {}
    (line,) = logged()
    assert line.startswith("outcome: ")


def test_a_reserved_feature_names_nobody(recorder, logged):
    gputrace.outcome("solved", feature="__other__")
    assert counted(recorder) == {(catalogue.NO_FEATURE, "solved"): 1}
    assert len(logged()) == 1


def test_names_are_strings_that_can_be_exported(recorder):
    gputrace.outcome(7)
    gputrace.outcome("half \ud800")
    gputrace.outcome("half \ud800")
    assert counted(recorder) == {
        (catalogue.NO_FEATURE, "7"): 1,
        (catalogue.NO_FEATURE, "half \\ud800"): 2,
    }


def test_names_that_were_valid_are_not_kept_for_ever(recorder):
    for number in range(5_000):
        gputrace.outcome(f"o{number}")
    assert len(outcomes.checked_name.__globals__["_valid_names"]) <= 1024


# --- on metrics


def test_a_tenant_is_on_metrics_when_asked_for():
    for opted_in in (False, True):
        with Recorder(metric_attributes=("tenant",) if opted_in else ()) as recorder:
            with gputrace.attribute_to("search", tenant="acme"):
                gputrace.outcome("solved")
            gputrace.outcome("solved")
            found = [attributes for attributes, _ in recorder.snapshot().outcomes]
        named = {catalogue.FEATURE: "search", catalogue.OUTCOME_NAME: "solved"}
        if opted_in:
            named[catalogue.TENANT] = "acme"
        assert found == [named, {catalogue.FEATURE: catalogue.NO_FEATURE, catalogue.OUTCOME_NAME: "solved"}]


def test_names_beyond_the_limit_fold_and_nothing_is_lost(recorder):
    before = recorder.snapshot().folded
    for number in range(300):
        gputrace.outcome(f"o{number}", 2)
    found = counted(recorder)
    assert sum(found.values()) == 600
    assert found[catalogue.NO_FEATURE, catalogue.OTHER] == 200
    assert len(found) == 201
    assert recorder.snapshot().folded - before == 100


def test_a_feature_has_the_same_name_on_outcomes_as_on_its_time(recorder):
    for number in range(201):
        with gputrace.span("block", feature=f"f{number}"):
            pass
    recorder.settle()
    with gputrace.span("block", feature="f200"):
        gputrace.outcome("solved")
    assert counted(recorder) == {(catalogue.OTHER, "solved"): 1}


def test_what_nobody_reads_is_summed_all_the_same(recorder):
    for number in range(20_000):
        gputrace.outcome(f"o{number}", feature=f"f{number}")
    assert len(recorder.outcomes._queue) < 5_000
    assert len(recorder.outcomes._sums) <= 10_001
    assert sum(counted(recorder).values()) == 20_000


def test_counts_of_many_threads_add_up_while_others_read(recorder):
    def work():
        for _ in range(5_000):
            gputrace.outcome("solved", feature="search")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    last = 0.0
    while any(thread.is_alive() for thread in threads):
        now = counted(recorder).get(("search", "solved"), 0.0)
        assert now >= last, "a counter never falls"
        last = now
    for thread in threads:
        thread.join()
    assert counted(recorder) == {("search", "solved"): 20_000}


def test_a_count_in_the_middle_of_a_sum_is_not_lost(recorder, monkeypatch):
    """A finaliser may count on the thread that sums, anywhere."""
    counting = recorder.outcomes

    class Sums(dict):
        def get(self, key, default=None):
            found = super().get(key, default)
            if not found:
                gputrace.outcome("solved")
                counting._sum()
            return found

    monkeypatch.setattr(counting, "_sums", Sums())
    for _ in range(3):
        gputrace.outcome("solved")
    assert counted(recorder) == {(catalogue.NO_FEATURE, "solved"): 4}


def test_nothing_is_counted_where_nothing_is_recorded(monkeypatch):
    outcomes.record(None)
    gputrace.outcome("solved")
    gputrace.current().add_units(tokens=3)
