"""The sentences of a report that say whether its books balance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.text import Text

from gputrace.analysis import energy
from gputrace.analysis.formats import joules_in, seconds
from gputrace.analysis.spend import NO_TYPE
from gputrace.analysis.stretches import NS

if TYPE_CHECKING:
    from gputrace.analysis.energy import EnergyBalance
    from gputrace.analysis.figures import SpendReport, Times


_MICROJOULE = 1e-6
_LEAST_SAID_S = 0.001


def accounted(times: Times) -> float:
    """Return the sum of all states, seconds: that of the wall clock, if the books balance."""
    return times.charged_s - times.counted_twice_s + times.untracked_s + times.idle_s + times.unknown_s


def ledger_line(report: SpendReport) -> Text:
    """Say where all time went, and whether features and devices agree on it."""
    books = report.balance
    sums = "; ".join(
        f"{seconds(times.charged_s)} charged"
        + (f" - {seconds(times.counted_twice_s)} counted twice" if times.counted_twice_s else "")
        + f" + {seconds(times.untracked_s)} untracked + {seconds(times.idle_s)} idle"
        f" + {seconds(times.unknown_s)} unknown = {seconds(accounted(times))} s"
        f" of {seconds(times.wall_s)} s wall ({kind})"
        for kind, times in report.totals.by_type.items()
    )
    if books.balanced:
        text = Text("The ledger balances: ", style="green")
    else:
        text = Text("THE LEDGER DOES NOT BALANCE: ", style="bold red")
    off = f"{books.imbalance_s:+.3g} s" if abs(books.imbalance_s) >= 1 / NS else "less than a nanosecond"
    text.append(f"{sums or 'no time'}; off by {off}", style="not bold default")
    text.append(f" (rounding allows {books.tolerance_s:.1g} s).", style="not bold default")
    return text


def energy_line(report: SpendReport, books: EnergyBalance, unit: str) -> Text:
    """Say the same of energy."""
    drawn = report.totals.device_energy
    parts = {
        state: energy.total(states.get(state) for states in drawn.values())
        for state in ("untracked", "idle", "unknown")
    }
    sums = [f"{joules_in(unit, report.totals.energy_j)} charged"]
    sums += [f"{joules_in(unit, part.joules)} {state}" for state, part in parts.items() if part is not None]
    whole = math.fsum(part.joules for states in drawn.values() for part in states.values())
    text = (
        Text("The energy balances: ", style="green")
        if books.balanced
        else Text("THE ENERGY DOES NOT BALANCE: ", style="bold red")
    )
    off = f"{books.imbalance_j:+.3g} J" if abs(books.imbalance_j) >= _MICROJOULE else "less than a microjoule"
    text.append(
        f"{' + '.join(sums)} = {joules_in(unit, whole)} {unit} drawn{_of_time(report)}; off by {off} "
        f"({books.tolerance_j:.1g} J are allowed).",
        style="not bold default",
    )
    return text


def _of_time(report: SpendReport) -> str:
    """Say what part of the time a sum of energy is of, where it is not all of it."""
    # A host beside the GPUs draws what nobody reads, and its seconds are never added to theirs.
    kinds = report.totals.device_energy
    devices = [device for device in report.devices if (device.type or NO_TYPE) in kinds]
    unmeasured_s = energy.unmeasured_s(devices)
    if unmeasured_s < _LEAST_SAID_S:
        return ""
    wall_s = math.fsum(device.wall_s for device in devices)
    return f" in {seconds(wall_s - unmeasured_s)} s of {seconds(wall_s)}: what the rest drew nobody measured"


def energy_unit(report: SpendReport) -> str | None:
    """Return the unit of the energy column; `None` where there is no energy to show."""
    drawn = (part for states in report.totals.device_energy.values() for part in states.values())
    joules = max(math.fsum(part.joules for part in drawn), report.totals.energy_j or 0.0)
    return energy.unit_of(joules) if joules > 0 else None
