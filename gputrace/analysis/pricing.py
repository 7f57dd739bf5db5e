"""History at the prices of a book: costs are made anew from time, whatever was recorded.

A counter tells what happened between two exports, not when. Where a price
changes in between, that time is split pro rata: the interval is the resolution.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gputrace import catalogue
from gputrace.analysis.readings import Readings, Series
from gputrace.analysis.stretches import NS
from gputrace.prices import ambiguity
from gputrace.prices_billing import Bill
from gputrace.prices_rows import PriceBookError
from gputrace.prices_timeline import Ambiguity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.analysis.store import Store
    from gputrace.prices_timeline import Held, PriceTable, Timeline

SECONDS_PER_HOUR = 3600

_COSTS = {
    catalogue.FEATURE_TIME.name: catalogue.FEATURE_COST.name,
    catalogue.DEVICE_TIME.name: catalogue.DEVICE_COST.name,
}

# Every series with what it showed at the exports around each change of a price. An
# export that lacks a series shows what the one before did, at first nothing.
_MARKS = """
WITH cut AS (SELECT unnest(CAST($cuts AS BIGINT[])) AS cut),
around AS (
    SELECT process, cut, max(at_ns) FILTER (at_ns <= cut) AS before_ns,
        min(at_ns) FILTER (at_ns > cut) AS after_ns
    FROM (SELECT DISTINCT process, at_ns FROM point), cut GROUP BY process, cut),
mark AS (
    SELECT process, metric, delta, start_ns, attributes, cut, before_ns, after_ns,
        coalesce(arg_max(value, at_ns) FILTER (at_ns <= before_ns), 0) AS before,
        coalesce(arg_max(value, at_ns) FILTER (at_ns <= after_ns), 0) AS after
    FROM point JOIN around USING (process) WHERE list_contains($metrics, metric) GROUP BY ALL),
series AS (
    SELECT process, metric, delta, start_ns, attributes, arg_max(value, at_ns) AS final,
        coalesce(arg_max(value, at_ns) FILTER (at_ns <= base_ns), 0) AS base
    FROM point JOIN process USING (process)
    WHERE list_contains($metrics, metric) AND (base_ns IS NULL OR last_ns > base_ns) GROUP BY ALL)
SELECT process, metric, attributes, base, final,
    list({'cut': cut, 'before_ns': before_ns, 'after_ns': after_ns, 'before': before, 'after': after}
        ORDER BY cut) FILTER (cut IS NOT NULL)
FROM series LEFT JOIN mark USING (process, metric, delta, start_ns, attributes)
GROUP BY process, metric, delta, start_ns, attributes, base, final
"""

_Device = tuple[str, "str | None", "str | None"]


@dataclass(slots=True)
class _Findings:
    """What a reader must know about the costs that were made."""

    longest_split_ns: int = 0
    by_name: set[str] = field(default_factory=set)
    unpriced_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    priced: set[str] = field(default_factory=set)


def reprice(store: Store, values: Readings, table: PriceTable) -> tuple[Readings, tuple[str, ...]]:
    """Replace all costs by those of a price book.

    Args:
        store: The store that `values` were read from.
        values: Readings of the window.
        table: The prices.

    Returns:
        The readings with the costs of the book, and a sentence for everything
        that a reader must know about them.

    Raises:
        PriceBookError: Rows of the book claim a device alike.
    """
    kept = tuple(one for one in values.series if one.metric not in _COSTS.values())
    timelines = _Timelines(kept, table)
    began = _beginnings(values)
    cuts = sorted({cut for timeline in timelines.all() for cut in timeline.changes_ns if cut < values.end_ns})
    findings = _Findings(by_name=timelines.by_name)
    costs: list[Series] = []
    for process, metric, items, base, final, marks in store.rows(
        _MARKS, {"cuts": cuts, "metrics": list(_COSTS)}
    ):
        attributes = {item["key"]: item["text"] for item in items if item["text"] is not None}
        one = Series(process, metric, attributes, final - base)
        timeline = timelines.of(one)
        own = [mark for mark in marks or () if mark["cut"] in timeline.changes_ns]
        parts, split_ns = _parts(timeline, base, final, own, began.get(process))
        findings.longest_split_ns = max(findings.longest_split_ns, split_ns)
        _refuse_ambiguity(table, parts, one)
        costs.extend(_costs(one, parts or [(timeline.at(values.end_ns - 1), Fraction(0))], findings))
    return replace(values, series=(*kept, *costs)), tuple(_notes(table, findings))


class _Timelines:
    """Which prices a series bears. Features' time tells the name of its device, not which one it was."""

    def __init__(self, series: Iterable[Series], table: PriceTable) -> None:
        self._table = table
        self._devices: dict[str, set[_Device]] = defaultdict(set)
        self._features: dict[tuple[str, str | None, str | None], Timeline] = {}
        self.by_name: set[str] = set()
        series = tuple(series)
        for one in series:
            if one.metric == catalogue.DEVICE_TIME.name:
                self._devices[one.process].add(_device(one))
        self._all: set[_Device] = set().union(*self._devices.values())
        for one in series:
            if one.metric == catalogue.FEATURE_TIME.name:
                self.of(one)

    def all(self) -> set[Timeline]:
        """Return every timeline that any series bears."""
        return {self._table.timeline(*device) for device in self._all} | set(self._features.values())

    def of(self, one: Series) -> Timeline:
        """Return the prices that a series of time bears."""
        device, name, kind = _device(one)
        if one.metric == catalogue.DEVICE_TIME.name:
            return self._table.timeline(device, name, kind)
        key = (one.process, name, kind)
        if key not in self._features:
            self._features[key] = self._of_name(*key)
        return self._features[key]

    def _of_name(self, process: str, name: str | None, kind: str | None) -> Timeline:
        """Return the one price of the devices that it can have been, else that of their name."""
        for devices in (self._devices.get(process, set()), self._all):
            found = {
                self._table.timeline(*device)
                for device in devices
                if device[2] == kind and name in {None, device[1]}
            }
            if len(found) == 1:
                return found.pop()
            if found:
                self.by_name.add(name or kind or "?")
                break
        return self._table.timeline(None, name, kind)


def _device(one: Series) -> _Device:
    attributes = one.attributes
    return (
        attributes.get(catalogue.HW_ID, ""),
        attributes.get(catalogue.HW_NAME),
        attributes.get(catalogue.HW_TYPE),
    )


def _beginnings(values: Readings) -> dict[str, int]:
    began: dict[str, int] = {}
    for run in (*values.runs, *(part.run for part in values.left_out)):
        began[run.process] = min(run.start_ns, began.get(run.process, run.start_ns))
    return began


def _parts(
    timeline: Timeline, base: float, final: float, marks: Sequence[Mapping[str, Any]], began_ns: int | None
) -> tuple[list[tuple[Held, Fraction]], int]:
    """Split an increase at the changes of its price; also return the longest interval that was split."""
    parts: list[tuple[Held, Fraction]] = []
    longest_ns = 0
    reached, whole = Fraction(base), Fraction(final)
    held = timeline.held[0]
    for mark in marks:
        value, split_ns = _value_at(mark, final, began_ns)
        value = max(reached, min(value, whole))
        if value > reached:
            longest_ns = max(longest_ns, split_ns)
        parts.append((held, value - reached))
        reached, held = value, timeline.at(mark["cut"])
    parts.append((held, whole - reached))
    return [part for part in parts if part[1]], longest_ns


def _value_at(mark: Mapping[str, Any], final: float, began_ns: int | None) -> tuple[Fraction, int]:
    """Return a counter's value at a change, and the length of the interval that was split for it."""
    cut, after_ns = mark["cut"], mark["after_ns"]
    if after_ns is None:
        return Fraction(final), 0
    before, after = Fraction(mark["before"]), Fraction(mark["after"])
    # Before its first export a process counted from its beginning on.
    before_ns = mark["before_ns"] if mark["before_ns"] is not None else began_ns
    if before_ns is None or before_ns >= cut:
        return before, 0
    share = Fraction(cut - before_ns, after_ns - before_ns)
    return before + (after - before) * share, after_ns - before_ns if after != before else 0


def _refuse_ambiguity(table: PriceTable, parts: Iterable[tuple[Held, Fraction]], one: Series) -> None:
    for held, _ in parts:
        if isinstance(held, Ambiguity):
            device, name, _ = _device(one)
            raise PriceBookError(ambiguity(table.source, held, name or device or None))


def _costs(one: Series, parts: Sequence[tuple[Held, Fraction]], findings: _Findings) -> Iterable[Series]:
    bill = Bill()
    bill.add(parts)
    costs = bill.costs(SECONDS_PER_HOUR)
    device = one.attributes.get(catalogue.HW_ID)
    if device is not None:
        findings.unpriced_s[device] += float(bill.unpriced)
        if costs:
            findings.priced.add(device)
    for currency, cost in costs.items():
        attributes = {**one.attributes, catalogue.CURRENCY: currency}
        yield Series(one.process, _COSTS[one.metric], attributes, float(cost))


def _notes(table: PriceTable, findings: _Findings) -> Iterable[str]:
    yield f"Costs are those of {table.source}, whatever was recorded."
    if findings.longest_split_ns:
        yield (
            "A price changed in the window: time between the two exports around a change, at most "
            f"{findings.longest_split_ns / NS:,.3f} s, is split pro rata."
        )
    for name in sorted(findings.by_name):
        yield (
            f"Devices called {name} differ in price and features' time does not tell which it was: "
            "features bear the price of the name, devices their own."
        )
    for device in sorted(findings.priced):
        if findings.unpriced_s[device]:
            yield (
                f"Device {device} had no price for a part of the window: "
                f"{findings.unpriced_s[device]:,.3f} s are in no cost."
            )
