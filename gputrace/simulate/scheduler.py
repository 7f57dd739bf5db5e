"""Runs coroutines in virtual time: what is due next happens at once, and the clock shows when it was due."""

from __future__ import annotations

import heapq
import itertools
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from gputrace.devices.virtual_driver import VirtualClock


class Until:
    """To be awaited: a moment.

    Args:
        at_ns: On the virtual clock.
    """

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def __await__(self) -> Generator[Until, None, None]:
        yield self


class Signal:
    """To be awaited by any number: something that happens once."""

    def __init__(self) -> None:
        self.given = False
        self.waiting: list[Callable[[], None]] = []

    def give(self) -> None:
        """Let it happen: those who wait go on, in the order in which they came."""
        self.given = True
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()

    def __await__(self) -> Generator[Signal, None, None]:
        if not self.given:
            yield self


class Scheduler:
    """What is to happen, in the order in which it is due.

    Args:
        clock: The time; advanced to whatever happens.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, at_ns: int, happens: Callable[[], None]) -> None:
        """Let something happen at a moment; now, where that is over."""
        heapq.heappush(self._due, (at_ns, next(self._numbers), happens))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, in a context of its own, until it waits."""
        context = copy_context()

        def resume() -> None:
            try:
                awaited = context.run(work.send, None)
            except StopIteration:
                return
            if isinstance(awaited, Until):
                self.at(awaited.at_ns, resume)
            else:
                awaited.waiting.append(resume)

        resume()

    def run_until(self, until_ns: int) -> None:
        """Let all that is due by a moment happen, and let that moment come."""
        while self._due and self._due[0][0] <= until_ns:
            at_ns, _, happens = heapq.heappop(self._due)
            self._advance(at_ns)
            happens()
        self._advance(until_ns)

    def _advance(self, to_ns: int) -> None:
        left_ns = to_ns - self._clock()
        if left_ns > 0:
            self._clock.advance(left_ns)
