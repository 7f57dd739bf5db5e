"""The heavy side of a cascade is measured alike, whether a request was escalated or audited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gputrace.testing import Recorder, VirtualClock

WAITING_NS = 5_000
WORKING_NS = 200


@pytest.fixture(autouse=True)
def forget() -> None:
    """What was told once."""
    faults.reset()


class Later:
    """An awaitable that is no coroutine, as the response of a remote deployment is none."""

    def __init__(self, answering: Callable[[], Awaitable[None]]) -> None:
        self._answering = answering

    def __await__(self) -> Any:
        return self._answering().__await__()


def heavy_times(recorder: Recorder) -> dict[str, float | None]:
    recorder.settle()
    told = [event.attributes for event in recorder.events if event.name == catalogue.DECISION_EVENT]
    return {one[catalogue.ESCALATION_DECISION]: one.get(catalogue.ESCALATION_HEAVY_TIME) for one in told}


async def serve(cascade: gputrace.Cascade, confidence: float, large: Callable[[], Awaitable[None]]) -> None:
    async with cascade.request() as request:
        async with request.stage("light"):
            pass
        if request.escalate(confidence, audit=large):
            async with request.stage("heavy"):
                await large()


def both(cascade: gputrace.Cascade, large: Callable[[], Awaitable[None]], serving: Any = serve) -> None:
    async def program() -> None:
        await serving(cascade, 0.1, large)
        await serving(cascade, 0.9, large)
        assert await asyncio.to_thread(cascade.wait_for_audits)

    asyncio.run(program())


@pytest.mark.parametrize(
    ("hold", "held_ns"), [(None, WAITING_NS + WORKING_NS), ("call", WAITING_NS + WORKING_NS), ("none", None)]
)
@pytest.mark.parametrize("wrap", [lambda large: large, lambda large: lambda: Later(large)])
@pytest.mark.parametrize("inside", [False, True], ids=["plain", "tracked"])
def test_what_is_awaited_counts_for_escalated_and_audited_requests_alike(  # noqa: PLR0913 - every combination
    recorder: Recorder, clock: VirtualClock, hold: str | None, held_ns: int | None, wrap: Any, inside: bool
) -> None:
    async def large() -> None:
        clock.advance(WORKING_NS)
        # Nobody's code: the time that passes between the steps.
        asyncio.get_running_loop().call_soon(clock.advance, WAITING_NS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    cascade = gputrace.Cascade("answer", threshold=0.5, audit_rate=1.0, hold=hold)
    both(cascade, wrap(large), gputrace.track(hold="none")(serve) if inside else serve)
    expected = None if held_ns is None else held_ns * 1e-9
    assert heavy_times(recorder) == {"escalated": pytest.approx(expected), "audited": pytest.approx(expected)}


def test_work_that_is_tracked_itself_counts_where_the_stage_only_waits(
    recorder: Recorder, clock: VirtualClock
) -> None:
    @gputrace.track(hold="steps")
    async def large() -> None:
        clock.advance(WORKING_NS)
        asyncio.get_running_loop().call_soon(clock.advance, WAITING_NS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    both(gputrace.Cascade("answer", threshold=0.5, audit_rate=1.0, hold="none"), large)
    assert heavy_times(recorder) == {"escalated": 2e-7, "audited": 2e-7}


@pytest.mark.parametrize("hold", ["steps", "call"])
def test_two_functions_hold_as_they_were_tracked_in_audits_too(
    recorder: Recorder, clock: VirtualClock, hold: str
) -> None:
    @gputrace.track(hold=hold)
    async def large(_: float) -> None:
        clock.advance(WORKING_NS)
        asyncio.get_running_loop().call_soon(clock.advance, WAITING_NS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    @gputrace.cascade("answer", heavy=large, threshold=0.5, audit_rate=1.0)
    async def answer(confidence: float) -> tuple[None, float]:
        return None, confidence

    async def program() -> None:
        await answer(0.1)
        await answer(0.9)
        assert await asyncio.to_thread(gputrace.Cascade.wait_for_audits)

    asyncio.run(program())
    held_ns = WORKING_NS + (WAITING_NS if hold == "call" else 0)
    held = pytest.approx(held_ns * 1e-9)
    assert heavy_times(recorder) == {"escalated": held, "audited": held}


def test_a_hold_that_is_none_of_the_three_is_refused() -> None:
    with pytest.raises(ValueError, match="hold='never' is not one of"):
        gputrace.Cascade("answer", threshold=0.5, hold="never")
