"""Who asks for what: the rhythm of a day, a launch, a trace, and plans that cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputrace.simulate.demand import (
    _FIXED_BORNE,
    _UNITS_A_SERVED_S,
    OK,
    draw,
    rhythm,
    served_tokens,
)
from gputrace.simulate.features import features
from gputrace.simulate.model_server import alone_s
from gputrace.simulate.plan import NS_PER_S, Plan, PlanError, enough_requests
from tests.conftest import SHARED
from tests.simulate.conftest import SHORT, START_NS

if TYPE_CHECKING:
    from pathlib import Path

DAY = Plan(START_NS, span_s=86_400, gpus=2, processes=1, step_s=60, requests=4_000)


def test_about_as_many_as_are_planned_and_in_order() -> None:
    asked = draw(DAY, 0).asked
    batched = [one.feature.kind.batched for one in asked]
    assert sum(batched) == pytest.approx(DAY.requests, rel=0.02)
    assert [one.at_ns for one in asked] == sorted(one.at_ns for one in asked)
    assert DAY.start_ns <= asked[0].at_ns
    assert asked[-1].at_ns < DAY.end_ns


def test_nobody_asks_at_night() -> None:
    morning_ns = DAY.start_ns + 6 * 3_600 * NS_PER_S
    assert min(one.at_ns for one in draw(DAY, 0).asked) >= morning_ns
    awake = replace(DAY, incidents=DAY.incidents - {"night"})
    assert min(one.at_ns for one in draw(awake, 0).asked) < morning_ns
    assert rhythm(DAY, DAY.start_ns) == 0
    assert 0 < rhythm(DAY, morning_ns) < rhythm(DAY, DAY.start_ns + 54_000 * NS_PER_S) <= 1


def test_less_than_a_day_has_its_night_all_the_same() -> None:
    quiet_ns = SHORT.start_ns + SHORT.span_s * NS_PER_S // 4
    assert min(one.at_ns for one in draw(SHORT, 0).asked) >= quiet_ns


def test_a_launch_doubles_the_traffic_of_one_feature() -> None:
    flat = replace(DAY, incidents=frozenset({"launch"}), requests=20_000)
    launched, first = flat.part_ns(0.6), features(flat.features)[0].name
    rates = {True: 0, False: 0}
    others = {True: 0, False: 0}
    for one in draw(flat, 0).asked:
        counted = rates if one.feature.name == first else others
        counted[one.at_ns >= launched] += 1
    assert rates[True] / 0.4 == pytest.approx(2 * rates[False] / 0.6, rel=0.1)
    assert others[True] / 0.4 == pytest.approx(others[False] / 0.6, rel=0.1)


def test_whatever_their_number_they_come_to_the_same_load() -> None:
    def computed_s(plan: Plan) -> float:
        demand = draw(plan, 0)
        costs = 0.0
        for one in demand.asked:
            kind = one.feature.kind
            cost = sum(work.cost for work in kind.works)
            if kind.ladder is not None:
                cost += kind.ladder.light.cost
                cost += kind.ladder.heavy.cost * (one.confidence < kind.ladder.threshold)
            if kind.served is not None:
                costs += _UNITS_A_SERVED_S * alone_s(*served_tokens(one), fixed=_FIXED_BORNE)
            costs += one.size * cost * (1.0 if one.fate == OK else 0.5)
        return costs * demand.second

    wanted_s = DAY.load * DAY.gpus * DAY.span_s
    assert computed_s(DAY) == pytest.approx(wanted_s)
    assert computed_s(replace(DAY, requests=400)) == pytest.approx(wanted_s)


@pytest.mark.parametrize("number", [1, 6, 200])
def test_features_have_names_of_their_own(number: int) -> None:
    found = features(number)
    assert len({one.name for one in found}) == number
    assert sum(one.share for one in found) == pytest.approx(1)


@pytest.mark.requires("shared")
@pytest.mark.parametrize("trace", ["azure_llm_2023_code.csv", "azure_llm_2023_conv.csv"])
def test_a_trace_is_played_over_and_over(trace: str) -> None:
    played = replace(DAY, trace=SHARED / "data" / trace, requests=3_000)
    asked = draw(played, 0).asked
    assert len(asked) == pytest.approx(3_000, rel=0.2)
    sizes = {
        tuple(int(text) for text in line.split(",")[1:])
        for line in (SHARED / "data" / trace).read_text().splitlines()[1:]
    }
    assert {(one.input_tokens, one.output_tokens) for one in asked} <= sizes
    assert {one.feature.name for one in asked} == {one.name for one in features(played.features)}


#: What a trace begins with.
HEAD = "t_s,input_tokens,output_tokens\n"


def test_a_trace_that_says_when_and_how_much(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    # As spreadsheets write it.
    trace.write_text("\ufefft_s,input_tokens,output_tokens\n0,10,1\n60.5,20,2\n", encoding="utf-8")
    steady = replace(SHORT, trace=trace, incidents=frozenset(), requests=10_000)
    asked = draw(steady, 0).asked
    assert [(one.at_ns - START_NS) / NS_PER_S for one in asked[:4]] == [0, 60.5, 61.5, 122]
    assert [one.input_tokens for one in asked[:4]] == [10, 20, 10, 20]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no request in it"),
        (HEAD, "no request in it"),
        (HEAD + "0,10,1\n1,x,2\n", "line 3, column input_tokens: it is 'x', and no whole number"),
        (HEAD + "0,10\n", "line 2, column output_tokens: it is missing"),
        (HEAD + "0,10,1.5\n", "line 2, column output_tokens: it is '1.5', and no whole number"),
        (HEAD + "soon,10,1\n", "line 2, column t_s: it is 'soon', and no number"),
        (
            HEAD + "0,1,1\n-1,1,1\n",
            "line 3, column t_s: -1 is not from 0 to 31622400, s since the trace began",
        ),
        (HEAD + "nan,1,1\n", "line 2, column t_s: nan is not from 0"),
        (HEAD + "1e18,1,1\n", "line 2, column t_s: 1e18 is not from 0"),
        (HEAD + "0,-1,1\n", "line 2, column input_tokens: -1 is not from 0 to 10000000$"),
        (HEAD + "0,1,99999999\n", "line 2, column output_tokens: 99999999 is not from 0"),
        (HEAD + "0,0,0\n1,0,0\n", "columns input_tokens and output_tokens: no request of it has a token"),
        (HEAD + "1800,1,1\n", "its first request comes after 1800 s, and 1800 s are simulated"),
        (
            "when,input_tokens,output_tokens\n0,1,1\n",
            "line 1: there is no column t_s; .* input_tokens, output",
        ),
        (b"\xff\xfe\x00", "a CSV file in UTF-8, and this is none"),
        (HEAD.encode() + b"0,1,1\n\xff,1,1\n", "a CSV file in UTF-8, and this is none"),
        (HEAD + "0,1,1\n" + "9" * 200_000 + ",1,1\n", "a CSV file, and this is none"),
    ],
)
def test_a_trace_that_cannot_be_read(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PlanError, match=complaint):
        draw(replace(SHORT, trace=trace), 0)
    with pytest.raises(PlanError, match="No such file"):
        draw(replace(SHORT, trace=tmp_path / "none.csv"), 0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"gpus": 0}, "gpus must be at least 1"),
        ({"gpus": 3, "processes": 2}, "3 GPUs cannot be shared out evenly among 2 processes"),
        ({"step_s": 7}, "whole steps of 7 s"),
        ({"incidents": frozenset({"flood"})}, "no incident is called flood; there are night, launch"),
    ],
)
def test_a_plan_that_cannot_be_carried_out(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        replace(SHORT, **changes)  # type: ignore[arg-type]


def test_readings_divide_a_step() -> None:
    assert replace(SHORT, step_s=15).reading_ns == 15 * NS_PER_S
    assert replace(SHORT, step_s=60).reading_ns == 60 * NS_PER_S
    assert replace(SHORT, step_s=300).reading_ns == 60 * NS_PER_S
    assert enough_requests(60, 1) < enough_requests(7 * 86_400, 8) == enough_requests(70 * 86_400, 8)
