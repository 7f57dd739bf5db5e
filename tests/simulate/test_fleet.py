"""The simulated GPUs: what ran on them, and what is left of that when one is lost."""

from __future__ import annotations

import pytest

from gputrace.simulate.fleet import Fleet, Lane
from gputrace.testing import VirtualClock
from tests.simulate.conftest import SHORT, START_NS

SECOND_NS = 1_000_000_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START_NS)


def test_what_runs_on_a_gpu_ends_where_that_is_lost(clock: VirtualClock) -> None:
    fleet = Fleet(SHORT, 0, clock)
    with fleet.gpu:
        fleet.open()
        kept, lost = (Lane(device, fleet.gpu.Stream(device=device)) for device in range(2))
        for lane in (kept, lost):
            for _ in range(2):
                fleet.launch(lane, 10, (("search", 1),))
        clock.advance(4 * SECOND_NS)
        fleet.lose_last()
        assert fleet.is_lost(lost)
        assert [one.end_ns - START_NS for one in fleet.launched[0]] == [10 * SECOND_NS, 20 * SECOND_NS]
        # What waited for it has never begun.
        assert [one.end_ns - START_NS for one in fleet.launched[1]] == [4 * SECOND_NS]
        assert fleet.busy(1, START_NS, START_NS + 30 * SECOND_NS)[0] == 4 * SECOND_NS
