"""The clock of a GPU, read through timing events and told in the host's time.

Two steps. A :class:`DeviceClock` gives an event its place on the device's own
time line, in ticks of a nanosecond: the distance to the nearest of a chain of
reference events, which is renewed every few seconds because ``elapsed_time``
answers in float32 milliseconds (half a microsecond apart at 4 s, 250 at an hour).
A :class:`HostMapping` turns ticks into the host's CLOCK_MONOTONIC. It is
continuous and monotone: where the two clocks drift apart it bends, by 500 ppm at
most, and never jumps, so that no interval is cut or stretched at a renewal.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gputrace.devices.base import NotReadableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.devices.base import Event
    from gputrace.devices.cuda_events import EventPool

#: Bound before anything is known; no reference with a wider bracket is believed.
UNKNOWN_NS = 1_000_000_000
#: Room for drift between two renewals, on either side: 100 ppm for the second before the rate is known.
SLACK_NS = 100_000
#: Only a bracket narrower than this says how fast the device's clock runs.
NARROW_NS = 100_000

_PPT = 10**12
_STEEPEST_PPT = 500 * 10**6
_FIRST_RENEWAL_NS = 250_000_000
_RENEWAL_NS = 4_000_000_000
#: Farther than this from a reference, float32 is off by more than a call may be.
_PRECISE_NS = 8_000_000_000
_KEPT = 64
_SPINS = 200
_ATTEMPTS = 3


class _Knot(NamedTuple):
    ticks: int
    host_ns: int
    skew_ppt: int


class HostMapping:
    """Piecewise linear map from a device's ticks to the host's clock.

    Attributes:
        error_ns: The true host time of an event lies in ``[value, value + error_ns]``.
    """

    def __init__(self) -> None:
        self.error_ns = UNKNOWN_NS
        self._knots: list[_Knot] = []
        self._anchors: deque[tuple[int, int]] = deque(maxlen=16)
        self._width_ns = 0
        self._rate_ppt = 0
        self._furthest = 0

    def host_ns(self, ticks: int) -> int:
        """Return the earliest host time, ns, at which the device can have been at ``ticks``."""
        self._furthest = max(self._furthest, ticks)
        return self._at(ticks)

    def anchor(self, ticks: int, low_ns: int, high_ns: int, renewal_ns: int) -> None:
        """Learn that the device was at ``ticks`` some time between two readings of the host's clock.

        Args:
            ticks: Later than those of the anchor before.
            low_ns: Host clock before the reference event was recorded.
            high_ns: Host clock after it was seen to have happened.
            renewal_ns: How long until the next anchor, about.
        """
        narrow = high_ns - low_ns <= NARROW_NS
        if not self._knots:
            self._knots.append(_Knot(ticks, low_ns - SLACK_NS, 0))
            self._furthest = ticks
            self._width_ns = high_ns - low_ns
            lag_ns = 0
        else:
            lag_ns = self._bend(ticks, low_ns, high_ns, renewal_ns, narrow=narrow)
        if narrow:
            self._anchors.append((ticks, low_ns))
        self.error_ns = self._width_ns + abs(lag_ns) + 2 * SLACK_NS

    def _bend(self, ticks: int, low_ns: int, high_ns: int, renewal_ns: int, *, narrow: bool) -> int:
        """Turn towards an anchor; return by how much the map lags behind it, ns."""
        goal_ns = low_ns - SLACK_NS
        if narrow:
            # Slowly back to a better bound, at once to a worse one.
            self._width_ns = max(high_ns - low_ns, self._width_ns - self._width_ns // 8)
            self._learn_rate(ticks, low_ns)
        else:
            predicted_ns = self._at(ticks)
            goal_ns = min(max(predicted_ns, goal_ns), high_ns - SLACK_NS)
            if goal_ns != predicted_ns:
                # What was learnt from narrower ones no longer holds.
                self._width_ns = max(self._width_ns, high_ns - low_ns)
        # What was told already stands. What lies between it and the anchor was told to nobody.
        told = max(self._furthest, self._knots[-1].ticks)
        if told < ticks:
            told_ns = self._at(told)
            self._knots.append(_Knot(told, told_ns, _skew_ppt(ticks - told, goal_ns - told_ns)))
        lag_ns = goal_ns - self._at(ticks)
        catch_up_ppt = lag_ns * _PPT // renewal_ns
        skew_ppt = max(-_STEEPEST_PPT, min(_STEEPEST_PPT, self._rate_ppt + catch_up_ppt))
        turn = max(told, ticks)
        self._knots.append(_Knot(turn, self._at(turn), skew_ppt))
        del self._knots[:-_KEPT]
        return lag_ns

    def _learn_rate(self, ticks: int, low_ns: int) -> None:
        """See how much faster the host's clock runs, since the oldest anchor that is remembered."""
        if self._anchors:
            old_ticks, old_ns = self._anchors[0]
            self._rate_ppt = _skew_ppt(ticks - old_ticks, low_ns - old_ns)

    def _at(self, ticks: int) -> int:
        knots = self._knots
        knot = knots[0]
        for knot in reversed(knots):
            if knot.ticks <= ticks:
                break
        distance = ticks - knot.ticks
        return knot.host_ns + distance + distance * knot.skew_ppt // _PPT


def _skew_ppt(ticks: int, host_ns: int) -> int:
    skew_ppt = (host_ns - ticks) * _PPT // ticks
    return max(-_STEEPEST_PPT, min(_STEEPEST_PPT, skew_ppt))


class _Reference(NamedTuple):
    """An event whose place on the device's time line is known."""

    event: Event
    ticks: int


class _Candidate(NamedTuple):
    """An event that happened between two readings of the host's clock."""

    event: Event
    low_ns: int
    high_ns: int

    @property
    def width_ns(self) -> int:
        return self.high_ns - self.low_ns


class DeviceClock:
    """Reads when events of one device happened. Not thread safe.

    Args:
        pool: Gives timing events of the device.
        record: Records an event on a stream of the device that nothing else uses.
        host_clock: The host's clock, ns.
    """

    def __init__(
        self, pool: EventPool, record: Callable[[Event], None], host_clock: Callable[[], int]
    ) -> None:
        self.mapping = HostMapping()
        self._pool = pool
        self._record = record
        self._host_clock = host_clock
        self._references: deque[_Reference] = deque()
        self._pending: tuple[Event, int] | None = None
        self._renewal_ns = _FIRST_RENEWAL_NS
        self._renewed_ns = 0

    def read(self, event: Event) -> int:
        """Return when a recorded event happened, in ns of the host's clock.

        Args:
            event: Has happened: its ``query()`` answered True.

        Raises:
            NotReadableError: The reference that it takes has not happened yet.
        """
        if not self._references or self._age_ns() >= self._renewal_ns:
            self.renew()
            # After an idle hour the newest reference is too far off to measure a call by.
            if not self._references or self._age_ns() > _PRECISE_NS:
                raise NotReadableError("the reference event has not happened yet; try again at the next tick")
        return self.mapping.host_ns(self._ticks(event))

    def renew(self) -> None:
        """Record a new reference, or look again for the one that did not happen yet.

        Never waits: asks some 200 times, which takes about as many microseconds.
        """
        found: list[_Candidate] = []
        for _ in range(_ATTEMPTS):
            candidate = self._attempt()
            if candidate is None:
                break
            found.append(candidate)
            # Wider: another thread took the interpreter in between. Once more.
            if candidate.width_ns <= NARROW_NS:
                break
        if found:
            best = min(found, key=lambda candidate: candidate.width_ns)
            self._pool.release(*(candidate.event for candidate in found if candidate is not best))
            self._accept(best)

    def _age_ns(self) -> int:
        return self._host_clock() - self._renewed_ns

    def _attempt(self) -> _Candidate | None:
        if self._pending is None:
            event = self._pool.acquire()
            if event is None:
                return None
            low_ns = self._host_clock()
            try:
                self._record(event)
            except RuntimeError:
                self._pool.release(event)
                raise
            self._pending = (event, low_ns)
        event, low_ns = self._pending
        for _ in range(_SPINS):
            if event.query():
                high_ns = self._host_clock()
                self._pending = None
                return _Candidate(event, low_ns, high_ns)
        return None

    def _accept(self, candidate: _Candidate) -> None:
        event = candidate.event
        newest = self._references[-1] if self._references else None
        if newest is None and candidate.width_ns >= UNKNOWN_NS:
            self._pool.release(event)
            return
        ticks = 0 if newest is None else newest.ticks + ns_between(newest.event, event)
        self._references.append(_Reference(event, ticks))
        if len(self._references) > _KEPT:
            self._pool.release(self._references.popleft().event)
        self._renewed_ns = candidate.high_ns
        if newest is not None:
            self._renewal_ns = min(2 * self._renewal_ns, _RENEWAL_NS)
        self.mapping.anchor(ticks, candidate.low_ns, candidate.high_ns, self._renewal_ns)

    def _ticks(self, event: Event) -> int:
        newest = self._references[-1]
        ticks = newest.ticks + ns_between(newest.event, event)
        if abs(ticks - newest.ticks) <= _PRECISE_NS:
            return ticks
        nearest = min(self._references, key=lambda reference: abs(reference.ticks - ticks))
        return ticks if nearest is newest else nearest.ticks + ns_between(nearest.event, event)


def ns_between(earlier: Event, later: Event) -> int:
    """Return the time between two events that have happened, ns; negative where the order is the other.

    CUDA answers a reversed pair with a negative number, newer ROCm with 0: it is
    asked the other way round instead.
    """
    forward_ns = round(earlier.elapsed_time(later) * 1e6)
    if forward_ns > 0:
        return forward_ns
    return -max(0, round(later.elapsed_time(earlier) * 1e6))
