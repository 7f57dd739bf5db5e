"""What each device's wall time went to."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import energy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.analysis.energy import Energy
    from gputrace.analysis.readings import Series
    from gputrace.analysis.stretches import Run

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
        energy: What it drew, by state; empty where no energy was read, without a state of which none was.
        parent: The GPU that a slice is part of.
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
    energy: Mapping[str, Energy] = field(default_factory=dict)
    parent: str | None = None

    @property
    def times_s(self) -> dict[str, float]:
        """Seconds by state."""
        return {state: getattr(self, f"{state}_s") for state in catalogue.DEVICE_STATES}


def bounds_differ(lower_s: float, upper_s: float) -> bool:
    """Say whether two bounds, in seconds, are more than 1 % apart, so that both must be shown."""
    return (upper_s - lower_s) * 100 > upper_s


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
    catalogue.DEVICE_ENERGY.name,
    catalogue.DEVICE_OVERLAP_TIME.name,
    catalogue.DEVICE_UNTRACKED_UPPER_TIME.name,
)


def _device(device: str, series: Sequence[Series]) -> Device:
    states = {
        state: math.fsum(_values(series, catalogue.DEVICE_TIME.name, state))
        for state in catalogue.DEVICE_STATES
    }
    return Device(
        id=device,
        name=_first(series, catalogue.HW_NAME),
        type=_first(series, catalogue.HW_TYPE),
        wall_s=math.fsum(one.value for one in series if one.metric == catalogue.DEVICE_TIME.name),
        charged_s=states["charged"],
        untracked_s=states["untracked"],
        untracked_upper_s=_untracked_upper(series),
        idle_s=states["idle"],
        unknown_s=states["unknown"],
        overlap_s=math.fsum(_values(series, catalogue.DEVICE_OVERLAP_TIME.name)),
        costs=_costs(series),
        energy=_energy(series, states),
        parent=_first(series, catalogue.HW_PARENT),
    )


def _state(one: Series) -> str:
    state = one.attributes.get(catalogue.DEVICE_STATE, "")
    # A state that this version does not know is no reading that it can use.
    return state if state in catalogue.DEVICE_STATES else "unknown"


def _values(series: Iterable[Series], metric: str, state: str | None = None) -> Iterable[float]:
    return (one.value for one in series if one.metric == metric and state in {None, _state(one)})


def _untracked_upper(series: Iterable[Series]) -> float:
    """Return the upper bound of untracked time, which is the lower one where a run gives no other."""
    by_run: dict[RunKey, list[Series]] = defaultdict(list)
    for one in series:
        by_run[series_key(one)].append(one)
    bounds: list[float] = []
    for found in by_run.values():
        lower = math.fsum(_values(found, catalogue.DEVICE_TIME.name, "untracked"))
        upper = tuple(_values(found, catalogue.DEVICE_UNTRACKED_UPPER_TIME.name))
        bounds.append(max(lower, math.fsum(upper)))
    return math.fsum(bounds)


def _costs(series: Iterable[Series]) -> dict[str, dict[str, float]]:
    costs: dict[str, dict[str, float]] = {}
    for one in series:
        if one.metric == catalogue.DEVICE_COST.name:
            by_state = costs.setdefault(one.attributes.get(catalogue.CURRENCY, "?"), {})
            by_state[_state(one)] = by_state.get(_state(one), 0.0) + one.value
    return costs


def _energy(series: Iterable[Series], times: Mapping[str, float]) -> dict[str, Energy]:
    by_state: dict[str, list[Series]] = defaultdict(list)
    for one in series:
        if one.metric == catalogue.DEVICE_ENERGY.name:
            by_state[_state(one)].append(one)
    found = {state: energy.of_series(by_state[state]) for state in catalogue.DEVICE_STATES}
    return energy.measured({state: part for state, part in found.items() if part is not None}, times)


def _first(series: Iterable[Series], attribute: str) -> str | None:
    return next((one.attributes[attribute] for one in series if attribute in one.attributes), None)


def _run_key(run: Run) -> RunKey:
    return run.process, run.publisher, run.device
