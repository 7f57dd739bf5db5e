"""What the driver measures with its own clocks, never with a number of the SDK.

The driver cuts the life of the service into slices that follow each other without a
gap, and reads at each cut the wall clock, the CPU time of this process and the
stopwatches that run while a model does. From these follows, by the definition in the
documentation, what a report of the same window ought to say.
"""

from __future__ import annotations

import resource
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The definition clamps at zero in each of its sample periods, so it matters where other
# programs take the processor away: these periods should be about as long as the SDK's.
SLICE_S = 0.05


class Stopwatch:
    """How long something ran in all; whoever runs it reads the clock.

    Attributes:
        total_s: Seconds so far.
    """

    __slots__ = ("total_s",)

    def __init__(self) -> None:
        """Begin at zero."""
        self.total_s = 0.0


@dataclass(frozen=True, slots=True)
class Slice:
    """The time between two cuts.

    Attributes:
        wall_s: How long it took.
        cpu_s: CPU time of this process in it, of all its threads.
        tracked_s: How long tracked model calls ran in it.
        planted_s: How long the planted model run, which nothing tracks, ran in it.
    """

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
class Phase:
    """One stretch of the service's life: what happened, and its slices."""

    name: str
    slices: tuple[Slice, ...]

    @property
    def wall_s(self) -> float:
        """How long it took."""
        return sum(one.wall_s for one in self.slices)

    @property
    def cpu_s(self) -> float:
        """CPU time of this process in it."""
        return sum(one.cpu_s for one in self.slices)

    @property
    def tracked_s(self) -> float:
        """How long tracked model calls ran in it."""
        return sum(one.tracked_s for one in self.slices)

    def untracked_s(self, *, on_gpu: bool) -> float:
        """How long the device was busy in it without a tracked call."""
        return sum(one.untracked_s(on_gpu=on_gpu) for one in self.slices)


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
        """From the return of ``configure()`` to the call of ``shutdown()``."""
        return sum(phase.wall_s for phase in self.phases)

    @property
    def untracked_s(self) -> float:
        """Busy, and for no feature."""
        return sum(phase.untracked_s(on_gpu=self.on_gpu) for phase in self.phases)

    @property
    def idle_s(self) -> float:
        """The rest of the wall time."""
        return self.wall_s - self.untracked_s - sum(self.features.values())

    def phase(self, name: str) -> Phase:
        """The phase of that name; an empty one where it never came."""
        return next((phase for phase in self.phases if phase.name == name), Phase(name, ()))

    def as_json(self) -> dict[str, Any]:
        """The measurement with what follows from it, in plain types."""
        return {
            "on_gpu": self.on_gpu,
            "wall_s": self.wall_s,
            "untracked_s": self.untracked_s,
            "idle_s": self.idle_s,
            "features": dict(self.features),
            "phases": {
                phase.name: {
                    "wall_s": phase.wall_s,
                    "cpu_s": phase.cpu_s,
                    "tracked_s": phase.tracked_s,
                    "untracked_s": phase.untracked_s(on_gpu=self.on_gpu),
                }
                for phase in self.phases
            },
        }


class DriverClock:
    """Cuts the time of this process into phases, and busy phases into slices.

    Args:
        features: Each gets a stopwatch, for the service to run around its model calls.

    Attributes:
        stopwatches: By feature.
        planted: Runs around the planted untracked model run.
        audits: Runs while an audit does.
    """

    def __init__(self, features: Iterable[str]) -> None:
        """Nothing is measured before the first ``begin``."""
        self.stopwatches = {feature: Stopwatch() for feature in features}
        self.planted = Stopwatch()
        self.audits = Stopwatch()
        self._lock = threading.Lock()
        self._phases: list[Phase] = []
        self._name: str | None = None
        self._slices: list[Slice] = []
        self._last = self._read()

    def begin(self, name: str) -> None:
        """End the phase before, if any, and begin one of that name at the same instant."""
        self._turn_to(name)

    def end(self) -> None:
        """End the last phase."""
        self._turn_to(None)

    def cut_when_due(self) -> None:
        """Begin a new slice where the last one is old enough; not while a stopwatch runs."""
        if time.perf_counter() - self._last.wall_s >= SLICE_S:
            with self._lock:
                self._cut()

    def truth(self, *, on_gpu: bool, audited: str | None = None) -> Truth:
        """What was measured until the last phase ended.

        Args:
            on_gpu: Whether a GPU did the work.
            audited: The feature that pays for the audits.
        """
        features = {name: watch.total_s for name, watch in self.stopwatches.items()}
        if audited is not None:
            features[audited] += self.audits.total_s
        return Truth(on_gpu, tuple(self._phases), features)

    def _turn_to(self, name: str | None) -> None:
        with self._lock:
            self._cut()
            if self._name is not None:
                self._phases.append(Phase(self._name, tuple(self._slices)))
            self._name = name
            self._slices = []

    def _cut(self) -> None:
        then, now = self._last, self._read()
        self._last = now
        self._slices.append(
            Slice(
                now.wall_s - then.wall_s,
                now.cpu_s - then.cpu_s,
                now.tracked_s - then.tracked_s,
                now.planted_s - then.planted_s,
            )
        )

    def _read(self) -> Slice:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Slice(
            wall_s=time.perf_counter(),
            cpu_s=usage.ru_utime + usage.ru_stime,
            tracked_s=sum(watch.total_s for watch in (*self.stopwatches.values(), self.audits)),
            planted_s=self.planted.total_s,
        )
