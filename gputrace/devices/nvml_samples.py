"""Utilisation from the driver's own sample buffer: pure arithmetic, and the map between the two clocks.

A sample says how many percent of its period the GPU was busy; its timestamp, µs
on the wall clock, is the end of that period. The buffer holds junk on some
drivers, and the wall clock can be set.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: The product decides how long a sample period is, between a sixth of a second and this.
LONGEST_SAMPLE_US = 1_000_000
#: Timestamps this far ahead of us are the driver's clock, further ahead they are junk.
AHEAD_US = 1_000_000
#: A wall clock that is slewed drifts by 0.5 ms a second at most; this is a step, or a suspended machine.
STEP_NS = 50_000_000

_WHOLE = 100


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both clocks at one instant.

    Attributes:
        monotonic_ns: CLOCK_MONOTONIC.
        wall_ns: The wall clock.
    """

    monotonic_ns: int
    wall_ns: int

    @property
    def offset_ns(self) -> int:
        """What must be added to the wall clock."""
        return self.monotonic_ns - self.wall_ns

    def monotonic_of(self, wall_us: int) -> int:
        """Map a timestamp of the driver, never beyond the present."""
        return min(wall_us * 1_000 + self.offset_ns, self.monotonic_ns)


def read_clocks(monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> Clocks:
    """Read both clocks, as near to each other as three tries come."""
    best: tuple[int, Clocks] | None = None
    for _ in range(3):
        before, wall, after = monotonic_ns(), wall_ns(), monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, Clocks((before + after) // 2, wall))
    return best[1]  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time of which the busy part is known, or None."""

    start_ns: int
    end_ns: int
    busy_ns: int | None


class SampleBuffer:
    """Turns what the driver's buffer gives out, poll by poll, into stretches of time in order.

    Attributes:
        last_seen_us: What the driver is to be asked with: newer samples only.
    """

    def __init__(self) -> None:
        self.last_seen_us = 0
        self._end_ns: int | None = None
        self._offset_ns: int | None = None
        self._typical_us: int | None = None

    def skip_to(self, at_ns: int) -> None:
        """Say nothing about the time before a moment: it has been given up."""
        self._end_ns = at_ns if self._end_ns is None else max(at_ns, self._end_ns)

    def take(self, samples: Iterable[tuple[int, int]], clocks: Clocks) -> list[Span]:
        """Take what the driver answered.

        Args:
            samples: Timestamps in µs, and percents.
            clocks: Now.

        Returns:
            Adjacent stretches; the first time none, since nothing tells when the oldest
            sample began and the buffer may reach back to before anyone asked.
        """
        stepped = self._offset_ns is not None and abs(clocks.offset_ns - self._offset_ns) > STEP_NS
        self._offset_ns = clocks.offset_ns
        now_us = clocks.wall_ns // 1_000
        if stepped:
            # Old timestamps mean other moments now, and newer ones may look older than what was seen.
            self.last_seen_us = 0
        first = self.last_seen_us == 0
        oldest_us = now_us - LONGEST_SAMPLE_US * 120 if first else self.last_seen_us
        # Two of one instant contradict each other unless they are the same.
        fresh = sorted({one for one in samples if oldest_us < one[0] <= now_us + AHEAD_US})
        if not fresh:
            return []
        self._learn_period([timestamp for timestamp, _ in fresh])
        spans: list[Span] = [] if first else self._spans(fresh, clocks)
        self.last_seen_us = fresh[-1][0]
        if first:
            self.skip_to(clocks.monotonic_of(self.last_seen_us))
        return spans

    def _learn_period(self, timestamps: list[int]) -> None:
        steps = [later - earlier for earlier, later in itertools.pairwise(timestamps)]
        steps = [step for step in steps if 0 < step <= LONGEST_SAMPLE_US]
        if len(steps) >= 3:  # noqa: PLR2004 - fewer tell no rhythm
            self._typical_us = round(median(steps))

    def _spans(self, fresh: list[tuple[int, int]], clocks: Clocks) -> list[Span]:
        # A sample reaches back to the one before, unless some were lost in between: over one and a half
        # periods the part between is nobody's.
        typical_us = self._typical_us or LONGEST_SAMPLE_US
        pieces: list[Span] = []
        earlier_us = self.last_seen_us
        for timestamp, percent in fresh:
            reach_us = timestamp - earlier_us
            if reach_us * 2 > typical_us * 3:
                reach_us = typical_us
            begin_us = timestamp - reach_us
            if begin_us > earlier_us:
                self._append(pieces, clocks.monotonic_of(begin_us), None)
            # Junk tells only that there was a sample.
            self._append(pieces, clocks.monotonic_of(timestamp), percent if 0 <= percent <= _WHOLE else None)
            earlier_us = timestamp
        return pieces

    def _append(self, pieces: list[Span], end_ns: int, percent: int | None) -> None:
        """Append the time since the last piece; joins what is equally known."""
        start_ns = self._end_ns if self._end_ns is not None else end_ns
        if end_ns <= start_ns:
            # Lived through already, before the wall clock was set; or given up.
            return
        self._end_ns = end_ns
        busy_ns = None if percent is None else (end_ns - start_ns) * percent // _WHOLE
        last = pieces[-1] if pieces else None
        if last is None or (last.busy_ns is None) != (busy_ns is None):
            pieces.append(Span(start_ns, end_ns, busy_ns))
            return
        together = None if busy_ns is None or last.busy_ns is None else last.busy_ns + busy_ns
        pieces[-1] = Span(last.start_ns, end_ns, together)
