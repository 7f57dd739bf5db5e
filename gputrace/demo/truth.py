"""What the driver measures with its own clocks, never with a number of the SDK.

The driver cuts the life of the service into phases that follow each other without a
gap, and reads at each cut the wall clock, the CPU time of this process and the
stopwatches that run while a model does. From these follows, by the definition in the
documentation, what a report of the same window ought to say.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class Stopwatch:
    """Adds up how long the blocks under it took; for one thread."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.total_s = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        """Start."""
        self._started = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, whether or not the block succeeded: a failed call costs as much."""
        self.total_s += time.perf_counter() - self._started


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of the service's life.

    Attributes:
        name: What happened in it.
        wall_s: How long it took.
        cpu_s: CPU time of this process in it, of all its threads.
        tracked_s: How long tracked model calls ran in it.
        planted_s: How long the planted model run, which nothing tracks, ran in it.
    """

    name: str
    wall_s: float
    cpu_s: float
    tracked_s: float
    planted_s: float

    def untracked_s(self, *, on_gpu: bool) -> float:
        """How long the device was busy without a tracked call.

        A GPU is busy for nobody only during the planted run. Where the process stands
        in for the device, every CPU second counts that no tracked call covers: that of
        the web server and of the SDK as well.
        """
        if on_gpu:
            return self.planted_s
        return max(0.0, min(self.wall_s, self.cpu_s) - self.tracked_s)


@dataclass(frozen=True, slots=True)
class Truth:
    """The driver's whole measurement.

    Attributes:
        on_gpu: Whether a GPU did the work, or the process stands in for one.
        phases: In order, without gaps.
        features: Model time by feature.
    """

    on_gpu: bool
    phases: tuple[Phase, ...]
    features: Mapping[str, float]

    @property
    def wall_s(self) -> float:
        """From just before ``configure()`` to just before ``shutdown()``."""
        return sum(phase.wall_s for phase in self.phases)

    @property
    def untracked_s(self) -> float:
        """Busy, and for no feature."""
        return sum(phase.untracked_s(on_gpu=self.on_gpu) for phase in self.phases)

    @property
    def idle_s(self) -> float:
        """The rest of the wall time."""
        return self.wall_s - self.untracked_s - sum(self.features.values())

    def phase_s(self, name: str) -> float:
        """Wall time of the phases of that name; 0 where there was none."""
        return sum(phase.wall_s for phase in self.phases if phase.name == name)

    def as_json(self) -> dict[str, Any]:
        """The measurement with what follows from it, in plain types."""
        return {
            "on_gpu": self.on_gpu,
            "wall_s": self.wall_s,
            "untracked_s": self.untracked_s,
            "idle_s": self.idle_s,
            "features": dict(self.features),
            "phases": [
                {
                    "name": phase.name,
                    "wall_s": phase.wall_s,
                    "cpu_s": phase.cpu_s,
                    "tracked_s": phase.tracked_s,
                    "planted_s": phase.planted_s,
                    "untracked_s": phase.untracked_s(on_gpu=self.on_gpu),
                }
                for phase in self.phases
            ],
        }


@dataclass(slots=True)
class DriverClock:
    """Cuts the time of this process into phases.

    Attributes:
        stopwatches: One for each feature, run by the service around its model calls.
        planted: Runs around the planted untracked model run.
    """

    stopwatches: Mapping[str, Stopwatch]
    planted: Stopwatch = field(default_factory=Stopwatch)
    _phases: list[Phase] = field(default_factory=list)
    _open: tuple[str, _Reading] | None = None

    def begin(self, name: str) -> None:
        """End the phase before, if any, and begin one of that name at the same instant."""
        now = self._read()
        self._close(now)
        self._open = (name, now)

    def end(self) -> None:
        """End the last phase."""
        self._close(self._read())
        self._open = None

    def truth(self, *, on_gpu: bool) -> Truth:
        """What was measured so far."""
        features = {name: watch.total_s for name, watch in self.stopwatches.items()}
        return Truth(on_gpu, tuple(self._phases), features)

    def _read(self) -> _Reading:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return _Reading(
            wall_s=time.perf_counter(),
            cpu_s=usage.ru_utime + usage.ru_stime,
            tracked_s=sum(watch.total_s for watch in self.stopwatches.values()),
            planted_s=self.planted.total_s,
        )

    def _close(self, now: _Reading) -> None:
        if self._open is None:
            return
        name, then = self._open
        self._phases.append(
            Phase(
                name,
                now.wall_s - then.wall_s,
                now.cpu_s - then.cpu_s,
                now.tracked_s - then.tracked_s,
                now.planted_s - then.planted_s,
            )
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    wall_s: float
    cpu_s: float
    tracked_s: float
    planted_s: float
