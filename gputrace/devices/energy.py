"""Energy: from a counter that cannot be trusted, or from power; and whose it was.

Pure arithmetic in integers, so that parts sum to the whole exactly: picojoules
(1 mW for 1 ns) inside, microjoules outside. An interval whose energy cannot be
true is missing, with the reason; it is never guessed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_K = TypeVar("_K", bound="Hashable")

_PJ_PER_MJ = 1_000_000_000
_PJ_PER_UJ = 1_000_000

RESET = "reset"
FROZEN = "frozen"
IMPLAUSIBLE = "implausible"

#: The driver renews its counter every 10 to 100 ms; unchanged within this time it has not frozen.
REFRESH_NS = 250_000_000
#: More than any GPU draws, for those that do not tell their limit, mW.
MOST_POWER_MW = 3_000_000
#: Peaks go beyond the limit that is enforced on average.
_HEADROOM = 2


@dataclass(slots=True)
class _Segment:
    """A stretch of time in which energy was drawn evenly, as far as is known; flagged where it is missing."""

    start_ns: int
    end_ns: int
    before_pj: int
    drawn_pj: int
    flag: str | None = None

    def until(self, at_ns: int) -> int:
        """Return all energy up to a moment within, pJ."""
        return self.before_pj + self.drawn_pj * (at_ns - self.start_ns) // (self.end_ns - self.start_ns)


class EnergyTrack:
    """Energy over time, asked for by periods in order.

    The energy of adjacent periods adds up to that of both, exactly.
    """

    def __init__(self) -> None:
        # Bounded where nobody asks: what was dropped is missing.
        self._segments: deque[_Segment] = deque(maxlen=1_024)
        self._total_pj = 0

    def add(self, start_ns: int, end_ns: int, drawn_pj: int, flag: str | None = None) -> None:
        """Append a stretch of time; with a flag, its energy is missing."""
        if end_ns > start_ns:
            self._segments.append(_Segment(start_ns, end_ns, self._total_pj, drawn_pj, flag))
            self._total_pj += drawn_pj

    def take(self, start_ns: int, end_ns: int) -> tuple[int | None, str | None]:
        """Return the energy of a period, µJ, and forget what came before its end.

        Returns:
            None where any part of it is missing, and then why if that is known.
        """
        segments = self._segments
        while segments and segments[0].end_ns <= start_ns:
            segments.popleft()
        at_ns, flag, drawn_uj = start_ns, None, 0
        for segment in segments:
            if segment.start_ns > at_ns or at_ns >= end_ns:
                break
            until_ns = min(segment.end_ns, end_ns)
            flag = flag or segment.flag
            drawn_uj += segment.until(until_ns) // _PJ_PER_UJ - segment.until(at_ns) // _PJ_PER_UJ
            at_ns = until_ns
        while segments and segments[0].end_ns <= end_ns:
            segments.popleft()
        complete = at_ns >= end_ns and flag is None
        return (drawn_uj if complete else None), flag


class CounterEnergy:
    """A driver's energy counter: goes backwards, freezes and jumps on some hardware.

    Attributes:
        track: The energy over time.
    """

    source = "counter"

    def __init__(self) -> None:
        self.track = EnergyTrack()
        self._last: tuple[int, int] | None = None
        self._frozen = False

    def add(self, at_ns: int, counter_mj: int, limit_mw: int | None = None) -> None:
        """Take a reading of the counter.

        Args:
            at_ns: When it was read.
            counter_mj: What it showed.
            limit_mw: Power limit of the device, against which jumps are judged.
        """
        if self._last is None:
            self._last = (at_ns, counter_mj)
            return
        last_ns, last_mj = self._last
        if at_ns <= last_ns:
            return
        drawn_mj, elapsed_ns = counter_mj - last_mj, at_ns - last_ns
        if drawn_mj == 0 and elapsed_ns < REFRESH_NS:
            # Not renewed yet: the next reading tells about this time too.
            return
        flag = self._judge(drawn_mj, elapsed_ns, limit_mw or MOST_POWER_MW)
        # The first step after a freeze holds all that was drawn meanwhile, or nothing of it.
        self._frozen, thawing = flag == FROZEN, self._frozen
        if flag is None and thawing:
            flag = FROZEN
        self.track.add(last_ns, at_ns, 0 if flag else drawn_mj * _PJ_PER_MJ, flag)
        self._last = (at_ns, counter_mj)

    @staticmethod
    def _judge(drawn_mj: int, elapsed_ns: int, limit_mw: int) -> str | None:
        if drawn_mj < 0:
            return RESET
        if drawn_mj == 0:
            return FROZEN
        # Both readings may be as old as the renewal is long.
        most_pj = limit_mw * _HEADROOM * (elapsed_ns + REFRESH_NS)
        return IMPLAUSIBLE if drawn_mj * _PJ_PER_MJ > most_pj else None

    def forget(self) -> None:
        """Begin anew: nobody knows what happened to the counter since the last reading."""
        self._last, self._frozen = None, False


class PowerEnergy:
    """Energy where there is only power: each reading holds until the next.

    Attributes:
        track: The energy over time.

    Args:
        longest_hold_ns: Beyond this a reading stands for nothing any more; None for no end.
    """

    source = "power"

    def __init__(self, longest_hold_ns: int | None = None) -> None:
        self.track = EnergyTrack()
        self._longest_hold_ns = longest_hold_ns
        self._last: tuple[int, int] | None = None
        self._held_ns = 0

    def add(self, at_ns: int, power_mw: int) -> None:
        """Take a reading of the power, which holds from now on."""
        self.hold(at_ns)
        self._last, self._held_ns = (at_ns, power_mw), at_ns

    def hold(self, until_ns: int) -> None:
        """Let the last reading hold until a moment."""
        if self._last is None:
            return
        read_ns, power_mw = self._last
        if self._longest_hold_ns is not None:
            until_ns = min(until_ns, read_ns + self._longest_hold_ns)
        if until_ns > self._held_ns:
            self.track.add(self._held_ns, until_ns, power_mw * (until_ns - self._held_ns))
            self._held_ns = until_ns

    def forget(self) -> None:
        """Begin anew, after a time that nothing was read in."""
        self._last = None


class IdlePower:
    """Power of a device on which nothing runs: median over periods without holder and at 0 % utilisation."""

    #: Two minutes at one period a second: it follows the clocks and the temperature.
    _MOST_PERIODS = 121

    def __init__(self) -> None:
        self._powers: deque[Fraction] = deque(maxlen=self._MOST_PERIODS)

    def add(self, wall_ns: int, held_ns: int, busy_ns: int | None, energy_uj: int | None) -> bool:
        """Take a period into account, where it shows idle power; tells whether it does."""
        if busy_ns != 0 or held_ns != 0 or wall_ns <= 0 or not energy_uj:
            return False
        self._powers.append(Fraction(energy_uj, wall_ns))
        return True

    @property
    def uj_per_ns(self) -> Fraction | None:
        """The idle power in µJ/ns, that is kW; None until it has been seen."""
        return Fraction(median(self._powers)) if self._powers else None


def apportion(total: int, weights: Mapping[_K, int | Fraction]) -> dict[_K, int]:
    """Split a whole number by weight, by largest remainder: the parts sum to it exactly.

    Args:
        total: Not negative.
        weights: Not negative. All zero count as equal.

    Returns:
        A part for each key; empty where there is no key.
    """
    if not weights:
        return {}
    whole = sum(weights.values())
    shares = {
        key: Fraction(total) * weight / whole if whole else Fraction(total, len(weights))
        for key, weight in weights.items()
    }
    parts = {key: share.numerator // share.denominator for key, share in shares.items()}
    left = total - sum(parts.values())
    # Stable: among equal remainders the first key gets it.
    for key in sorted(shares, key=lambda key: parts[key] - shares[key])[:left]:
        parts[key] += 1
    return parts


@dataclass(frozen=True, slots=True)
class EnergySplit:
    """Whose the measured energy of one period was, µJ; sums to the measurement.

    Attributes:
        charged_uj: By the keys under which time was charged.
        untracked_uj: Of work that nobody tracked.
        idle_uj: Of nothing.
        unknown_uj: Of time that no reading of the utilisation covers.
        estimated: Split by time alone, since idle power has not been seen.
    """

    charged_uj: dict[Hashable, int]
    untracked_uj: int
    idle_uj: int
    unknown_uj: int
    estimated: bool


def split_energy(  # noqa: PLR0913 - the parts of one period
    energy_uj: int,
    charged: Mapping[Hashable, int],
    *,
    held_ns: int,
    untracked_ns: int,
    idle_ns: int,
    unknown_ns: int = 0,
    idle_uj_per_ns: Fraction | None = None,
) -> EnergySplit:
    """Split the measured energy of a period as its time was split.

    Every moment bears idle power; what was drawn beyond that is borne by the time
    in which something ran, charged or not.

    Args:
        energy_uj: Measured, µJ.
        charged: Charges of the period by key, in any integer unit.
        held_ns: Union of the holds: the time that was charged.
        untracked_ns: See ``readings.Split``; likewise the others.
        idle_ns: Idle time.
        unknown_ns: Time that was neither held nor read; it may have been busy.
        idle_uj_per_ns: Idle power, None until it has been seen.
    """
    times = {"held": held_ns, "untracked": untracked_ns, "unknown": unknown_ns, "idle": idle_ns}
    wall_ns = sum(times.values())
    if wall_ns <= 0:
        raise ValueError(f"a period of {wall_ns} ns has no energy to split")
    mean = Fraction(energy_uj, wall_ns)
    # A device that draws less than its idle power has cooled or slowed down: then all time is alike.
    floor = mean if idle_uj_per_ns is None else min(idle_uj_per_ns, mean)
    active_ns = wall_ns - idle_ns
    above = Fraction(energy_uj) - floor * wall_ns
    weights = {
        state: floor * time + (above * time / active_ns if active_ns and state != "idle" else 0)
        for state, time in times.items()
    }
    if not active_ns:
        weights["idle"] += above
    parts = apportion(energy_uj, weights if any(weights.values()) else times)
    if not any(charged.values()):
        # Held, and charged to nobody: it cannot be told whose it was.
        parts["unknown"] += parts["held"]
        charged_uj = dict.fromkeys(charged, 0)
    else:
        charged_uj = apportion(parts["held"], charged)
    return EnergySplit(
        charged_uj, parts["untracked"], parts["idle"], parts["unknown"], estimated=idle_uj_per_ns is None
    )
