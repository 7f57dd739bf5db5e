"""What is to be simulated: how long, on what, for whom, and what goes wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NS_PER_S = 1_000_000_000
DAY_S = 86_400

#: What can happen, by name.
INCIDENTS = {
    "night": "nobody asks for anything in a quarter of each day",
    "launch": "the first feature is launched, and its traffic doubles, after three fifths of the time",
    "failures": "some requests fail, and some are cancelled",
    "notebook": "somebody computes on the first GPU for an hour or so each night, and nothing tracks it",
    "loss": "the last GPU falls off the bus after three quarters of the time",
    "threshold": "a cascade's threshold is raised half-way",
    "price": "GPUs cost a tenth more from half-way on",
}

#: Everything that is simulated is at its busiest about this share of the time.
_LOAD = 0.4
_READING_S = 60
_FEWEST_REQUESTS = 2_000
_REQUESTS_A_GPU_HOUR = 60
_MOST_REQUESTS = 60_000


class PlanError(ValueError):
    """The plan cannot be carried out; the message names the option, and what would do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulation. The same plan gives the same numbers.

    Attributes:
        start_ns: When it begins, Unix time.
        span_s: How long it lasts, s; whole steps.
        gpus: GPUs of the fleet, which the processes share out among themselves.
        processes: Processes of the service, each on a node of its own.
        features: Features that ask for something.
        step_s: Time between two exports of metrics, s.
        seed: Of all draws.
        requests: Requests in all, about. Whatever their number, they come to the same load: the fewer there
            are, the longer each computes.
        incidents: Names of ``INCIDENTS``.
        prices: Price book; None for one that is made up.
        gpu_name: ``hw.name``.
        trace: CSV with ``t_s``, ``input_tokens`` and ``output_tokens``, when requests arrive and how large
            they are; None makes them up.
        traced_requests: Requests, about, that leave spans.
        tenants: Whether metrics say for which customer.
        load: Share of the fleet's time that is asked for.
    """

    start_ns: int
    span_s: int = 3_600
    gpus: int = 4
    processes: int = 2
    features: int = 7
    step_s: int = 15
    seed: int = 1
    requests: int = _FEWEST_REQUESTS
    incidents: frozenset[str] = frozenset(INCIDENTS)
    prices: Path | None = None
    gpu_name: str = "Simulated GPU"
    trace: Path | None = None
    traced_requests: int = 1_000
    tenants: bool = False
    load: float = _LOAD

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            PlanError: Names the option.
        """
        for name in ("gpus", "processes", "features", "step_s", "requests"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.gpus % self.processes:
            raise PlanError(
                f"{self.gpus} GPUs cannot be shared out evenly among {self.processes} processes; each is on "
                "a node of its own, so the GPUs must be a multiple of the processes: say so with --processes"
            )
        if self.span_s < 2 * self.step_s or self.span_s % self.step_s:
            raise PlanError(f"{self.span_s} s is not two or more whole steps of {self.step_s} s")
        unknown = sorted(self.incidents - INCIDENTS.keys())
        if unknown:
            raise PlanError(f"no incident is called {unknown[0]}; there are {', '.join(INCIDENTS)}")

    @property
    def end_ns(self) -> int:
        """When it ends, Unix time."""
        return self.start_ns + self.span_s * NS_PER_S

    @property
    def step_ns(self) -> int:
        """Time between two exports, ns."""
        return self.step_s * NS_PER_S

    @property
    def reading_ns(self) -> int:
        """Time between two readings of the GPUs, ns: whole parts of a step, no longer than a minute."""
        return self.step_ns // math.ceil(self.step_s / _READING_S)

    @property
    def day_s(self) -> int:
        """What counts as a day, s: simulations of less than one have theirs within their span."""
        return min(DAY_S, self.span_s)

    def part_ns(self, part: float) -> int:
        """Return when a part of the whole is over, Unix time in ns, at an end of a step."""
        return self.start_ns + round(self.span_s * part / self.step_s) * self.step_ns

    def time_of_day(self, at_ns: int) -> float:
        """Return how much of its day is over, from 0 to 1."""
        begin_s = 0 if self.day_s == DAY_S else self.start_ns / NS_PER_S
        return ((at_ns / NS_PER_S - begin_s) % self.day_s) / self.day_s


def enough_requests(span_s: int, gpus: int) -> int:
    """Return a number of requests that shows everything and takes no longer than it must."""
    return max(_FEWEST_REQUESTS, min(_MOST_REQUESTS, span_s * gpus * _REQUESTS_A_GPU_HOUR // 3_600))
