"""What was read of a GPU over a period, and what follows for its untracked and idle time.

Pure arithmetic, in whole nanoseconds. What was not read is None, never 0, and a
moment that no period covers is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A feature's busy share is told from this many periods on.
FEWEST_PERIODS = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """What one device did in a period. Periods of a device are in order and never overlap.

    Attributes:
        device: ``hw.id``, the NVML UUID.
        start_ns: Begin on CLOCK_MONOTONIC.
        end_ns: End, exclusive.
        busy_ns: Time in which at least one kernel ran; never a measure of how much of the GPU it used.
        busy_source: ``samples`` of the driver, or ``rates``, a figure that stands for a longer period.
        energy_uj: Energy drawn, µJ.
        energy_source: ``counter``, or ``power`` where power was integrated. Never add up both.
        energy_flag: Why the counter's energy is missing: ``reset``, ``frozen`` or ``implausible``.
        power_w: Power at the end of the period.
        memory_used_bytes: Memory in use at the end.
        memory_limit_bytes: Memory that there is.
        temperature_c: Temperature at the end.
    """

    device: str
    start_ns: int
    end_ns: int
    busy_ns: int | None = None
    busy_source: str | None = None
    energy_uj: int | None = None
    energy_source: str | None = None
    energy_flag: str | None = None
    power_w: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    temperature_c: float | None = None

    @property
    def wall_ns(self) -> int:
        """Length of the period."""
        return self.end_ns - self.start_ns

    @property
    def energy_j(self) -> float | None:
        """Energy drawn, J."""
        return None if self.energy_uj is None else self.energy_uj / 1_000_000


@dataclass(frozen=True, slots=True)
class Split:
    """Where the time of one period went, ns; sums to the wall time.

    Attributes:
        charged_ns: Held by tracked calls.
        untracked_ns: Busy beyond that: a lower bound, since a call can hold without computing.
        idle_ns: Read, and neither.
        unknown_ns: Not read, and not held.
        untracked_upper_ns: What is untracked if tracked calls computed nothing while others did.
    """

    charged_ns: int
    untracked_ns: int
    idle_ns: int
    unknown_ns: int
    untracked_upper_ns: int

    @property
    def bounds_differ(self) -> bool:
        """Whether the bounds of untracked time are more than 1 % apart, so that both must be shown."""
        return (self.untracked_upper_ns - self.untracked_ns) * 100 > self.untracked_upper_ns


def split_time(wall_ns: int, held_ns: int, busy_ns: int | None) -> Split:
    """Return where a period went.

    Args:
        wall_ns: Length of the period.
        held_ns: Union of what tracked calls held in it.
        busy_ns: What the driver says that it was busy, None where nothing covers it.
    """
    held_ns = min(max(held_ns, 0), wall_ns)
    if busy_ns is None:
        return Split(held_ns, 0, 0, wall_ns - held_ns, 0)
    busy_ns = min(max(busy_ns, 0), wall_ns)
    untracked_ns = max(0, busy_ns - held_ns)
    return Split(
        charged_ns=held_ns,
        untracked_ns=untracked_ns,
        idle_ns=wall_ns - held_ns - untracked_ns,
        unknown_ns=0,
        untracked_upper_ns=min(busy_ns, wall_ns - held_ns),
    )


@dataclass(slots=True)
class BusyShare:
    """How much of the time that a feature holds a device the device is busy.

    Attributes:
        periods: How many periods it is told from.
        busy_ns: How much of them the device was busy.
        wall_ns: How long they were.
    """

    periods: int = 0
    busy_ns: int = 0
    wall_ns: int = 0

    def add(self, wall_ns: int, busy_ns: int | None, alone_ns: int) -> bool:
        """Take a period into account, where the feature was all that it can be about.

        Args:
            wall_ns: Length of the period.
            busy_ns: What the driver says that it was busy.
            alone_ns: How long the feature held the device in it, and no other did.

        Returns:
            Whether it counts: the feature alone held at least 95 % of a period that was read.
        """
        if busy_ns is None or wall_ns <= 0 or alone_ns * 100 < wall_ns * 95:
            return False
        self.periods += 1
        self.busy_ns += min(max(busy_ns, 0), wall_ns)
        self.wall_ns += wall_ns
        return True

    @property
    def share(self) -> float | None:
        """Busy time / time, None under ten periods."""
        return None if self.periods < FEWEST_PERIODS else self.busy_ns / self.wall_ns
