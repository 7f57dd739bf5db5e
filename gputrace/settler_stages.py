"""Follows staged work: tells it once all calls inside it are settled."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gputrace import settler_requests, staged

if TYPE_CHECKING:
    from gputrace.call import Call
    from gputrace.following import Followed
    from gputrace.staged import StagedWork, Tally


#: How long what is settled waits for the readings of its last period, which tell its energy.
READINGS_NS = 5_000_000_000


class Stages:
    """The staged work that is followed."""

    def __init__(self) -> None:
        self._ended: list[tuple[StagedWork, int]] = []
        self._settled: deque[StagedWork] = deque()

    @staticmethod
    def opened(call: Call) -> None:
        """Take note of a call that the settler follows from here on."""
        if not staged.in_use:
            return
        for tally in staged.around(staged.tally_of(call)):
            work = tally.work
            work.following += 1
            if work.billed_stage is not None and call.attribution.stage != work.billed_stage:
                call.attribution = call.attribution.merged({"stage": work.billed_stage})

    def concluded(self, followed: Followed, now_ns: int) -> None:
        """Take note that a call is settled.

        Args:
            followed: The call.
            now_ns: Now, on CLOCK_MONOTONIC.
        """
        if not staged.in_use:
            return
        call = followed.call
        if followed.batch is not None:
            for one in followed.batch.members:
                if one.tally is not None:
                    _timed(one.tally, followed)
        for tally in staged.around(staged.tally_of(call)):
            work = tally.work
            work.following -= 1
            _timed(tally, followed)
        if call.site.is_staged and not isinstance(call.staged, staged.Tally):
            self._ended.append((call.staged, now_ns))

    def settle(self, now_ns: int) -> None:
        """Take note of what is settled by now, or has taken too long."""
        if not self._ended:
            return
        waiting = []
        for work, ended_ns in self._ended:
            pending = bool(work.following or work.awaited)
            patience_ns = settler_requests.PATIENCE_NS if pending else READINGS_NS if _is_unread(work) else 0
            if now_ns - ended_ns < patience_ns:
                waiting.append((work, ended_ns))
            else:
                work.unsettled = pending
                self._settled.append(work)
        self._ended = waiting

    def hasten(self) -> None:
        """Wait for no readings any more: what is settled is about to be exported."""
        waiting = []
        for work, ended_ns in self._ended:
            if work.following or work.awaited:
                waiting.append((work, ended_ns))
            else:
                self._settled.append(work)
        self._ended = waiting

    def tell(self) -> None:
        """Tell all that is settled of it; outside of locks, for one thread at a time."""
        while self._settled:
            self._settled.popleft().told()


def _is_unread(work: StagedWork) -> bool:
    return any(tally.unread for tally in work.tallies())


def _timed(tally: Tally, followed: Followed) -> None:
    if followed.why_unmeasured() is not None or any(lane.account.lost for lane in followed.lanes):
        tally.unmeasured += 1
    elif followed.lanes:
        tally.measured += 1
