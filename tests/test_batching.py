"""Batches: one owner of the device, split among its members to the nanosecond."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

import gputrace
from gputrace import attribution, batching, catalogue, faults, ledger
from gputrace.testing import Recorder, VirtualClock, VirtualGpu

if TYPE_CHECKING:
    from fractions import Fraction

MS = 1_000_000


def members(*features: str) -> list[batching.Member]:
    made = []
    for feature in features:
        with gputrace.attribute_to(feature=feature, tenant=f"{feature}-tenant"):
            made.append(gputrace.member())
    return made


def charged_ns(recorder: Recorder, attribute: str = catalogue.FEATURE) -> dict[str, int]:
    return {name: round(seconds * 1e9) for name, seconds in recorder.time_by(attribute).items() if seconds}


def test_tokens_split_a_batch(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.batch(members("a", "b", "c", "d"), weights=[100, 50, 25, 25], model="llm"):
        clock.advance(200 * MS)
    assert charged_ns(recorder) == {"a": 100 * MS, "b": 50 * MS, "c": 25 * MS, "d": 25 * MS}
    assert charged_ns(recorder, catalogue.MODEL) == {"llm": 200 * MS}


def test_equal_weights_split_by_largest_remainder(recorder: Recorder, clock: VirtualClock) -> None:
    one, two, three = members("a", "b", "c")
    with gputrace.batch([one, two, three], weights=[1, 1, 1]) as call:
        clock.advance(100)
    assert call.batch.shares_ns(100) == {one: 34, two: 33, three: 33}
    recorder.settle()
    assert sum(recorder.settler.totals.time.values()) == 100 * ledger.SCALE


def test_bentoml_2989_a_batch_is_never_billed_to_the_first_request(
    recorder: Recorder, clock: VirtualClock
) -> None:
    """Its thread was started by the first request, whose scope it has for ever."""
    made: list[batching.Member] = []
    with gputrace.request("GET /a", feature="a") as first:
        made.append(gputrace.member())

        async def batcher() -> None:
            async with gputrace.batch(made):
                clock.advance(90)

        with gputrace.request("GET /b", feature="b") as second:
            made.append(gputrace.member())
        with gputrace.request("GET /c", feature="c") as third:
            made.append(gputrace.member())
        asyncio.run(batcher())
    recorder.settle()
    assert charged_ns(recorder) == {"a": 30, "b": 30, "c": 30}
    assert [one.charged_ns for one in (first, second, third)] == [30, 30, 30]
    assert [one.calls for one in (first, second, third)] == [1, 1, 1]


def test_what_is_under_a_batch_is_split_and_keeps_its_own_name(
    recorder: Recorder, clock: VirtualClock
) -> None:
    with gputrace.batch(members("a", "b"), operation="step", model="llm"):
        clock.advance(10)
        with gputrace.span("attention", model="kernel", feature="ignored"):
            clock.advance(20)
    assert charged_ns(recorder) == {"a": 15, "b": 15}
    assert charged_ns(recorder, catalogue.OPERATION) == {"step": 10, "attention": 20}
    assert charged_ns(recorder, catalogue.MODEL) == {"llm": 10, "kernel": 20}


def test_the_call_around_a_batch_gets_none_of_it(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.span("server", feature="infrastructure"):
        clock.advance(5)
        with gputrace.batch(members("a")):
            clock.advance(10)
        clock.advance(5)
    assert charged_ns(recorder) == {"infrastructure": 10, "a": 10}


def test_on_two_devices_each_is_split(clock: VirtualClock) -> None:
    with VirtualGpu(2, clock) as gpu, Recorder(gpu.host_ns) as recorder:
        for device in (0, 1):
            with gpu.device(device):
                gpu.init()
        with gputrace.batch(members("a", "b"), weights=[3, 1], devices=[0, 1]):
            for device in (0, 1):
                with gpu.device(device):
                    gpu.launch(4 * MS)
        gpu.advance(10 * MS)
        assert charged_ns(recorder) == {"a": 6 * MS, "b": 2 * MS}


def test_one_member_twice_counts_twice(recorder: Recorder, clock: VirtualClock) -> None:
    one, two = members("a", "b")
    with gputrace.batch([one, two, one]):
        clock.advance(30)
    assert charged_ns(recorder) == {"a": 20, "b": 10}


def test_a_member_that_has_ended_is_billed_and_told_when_its_batch_is_settled(
    recorder: Recorder, clock: VirtualClock
) -> None:
    with gputrace.request("GET /a", feature="a") as request:
        made = gputrace.member()
    assert recorder.settled() == []
    clock.advance(1_000)
    with gputrace.batch([made]):
        clock.advance(10)
    assert [call.operation for call in recorder.settled()] == ["batch", "GET /a"]
    assert (request.calls, request.charged_ns) == (1, 10)


@pytest.mark.parametrize("hold", ["none", "steps"])
def test_a_request_waits_for_all_that_its_batch_has_begun(clock: VirtualClock, hold: str) -> None:
    """The block is left at once; what it launched, on a stream of its own too, goes on."""
    with VirtualGpu(1, clock) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        with gputrace.request("GET /a", feature="a") as request:
            made = gputrace.member()
        with gputrace.batch([made], hold=hold), gpu.stream(gpu.Stream()), gputrace.span("kernel"):
            gpu.launch(6 * MS)
        gpu.advance(2 * MS)
        assert "GET /a" not in [call.operation for call in recorder.settled()]
        gpu.advance(10 * MS)
        assert [call.operation for call in recorder.settled()][-1] == "GET /a"
        assert (request.calls, request.charged_ns) == (1, pytest.approx(6 * MS, abs=1_000))


def test_a_request_does_not_wait_for_an_item_that_no_batch_will_serve(recorder: Recorder) -> None:
    with gputrace.request("GET /a", feature="a") as request:
        left = gputrace.member()
    assert recorder.settled() == []
    left.forget()
    left.forget()
    assert not request.expected
    assert [call.operation for call in recorder.settled()] == ["GET /a"]


def test_nor_does_the_cascade_that_it_is_in(recorder: Recorder) -> None:
    cascade = gputrace.Cascade("answer", threshold=0.8)
    with cascade.request(feature="a") as request, request.stage("small"):
        left = gputrace.member()
    request.escalate(0.9)
    left.forget()
    left.forget()
    assert not request.awaited
    recorder.settle()
    assert [call.operation for call in recorder.settled()] == ["answer.small", "answer"]


def test_a_batch_counts_once_and_its_members_each(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.batch(members("a", "b", "a")):
        clock.advance(1)
    shown = recorder.snapshot()
    (((attributes, count),)) = shown.calls
    assert (attributes[catalogue.FEATURE], count) == (catalogue.SHARED, 1)
    counted = {of[catalogue.FEATURE]: count for of, count in shown.requests["gputrace.batch.members"]}
    assert counted == {"a": 2, "b": 1}


def test_a_member_may_have_a_variant_of_its_own(recorder: Recorder, clock: VirtualClock) -> None:
    members = [gputrace.member(variant="lora-a"), gputrace.member(), gputrace.member(variant="__mine")]
    with gputrace.batch(members, model="llama", variant="fp16"):
        clock.advance(30)
    assert recorder.time_by(catalogue.VARIANT) == {
        "lora-a": pytest.approx(10e-9),
        "fp16": pytest.approx(20e-9),
    }


def test_members_of_one_feature_name_the_batch(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.batch(members("a", "a")):
        clock.advance(1)
    assert recorder.settled()[0].feature == "a"


def test_a_batch_is_one_owner_whatever_its_size(recorder: Recorder, clock: VirtualClock) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def alone() -> None:
        with gputrace.span("alone", feature="alone"):
            entered.set()
            go_on.wait()

    thread = threading.Thread(target=alone, daemon=True)
    with gputrace.batch(members("a", "b", "c")):
        thread.start()
        entered.wait()
        clock.advance(60)
        go_on.set()
        thread.join()
    assert charged_ns(recorder) == {"alone": 30, "a": 10, "b": 10, "c": 10}


@pytest.mark.parametrize("weights", [[1], [1, -1], [0, 0], ["x", 1], [float("nan"), 1]])
def test_weights_that_cannot_be_used_count_alike_and_are_said_once(
    recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture, weights: list[object]
) -> None:
    faults.reset()
    for _ in range(2):
        with gputrace.batch(members("a", "b"), weights=weights):  # type: ignore[arg-type]
            clock.advance(10)
    assert charged_ns(recorder) == {"a": 10, "b": 10}
    assert len(caplog.messages) == 1


def test_who_is_no_member_is_nobody(recorder: Recorder, clock: VirtualClock) -> None:
    faults.reset()
    with gputrace.batch([None, "a string"]):  # type: ignore[list-item]
        clock.advance(10)
    with gputrace.batch([]):
        clock.advance(10)
    assert charged_ns(recorder) == {catalogue.NO_FEATURE: 20}


def test_a_request_stands_for_itself(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.request("GET /a", feature="a") as request:
        pass
    with gputrace.batch([request]):
        clock.advance(10)
    recorder.settle()
    assert charged_ns(recorder) == {"a": 10}


def test_a_site_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ValueError, match="hold"):
        gputrace.batch([], hold="sometimes")


@given(
    weights=st.lists(st.fractions(0, 1_000, max_denominator=100), min_size=1, max_size=8).filter(any),
    amounts=st.lists(st.integers(0, 10**30), min_size=1, max_size=20),
)
def test_every_charge_is_split_whole_and_nobody_is_ever_given_less(
    weights: list[Fraction], amounts: list[int]
) -> None:
    made = [batching.Member(attribution.UNNAMED, None, None) for _ in weights]
    batch = batching.Batch(made, weights)
    given_to = dict.fromkeys(made, 0)
    for amount in amounts:
        parts = batch.split("device", amount)
        assert sum(part for _, part in parts) == amount
        for one, part in parts:
            assert part >= 0
            given_to[one] += part
    whole, total = sum(weights), sum(amounts)
    for one, weight in zip(made, weights, strict=True):
        assert abs(given_to[one] - total * weight / whole) < len(made) + 1
