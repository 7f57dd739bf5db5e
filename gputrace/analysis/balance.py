"""Whether the books agree: what features were charged is what devices were held."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.analysis.devices import Device
    from gputrace.analysis.readings import Readings, Series
    from gputrace.analysis.stretches import Run

# Counters are rounded to doubles of seconds when they are read, each on its own.
SERIES_TOLERANCE_S = 1e-6
RELATIVE_TOLERANCE = 1e-9
# Exports are stamped when they are collected, states end at the last tick before.
CLOCK_TOLERANCE_S = 1.0
CLOCK_TOLERANCE_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class Balance:
    """The outcome of both checks.

    Attributes:
        balanced: Whether both hold within their tolerance.
        imbalance_s: Charged to features, less counted twice, less charged on devices.
        tolerance_s: The largest imbalance that rounding explains.
        notes: A sentence for each disagreement.
    """

    balanced: bool
    imbalance_s: float
    tolerance_s: float
    notes: tuple[str, ...]


def check(readings: Readings, devices: Iterable[Device]) -> Balance:
    """Compare features with devices by type, and the states of devices with the clock.

    Args:
        readings: Every series over the window; what was taken off features since several processes
            charged it belongs to what they were charged.
        devices: The devices, from `devices.measure`.
    """
    devices = tuple(devices)
    charges = [one for one in readings.series if one.metric == catalogue.FEATURE_TIME.name]
    types = {device.type for device in devices} | {_type(one) for one in charges}
    gaps: dict[str | None, float] = {}
    tolerances: dict[str | None, float] = {}
    for kind in types:
        features = [one.value for one in charges if _type(one) == kind]
        features.append(readings.corrected_s.get(kind or "", 0.0))
        held = [device.charged_s + device.overlap_s for device in devices if device.type == kind]
        gaps[kind] = math.fsum((*features, *(-value for value in held)))
        tolerances[kind] = SERIES_TOLERANCE_S * (
            len(features) + 2 * len(held)
        ) + RELATIVE_TOLERANCE * math.fsum(features)
    notes = [
        f"Features were charged {abs(gap):,.6f} s {'more' if gap > 0 else 'less'} than their devices "
        f"({kind or 'of unknown type'}) were held: a process without readings of its device, or records lost."
        for kind, gap in sorted(gaps.items(), key=str)
        if abs(gap) > tolerances[kind]
    ]
    notes.extend(_against_the_clock(readings.runs))
    return Balance(not notes, math.fsum(gaps.values()), math.fsum(tolerances.values()), tuple(notes))


def _type(one: Series) -> str | None:
    return one.attributes.get(catalogue.HW_TYPE)


def _against_the_clock(runs: Iterable[Run]) -> Iterable[str]:
    for run in runs:
        difference = run.states_s - run.elapsed_s
        if abs(difference) > CLOCK_TOLERANCE_S + CLOCK_TOLERANCE_SHARE * run.elapsed_s:
            yield (
                f"The states of device {run.device} sum to {run.states_s:,.3f} s where the clock "
                f"counted {run.elapsed_s:,.3f} s."
            )
