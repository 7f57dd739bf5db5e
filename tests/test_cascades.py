"""Cascades: what is decided after each stage, what each stage is charged, and what is recorded of it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import cascades, catalogue, faults, settler_requests
from gputrace.costs import Costs
from gputrace.prices import PriceBook
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.telemetry.events import Event
    from gputrace.testing import Recorder, VirtualClock

PREFIX = "gputrace.escalation."


def facts(event: Event) -> dict[str, Any]:
    """The attributes of a decision by what is theirs of the name."""
    return {name.removeprefix(PREFIX): value for name, value in event.attributes.items()}


def decisions(recorder: Recorder) -> list[dict[str, Any]]:
    recorder.settle()
    return [facts(event) for event in recorder.events if event.name == catalogue.DECISION_EVENT]


def counted(recorder: Recorder, metric: catalogue.Metric) -> dict[tuple[str, ...], float]:
    rows = recorder.snapshot().escalations[metric.name]
    return {tuple(attributes.values()): round(value, 12) for attributes, value in rows}


def answer(cascade: gputrace.Cascade, clock: VirtualClock, confidence: Any, **more: Any) -> Any:
    with cascade.request(feature="support") as request:
        with request.stage("small"):
            clock.advance(10)
        if request.escalate(confidence, **more):
            with request.stage("large"):
                clock.advance(200)
    return request


@pytest.fixture(autouse=True)
def forget() -> None:
    """What was told once, and the cascades of other tests."""
    faults.reset()
    cascades._by_name.clear()


@pytest.fixture
def cascade() -> gputrace.Cascade:
    return gputrace.Cascade("answer", stages=("small", "large"), threshold=0.8)


@pytest.mark.parametrize(("confidence", "escalated"), [(0.79, True), (0.8, False), (0.81, False)])
def test_a_request_below_the_threshold_is_escalated_and_a_tie_is_kept(
    cascade: gputrace.Cascade,
    recorder: Recorder,
    clock: VirtualClock,
    confidence: float,
    escalated: bool,
) -> None:
    request = answer(cascade, clock, confidence)
    (decision,) = decisions(recorder)
    assert request.escalated is escalated
    assert decision["decision"] == ("escalated" if escalated else "kept")
    assert (decision["confidence"], decision["threshold"]) == (confidence, 0.8)
    assert decision["audit.propensity"] == (1.0 if escalated else 0.0)


def test_a_decision_is_one_event_with_what_its_stages_cost(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    with cascade.request(feature="support", input_size=812) as request:
        with request.stage("small", model="minilm"):
            clock.advance(10)
        assert request.escalate(0.5)
        clock.advance(7)
        with request.stage("large", input_size=900):
            clock.advance(200)
            with gputrace.span("rerank"):
                clock.advance(50)
    recorder.settle()
    (event,) = recorder.events
    assert facts(event) == {
        "gputrace.request.id": request.id,
        "gputrace.feature": "support",
        "gputrace.status": "ok",
        "cascade": "answer",
        "policy": "<0.8",
        "decision": "escalated",
        "reason": "confidence",
        "confidence": 0.5,
        "threshold": 0.8,
        "surer": "higher",
        "audit.drawn": False,
        "audit.propensity": 1.0,
        "input.size": 812.0,
        "light.stage": "small",
        "light.time": 1e-8,
        "heavy.time": 2.5e-7,
    }
    assert event.body is not None
    small, large = event.body["stages"]
    assert (small["name"], small["time"], small["input_size"], small["calls"]) == ("small", 1e-8, 812.0, 1)
    assert (large["name"], large["time"], large["input_size"], large["calls"]) == ("large", 2.5e-7, 900.0, 2)
    assert event.body["steps"] == [{"confidence": 0.5, "threshold": 0.8, "escalated": True}]
    by_id = {one.call.label: one for one in recorder.settled()}
    assert by_id[small["call_id"]].stage == "small", "the stages' calls are linked"
    assert by_id[large["call_id"]].operation == "answer.large"
    assert {one.stage for one in by_id.values() if one.operation == "rerank"} == {"large"}


def test_the_counters_tell_decisions_apart_and_stages(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    for confidence in (0.1, 0.9, 0.9):
        answer(cascade, clock, confidence)
    decisions(recorder)
    assert counted(recorder, catalogue.ESCALATION_REQUESTS) == {
        ("answer", "support", "escalated", "confidence"): 1,
        ("answer", "support", "kept", "confidence"): 2,
    }
    assert counted(recorder, catalogue.ESCALATION_TIME) == {
        ("answer", "support", "small"): 3e-8,
        ("answer", "support", "large"): 2e-7,
    }


def test_a_stage_is_charged_for_all_inside_it_whatever_stage_that_names_itself(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    with cascade.request() as request:
        with request.stage("small"), gputrace.span("read", stage="preview"):
            clock.advance(30)
        request.escalate(1.0)
    (decision,) = decisions(recorder)
    assert decision["light.time"] == 3e-8
    assert "heavy.time" not in decision, "what did not run has no cost: missing is not zero"


def test_it_is_a_request_of_its_own_and_part_of_one_that_it_stands_in(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    answer(cascade, clock, 0.1)
    with gputrace.request("GET /answers", feature="search"), cascade.request() as inner:
        with inner.stage("small"):
            clock.advance(5)
        inner.escalate(0.9)
    decisions(recorder)
    requests = {
        tuple(attributes.values()): value
        for attributes, value in recorder.snapshot().requests["gputrace.request.time"]
    }
    assert requests == {
        ("answer", "support"): pytest.approx(2.1e-7),
        ("GET /answers", "search"): pytest.approx(5e-9),
    }
    assert [one["gputrace.feature"] for one in decisions(recorder)] == ["support", "search"]


def test_a_batch_is_charged_to_the_stages_of_its_members(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    members = []
    for _ in range(2):
        with cascade.request(feature="support") as request:
            with request.stage("small", hold="none"):
                members.append(gputrace.member())
            request.escalate(0.9)
    assert decisions(recorder) == [], "they wait for the batch that serves them"
    with gputrace.batch(members, weights=(1, 3)):
        clock.advance(400)
    assert [one["light.time"] for one in decisions(recorder)] == [1e-7, 3e-7]


def test_cascades_within_a_stage_count_for_both(recorder: Recorder, clock: VirtualClock) -> None:
    outer = gputrace.Cascade("outer", threshold=0.5)
    inner = gputrace.Cascade("inner", threshold=0.5)
    with outer.request() as request:
        with request.stage("light"), inner.request() as nested:
            with nested.stage("light"):
                clock.advance(20)
            nested.escalate(0.9)
        request.escalate(0.9)
    told = {one["cascade"]: one["light.time"] for one in decisions(recorder)}
    assert told == {"inner": 2e-8, "outer": 2e-8}


def test_what_was_not_measured_is_absent(cascade: gputrace.Cascade, recorder: Recorder) -> None:
    with cascade.request() as request:
        with request.stage("small", hold="none"):
            pass
        request.escalate(0.9)
    (decision,) = decisions(recorder)
    assert "light.time" not in decision


def test_where_a_device_has_a_price_stages_have_a_cost(
    cascade: gputrace.Cascade,
    recorder: Recorder,
    clock: VirtualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "wall_offset_ns", 1_790_000_000 * 1_000_000_000 - clock())
    book = tmp_path / "prices.toml"
    book.write_text(
        '[[price]]\nname = "*"\ntype = "cpu"\nper_hour = 3600.0\ncurrency = "EUR"\nkind = "on_demand"\n'
        'source = "a test"\nas_of = 2026-09-01\n'
    )
    recorder.settler.use_prices(Costs(PriceBook(book)))
    answer(cascade, clock, 0.1)
    (decision,) = decisions(recorder)
    assert (decision["light.cost"], decision["heavy.cost"]) == (1e-8, 2e-7)
    assert decision["gputrace.currency"] == "EUR"
    assert counted(recorder, catalogue.ESCALATION_COST) == {
        ("answer", "support", "small", "EUR"): 1e-8,
        ("answer", "support", "large", "EUR"): 2e-7,
    }


# --- more stages, rules, thresholds ----------------------------------------------


def test_all_stages_after_the_first_are_the_heavy_side(recorder: Recorder, clock: VirtualClock) -> None:
    cascade = gputrace.Cascade("answer", stages=("s", "m", "l"), threshold=(0.8, 0.6))
    for confidences in ((0.7, 0.5), (0.7, 0.6), (0.8,)):
        with cascade.request() as request:
            for stage, confidence in zip(cascade.stages, confidences, strict=False):
                with request.stage(stage):
                    clock.advance(10)
                if not request.escalate(confidence):
                    break
            else:
                with request.stage("l"):
                    clock.advance(100)
    told = decisions(recorder)
    assert [one["decision"] for one in told] == ["escalated", "escalated", "kept"]
    assert [one.get("heavy.time") for one in told] == [pytest.approx(1.1e-7), pytest.approx(1e-8), None]
    assert recorder.events[0].body is not None
    assert recorder.events[0].body["steps"] == [
        {"confidence": 0.7, "threshold": 0.8, "escalated": True},
        {"confidence": 0.5, "threshold": 0.6, "escalated": True},
    ]
    assert counted(recorder, catalogue.ESCALATION_THRESHOLD) == {
        ("answer", "<0.8/0.6", "s"): 0.8,
        ("answer", "<0.8/0.6", "m"): 0.6,
    }


def test_where_a_low_value_is_the_surer_a_high_one_escalates(recorder: Recorder, clock: VirtualClock) -> None:
    cascade = gputrace.Cascade("answer", stages=("small", "large"), threshold=1.0, higher_is_better=False)
    kept = [not answer(cascade, clock, entropy).escalated for entropy in (0.9, 1.0, 1.1)]
    assert kept == [True, True, False]
    assert {(one["surer"], one["policy"]) for one in decisions(recorder)} == {("lower", ">1")}


def test_a_rule_of_ones_own_decides(recorder: Recorder, clock: VirtualClock) -> None:
    def unsure(margins: list[float]) -> bool:
        return min(margins) < 0.1

    cascade = gputrace.Cascade("answer", stages=("small", "large"), rule=unsure, policy="margins-2")
    assert answer(cascade, clock, [0.5, 0.05]).escalated
    assert not answer(cascade, clock, [0.5, 0.5]).escalated
    for decision in decisions(recorder):
        assert decision["reason"] == "rule"
        assert decision["policy"] == "margins-2"
        assert not {"confidence", "threshold"} & decision.keys()
    assert counted(recorder, catalogue.ESCALATION_THRESHOLD) == {}
    with pytest.raises(ValueError, match="a rule decides"):
        cascade.threshold = 0.5


def test_a_rule_that_raises_escalates_and_is_told_once(
    recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cascade = gputrace.Cascade("answer", stages=("small", "large"), rule=lambda value: value["no"])
    assert answer(cascade, clock, {}).escalated
    assert answer(cascade, clock, {}).escalated
    assert caplog.text.count("the rule of cascade 'answer' raised") == 1
    assert len(decisions(recorder)) == 2


def test_a_threshold_whose_names_fold_is_not_counted_as_folded_at_every_look(recorder: Recorder) -> None:
    made = [gputrace.Cascade(f"cascade-{number}", threshold=0.5) for number in range(230)]
    shown = recorder.snapshot()
    rows = shown.escalations[catalogue.ESCALATION_THRESHOLD.name]
    assert any(of[catalogue.ESCALATION_CASCADE] == catalogue.OTHER for of, _ in rows)
    assert (shown.folded, recorder.snapshot().folded) == (0, 0)
    assert len(made) == 230


def test_the_threshold_in_force_is_recorded_with_each_decision(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    answer(cascade, clock, 0.7)
    cascade.threshold = 0.6
    answer(cascade, clock, 0.7)
    told = [(one["threshold"], one["policy"], one["decision"]) for one in decisions(recorder)]
    assert told == [(0.8, "<0.8", "escalated"), (0.6, "<0.6", "kept")]
    assert counted(recorder, catalogue.ESCALATION_THRESHOLD) == {("answer", "<0.6", "small"): 0.6}


# --- what users do -----------------------------------------------------------------


class Tensor:
    """As those of torch: no `numbers.Real`, with `item()`, which fails where there are several elements."""

    def __init__(self, *elements: float) -> None:
        self.elements = elements

    def item(self) -> float:
        if len(self.elements) != 1:
            message = "a Tensor with 2 elements cannot be converted to Scalar"
            raise RuntimeError(message)
        return self.elements[0]


@pytest.mark.parametrize("confidence", [Tensor(0.9), Decimal("0.9"), Fraction(9, 10)])
def test_a_tensor_of_one_element_is_a_number(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock, confidence: Any
) -> None:
    assert not answer(cascade, clock, confidence).escalated
    (decision,) = decisions(recorder)
    assert (decision["confidence"], decision["reason"]) == (0.9, "confidence")


def test_an_array_of_one_element_is_a_number(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    import numpy as np

    for confidence in (np.float32(0.9), np.array(0.9), np.array([[0.9]])):
        assert not answer(cascade, clock, confidence).escalated
    assert answer(cascade, clock, np.array([0.9, 0.9])).escalated
    assert [one["reason"] for one in decisions(recorder)] == ["confidence"] * 3 + ["invalid_confidence"]


@pytest.mark.parametrize(
    "confidence",
    [float("nan"), None, "0.9", b"0.9", float("inf"), Tensor(0.9, 0.9), Tensor(float("nan")), 0.9j, [0.9]],
)
def test_what_is_no_confidence_escalates_and_is_told_once(
    cascade: gputrace.Cascade,
    recorder: Recorder,
    clock: VirtualClock,
    confidence: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert answer(cascade, clock, confidence).escalated
    assert answer(cascade, clock, confidence).escalated
    told = decisions(recorder)
    assert {one["reason"] for one in told} == {"invalid_confidence"}
    assert not any("confidence" in one for one in told)
    assert caplog.text.count("is no finite number") == 1


def test_asking_too_often_escalates_no_further(
    cascade: gputrace.Cascade, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with cascade.request() as request:
        assert request.escalate(0.1)
        assert not request.escalate(0.1)
        with request.stage("large"):
            pass
    with cascade.request() as request:
        assert not request.escalate(0.9)
        assert not request.escalate(0.1)
    assert [one["decision"] for one in decisions(recorder)] == ["escalated", "kept"]
    assert caplog.text.count("called more often") == 1


def test_an_unknown_stage_counts_as_heavy(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with cascade.request() as request:
        request.escalate(0.1)
        for stage in ("huge", "__mine"):
            with request.stage(stage):
                clock.advance(10)
    (decision,) = decisions(recorder)
    assert decision["heavy.time"] == 2e-8
    assert "has the stages small, large" in caplog.text


def test_a_heavy_stage_that_failed_leaves_the_row_out(cascade: gputrace.Cascade, recorder: Recorder) -> None:
    with suppress(KeyError), cascade.request() as request:
        request.escalate(0.1)
        with request.stage("large"):
            raise KeyError
    (decision,) = decisions(recorder)
    assert decision["excluded"] == "heavy_failed"
    assert decision["gputrace.status"] == "error"


@pytest.mark.parametrize("audited", [False, True])
def test_a_heavy_stage_that_ran_although_the_answer_was_kept_is_told_and_the_row_left_out(
    recorder: Recorder, clock: VirtualClock, audited: bool
) -> None:
    cascade = gputrace.Cascade("answer", stages=("small", "large"), threshold=0.8, audit_rate=float(audited))
    with cascade.request() as request:
        with request.stage("small"):
            clock.advance(10)
        with request.stage("large"):
            clock.advance(200)
        request.escalate(0.9, audit=lambda: clock.advance(3_000))
    assert gputrace.Cascade.wait_for_audits()
    (decision,) = decisions(recorder)
    assert decision["decision"] == ("audited" if audited else "kept")
    assert decision["excluded"] == "heavy_ran_kept"
    assert decision["heavy.time"] == 2e-7, "its own, never the audit's with it"
    (event,) = (one for one in recorder.events if one.name == catalogue.DECISION_EVENT)
    assert event.body is not None
    assert event.body.get("audit", {}).get("time") == (3e-6 if audited else None)
    stages = counted(recorder, catalogue.ESCALATION_TIME)
    assert stages["answer", catalogue.NO_FEATURE, "large"] == 2e-7


def test_a_request_without_a_decision_leaves_its_costs_alone(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    with suppress(KeyError), cascade.request() as request, request.stage("small"):
        clock.advance(10)
        raise KeyError
    assert decisions(recorder) == []
    assert counted(recorder, catalogue.ESCALATION_REQUESTS) == {}
    assert counted(recorder, catalogue.ESCALATION_TIME) == {("answer", "__none__", "small"): 1e-8}


def test_work_that_goes_on_for_too_long_is_said_to_be_unsettled(
    cascade: gputrace.Cascade,
    recorder: Recorder,
    clock: VirtualClock,
) -> None:
    with cascade.request() as request:
        with request.stage("small"):
            late = threading.Event()
            begun = threading.Event()

            def work() -> None:
                with gputrace.span("late"):
                    begun.set()
                    late.wait()

            thread = threading.Thread(target=gputrace.carry(work), daemon=True)
            thread.start()
            begun.wait()
        request.escalate(0.9)
    assert decisions(recorder) == []
    clock.advance(settler_requests.PATIENCE_NS)
    (decision,) = decisions(recorder)
    assert decision["excluded"] == "unsettled"
    late.set()
    thread.join()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": "__mine"}, "name"),
        ({"stages": ("one",)}, "stages"),
        ({"stages": ("one", "one")}, "stages"),
        ({"stages": ("one", "audit")}, "stages"),
        ({"stages": "light"}, "stages"),
        ({"stages": ("one", "__two")}, "stages"),
        ({"threshold": None}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": "0.8"}, "threshold"),
        ({"threshold": (0.8, 0.9)}, "threshold"),
        ({"rule": bool}, "threshold"),
        ({"threshold": None, "rule": 3}, "rule"),
        ({"policy": "__mine"}, "policy"),
        ({"audit_rate": 1.5}, "audit_rate"),
        ({"audit_rate": True}, "audit_rate"),
        ({"audit_share": -0.1}, "audit_share"),
        ({"audit_seconds_per_hour": "3"}, "audit_seconds_per_hour"),
        ({"audit_load": -1}, "audit_load"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    arguments = {"name": "answer", "threshold": 0.8, **given}
    with pytest.raises(ValueError, match=named):
        gputrace.Cascade(**arguments)


# --- async, and several at once ------------------------------------------------------


def test_async_requests_that_interleave_keep_their_stages_apart(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    async def one(number: int, turn: asyncio.Event, then: asyncio.Event) -> None:
        async with cascade.request(feature=f"f{number}") as request:
            async with request.stage("small", hold="none"):
                await turn.wait()
                with gputrace.span("model"):
                    clock.advance(10 * (number + 1))
                then.set()
                await asyncio.sleep(0)
            request.escalate(0.9)

    async def all_of_them() -> None:
        first, second, last = asyncio.Event(), asyncio.Event(), asyncio.Event()
        first.set()
        await asyncio.gather(one(0, second, last), one(1, first, second))

    asyncio.run(all_of_them())
    told = {one["gputrace.feature"]: one["light.time"] for one in decisions(recorder)}
    assert told == {"f0": 1e-8, "f1": 2e-8}


def test_one_block_object_in_many_tasks_opens_a_request_for_each(
    cascade: gputrace.Cascade, recorder: Recorder
) -> None:
    block = cascade.request(feature="support")

    async def one() -> None:
        async with block as request:
            await asyncio.sleep(0)
            request.escalate(0.9)

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(3)))

    asyncio.run(all_of_them())
    assert len({one["gputrace.request.id"] for one in decisions(recorder)}) == 3
    assert cascade.open_requests == set()


def test_a_request_can_be_described_and_billed_anew(
    cascade: gputrace.Cascade, recorder: Recorder, clock: VirtualClock
) -> None:
    with cascade.request() as request:
        request.describe(operation="POST /answers", route="/answers")
        request.set(feature="chat")
        with request.stage("small"):
            clock.advance(10)
        request.escalate(0.9)
        request.close()
    (decision,) = decisions(recorder)
    assert decision["gputrace.feature"] == "chat"
    assert request.charged_ns == 10
    assert "POST /answers" in {one.operation for one in recorder.settled()}
