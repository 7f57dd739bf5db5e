"""What a spend report says, and its JSON layout, which other tools rely on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gputrace import catalogue
from gputrace.analysis.latency import Percentiles
from gputrace.analysis.readings import NS, utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.analysis.balance import Balance
    from gputrace.analysis.devices import Device


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
        energy_j: Joules.
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
    energy_j: float | None = None

    @property
    def unnamed(self) -> bool:
        """Say whether nobody named the feature."""
        return self.key.get("feature") == catalogue.NO_FEATURE


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of all devices of one type; `charged_s` is the sum over features."""

    charged_s: float
    overlap_s: float
    untracked_s: float
    untracked_upper_s: float
    idle_s: float
    unknown_s: float
    wall_s: float


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
        energy_j: Joules of all rows.
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
    energy_j: float | None
    idle_policy: str = "separate"
    idle_spread_cost: float | None = None
    capacity_s: float | None = None
    uncovered_s: float | None = None
    uncovered_cost: float | None = None

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
            "rows": [_row(row, self.by) for row in self.rows],
            "devices": [_device(device, self.totals.currency) for device in self.devices],
            "totals": _totals(self.totals),
            "balanced": self.balance.balanced,
            "imbalance_s": self.balance.imbalance_s,
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
        "energy_j": row.energy_j,
    }


def _device(device: Device, currency: str | None) -> dict[str, Any]:
    costs = device.costs.get(currency or "")
    return {
        "id": device.id,
        "name": device.name,
        "type": device.type,
        "wall_s": device.wall_s,
        "charged_s": device.charged_s,
        "untracked_s": device.untracked_s,
        "untracked_upper_s": device.untracked_upper_s,
        "idle_s": device.idle_s,
        "unknown_s": device.unknown_s,
        "overlap_s": device.overlap_s,
        # In the currency of the totals; with several there is no single number.
        "cost": None if costs is None else math.fsum(costs.values()),
    }


def _totals(totals: Totals) -> dict[str, Any]:
    times = totals.times
    states = totals.device_costs
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
