"""Scores: what is told of them, and whose they are counted as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import cascades, cascades_counting, cascades_scores, catalogue, faults
from gputrace.accounts import Totals

if TYPE_CHECKING:
    from gputrace.testing import Recorder, VirtualClock


@pytest.fixture(autouse=True)
def forget() -> None:
    """What was told once, and the cascades of other tests."""
    faults.reset()
    cascades._by_name.clear()


@pytest.fixture
def recorded(recorder: Recorder) -> list[tuple[float, dict[str, str]]]:
    """What the histogram was given."""
    found: list[tuple[float, dict[str, str]]] = []
    recorder.escalations._record_score = lambda value, attributes: found.append((value, attributes))
    return found


def scores(recorder: Recorder) -> list[dict[str, Any]]:
    recorder.settle()
    return [dict(event.attributes) for event in recorder.events if event.name == catalogue.SCORE_EVENT]


def serve(confidence: float, clock: VirtualClock) -> Any:
    cascade = gputrace.Cascade("answer", stages=("small", "large"), threshold=0.8)
    with cascade.request(feature="support") as request:
        with request.stage("small", variant="fp16"):
            clock.advance(10)
        if request.escalate(confidence):
            with request.stage("large", variant="fp8"):
                clock.advance(200)
    return request


@pytest.mark.parametrize("settled", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize(("confidence", "stage", "variant"), [(0.9, "small", "fp16"), (0.1, "large", "fp8")])
def test_a_score_is_of_the_stage_that_answered(  # noqa: PLR0913 - every combination
    recorder: Recorder,
    recorded: list[tuple[float, dict[str, str]]],
    clock: VirtualClock,
    settled: bool,
    confidence: float,
    stage: str,
    variant: str,
) -> None:
    identity = serve(confidence, clock).id
    if settled:
        recorder.settle()
    gputrace.score(identity, 1)
    (told,) = scores(recorder)
    assert told == {
        "gputrace.request.id": identity,
        "gputrace.score.name": "quality",
        "gputrace.score.value": 1.0,
        "gputrace.feature": "support",
        "gputrace.escalation.cascade": "answer",
    }
    assert recorded == [
        (
            1.0,
            {
                "gputrace.feature": "support",
                "gputrace.escalation.cascade": "answer",
                "gputrace.score.name": "quality",
                "gputrace.stage": stage,
                "gputrace.variant": variant,
            },
        )
    ]


def test_a_request_that_is_still_open_is_known(
    recorder: Recorder, recorded: list[tuple[float, dict[str, str]]], clock: VirtualClock
) -> None:
    cascade = gputrace.Cascade("answer", stages=("small", "large"), threshold=0.8)
    with cascade.request(feature="support") as request:
        with request.stage("small", variant="fp16"):
            clock.advance(10)
        gputrace.score(request.id, 1.0)
        recorder.settle()
    ((_, attributes),) = recorded
    assert (attributes["gputrace.stage"], attributes["gputrace.variant"]) == ("small", "fp16")
    assert attributes["gputrace.feature"] == "support"


def test_the_light_answer_of_an_escalated_request_is_scored_by_its_stage(
    recorder: Recorder, recorded: list[tuple[float, dict[str, str]]], clock: VirtualClock
) -> None:
    request = serve(0.1, clock)
    gputrace.score(request.id, 0.0, "correct", stage="small", label_propensity=0.25)
    (told,) = scores(recorder)
    assert told["gputrace.stage"] == "small"
    assert told["gputrace.score.label.propensity"] == 0.25
    ((value, attributes),) = recorded
    assert value == 0.0
    assert attributes["gputrace.stage"] == "small"
    assert "gputrace.variant" not in attributes, "that of the answer that was served is another"


def test_a_request_of_another_process_is_scored_for_nobody_here(
    recorder: Recorder, recorded: list[tuple[float, dict[str, str]]]
) -> None:
    gputrace.score("elsewhere/1", 0.5)
    (told,) = scores(recorder)
    assert told == {
        "gputrace.request.id": "elsewhere/1",
        "gputrace.score.name": "quality",
        "gputrace.score.value": 0.5,
    }
    assert recorded == [(0.5, {"gputrace.feature": "__none__", "gputrace.score.name": "quality"})]


def test_a_request_that_is_no_cascades_has_its_feature(recorder: Recorder) -> None:
    with gputrace.request("GET /answers", feature="search") as request:
        identity = request.id
    gputrace.score(identity, 0.5)
    (told,) = scores(recorder)
    assert told["gputrace.feature"] == "search"
    assert "gputrace.stage" not in told


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("one", float("nan")), "is no finite number"),
        (("one", "good"), "is no finite number"),
        (("", 1.0), "none of gputrace's"),
        ((None, 1.0), "none of gputrace's"),
        (("x" * 300, 1.0), "none of gputrace's"),
        (("one", 1.0, ""), "must not be empty"),
        (("one", 1.0, "__mine"), "reserved"),
    ],
)
def test_a_score_that_cannot_be_used_is_left_out_with_one_line(
    recorder: Recorder, arguments: tuple[Any, ...], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    gputrace.score(*arguments)
    gputrace.score(*arguments)
    assert scores(recorder) == []
    assert [line in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("propensity", [0, -0.1, 1.5, "half"])
def test_a_label_propensity_that_is_none_is_left_out(
    recorder: Recorder, propensity: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gputrace.score("one", 1.0, label_propensity=propensity)
    (told,) = scores(recorder)
    assert "gputrace.score.label.propensity" not in told
    assert "label_propensity must be" in caplog.text


def test_scores_that_nobody_takes_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cascades_scores, "_MOST_WAITING", 2)
    for number in range(4):
        gputrace.score(f"r/{number}", 1.0)
    assert len(scores(recorder)) == 2
    assert "faster than they are told" in caplog.text


def test_requests_known_for_their_scores_are_forgotten_the_first_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cascades_counting, "_REMEMBERED", 2)
    counting = cascades_counting.Escalations(Totals())
    for number in range(3):
        counting._remember(str(number), cascades_counting.Answered("a", None, "light", None))
    assert list(counting._answered) == ["1", "2"]


def test_a_decision_names_the_request_around_it(recorder: Recorder, clock: VirtualClock) -> None:
    alone = serve(0.9, clock)
    with gputrace.request("GET /answers") as outer:
        inner = serve(0.9, clock)
        recorded = gputrace.record_decision("mine", escalated=False)
        with gputrace.span("route"):
            routed = gputrace.record_decision("mine", escalated=False)
    recorder.settle()
    told = {
        event.attributes[catalogue.REQUEST_ID]: event.attributes.get(catalogue.ESCALATION_ENCLOSING_ID)
        for event in recorder.events
        if event.name == catalogue.DECISION_EVENT
    }
    assert told == {alone.id: None, inner.id: outer.id, recorded: None, routed: outer.id}
    assert recorded == outer.id
