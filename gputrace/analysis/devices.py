"""What each device's wall time went to."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis.readings import NS, Run, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SAME_MOMENT_NS = NS  # Two publishers that hand over within a second do not compete.

RunKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Device:
    """One device over the window; times in seconds.

    Attributes:
        id: `hw.id`.
        name: Product name, if known.
        type: `gpu` or `cpu`.
        wall_s: Sum of the four states.
        charged_s: Held by tracked calls, each moment counted once.
        untracked_s: Busy beyond that; a lower bound.
        untracked_upper_s: The upper bound of it.
        idle_s: Read, and neither.
        unknown_s: No reading covers it.
        overlap_s: Charged by more than one process at once; in `feature.time`, not in `charged_s`.
        costs: What the device cost, by currency and state; empty without a price.
        read: Whether it was read; if not, it stands for what a fleet list has beyond that.
    """

    id: str
    name: str | None
    type: str | None
    wall_s: float
    charged_s: float
    untracked_s: float
    untracked_upper_s: float
    idle_s: float
    unknown_s: float
    overlap_s: float
    costs: dict[str, dict[str, float]]
    read: bool = True


def choose(runs: Iterable[Run]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Take one publisher per device at any moment, the longest first.

    A restarted program publishes its device again under a new name: runs that
    follow each other are all taken, those that overlap are not.

    Returns:
        The runs to use, and a sentence for every one that was left out or that
        leaves a gap.
    """
    by_device: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_device[run.device].append(run)
    chosen: list[Run] = []
    notes: list[str] = []
    for device, candidates in sorted(by_device.items()):
        taken: list[Run] = []
        for run in sorted(candidates, key=lambda run: (-run.wall_s, run.start_ns, run.process)):
            rival = next((other for other in taken if _overlap(run, other)), None)
            if rival is None:
                taken.append(run)
            else:
                notes.append(
                    f"Device {device} was read by more than one process at once; the readings of "
                    f"{_who(rival)} are used, those of {_who(run)} are not."
                )
        taken.sort(key=lambda run: run.start_ns)
        notes.extend(_gaps(device, taken))
        chosen.extend(taken)
    return tuple(chosen), tuple(notes)


def measure(series: Iterable[Series], runs: Iterable[Run]) -> tuple[Device, ...]:
    """Sum the states of each device over the chosen runs.

    Args:
        series: All series of the window.
        runs: The runs to use, from `choose`.
    """
    wanted = {_run_key(run) for run in runs}
    by_device: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        if one.metric in _METRICS and series_key(one) in wanted:
            by_device[one.attributes.get(catalogue.HW_ID, "")].append(one)
    return tuple(_device(device, found) for device, found in sorted(by_device.items()))


def series_key(one: Series) -> RunKey:
    """Return what tells which run a device's series belongs to."""
    attributes = one.attributes
    return one.process, attributes.get(catalogue.PUBLISHER, ""), attributes.get(catalogue.HW_ID, "")


_METRICS = (
    catalogue.DEVICE_TIME.name,
    catalogue.DEVICE_COST.name,
    catalogue.DEVICE_OVERLAP_TIME.name,
)


def _device(device: str, series: Sequence[Series]) -> Device:
    states: dict[str, list[float]] = defaultdict(list)
    costs: dict[str, dict[str, float]] = {}
    overlap: list[float] = []
    for one in series:
        state = one.attributes.get(catalogue.DEVICE_STATE, "")
        # A state that this version does not know is no reading that it can use.
        state = state if state in catalogue.DEVICE_STATES else "unknown"
        if one.metric == catalogue.DEVICE_TIME.name:
            states[state].append(one.value)
        elif one.metric == catalogue.DEVICE_OVERLAP_TIME.name:
            overlap.append(one.value)
        else:
            by_state = costs.setdefault(one.attributes.get(catalogue.CURRENCY, "?"), {})
            by_state[state] = by_state.get(state, 0.0) + one.value
    charged, untracked, idle, unknown = (math.fsum(states[state]) for state in catalogue.DEVICE_STATES)
    return Device(
        id=device,
        name=_first(series, catalogue.HW_NAME),
        type=_first(series, catalogue.HW_TYPE),
        wall_s=math.fsum(value for values in states.values() for value in values),
        charged_s=charged,
        untracked_s=untracked,
        # No metric gives the upper bound yet; on the host stand-in both are equal.
        untracked_upper_s=untracked,
        idle_s=idle,
        unknown_s=unknown,
        overlap_s=math.fsum(overlap),
        costs=costs,
    )


def _first(series: Iterable[Series], attribute: str) -> str | None:
    return next((one.attributes[attribute] for one in series if attribute in one.attributes), None)


def _run_key(run: Run) -> RunKey:
    return run.process, run.publisher, run.device


def _overlap(one: Run, other: Run) -> bool:
    return min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns) > _SAME_MOMENT_NS


def _who(run: Run) -> str:
    return f"publisher {run.publisher or run.process}"


def _gaps(device: str, runs: Sequence[Run]) -> Iterable[str]:
    gaps = [later.start_ns - earlier.end_ns for earlier, later in itertools.pairwise(runs)]
    missing_s = sum(gap for gap in gaps if gap > _SAME_MOMENT_NS) / NS
    if missing_s:
        yield (
            f"Nobody read device {device} for {missing_s:,.1f} s between two publishers; "
            "that time is in no row."
        )
