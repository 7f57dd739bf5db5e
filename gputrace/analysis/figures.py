"""What a spend report says, and its JSON layout, which other tools rely on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gputrace import catalogue
from gputrace.analysis import energy
from gputrace.analysis.latency import Percentiles
from gputrace.analysis.origins import Origins
from gputrace.analysis.readings import utc
from gputrace.analysis.stretches import NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.analysis.achievements import Achievement
    from gputrace.analysis.balance import Balance
    from gputrace.analysis.devices import Device
    from gputrace.analysis.energy import Energy, EnergyBalance
    from gputrace.analysis.model_servers import ModelServer


# Sums over many intervals differ in their last digits.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """Spend of one group; `None` is unknown.

    Attributes:
        key: Values of the grouping fields.
        calls: Finished calls, however they ended.
        errors: Those that raised.
        cancelled: Those that were cancelled.
        charged_s: Charged device time, seconds.
        share: Its part of the devices' wall time, 0 to 1.
        cost: Charged time in money, in `currency`.
        currency: ISO 4217.
        cost_per_1000_calls: In `currency`.
        percentiles: Times of single calls.
        busy_share: Part of the time in which the device was busy while this group held it alone.
        busy_periods: How many sample periods that would be told from.
        energy: Its part of what the devices drew.
    """

    key: Mapping[str, str | None]
    calls: int | None
    errors: int | None
    cancelled: int | None
    charged_s: float | None
    share: float | None
    cost: float | None = None
    currency: str | None = None
    cost_per_1000_calls: float | None = None
    percentiles: Percentiles = field(default_factory=Percentiles)
    busy_share: float | None = None
    busy_periods: int | None = None
    energy: Energy | None = None

    @property
    def energy_j(self) -> float | None:
        """Joules of all sources."""
        return None if self.energy is None else self.energy.joules

    @property
    def unnamed(self) -> bool:
        """Say whether nobody named the feature."""
        return self.key.get("feature") == catalogue.NO_FEATURE


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of all devices of one type; `charged_s` is the sum over features.

    What several processes charged at once is `overlap_s`; of it `overlap_corrected_s` was taken off the
    features, so that only the rest of it is in their sum twice.
    """

    charged_s: float
    overlap_s: float
    untracked_s: float
    untracked_upper_s: float
    idle_s: float
    unknown_s: float
    wall_s: float
    overlap_corrected_s: float = 0.0

    @property
    def counted_twice_s(self) -> float:
        """What is in `charged_s` twice, 0 where only rounding is."""
        rest = self.overlap_s - self.overlap_corrected_s
        return rest if abs(rest) > _ROUNDING * max(1.0, self.overlap_s) else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums of a report.

    Attributes:
        calls: Finished calls.
        errors: Those that raised.
        cancelled: Those that were cancelled.
        by_type: Seconds by `hw.type`; types are never added.
        currency: The only currency there is; `None` if there is none or several.
        cost: Cost of all rows.
        device_costs: Cost of the devices by state.
        energy: Energy of all rows.
        device_energy: What the devices drew, by `hw.type` and state.
        idle_policy: What became of the cost of idle time, of `prices_billing.IDLE_POLICIES`.
        idle_spread_cost: The part of it that the rows bear.
        capacity_s: Devices of the fleet list × seconds of the window; `None` without a list.
        uncovered_s: What no publisher read of it; part of the unknown time.
        uncovered_cost: The cost of that; part of the unknown cost.
    """

    calls: int
    errors: int
    cancelled: int
    by_type: Mapping[str, Times]
    currency: str | None
    cost: float | None
    device_costs: Mapping[str, float]
    energy: Energy | None
    device_energy: Mapping[str, Mapping[str, Energy]] = field(default_factory=dict)
    idle_policy: str = "separate"
    idle_spread_cost: float | None = None
    capacity_s: float | None = None
    uncovered_s: float | None = None
    uncovered_cost: float | None = None

    @property
    def energy_j(self) -> float | None:
        """Joules of all rows."""
        return None if self.energy is None else self.energy.joules

    @property
    def times(self) -> Times | None:
        """The seconds, if all devices are of one type."""
        return next(iter(self.by_type.values())) if len(self.by_type) == 1 else None


@dataclass(frozen=True, slots=True)
class SpendReport:
    """Everything that a spend report says.

    Attributes:
        by: Fields that rows are grouped by.
        start_ns: First reading in the window, Unix time.
        end_ns: Last reading.
        rows: By charged time, largest first; unnamed work last.
        devices: One entry a device.
        totals: The sums.
        balance: Whether the books agree.
        energy_balance: Whether those of energy do; `None` without energy of both features and devices.
        outcomes: What each outcome cost, by feature.
        units: What each unit of work cost, by feature.
        model_servers: What the steps of each model server went to.
        origins: How many processes this is of, and how many of them are simulated.
        skipped_lines: Lines that could not be used.
        spans: Calls that percentiles were taken from; `None` if spans were not read.
        notes: What a reader must know about the numbers, a sentence each.
    """

    by: tuple[str, ...]
    start_ns: int
    end_ns: int
    rows: tuple[Row, ...]
    devices: tuple[Device, ...]
    totals: Totals
    balance: Balance
    skipped_lines: int
    spans: int | None
    notes: tuple[str, ...]
    energy_balance: EnergyBalance | None = None
    outcomes: tuple[Achievement, ...] = ()
    units: tuple[Achievement, ...] = ()
    model_servers: tuple[ModelServer, ...] = ()
    origins: Origins = field(default_factory=Origins)

    @property
    def sampled_share(self) -> float | None:
        """Spans for each counted call, at most 1; `None` if spans were not read or nothing was called."""
        if self.spans is None or not self.totals.calls:
            return None
        return min(1.0, self.spans / self.totals.calls)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data: `null` is unknown, times are seconds, shares 0 to 1."""
        return {
            "window": {
                "start": utc(self.start_ns),
                "end": utc(self.end_ns),
                "seconds": (self.end_ns - self.start_ns) / NS,
            },
            "simulated": {"processes": self.origins.simulated, "of": self.origins.count},
            "rows": [_row(row, self.by) for row in self.rows],
            "devices": [_device(device, self.totals.currency) for device in self.devices],
            "totals": _totals(self.totals),
            "outcomes": [asdict(one) for one in self.outcomes],
            "units": [asdict(one) for one in self.units],
            "model_servers": [one.to_json() for one in self.model_servers],
            "balanced": self.balance.balanced,
            "imbalance_s": self.balance.imbalance_s,
            "energy_balanced": None if self.energy_balance is None else self.energy_balance.balanced,
            "energy_imbalance_j": None if self.energy_balance is None else self.energy_balance.imbalance_j,
            "skipped_lines": self.skipped_lines,
            "sampled_share": self.sampled_share,
            "notes": list(self.notes),
        }


def _row(row: Row, by: Iterable[str]) -> dict[str, Any]:
    return {
        # `feature` is always there, so that readers need not know the grouping.
        "feature": row.key.get("feature"),
        **{name: row.key.get(name) for name in by},
        "calls": row.calls,
        "errors": row.errors,
        "cancelled": row.cancelled,
        "charged_s": row.charged_s,
        "share": row.share,
        "cost": row.cost,
        "currency": row.currency,
        "cost_per_1000_calls": row.cost_per_1000_calls,
        "wall_p50_s": row.percentiles.wall_p50_s,
        "wall_p95_s": row.percentiles.wall_p95_s,
        "device_p50_s": row.percentiles.device_p50_s,
        "device_p95_s": row.percentiles.device_p95_s,
        "busy_share": row.busy_share,
        "busy_periods": row.busy_periods,
        "energy_j": row.energy_j,
        "energy_by_source": None if row.energy is None else dict(row.energy.by_source),
        "energy_estimated_share": None if row.energy is None else row.energy.estimated_share,
    }


def _device(device: Device, currency: str | None) -> dict[str, Any]:
    costs = device.costs.get(currency or "")
    return {
        "id": device.id,
        "name": device.name,
        "type": device.type,
        "parent": device.parent,
        "wall_s": device.wall_s,
        "charged_s": device.charged_s,
        "untracked_s": device.untracked_s,
        "untracked_upper_s": device.untracked_upper_s,
        "idle_s": device.idle_s,
        "unknown_s": device.unknown_s,
        "overlap_s": device.overlap_s,
        # In the currency of the totals; with several there is no single number.
        "cost": None if costs is None else math.fsum(costs.values()),
        **_energy(device.energy),
    }


def _energy(states: Mapping[str, Energy]) -> dict[str, Any]:
    whole = energy.total(states.values())
    by_source = {
        source: {state: part.by_source.get(source, 0.0) for state, part in states.items()}
        for source in (() if whole is None else whole.by_source)
    }
    return {
        "energy_j": None if whole is None else whole.joules,
        "energy_by_source": by_source or None,
        "energy_estimated_share": None if whole is None else whole.estimated_share,
    }


def _totals(totals: Totals) -> dict[str, Any]:
    times = totals.times
    states = totals.device_costs
    drawn = {
        state: part
        for state in catalogue.DEVICE_STATES
        if (part := energy.total(parts.get(state) for parts in totals.device_energy.values())) is not None
    }
    return {
        "calls": totals.calls,
        "errors": totals.errors,
        "cancelled": totals.cancelled,
        **{one.name: None if times is None else getattr(times, one.name) for one in fields(Times)},
        "cost": totals.cost,
        "currency": totals.currency,
        "device_cost": math.fsum(states.values()) if states else None,
        **{f"{state}_cost": states.get(state) for state in ("untracked", "idle", "unknown")},
        "energy_j": totals.energy_j,
        **{f"device_{name}": value for name, value in _energy(drawn).items()},
        **{
            f"{state}_energy_j": drawn[state].joules if state in drawn else None
            for state in ("untracked", "idle", "unknown")
        },
        "by_type": {
            kind: {one.name: getattr(found, one.name) for one in fields(Times)}
            for kind, found in totals.by_type.items()
        },
        "idle_policy": totals.idle_policy,
        "idle_spread_cost": totals.idle_spread_cost,
        "capacity_s": totals.capacity_s,
        "uncovered_s": totals.uncovered_s,
        "uncovered_cost": totals.uncovered_cost,
    }
