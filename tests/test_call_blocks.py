"""Blocks that are entered and left by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import faults
from gputrace.attribution import current_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.testing import Recorder, VirtualClock

BLOCKS: dict[str, Callable[[], Any]] = {
    "span": lambda: gputrace.span("work"),
    "batch": lambda: gputrace.batch([gputrace.member()]),
    "step": lambda: gputrace.step([gputrace.member()], [gputrace.Work(decode=1)]),
    "request": lambda: gputrace.request("GET /"),
    "cascade": lambda: gputrace.Cascade("answer", threshold=0.5).request(),
    "attribute_to": lambda: gputrace.attribute_to(feature="search"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_left_twice_or_without_having_been_entered(
    name: str, recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    faults.reset()
    block, before = BLOCKS[name](), current_scope.get()
    block.__exit__(None, None, None)
    with gputrace.span("around"):
        block.__enter__()
        clock.advance(10)
        block.__exit__(None, None, None)
        block.__exit__(None, None, None)
        clock.advance(1)
    assert current_scope.get() is before
    told = [one for one in caplog.records if "in which nobody is" in one.getMessage()]
    # A scope is found in the context, where there is none any more.
    assert len(told) == (name != "attribute_to")
    assert sum(one.charged_ns for one in recorder.settled()) == 11


def test_a_stage_that_is_left_twice(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.Cascade("answer", threshold=0.5).request() as request:
        stage = request.stage("light")
        stage.__enter__()
        clock.advance(10)
        stage.__exit__(None, None, None)
        stage.__exit__(None, None, None)
        request.escalate(0.9)
    assert sum(one.charged_ns for one in recorder.settled()) == 10
