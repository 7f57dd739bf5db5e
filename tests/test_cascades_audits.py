"""Audits: which kept requests get one, how probably, what it costs, and what is told of those that fail."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

import gputrace
from gputrace import cascades, cascades_audits, cascades_requests, cascades_shadow, catalogue, faults
from gputrace.cascades_audits import Audits
from gputrace.cascades_policy import checked_policy
from gputrace.testing import Recorder, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "gputrace.escalation."
LIGHT_NS, HEAVY_NS = 10, 200


@pytest.fixture(autouse=True)
def forget() -> None:
    """What was told once, and the cascades of other tests."""
    faults.reset()
    cascades._by_name.clear()


def made(**more: Any) -> gputrace.Cascade:
    given = {"stages": ("small", "large"), "threshold": 0.8, "audit_rate": 1.0, "seed": 1, **more}
    return gputrace.Cascade("answer", **given)


def serve(cascade: gputrace.Cascade, clock: VirtualClock, confidence: float = 0.9, **more: Any) -> Any:
    with cascade.request(feature="support", tenant="acme") as request:
        with request.stage("small"):
            clock.advance(LIGHT_NS)
        request.escalate(confidence, **more)
    return request


def decisions(recorder: Recorder) -> list[dict[str, Any]]:
    """The decisions so far, once every audit has ended."""
    assert gputrace.Cascade.wait_for_audits()
    recorder.settle()
    recorder.settle()
    return [
        {name.removeprefix(PREFIX): value for name, value in event.attributes.items()}
        for event in recorder.events
        if event.name == catalogue.DECISION_EVENT
    ]


def counted(recorder: Recorder, metric: catalogue.Metric) -> dict[tuple[str, ...], float]:
    rows = recorder.snapshot().escalations[metric.name]
    return {tuple(attributes.values()): round(value, 12) for attributes, value in rows}


# --- the audit itself ---------------------------------------------------------------


def test_an_audit_runs_the_heavy_stage_in_the_shadow(recorder: Recorder, clock: VirtualClock) -> None:
    threads: list[threading.Thread] = []

    def heavy() -> None:
        threads.append(threading.current_thread())
        with gputrace.span("generate", stage="large", model="llama"):
            clock.advance(HEAVY_NS)

    request = serve(made(audit_rate=0.5), clock, audit=heavy)
    while not request.audited:
        request = serve(made(audit_rate=0.5, seed=None), clock, audit=heavy)
    decision = decisions(recorder)[-1]
    assert (decision["decision"], decision["audit.drawn"], decision["audit.propensity"]) == (
        "audited",
        True,
        0.5,
    )
    assert (decision["light.time"], decision["heavy.time"]) == (1e-8, 2e-7)
    assert threading.current_thread() not in threads
    assert not request.escalated, "the light answer is served"
    spent = {
        (one.operation, one.feature, one.tenant, one.stage, one.model): one.charged_ns
        for one in recorder.settled()
        if one.charged_ns and one.operation == "generate"
    }
    assert spent == {("generate", "support", "acme", "audit", "llama"): HEAVY_NS}, "whatever it says itself"
    assert recorder.time_by(catalogue.STAGE) == {
        "small": pytest.approx(LIGHT_NS * 1e-9 * len(decisions(recorder))),
        "audit": 2e-7,
    }


def test_an_audit_is_no_part_of_the_cascade_and_of_no_request(
    recorder: Recorder, clock: VirtualClock
) -> None:
    cascade = made()
    with gputrace.request("GET /answers", feature="search"):
        outside = contextvars.copy_context()
        with cascade.request(feature="support") as request:
            with request.stage("small"):
                clock.advance(LIGHT_NS)
            # Wherever it is decided: this context is that of a request that goes on.
            outside.run(request.escalate, 0.9, audit=lambda: clock.advance(HEAVY_NS))
        assert gputrace.Cascade.wait_for_audits()
    (decision,) = decisions(recorder)
    assert decision["decision"] == "audited"
    assert request.charged_ns == LIGHT_NS
    ((_, charged_s),) = recorder.snapshot().requests["gputrace.request.time"]
    assert charged_s == pytest.approx(LIGHT_NS * 1e-9)
    assert counted(recorder, catalogue.ESCALATION_TIME) == {
        ("answer", "support", "small"): 1e-8,
        ("answer", "support", "audit"): 2e-7,
    }
    assert counted(recorder, catalogue.ESCALATION_REQUESTS) == {("answer", "support", "audited", "audit"): 1}


def test_it_begins_only_when_the_request_has_ended(recorder: Recorder, clock: VirtualClock) -> None:
    order: list[str] = []
    cascade = made()
    with cascade.request(audit=lambda: order.append("audit")) as request:
        request.escalate(0.9)
        order.append("answer")
    decisions(recorder)
    assert order == ["answer", "audit"]


def test_what_is_escalated_is_never_audited(recorder: Recorder, clock: VirtualClock) -> None:
    ran: list[bool] = []
    serve(made(), clock, 0.1, audit=lambda: ran.append(True))
    (decision,) = decisions(recorder)
    assert not ran
    assert decision["audit.propensity"] == 1.0
    assert not decision["audit.drawn"]


async def _heavy(clock: VirtualClock, ran_in: list[Any]) -> None:
    ran_in.append(asyncio.get_running_loop())
    await asyncio.sleep(0)
    with gputrace.span("generate"):
        clock.advance(HEAVY_NS)


def later(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: make()  # noqa: PLW0108 - that it is one is the point


@pytest.mark.parametrize("wrap", [lambda make: make, later], ids=["partial", "lambda"])
def test_a_coroutine_is_awaited_in_the_loop_of_its_request(
    recorder: Recorder, clock: VirtualClock, wrap: Callable[[Any], Any]
) -> None:
    ran_in: list[Any] = []
    cascade = made()

    async def program() -> asyncio.AbstractEventLoop:
        async with cascade.request() as request:
            request.escalate(0.9, audit=wrap(functools.partial(_heavy, clock, ran_in)))
        assert await asyncio.to_thread(gputrace.Cascade.wait_for_audits)
        return asyncio.get_running_loop()

    loop = asyncio.run(program())
    assert ran_in == [loop]
    (decision,) = decisions(recorder)
    assert (decision["decision"], decision["heavy.time"]) == ("audited", 2e-7)


def test_a_coroutine_of_a_request_without_a_loop_gets_one(recorder: Recorder, clock: VirtualClock) -> None:
    serve(made(), clock, audit=functools.partial(_heavy, clock, []))
    (decision,) = decisions(recorder)
    assert (decision["decision"], decision["heavy.time"]) == ("audited", 2e-7)


def test_a_loop_that_ends_first_cancels_the_audit_and_the_row_is_left_out(
    recorder: Recorder, clock: VirtualClock
) -> None:
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def program() -> None:
        async with made().request() as request:
            request.escalate(0.9, audit=forever)
        await asyncio.to_thread(begun.wait)

    asyncio.run(program())
    (decision,) = decisions(recorder)
    assert decision["excluded"] == "audit_failed"


def test_a_score_of_the_audit_comes_from_within(recorder: Recorder, clock: VirtualClock) -> None:
    cascade = made()
    with cascade.request() as request:
        request.escalate(0.9, audit=lambda: gputrace.score(request.id, 1.0, stage="large"))
    decisions(recorder)
    scored = [event.attributes for event in recorder.events if event.name == catalogue.SCORE_EVENT]
    assert [(one["gputrace.request.id"], one["gputrace.stage"]) for one in scored] == [(request.id, "large")]


# --- audits that do not run -----------------------------------------------------------


def test_one_that_fails_is_left_out_and_counted(
    recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cascade = made()

    def out_of_memory() -> None:
        clock.advance(HEAVY_NS)
        raise MemoryError

    serve(cascade, clock, audit=out_of_memory)
    serve(cascade, clock, audit=out_of_memory)
    first, _ = decisions(recorder)
    assert first["decision"] == "kept"
    assert first["audit.drawn"]
    assert first["audit.reason"] == "failed"
    assert first["excluded"] == "audit_failed"
    assert "audit.propensity" not in first, "it may depend on the request: nobody knows"
    assert "heavy.time" not in first
    assert counted(recorder, catalogue.ESCALATION_REQUESTS) == {
        ("answer", "support", "kept", "audit_failed"): 2
    }
    assert counted(recorder, catalogue.ESCALATION_TIME)["answer", "support", "audit"] == 4e-7, "it was spent"
    assert caplog.text.count("an audit of cascade 'answer' raised") == 1


def test_without_anything_to_run_none_could_have_run(
    recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    serve(made(), clock)
    (decision,) = decisions(recorder)
    assert (decision["audit.reason"], decision["audit.propensity"]) == ("no_callback", 0.0)
    assert "excluded" not in decision
    assert "nothing to run" in caplog.text


@pytest.mark.parametrize("load", [0, lambda: True, lambda: 1 / 0], ids=["number", "callable", "raises"])
def test_under_load_none_is_drawn(recorder: Recorder, clock: VirtualClock, load: Any) -> None:
    serve(made(audit_load=load), clock, audit=lambda: pytest.fail("under load"))
    (decision,) = decisions(recorder)
    assert (decision["audit.drawn"], decision["audit.reason"]) == (True, "load")
    assert decision["audit.propensity"] == 0.0
    assert decision["decision"] == "kept"


def test_the_load_is_the_number_of_open_requests(recorder: Recorder, clock: VirtualClock) -> None:
    cascade = made(audit_load=1)
    with cascade.request():
        assert not serve(cascade, clock, audit=int).audited
    assert serve(cascade, clock, audit=int).audited
    decisions(recorder)


def test_a_full_queue_takes_no_more(
    recorder: Recorder, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cascades_requests, "MOST_WAITING", 2)
    cascade, go = made(), threading.Event()
    audited = [serve(cascade, clock, audit=go.wait).audited for _ in range(4)]
    assert audited == [True, True, False, False]
    go.set()
    told = decisions(recorder)
    assert sorted(one.get("audit.reason", "") for one in told) == ["", "", "queue", "queue"]


def test_one_that_takes_too_long_is_given_up(
    recorder: Recorder, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    request = serve(made(), clock, audit=lambda: (begun.set(), go.wait()))
    begun.wait()
    recorder.settle()
    assert recorder.events == []
    monkeypatch.setattr(cascades.cascades_counting, "PATIENCE_S", -1)
    recorder.settle()
    (event,) = recorder.events
    assert event.attributes[catalogue.ESCALATION_EXCLUDED] == "audit_unfinished"
    assert catalogue.ESCALATION_AUDIT_PROPENSITY not in event.attributes
    go.set()
    while not request.audit.has_ended:
        time.sleep(0.001)
    assert len(decisions(recorder)) == 1, "told once"


def test_one_that_is_given_up_before_it_began_does_not_begin(
    recorder: Recorder, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    cascade = made()
    serve(cascade, clock, audit=lambda: (begun.set(), go.wait()))
    begun.wait()
    request = serve(cascade, clock, audit=lambda: pytest.fail("given up"))
    recorder.settle()
    monkeypatch.setattr(cascades.cascades_counting, "PATIENCE_S", -1)
    recorder.settle()
    go.set()
    third = serve(cascade, clock, audit=int)
    while not third.audit.has_ended:
        time.sleep(0.001)
    assert not request.audit.has_ended
    assert len(decisions(recorder)) == 3


def test_where_nothing_is_recorded_nothing_is_audited(clock: VirtualClock) -> None:
    with Recorder(clock) as recorder:
        cascades.cascades_counting.record(None)
        assert not serve(made(), clock, audit=lambda: pytest.fail("nobody would know")).audited
        recorder.settle()
        assert recorder.events == []


# --- draws ------------------------------------------------------------------------------


def test_the_rate_may_depend_on_the_confidence(recorder: Recorder, clock: VirtualClock) -> None:
    cascade = made(audit_rate=lambda confidence: 1.0 if confidence < 0.9 else 0.25)
    serve(cascade, clock, 0.85, audit=int)
    serve(cascade, clock, 0.95, audit=int)
    assert sorted(one["audit.propensity"] for one in decisions(recorder)) == [0.25, 1.0]


@pytest.mark.parametrize("rate", [lambda _: 1.5, lambda _: None, lambda _: 1 / 0, lambda _: float("nan")])
def test_a_rate_that_is_none_draws_none_and_is_told_once(
    recorder: Recorder, clock: VirtualClock, rate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cascade = made(audit_rate=rate)
    serve(cascade, clock, audit=int)
    serve(cascade, clock, audit=int)
    assert [one["audit.propensity"] for one in decisions(recorder)] == [0.0, 0.0]
    assert caplog.text.count("audit_rate of cascade 'answer'") == 1


def draws(cascade: gputrace.Cascade, count: int = 200) -> list[bool]:
    return [cascade.audits.draw(0.9, impossible=None, open_requests=1).runs for _ in range(count)]


def test_a_seed_repeats_the_draws() -> None:
    first, second = (draws(made(audit_rate=0.3, seed="7")) for _ in range(2))
    assert first == second
    assert 30 < sum(first) < 90
    assert draws(made(audit_rate=0.3, seed="8")) != first


def test_children_of_a_fork_draw_other_numbers_than_their_parent_and_each_other() -> None:
    parent, one, other, again = (made(audit_rate=0.3, seed=7) for _ in range(4))
    one.audits.after_fork(".1")
    other.audits.after_fork(".2")
    again.audits.after_fork(".1")
    seen = [draws(cascade) for cascade in (parent, one, other, again)]
    assert seen[1] == seen[3], "the same each time"
    assert len({tuple(one) for one in seen}) == 3


def test_the_share_of_requests_is_kept_to_and_the_probability_is_told(
    recorder: Recorder, clock: VirtualClock
) -> None:
    cascade = made(audit_rate=0.5, audit_share=0.05, seed=3)
    chances, audited = 0.0, 0
    for _ in range(4000):
        cascade.audits.begun()
        draw = cascade.audits.draw(0.9, impossible=None, open_requests=1)
        chances += draw.propensity
        audited += draw.runs
        assert draw.propensity <= 0.5
    assert audited <= 0.05 * 4000 + 10
    assert audited >= 0.05 * 4000 - 10, "and used"
    assert audited == pytest.approx(chances, abs=4 * chances**0.5)


def test_the_device_seconds_of_an_hour_are_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(cascades_audits, "monotonic", lambda: now[0])
    cascade = made(audit_rate=1.0, audit_seconds_per_hour=36.0, seed=3)
    spent, chances, audited = 0.0, 0.0, 0
    for _ in range(7200):
        now[0] += 1.0
        draw = cascade.audits.draw(0.9, impossible=None, open_requests=1)
        chances += draw.propensity
        if draw.runs:
            audited += 1
            spent += 0.25
            cascade.audits.spent(0.25)
    assert 60.0 < spent < 2 * 36.0 + 3.6 + 0.5
    assert audited == pytest.approx(chances, abs=4 * chances**0.5)


def test_no_seconds_at_all_are_none() -> None:
    draw = made(audit_seconds_per_hour=0).audits.draw(0.9, impossible=None, open_requests=1)
    assert (draw.drawn, draw.runs, draw.propensity, draw.reason) == (True, False, 0.0, "budget")


def test_what_an_audit_did_not_use_of_its_reserve_comes_back() -> None:
    audits = made(audit_seconds_per_hour=360.0).audits
    assert audits._seconds is not None
    for seconds in (10.0, None):
        audits.draw(0.9, impossible=None, open_requests=1)
        audits.spent(seconds)
    assert audits._seconds.level == pytest.approx(26.0, abs=0.1)


# --- properties ---------------------------------------------------------------------------

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(numbers, numbers, st.booleans())
def test_a_request_is_escalated_only_below_the_threshold(
    confidence: float, threshold: float, higher: bool
) -> None:
    policy = checked_policy("a", ("s", "l"), threshold, None, higher_is_better=higher, name=None)
    mirrored = checked_policy("a", ("s", "l"), -threshold, None, higher_is_better=not higher, name=None)
    step = policy.judge(confidence, 0)
    assert step.escalated == (confidence < threshold if higher else confidence > threshold)
    assert step.escalated == mirrored.judge(-confidence, 0).escalated, "as a reader that negates sees it"


@given(
    rate=st.floats(0, 1),
    share=st.none() | st.floats(0, 1),
    seconds=st.none() | st.floats(0, 1e6),
    steps=st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 100)), max_size=60),
    seed=st.integers(),
)
def test_a_propensity_is_a_probability_and_what_runs_had_one(
    rate: float,
    share: float | None,
    seconds: float | None,
    steps: list[tuple[bool, bool, float]],
    seed: int,
) -> None:
    audits = Audits("a", rate, share=share, seconds_per_hour=seconds, load=None, seed=seed)
    for begun, possible, spent in steps:
        if begun:
            audits.begun()
        draw = audits.draw(0.5, impossible=None if possible else "queue", open_requests=1)
        assert 0.0 <= draw.propensity <= rate
        assert not draw.runs or (draw.drawn and draw.propensity > 0)
        assert (draw.reason is not None) == (draw.drawn and not draw.runs)
        if not possible:
            assert draw.propensity == 0.0
        if draw.runs:
            audits.spent(spent)


@given(st.floats(0.05, 0.95), st.floats(0.05, 1.0), st.integers(0, 2**32))
def test_weighing_by_the_propensity_is_unbiased(rate: float, level: float, seed: int) -> None:
    """The sum of 1/propensity over what ran estimates how many could have run."""
    audits = Audits("a", rate, share=1.0, seconds_per_hour=None, load=None, seed=seed)
    count, estimate, variance = 400, 0.0, 0.0
    for _ in range(count):
        assert audits._audits is not None
        audits._audits.level = 5.0 * level
        draw = audits.draw(0.5, impossible=None, open_requests=1)
        estimate += draw.runs / draw.propensity
        variance += 1 / draw.propensity - 1
    assert abs(estimate - count) < 6 * variance**0.5 + 1 / (rate * level)


def test_the_shadow_of_a_process_is_reset_with_a_fork() -> None:
    before = cascades_shadow.in_force()
    cascades_shadow.reset()
    assert cascades_shadow.in_force() is not before
