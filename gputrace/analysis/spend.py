"""The numbers of a spend report. Pure: readings in, report out.

Totals come from metric points alone, so sampling never changes them. Two
currencies are never added, and neither are seconds of GPUs and of hosts.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import (
    achievements,
    balance,
    busy,
    capacity,
    energy,
    idleness,
    model_servers,
    origins,
    remarks,
)
from gputrace.analysis.devices import Device, measure
from gputrace.analysis.figures import Row, SpendReport, Times, Totals
from gputrace.analysis.latency import TYPE_FIELD, Key, Latencies, Percentiles, key_of
from gputrace.prices_timeline import PriceTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.analysis.capacity import Capacity
    from gputrace.analysis.energy import Energy
    from gputrace.analysis.readings import Readings, Series
    from gputrace.analysis.stretches import Run

NO_TYPE = "?"


def grouping(readings: Readings, by: Sequence[str]) -> tuple[str, ...]:
    """Return the fields to group by: those asked for, and `hw_type` where GPUs and hosts are both present.

    Args:
        readings: Every series over the window.
        by: Fields that were asked for, of `latency.FIELDS`.
    """
    types = {
        one.attributes[catalogue.HW_TYPE] for one in readings.series if catalogue.HW_TYPE in one.attributes
    }
    return (*by, TYPE_FIELD) if len(types) > 1 and TYPE_FIELD not in by else tuple(by)


def spend(  # noqa: PLR0913 - what was read, and how to show it
    readings: Readings,
    by: Sequence[str],
    latencies: Latencies | None = None,
    skipped: Mapping[str, int] | None = None,
    *,
    prices: PriceTable | None = None,
    idle: str = "separate",
    known: Mapping[achievements.Count, float] | None = None,
) -> SpendReport:
    """Put the numbers together.

    Args:
        readings: Every series over the window.
        by: Fields to group by, from `grouping`.
        latencies: Percentiles by the same fields; `None` if spans were not read.
        skipped: Lines that could not be used, by name of the file.
        prices: Price book whose fleet list tells the capacity.
        idle: What becomes of the cost of idle time, of `prices_billing.IDLE_POLICIES`.
        known: Outcomes whose feature spans tell, from `achievements.joined`.

    Raises:
        PriceBookError: Rows of the book claim a device alike.
    """
    runs = readings.runs
    devices = measure(readings.series, runs)
    books = balance.check(readings, devices)
    energy_books = energy.check(readings, devices)
    start_ns, end_ns = _window(readings, runs)
    fleet = capacity.measure(prices or PriceTable(""), devices, runs, (start_ns, end_ns))
    devices = (*devices, *fleet.uncovered)
    groups = _groups(readings.series, by)
    borne = idleness.spread(groups.values(), devices, idle)
    spenders = _groups(readings.series, ("feature", TYPE_FIELD))
    idleness.spread(spenders.values(), devices, idle)
    outcomes = achievements.measure(catalogue.OUTCOMES, readings.series, spenders, known)
    totals = _with_policy(_totals(readings, groups.values(), devices), fleet, idle, borne)
    notes = (*remarks.collect(readings, by, devices, totals, latencies), *fleet.notes)
    return SpendReport(
        by=tuple(by),
        start_ns=start_ns,
        end_ns=end_ns,
        rows=_rows(groups, by, totals, latencies),
        devices=devices,
        totals=totals,
        balance=books,
        skipped_lines=sum((skipped or {}).values()),
        spans=None if latencies is None else latencies.spans,
        notes=(
            *origins.notes(readings.origins, "processes"),
            *notes,
            *idleness.notes(idle, borne),
            *energy.notes(totals.energy, devices, energy_books),
            *busy.notes(readings.series, by),
            *achievements.notes(outcomes),
            *readings.notes,
            *books.notes,
            *remarks.on_skipped(skipped or {}),
        ),
        energy_balance=energy_books,
        outcomes=outcomes,
        units=achievements.measure(catalogue.UNITS, readings.series, spenders),
        model_servers=model_servers.measure(readings.series),
        origins=readings.origins,
    )


def _window(readings: Readings, runs: Sequence[Run]) -> tuple[int, int]:
    start_ns = min((run.start_ns for run in runs), default=readings.start_ns)
    return start_ns, max((run.end_ns for run in runs), default=readings.end_ns)


@dataclass(slots=True)
class _Group:
    """What the series of one group add up to."""

    kind: str = NO_TYPE
    calls: Counter[str] = field(default_factory=Counter)
    charged: list[float] = field(default_factory=list)
    costs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    energy: list[Series] = field(default_factory=list)
    alone: busy.Alone = field(default_factory=busy.Alone)

    @property
    def spent(self) -> bool:
        """Say whether anything happened in the window."""
        return bool(self.calls.total() or any(self.charged) or any(map(any, self.costs.values())))


def _groups(series: Iterable[Series], by: Sequence[str]) -> dict[Key, _Group]:
    groups: dict[Key, _Group] = defaultdict(_Group)
    counted = (*_BILLED, *busy.METRICS) if busy.known_by(by) else _BILLED
    for one in series:
        if one.metric not in counted:
            continue
        group = groups[key_of(one.attributes, by)]
        group.kind = one.attributes.get(catalogue.HW_TYPE, group.kind)
        if one.metric == catalogue.CALLS.name:
            group.calls[one.attributes.get(catalogue.STATUS, "")] += round(one.value)
        elif one.metric == catalogue.FEATURE_TIME.name:
            group.charged.append(one.value)
        elif one.metric == catalogue.FEATURE_COST.name:
            group.costs[one.attributes.get(catalogue.CURRENCY, "?")].append(one.value)
        elif one.metric == catalogue.FEATURE_ENERGY.name:
            group.energy.append(one)
        else:
            group.alone.add(one)
    # A declared feature is exported as 0 from the start; unless it spends, it is no row.
    return {key: group for key, group in groups.items() if group.spent}


_BILLED = (
    catalogue.CALLS.name,
    catalogue.FEATURE_TIME.name,
    catalogue.FEATURE_COST.name,
    catalogue.FEATURE_ENERGY.name,
)


def _rows(
    groups: Mapping[Key, _Group], by: Sequence[str], totals: Totals, latencies: Latencies | None
) -> tuple[Row, ...]:
    rows: list[Row] = []
    for key, group in groups.items():
        walls = totals.by_type.get(group.kind)
        percentiles = Percentiles() if latencies is None else latencies.groups.get(key, Percentiles())
        rows.extend(_rows_of(dict(zip(by, key, strict=True)), group, walls, percentiles))
    rows.sort(
        key=lambda row: (row.unnamed, str(row.key.get(TYPE_FIELD)), -(row.charged_s or 0), str(row.key))
    )
    return tuple(rows)


def _rows_of(
    key: Mapping[str, str | None], group: _Group, times: Times | None, percentiles: Percentiles
) -> Iterable[Row]:
    """Yield the row of a group, and one with the cost alone for every further currency.

    So each number stands in one row, and the sum over rows stays right.
    """
    calls = group.calls.total()
    charged = math.fsum(group.charged)
    costs = [(currency, math.fsum(values)) for currency, values in sorted(group.costs.items())]
    for number, (currency, cost) in enumerate(costs or [(None, None)]):
        first = number == 0
        yield Row(
            key=key,
            calls=calls if first else None,
            errors=group.calls["error"] if first else None,
            cancelled=group.calls["cancelled"] if first else None,
            charged_s=charged if first else None,
            share=charged / times.wall_s if first and times and times.wall_s else None,
            cost=cost,
            currency=currency,
            cost_per_1000_calls=None if cost is None or not calls else 1000 * cost / calls,
            percentiles=percentiles if first else Percentiles(),
            busy_share=group.alone.share if first else None,
            busy_periods=group.alone.periods if first else None,
            energy=energy.of_series(group.energy) if first else None,
        )


def _totals(readings: Readings, groups: Iterable[_Group], devices: Sequence[Device]) -> Totals:
    groups = tuple(groups)
    calls = sum((group.calls for group in groups), Counter[str]())
    currencies = {currency for group in groups for currency in group.costs}
    currencies |= {currency for device in devices for currency in device.costs}
    currency = next(iter(currencies)) if len(currencies) == 1 else None
    costs = [value for group in groups for value in group.costs.get(currency or "", ())]
    return Totals(
        calls=calls.total(),
        errors=calls["error"],
        cancelled=calls["cancelled"],
        by_type=_times(readings, devices),
        currency=currency,
        cost=math.fsum(costs) if costs else None,
        device_costs=_device_costs(devices, currency),
        energy=energy.total(energy.of_series(group.energy) for group in groups),
        device_energy=_device_energy(devices),
    )


def _with_policy(totals: Totals, fleet: Capacity, idle: str, borne: Mapping[str, float]) -> Totals:
    """Add what became of idle cost, and the capacity: of one type alone, since types are never added."""
    totals = replace(totals, idle_policy=idle, idle_spread_cost=borne.get(totals.currency or ""))
    if len(fleet.by_type) != 1:
        return totals
    costs = [device.costs.get(totals.currency or "", {}).get("unknown") for device in fleet.uncovered]
    priced = [cost for cost in costs if cost is not None]
    return replace(
        totals,
        capacity_s=next(iter(fleet.by_type.values())),
        uncovered_s=math.fsum(device.wall_s for device in fleet.uncovered),
        uncovered_cost=math.fsum(priced) if priced else None,
    )


def _device_costs(devices: Iterable[Device], currency: str | None) -> dict[str, float]:
    costs: dict[str, list[float]] = defaultdict(list)
    for device in devices:
        for state, cost in device.costs.get(currency or "", {}).items():
            costs[state].append(cost)
    return {state: math.fsum(values) for state, values in costs.items()}


def _device_energy(devices: Iterable[Device]) -> dict[str, dict[str, Energy]]:
    found: dict[str, dict[str, Energy]] = {}
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for device in devices:
        kind = device.type or NO_TYPE
        for state, seconds in device.times_s.items():
            times[kind][state] = times[kind].get(state, 0.0) + seconds
        for state, part in device.energy.items():
            states = found.setdefault(kind, {})
            states[state] = energy.total((states.get(state), part)) or part
    # Of two devices one may have had no such time, and the other no reading in it.
    return {kind: energy.measured(states, times[kind]) for kind, states in found.items()}


def _times(readings: Readings, devices: Sequence[Device]) -> dict[str, Times]:
    charged: dict[str, list[float]] = defaultdict(list)
    for one in readings.series:
        if one.metric == catalogue.FEATURE_TIME.name:
            charged[one.attributes.get(catalogue.HW_TYPE, NO_TYPE)].append(one.value)
    kinds = sorted({device.type or NO_TYPE for device in devices} | set(charged))
    return {
        kind: replace(
            _times_of(charged[kind], [device for device in devices if (device.type or NO_TYPE) == kind]),
            overlap_corrected_s=readings.corrected_s.get("" if kind == NO_TYPE else kind, 0.0),
        )
        for kind in kinds
    }


def _times_of(charged: Iterable[float], devices: Sequence[Device]) -> Times:
    return Times(
        charged_s=math.fsum(charged),
        overlap_s=math.fsum(device.overlap_s for device in devices),
        untracked_s=math.fsum(device.untracked_s for device in devices),
        untracked_upper_s=math.fsum(device.untracked_upper_s for device in devices),
        idle_s=math.fsum(device.idle_s for device in devices),
        unknown_s=math.fsum(device.unknown_s for device in devices),
        wall_s=math.fsum(device.wall_s for device in devices),
    )
