"""Cascades of code that is there already: `@gputrace.cascade` and `gputrace.record_decision`."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

import gputrace
from gputrace import cascades, catalogue, faults

if TYPE_CHECKING:
    from gputrace.testing import Recorder, VirtualClock

PREFIX = "gputrace.escalation."


@pytest.fixture(autouse=True)
def forget() -> None:
    """What was told once, and the cascades of other tests."""
    faults.reset()
    cascades._by_name.clear()


def decisions(recorder: Recorder) -> list[dict[str, Any]]:
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


def test_two_functions_become_a_cascade(recorder: Recorder, clock: VirtualClock) -> None:
    def large(question: str, *, polite: bool = False) -> str:
        clock.advance(200)
        return f"large {question} {polite}"

    @gputrace.cascade("answer", heavy=large, threshold=0.8, feature="support", audit_rate=1.0)
    def answer(question: str, *, polite: bool = False) -> tuple[str, float]:
        """Answer a question."""
        clock.advance(10)
        return f"small {question} {polite}", len(question) / 10

    assert answer("12345678") == "small 12345678 False"
    assert answer("1", polite=True) == "large 1 True"
    assert answer.__doc__ == "Answer a question."
    assert list(inspect.signature(answer).parameters) == ["question", "polite"]
    told = {one["decision"]: one for one in decisions(recorder)}
    assert told["audited"]["heavy.time"] == told["escalated"]["heavy.time"] == 2e-7
    assert {one["light.time"] for one in told.values()} == {1e-8}
    assert {one["gputrace.feature"] for one in told.values()} == {"support"}


def test_coroutine_functions_hold_the_device_only_in_their_steps(
    recorder: Recorder, clock: VirtualClock
) -> None:
    async def large(_: str) -> str:
        clock.advance(100)
        await asyncio.sleep(0)
        clock.advance(100)
        return "large"

    @gputrace.cascade(
        "answer", heavy=large, threshold=0.8, confidence=lambda text: 0.9 if text == "sure" else 0.1
    )
    async def answer(question: str) -> str:
        await asyncio.sleep(0)
        clock.advance(10)
        return question

    async def elsewhere() -> None:
        clock.advance(5_000)

    async def program() -> list[str]:
        return await asyncio.gather(answer("sure"), elsewhere(), answer("unsure"))

    assert asyncio.run(program()) == ["sure", None, "large"]
    told = {one["decision"]: one for one in decisions(recorder)}
    assert told["kept"]["light.time"] == told["escalated"]["light.time"] == 1e-8
    assert told["escalated"]["heavy.time"] == 2e-7


def test_functions_that_are_tracked_stay_what_they_are(recorder: Recorder, clock: VirtualClock) -> None:
    @gputrace.track(operation="read", model="minilm")
    def small() -> tuple[int, float]:
        clock.advance(10)
        return 1, 0.1

    @gputrace.track(operation="read", model="llama", stage="big")
    def large() -> int:
        clock.advance(20)
        return 2

    assert gputrace.cascade("answer", heavy=large, threshold=0.5)(small)() == 2
    calls = {(one.operation, one.model, one.stage, one.charged_ns) for one in recorder.settled()}
    assert {("read", "minilm", "light", 10), ("read", "llama", "big", 20)} <= calls
    (decision,) = decisions(recorder)
    assert (decision["light.time"], decision["heavy.time"]) == (1e-8, 2e-8)


def test_what_a_function_raises_comes_through(recorder: Recorder) -> None:
    def large() -> int:
        raise KeyError("large")

    @gputrace.cascade("answer", heavy=large, threshold=0.5)
    def answer() -> tuple[int, float]:
        return 1, 0.1

    with pytest.raises(KeyError, match="large"):
        answer()
    (decision,) = decisions(recorder)
    assert decision["excluded"] == "heavy_failed"


@pytest.mark.parametrize("confidence", [None, lambda _: 1 / 0])
def test_an_answer_whose_confidence_nobody_can_tell_is_escalated(recorder: Recorder, confidence: Any) -> None:
    @gputrace.cascade("answer", heavy=lambda: "large", threshold=0.5, confidence=confidence)
    def answer() -> str:
        return "small"

    assert answer() == "large"
    (decision,) = decisions(recorder)
    assert decision["reason"] == "invalid_confidence"


async def _coroutine() -> None: ...


@pytest.mark.parametrize(
    ("light", "heavy", "error"),
    [(int, 3, TypeError), (3, int, TypeError), (_coroutine, int, TypeError), (int, _coroutine, TypeError)],
)
def test_functions_that_do_not_fit_are_refused(light: Any, heavy: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="cascade\\('answer'\\)"):
        gputrace.cascade("answer", heavy=heavy, threshold=0.5)(light)


def test_three_stages_are_too_many_for_two_functions() -> None:
    with pytest.raises(ValueError, match="stages"):
        gputrace.cascade("answer", heavy=int, stages=("a", "b", "c"), threshold=0.5)


def test_a_cascade_goes_to_a_worker_by_value(recorder: Recorder, clock: VirtualClock) -> None:
    cascade = gputrace.Cascade("answer", threshold=0.5)
    with cascade.request() as request:
        copied = pickle.loads(pickle.dumps(cascade))  # noqa: S301 - our own
        request.escalate(0.9)
    assert copied.open_requests == set()
    with copied.request() as request:
        with request.stage("light"):
            clock.advance(10)
        request.escalate(0.1)
    assert [one["decision"] for one in decisions(recorder)] == ["kept", "escalated"]
    decorated = gputrace.cascade("answer", heavy=lambda: 2, threshold=0.5)(lambda: (1, 0.1))
    assert cloudpickle.loads(cloudpickle.dumps(decorated))() == 2


# --- record_decision ------------------------------------------------------------------


def test_a_router_of_ones_own_records_what_it_knows(recorder: Recorder) -> None:
    identity = gputrace.record_decision(
        "answer",
        escalated=True,
        confidence=0.4,
        threshold=0.5,
        policy="router-3",
        reason="long_question",
        feature="support",
        stages=("small", "large"),
        light_time=0.5,
        heavy_time=2.0,
        light_cost=0.001,
        heavy_cost=0.02,
        currency="EUR",
        heavy_energy=700,
        input_size=812,
    )
    (decision,) = decisions(recorder)
    assert decision == {
        "gputrace.request.id": identity,
        "gputrace.feature": "support",
        "gputrace.status": "ok",
        "gputrace.currency": "EUR",
        "cascade": "answer",
        "policy": "router-3",
        "decision": "escalated",
        "reason": "long_question",
        "confidence": 0.4,
        "threshold": 0.5,
        "surer": "higher",
        "audit.drawn": False,
        "audit.propensity": 1.0,
        "input.size": 812.0,
        "light.stage": "small",
        "light.time": 0.5,
        "light.cost": 0.001,
        "heavy.time": 2.0,
        "heavy.cost": 0.02,
        "heavy.energy": 700.0,
    }
    assert counted(recorder, catalogue.ESCALATION_REQUESTS) == {
        ("answer", "support", "escalated", "long_question"): 1
    }
    assert counted(recorder, catalogue.ESCALATION_TIME) == {
        ("answer", "support", "small"): 0.5,
        ("answer", "support", "large"): 2.0,
    }
    assert counted(recorder, catalogue.ESCALATION_COST) == {
        ("answer", "support", "small", "EUR"): 0.001,
        ("answer", "support", "large", "EUR"): 0.02,
    }


def test_an_audit_of_ones_own_has_the_stage_audit(recorder: Recorder) -> None:
    gputrace.record_decision("answer", escalated=False, audited=True, audit_propensity=0.1, heavy_time=2.0)
    gputrace.record_decision("answer", escalated=False, audit_propensity=0.1, heavy_time=2.0)
    audited, kept = decisions(recorder)
    assert (audited["decision"], audited["audit.propensity"], audited["heavy.time"]) == ("audited", 0.1, 2.0)
    assert (kept["decision"], kept["audit.propensity"]) == ("kept", 0.1)
    assert "heavy.time" not in kept
    assert counted(recorder, catalogue.ESCALATION_TIME) == {("answer", "__none__", "audit"): 2.0}


def test_it_belongs_to_the_call_that_it_is_made_in(recorder: Recorder) -> None:
    with gputrace.request("GET /answers", feature="search") as request:
        identity = gputrace.record_decision("answer", escalated=False)
    assert identity == request.id
    (decision,) = decisions(recorder)
    assert (decision["gputrace.request.id"], decision["gputrace.feature"]) == (request.id, "search")
    assert decision["audit.propensity"] == 0.0
    given = gputrace.record_decision("answer", escalated=False, request_id="mine")
    assert given == "mine"
    assert gputrace.record_decision("answer", escalated=False) != identity


@pytest.mark.parametrize("propensity", [None, 0, 1.5, "0.1", float("nan")])
def test_an_audit_without_its_propensity_is_left_out(
    recorder: Recorder, propensity: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gputrace.record_decision("answer", escalated=False, audited=True, audit_propensity=propensity)
    (decision,) = decisions(recorder)
    assert decision["excluded"] == "propensity_unknown"
    assert "audit.propensity" not in decision
    assert "needs audit_propensity" in caplog.text


def test_what_cannot_be_used_is_left_out_with_one_line(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        gputrace.record_decision("", escalated=True)
        gputrace.record_decision("__mine", escalated=True)
        gputrace.record_decision(
            "answer",
            escalated=True,
            request_id="x" * 1000,
            light_time=-1,
            heavy_time="2",  # type: ignore[arg-type]
            light_cost=3.0,
            confidence="high",  # type: ignore[arg-type]
            stages="light",  # type: ignore[arg-type]
        )
    first, _ = decisions(recorder)
    assert first.keys().isdisjoint({"light.time", "heavy.time", "light.cost", "confidence", "threshold"})
    assert len(first["gputrace.request.id"]) < 100
    assert len(caplog.records) == 5
