"""Busy share: how busy a device is while one feature alone holds it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis.latency import TYPE_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputrace.analysis.readings import Series

# Fewer sample periods tell nothing.
FEWEST_PERIODS = 10

METRICS = (
    catalogue.FEATURE_ALONE_TIME.name,
    catalogue.FEATURE_ALONE_BUSY_TIME.name,
    catalogue.FEATURE_ALONE_PERIODS.name,
)


@dataclass(slots=True)
class Alone:
    """The sample periods in which one feature alone held a device, by metric."""

    parts: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})

    def add(self, one: Series) -> None:
        """Add a series of one of the three metrics."""
        self.parts[one.metric].append(one.value)

    @property
    def periods(self) -> int | None:
        """How many periods there were; `None` where nobody counted them."""
        counted = self.parts[catalogue.FEATURE_ALONE_PERIODS.name]
        return round(math.fsum(counted)) if counted else None

    @property
    def time_s(self) -> float:
        """How long they were."""
        return math.fsum(self.parts[catalogue.FEATURE_ALONE_TIME.name])

    @property
    def share(self) -> float | None:
        """Busy time / time, 0 to 1; `None` under ten periods."""
        time_s = self.time_s
        busy = self.parts[catalogue.FEATURE_ALONE_BUSY_TIME.name]
        if (self.periods or 0) < FEWEST_PERIODS or time_s <= 0 or not busy:
            return None
        return math.fsum(busy) / time_s


def known_by(by: Sequence[str]) -> bool:
    """Say whether rows of these fields can have a busy share, which is counted by feature and `hw.type`."""
    return "feature" in by and set(by) <= {"feature", TYPE_FIELD}


def notes(series: Iterable[Series], by: Sequence[str]) -> Iterable[str]:
    """Yield why rows have no busy share though there is one."""
    if known_by(by):
        return
    periods = [one.value for one in series if one.metric == catalogue.FEATURE_ALONE_PERIODS.name]
    if math.fsum(periods) >= FEWEST_PERIODS:
        yield "Busy shares are counted by feature alone: --by feature shows them."
