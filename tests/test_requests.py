"""Requests: containers that sum up what is done inside them, told once all of it is settled."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING

import pytest

import gputrace
from gputrace import catalogue, settler_requests
from gputrace.costs import Costs
from gputrace.prices import PriceBook
from gputrace.telemetry import spans
from gputrace.testing import Recorder, VirtualClock

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.requests import Request
    from gputrace.testing import RecordedCall

HOUR_NS = 3_600_000_000_000


def work(clock: VirtualClock, ns: int, **fields: str) -> None:
    with gputrace.span("work", **fields):
        clock.advance(ns)


def totals(recorder: Recorder) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        name.removeprefix("gputrace."): {
            tuple(attributes.values()): round(value * 1e9) if name.endswith("time") else value
            for attributes, value in rows
        }
        for name, rows in recorder.snapshot().requests.items()
        if name.startswith("gputrace.request")
    }


def names(calls: list[RecordedCall]) -> list[str]:
    return [call.operation for call in calls]


def test_a_request_sums_up_the_calls_inside_it_and_holds_nothing(
    recorder: Recorder, clock: VirtualClock
) -> None:
    with gputrace.request("GET /a/{id}", route="/a/{id}", feature="search") as request:
        clock.advance(5)
        work(clock, 10)
        work(clock, 30, feature="other")
    assert names(recorder.settled()) == ["work", "work", "GET /a/{id}"]
    assert (request.calls, request.charged_ns) == (2, 40)
    assert totals(recorder) == {
        "requests": {("/a/{id}", "search", "ok"): 1},
        "request.calls": {("/a/{id}", "search"): 2},
        "request.time": {("/a/{id}", "search"): 40},
        "request.cost": {},
    }
    # Features are charged as their calls say.
    assert recorder.time_by() == {"search": 10 / 1e9, "other": 30 / 1e9}


def test_the_route_and_the_feature_may_be_known_late(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.request("GET") as request:
        request.describe(operation="GET /b", route="/b")
        request.set(feature="chat", tenant="acme")
        work(clock, 7)
    last = recorder.settled()[-1]
    assert (last.operation, last.feature, last.tenant) == ("GET /b", "chat", "acme")
    assert totals(recorder)["request.time"] == {("/b", "chat"): 7}
    assert recorder.time_by() == {"chat": 7 / 1e9}


def test_without_a_route_the_operation_stands_for_it(recorder: Recorder, clock: VirtualClock) -> None:
    def fail() -> None:
        work(clock, 1)
        raise KeyError

    with pytest.raises(KeyError), gputrace.request("job"):
        fail()
    assert totals(recorder)["requests"] == {("job", "__none__", "error"): 1}


def test_a_request_is_told_when_the_last_call_inside_it_is_settled(
    recorder: Recorder, clock: VirtualClock
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def outlives() -> None:
        with gputrace.span("outlives"):
            entered.set()
            go_on.wait()

    with gputrace.request("GET /c"):
        thread = threading.Thread(daemon=True, target=contextvars.copy_context().run, args=(outlives,))
        thread.start()
        entered.wait()
        clock.advance(10)
    clock.advance(10)
    assert recorder.settled() == []
    assert totals(recorder)["requests"] == {}
    go_on.set()
    thread.join()
    assert names(recorder.settled()) == ["outlives", "GET /c"]
    assert totals(recorder)["request.time"] == {("GET /c", "__none__"): 20}


def test_what_never_ends_does_not_hold_a_request_back_for_ever(
    recorder: Recorder, clock: VirtualClock
) -> None:
    with gputrace.request("GET /d"):
        endless = gputrace.span("endless")
        endless.__enter__()
    assert recorder.settled() == []
    clock.advance(settler_requests.PATIENCE_NS)
    assert names(recorder.settled()) == ["GET /d"]
    endless.__exit__(None, None, None)


def test_a_request_inside_another_is_one_of_its_own(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.request("outer", feature="f") as outer, gputrace.request("inner") as inner:
        work(clock, 3)
    recorder.settle()
    assert (outer.charged_ns, inner.charged_ns) == (0, 3)
    assert inner.attribution.feature == "f"


def test_requests_at_once_share_the_device_as_owners(recorder: Recorder, clock: VirtualClock) -> None:
    first, second = gputrace.request("first"), gputrace.request("second")
    one = first.__enter__()
    span_of_first = gputrace.span("a")
    span_of_first.__enter__()
    entered, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with second, gputrace.span("b"):
            entered.set()
            go_on.wait()

    thread = threading.Thread(daemon=True, target=other)
    thread.start()
    entered.wait()
    clock.advance(100)
    go_on.set()
    thread.join()
    span_of_first.__exit__(None, None, None)
    first.__exit__(None, None, None)
    recorder.settle()
    assert one.charged_ns == 50
    assert totals(recorder)["request.time"] == {("first", "__none__"): 50, ("second", "__none__"): 50}


def test_a_request_costs_what_its_calls_cost(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "wall_offset_ns", 1_790_000_000 * 1_000_000_000 - clock())
    book = tmp_path / "prices.toml"
    book.write_text(
        '[[price]]\nname = "*"\ntype = "cpu"\nper_hour = 3.0\ncurrency = "USD"\nkind = "on_demand"\n'
        'source = "a test"\nas_of = 2026-09-01\n'
    )
    with Recorder(clock) as recorder:
        recorder.settler.use_prices(Costs(PriceBook(book)))
        with gputrace.request("GET /e", feature="search"):
            work(clock, HOUR_NS // 2)
        shown = recorder.snapshot()
    ((attributes, cost),) = shown.requests["gputrace.request.cost"]
    assert attributes == {"http.route": "GET /e", "gputrace.feature": "search", catalogue.CURRENCY: "USD"}
    assert cost == pytest.approx(1.5)


def test_contrib_5081_one_request_object_in_many_tasks_at_once(
    recorder: Recorder, clock: VirtualClock
) -> None:
    """Each task leaves the request that it has entered, in whatever order."""
    shared = gputrace.request("GET /f")

    async def one(first: asyncio.Event, then: asyncio.Event, ns: int) -> Request:
        await first.wait()
        with shared as request:
            then.set()
            await asyncio.sleep(0)
            work(clock, ns)
            if ns == 30:
                await asyncio.sleep(0.01)
        assert request.call.closed
        return request

    async def main() -> list[Request]:
        first, second = asyncio.Event(), asyncio.Event()
        first.set()
        return await asyncio.gather(one(first, second, 10), one(second, first, 30))

    requests = asyncio.run(main())
    recorder.settle()
    assert [request.charged_ns for request in requests] == [10, 30]
