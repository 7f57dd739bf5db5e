"""Joules and how they were obtained, and whether features' energy is what their devices drew for them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.analysis.devices import Device
    from gputrace.analysis.readings import Readings, Series

JOULES_OF = {"Wh": 3600, "kWh": 3_600_000}
"""Units that energy is shown in."""

# Counters are rounded to doubles of joules when they are read, each on its own.
_SERIES_TOLERANCE_J = 1e-6
_RELATIVE_TOLERANCE = 1e-9
# What several processes held at once loses energy in proportion to time, whatever the power was.
_CORRECTED_TOLERANCE = 0.01
_NO_SOURCE = "?"


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one feature, device or state.

    Attributes:
        by_source: Joules by `gputrace.energy.source`: read from a counter, or power over time.
        estimated_j: What of it was shared by time alone, since idle power had not been seen.
    """

    by_source: Mapping[str, float]
    estimated_j: float = 0.0

    @property
    def joules(self) -> float:
        """All of it; where there are several sources, say so beside it."""
        return math.fsum(self.by_source.values())

    @property
    def estimated_share(self) -> float | None:
        """The part that is estimated, 0 to 1; `None` where there is no energy."""
        return self.estimated_j / self.joules if self.joules else None


@dataclass(frozen=True, slots=True)
class EnergyBalance:
    """Energy of features against what devices drew in charged time.

    Attributes:
        balanced: Whether both agree within the tolerance.
        imbalance_j: Charged to features, less drawn by devices in charged time.
        tolerance_j: The largest imbalance that rounding, and the correction for overlap, explain.
    """

    balanced: bool
    imbalance_j: float
    tolerance_j: float


def unit_of(joules: float) -> str:
    """Return the unit that suits an energy."""
    return "kWh" if joules >= JOULES_OF["kWh"] else "Wh"


def of_series(series: Iterable[Series]) -> Energy | None:
    """Sum series of `gputrace.feature.energy` or `gputrace.device.energy`; `None` where there is none."""
    return total(
        Energy(
            {one.attributes.get(catalogue.ENERGY_SOURCE, _NO_SOURCE): one.value},
            one.value if one.attributes.get(catalogue.ENERGY_SPLIT) == "estimated" else 0.0,
        )
        for one in series
    )


def total(parts: Iterable[Energy | None]) -> Energy | None:
    """Add energies, each source on its own; `None` where there is none: missing is not zero."""
    by_source: dict[str, list[float]] = defaultdict(list)
    estimated: list[float] = []
    for part in parts:
        if part is not None:
            estimated.append(part.estimated_j)
            for source, joules in part.by_source.items():
                by_source[source].append(joules)
    if not by_source:
        return None
    sums = {source: math.fsum(values) for source, values in sorted(by_source.items())}
    return Energy(sums, math.fsum(estimated))


def check(readings: Readings, devices: Iterable[Device]) -> EnergyBalance | None:
    """Compare the energy of features with that of charged time; `None` unless there are both.

    Args:
        readings: Every series over the window.
        devices: The devices, from `devices.measure`.
    """
    features = [one.value for one in readings.series if one.metric == catalogue.FEATURE_ENERGY.name]
    charged = [device.energy["charged"].joules for device in devices if "charged" in device.energy]
    if not features or not charged:
        return None
    drawn = math.fsum(charged)
    gap = math.fsum((*features, *(-joules for joules in charged)))
    tolerance = _SERIES_TOLERANCE_J * (len(features) + len(charged)) + _RELATIVE_TOLERANCE * drawn
    if readings.corrected_s:
        tolerance += _CORRECTED_TOLERANCE * drawn
    return EnergyBalance(abs(gap) <= tolerance, gap, tolerance)


def measured(states: Mapping[str, Energy], times: Mapping[str, float]) -> dict[str, Energy]:
    """Return the energy by state without that of states in which nobody read it.

    Publishers count every state from 0. Of a state that had time and still has 0 nothing was measured, unless
    it was charged: what features bear is compared with that.

    Args:
        states: Energy by state.
        times: Seconds by state.
    """
    return {
        state: part
        for state, part in states.items()
        if part.joules or state == "charged" or not times.get(state)
    }


def unmeasured_s(devices: Iterable[Device]) -> float:
    """Return how many seconds of devices there are of which nobody read what was drawn in them."""
    return math.fsum(
        seconds
        for device in devices
        for state, seconds in device.times_s.items()
        if state not in device.energy
    )


def notes(features: Energy | None, devices: Iterable[Device], books: EnergyBalance | None) -> Iterable[str]:
    """Yield how energy was obtained, and what is missing or disagrees."""
    devices = tuple(devices)
    drawn = total(part for device in devices for part in device.energy.values())
    whole = drawn if drawn is not None else features
    if whole is None or not whole.joules:
        return
    yield _how(whole)
    mixed = [device.id for device in devices if len(_sources(device)) > 1]
    if len(whole.by_source) > 1:
        where = f" Both were used on {', '.join(mixed)}." if mixed else ""
        yield f"Sums of energy are over {len(whole.by_source)} sources, which --json tells apart.{where}"
    if features is None:
        yield "No feature has energy: it was read by a process that charged none of them."
    elif drawn is None:
        yield "No device has energy, so it is not known whether the features' energy is all of it."
    unread = [device.id for device in devices if device.read and not device.energy]
    if drawn is not None and unread:
        yield f"No energy was read of {', '.join(unread)}: absent, not 0."
    if books is not None and not books.balanced:
        more = "more" if books.imbalance_j > 0 else "less"
        yield (
            f"Features were charged {abs(books.imbalance_j):,.3f} J {more} than their devices drew in "
            "charged time: a process without readings of its device, or records lost."
        )


def _how(whole: Energy) -> str:
    names = {"counter": "the driver's counter", "power": "power over time"}
    unit = unit_of(whole.joules)
    sources = ", ".join(
        f"{joules / JOULES_OF[unit]:,.3f} {unit} from {names.get(source, 'an unknown source')}"
        for source, joules in whole.by_source.items()
    )
    share = whole.estimated_share or 0.0
    estimated = (
        f"{share:.1%} of it was shared by time alone, before idle power had been seen"
        if share
        else "shared above the idle power that was seen"
    )
    return f"Energy: {sources}; {estimated}."


def _sources(device: Device) -> set[str]:
    return {source for part in device.energy.values() for source in part.by_source}
