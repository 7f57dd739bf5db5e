"""What is paid for and no publisher covered: the fleet list of a price book against what was read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis.devices import Device
from gputrace.analysis.stretches import NS
from gputrace.prices import ambiguity
from gputrace.prices_billing import Bill
from gputrace.prices_rows import PriceBookError
from gputrace.prices_timeline import Ambiguity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputrace.analysis.stretches import Run
    from gputrace.prices_timeline import PriceTable

_SECONDS_PER_HOUR = 3600
# Exports of one moment differ by less; a gap of this size is nobody's absence.
_LEAST_UNCOVERED_S = 1e-6


@dataclass(frozen=True, slots=True)
class Capacity:
    """The fleet over the window.

    Attributes:
        by_type: Devices × seconds of the window by `hw.type`; types are never added.
        uncovered: What nobody read, as one device for each name: all of it is unknown.
        notes: A sentence for all that the list and the readings disagree on.
    """

    by_type: dict[str, float]
    uncovered: tuple[Device, ...]
    notes: tuple[str, ...]


def measure(
    table: PriceTable, devices: Sequence[Device], runs: Sequence[Run], window: tuple[int, int]
) -> Capacity:
    """Compare the fleet list with what was read.

    Args:
        table: The price book.
        devices: The devices that were read.
        runs: Who read them when.
        window: Unix time of its start and end.

    Raises:
        PriceBookError: Rows of the book claim a name alike.
    """
    counts: dict[tuple[str, str], int] = {}
    for part in table.fleet:
        counts[part.type, part.name] = counts.get((part.type, part.name), 0) + part.devices
    by_type: dict[str, float] = {}
    uncovered: list[Device] = []
    notes: list[str] = []
    for (kind, name), count in sorted(counts.items()):
        known = {device.id for device in devices if device.type == kind and device.name == name}
        capacity_s = count * (window[1] - window[0]) / NS
        by_type[kind] = by_type.get(kind, 0.0) + capacity_s
        missing = _uncovered(table, (kind, name), count, [run for run in runs if run.device in known], window)
        if missing.wall_s > _LEAST_UNCOVERED_S:
            uncovered.append(missing)
            notes.append(
                f"Of {count} {name} in the fleet list {missing.wall_s / _SECONDS_PER_HOUR:,.3f} h of "
                f"{capacity_s / _SECONDS_PER_HOUR:,.3f} h were covered by no publisher: unknown."
            )
        if len(known) > count:
            notes.append(f"{len(known)} devices called {name} were read, and the fleet list has {count}.")
    return Capacity(by_type, tuple(uncovered), (*notes, *_strangers(counts, devices)))


def _uncovered(
    table: PriceTable, key: tuple[str, str], count: int, runs: Sequence[Run], window: tuple[int, int]
) -> Device:
    """Return what was not read as one device, at the price of the name: which ones it was is unknown."""
    kind, name = key
    timeline = table.timeline(None, name, kind)
    bill = Bill()
    whole_s = 0.0
    for start_ns, end_ns in pairwise((window[0], *timeline.changes_between(*window), window[1])):
        read_s = math.fsum(_within(run, start_ns, end_ns) for run in runs)
        missing_s = max(0.0, count * (end_ns - start_ns) / NS - read_s)
        held = timeline.at(start_ns)
        if missing_s and isinstance(held, Ambiguity):
            raise PriceBookError(ambiguity(table.source, held, name))
        bill.add([(held, Fraction(missing_s))])
        whole_s += missing_s
    costs = {
        currency: {"unknown": float(cost)} for currency, cost in bill.costs(_SECONDS_PER_HOUR).items() if cost
    }
    return Device(
        id=f"{catalogue.RESERVED_PREFIX}uncovered__/{name}",
        name=name,
        type=kind,
        wall_s=whole_s,
        charged_s=0.0,
        untracked_s=0.0,
        untracked_upper_s=0.0,
        idle_s=0.0,
        unknown_s=whole_s,
        overlap_s=0.0,
        costs=costs,
        read=False,
    )


def _within(run: Run, start_ns: int, end_ns: int) -> float:
    """Return the time of a run that falls into a span, in seconds of its readings."""
    common_ns = min(run.end_ns, end_ns) - max(run.start_ns, start_ns)
    return run.wall_s * common_ns / (run.end_ns - run.start_ns) if common_ns > 0 else 0.0


def _strangers(counts: Iterable[tuple[str, str]], devices: Iterable[Device]) -> Iterable[str]:
    listed = set(counts)
    names = {(device.type, device.name) for device in devices} - listed
    found = sorted(name or "?" for kind, name in names if kind == "gpu")
    if listed and found:
        yield f"The fleet list does not have {', '.join(found)}: what was read of it is all that is known."
