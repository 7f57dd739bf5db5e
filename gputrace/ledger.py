"""Who is charged for a device's time: offline from intervals, or while calls run.

Pure arithmetic: no clock, no thread, no telemetry. The rules, which both faces keep:

- A call *holds* a device over half-open intervals ``[start, end)`` of that device's own clock. Held times
  overlap; charged times add up, to the union of what is held.
- The owner that shares a device is the root, the outermost call. Wherever several roots hold a device, each
  is charged for that moment in proportion to its weight; with equal weights this is the Shapley value of the
  union of their holds. A root that holds a device twice at once counts once.
- A root's charge goes in equal parts to its innermost calls: those that hold the device and have no
  descendant that does. The chain of parents says who descends from whom, and ancestors that hold nothing at
  the moment count in it.

:func:`charge` takes all intervals at once. :class:`Ledger` takes starts and stops in time order, and what it
says is final. On one schedule both give the same charges.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, overload

from gputrace.ledger_chains import (
    REMEMBERED_LINKS,
    CallRecord,
    Id,
    check_weight,
    other_root,
    own_ancestor,
)
from gputrace.ledger_streaming import SCALE, Ledger
from gputrace.ledger_timeline import Amount, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.ledger_timeline import Divide

__all__ = ["REMEMBERED_LINKS", "SCALE", "Charges", "Id", "Interval", "Ledger", "charge"]

#: Above this size of the common divisor, :func:`charge` tells remainders apart to 2**-512 ns only.
EXACT_DIVISOR_BITS = 512


class Interval(NamedTuple):
    """One stretch of time for which a call held a device.

    Attributes:
        call: The id of the call. It may have any number of intervals, overlapping or not, on any devices.
        root: The id of the outermost call, the owner that shares the device.
        device: The id of the device.
        start_ns: The first instant, int ns on the device's clock.
        end_ns: The instant after the last one; an interval that ends where it starts holds nothing.
        parent: The nearest call above, if any. It need not have intervals: then the chain ends at it.
        weight: The weight of the root on that device, an int >= 1.
    """

    call: Id
    root: Id
    device: Id
    start_ns: int
    end_ns: int
    parent: Id | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Charges(Generic[Amount]):
    """Charged time in ns, as ints or as exact Fractions; the last three are sums of the first.

    Attributes:
        shares: By (call, device), for every pair that was given, also where it is 0.
        calls: By call, over all devices.
        roots: By root, over all its calls and devices.
        devices: By device: the union of all intervals on it.
    """

    shares: dict[tuple[Id, Id], Amount]
    calls: dict[Id, Amount]
    roots: dict[Id, Amount]
    devices: dict[Id, Amount]


@overload
def charge(intervals: Iterable[Interval], *, exact: Literal[False] = False) -> Charges[int]: ...
@overload
def charge(intervals: Iterable[Interval], *, exact: Literal[True]) -> Charges[Fraction]: ...
def charge(intervals: Iterable[Interval], *, exact: bool = False) -> Charges[int] | Charges[Fraction]:
    """Charge calls for the time that they held devices.

    Whole nanoseconds are given out by largest remainder (Hamilton's method) per device, first among roots,
    then among the calls of a root; ties go to the earlier first start on that device, then to the smaller id
    (ints before strings). So each charge is within 1 ns of the exact share, and the charges of a device sum
    to the union of its intervals. Costs O(n log n), however many intervals overlap.

    Remainders are compared exactly, unless weights are so diverse that the common divisor of all shares
    passes ``EXACT_DIVISOR_BITS``; then to 2**-512 ns.

    Args:
        intervals: In any order. Empty ones charge 0, but count in the chain of parents.
        exact: Give Fractions of a nanosecond and round nothing. Slow where weights are very diverse.

    Returns:
        The charges, in ns.

    Raises:
        ValueError: An interval is reversed; a weight is no int >= 1; the intervals of one root on one device
            disagree on its weight, or those of one call on its root or parent; a parent has another root; a
            call is its own ancestor.
        TypeError: A time is no int.
    """
    rows = list(intervals)
    by_device = _read_holds(rows, _read_calls(rows))
    if exact:
        exact_parts = {name: _split_exactly(held) for name, held in by_device.items()}
        return _sum_up(rows, exact_parts, Fraction(0))
    parts = {name: _split_to_ns(held) for name, held in by_device.items()}
    return _sum_up(rows, parts, 0)


class _Held(NamedTuple):
    """A stretch of time for which a call held the device at hand."""

    start_ns: int
    end_ns: int
    call: CallRecord
    weight: int


def _read_calls(rows: list[Interval]) -> dict[Id, CallRecord]:
    """Check the rows and tie each call to its parent."""
    calls: dict[Id, CallRecord] = {}
    parents: dict[Id, Id | None] = {}
    for row in rows:
        _check_times(row)
        record = calls.get(row.call)
        if record is None:
            calls[row.call] = CallRecord(row.call, row.root)
            parents[row.call] = row.parent
        elif record.root != row.root:
            raise other_root(row.call, row.root, record)
        elif parents[row.call] != row.parent:
            raise ValueError(
                f"call {row.call!r} has the parents {parents[row.call]!r} and {row.parent!r}; give all its"
                " intervals the same one"
            )
    for name, parent in parents.items():
        above = None if parent is None else calls.get(parent)
        if above is not None and above.root != calls[name].root:
            raise other_root(name, calls[name].root, above)
        calls[name].parent = above
    _refuse_cycles(calls.values())
    return calls


def _check_times(row: Interval) -> None:
    times: tuple[object, object] = (row.start_ns, row.end_ns)
    where = f"call {row.call!r} on device {row.device!r}"
    if not all(isinstance(time, int) for time in times):
        raise TypeError(f"{where} holds from {times[0]!r} to {times[1]!r}; give whole nanoseconds as int")
    if row.end_ns < row.start_ns:
        raise ValueError(
            f"{where} ends at {row.end_ns} ns, before its start at {row.start_ns} ns; give both on that"
            " device's clock"
        )


def _refuse_cycles(calls: Iterable[CallRecord]) -> None:
    cleared: set[CallRecord] = set()
    for call in calls:
        path: set[CallRecord] = set()
        above: CallRecord | None = call
        while above is not None and above not in cleared:
            if above in path:
                raise own_ancestor(above.name)
            path.add(above)
            above = above.parent
        cleared |= path


def _read_holds(rows: list[Interval], calls: Mapping[Id, CallRecord]) -> dict[Id, list[_Held]]:
    """Check the weights, and return what is not empty by device, in order of the starts."""
    weights: dict[tuple[Id, Id], int] = {}
    by_device: dict[Id, list[_Held]] = {}
    for row in rows:
        check_weight(row.call, row.weight)
        weight = weights.setdefault((row.root, row.device), row.weight)
        if weight != row.weight:
            raise ValueError(
                f"call {row.call!r} gives root {row.root!r} the weight {row.weight} on device {row.device!r},"
                f" another interval {weight}; a root has one weight on a device"
            )
        held = by_device.setdefault(row.device, [])
        if row.start_ns != row.end_ns:
            held.append(_Held(row.start_ns, row.end_ns, calls[row.call], weight))
    for held in by_device.values():
        held.sort(key=lambda hold: hold.start_ns)
    return by_device


def _split_exactly(held: list[_Held]) -> dict[Id, Fraction]:
    """Share one device's time, in exact ns by call."""
    unit = _common_divisor(held) ** 2
    return {name: Fraction(amount, unit) for name, amount in _replay(held, unit, divmod).items()}


def _split_to_ns(held: list[_Held]) -> dict[Id, int]:
    """Share one device's time, in whole ns by call: among roots, then within each."""
    grain, divisor = 1, _common_divisor(held)
    if divisor.bit_length() > EXACT_DIVISOR_BITS:
        # Divisions leave something over now: differences below the grain are only that.
        grain = divisor = 2**EXACT_DIVISOR_BITS
    unit = divisor**2
    amounts = _replay(held, unit, divmod)
    call_starts: dict[Id, int] = {}
    root_starts: dict[Id, int] = {}
    by_root: dict[Id, dict[Id, int]] = {}
    for start_ns, _, call, _ in held:
        call_starts.setdefault(call.name, start_ns)
        root_starts.setdefault(call.root, start_ns)
        by_root.setdefault(call.root, {})[call.name] = amounts.get(call.name, 0)
    sums = {root: sum(parts.values()) for root, parts in by_root.items()}
    union_ns = sum(sums.values()) // unit
    shares: dict[Id, int] = {}
    for root, whole_ns in _apportion(sums, unit, grain, union_ns, root_starts).items():
        shares |= _apportion(by_root[root], unit, grain, whole_ns, call_starts)
    return shares


def _apportion(
    amounts: Mapping[Id, int], unit: int, grain: int, total_ns: int, first_ns: Mapping[Id, int]
) -> dict[Id, int]:
    """Round amounts in 1/unit ns, known to ``grain``, to whole ns that sum to ``total_ns``."""
    grains = {name: (amount + grain // 2) // grain for name, amount in amounts.items()}
    per_ns = unit // grain

    def rank(name: Id) -> tuple[int, int, bool, Id]:
        # Ids of both kinds may be mixed, and do not compare with each other.
        return -(grains[name] % per_ns), first_ns[name], isinstance(name, str), name

    shares = {name: amount // per_ns for name, amount in grains.items()}
    left_ns = total_ns - sum(shares.values())
    if left_ns:
        for name in sorted(grains, key=rank)[:left_ns]:
            shares[name] += 1
    return shares


def _common_divisor(held: list[_Held]) -> int:
    """Return a multiple of all that one device's time will be divided by.

    It is found by a replay that divides nothing. In units of 1/divisor ns, divisions among owners come out
    even, and in its square those among the calls of an owner too: that is exact, in ints, which are many
    times faster than Fractions.
    """
    divisors: set[int] = set()

    def learn(owed: int, among: int) -> tuple[int, int]:
        divisors.add(among)
        return owed, 0

    _replay(held, 1, learn)
    return lcm(*divisors)


def _replay(held: list[_Held], unit: int, divide: Divide[int]) -> dict[Id, int]:
    """Feed one device's holds, in order of their starts, to a timeline; return its amounts by call."""
    if not held:
        return {}
    stops = sorted(held, key=lambda hold: hold.end_ns)
    timeline = Timeline("offline", held[0].start_ns, unit, divide)
    done = 0
    # At one instant starts come first: an owner that goes on is not let go in between.
    for start_ns, _, call, weight in held:
        while stops[done].end_ns < start_ns:
            timeline.stop(stops[done].call, stops[done].end_ns)
            done += 1
        timeline.start(call, weight, start_ns)
    for hold in stops[done:]:
        timeline.stop(hold.call, hold.end_ns)
    return timeline.report(stops[-1].end_ns)


def _sum_up(rows: list[Interval], parts: Mapping[Id, Mapping[Id, Amount]], zero: Amount) -> Charges[Amount]:
    root_of = {row.call: row.root for row in rows}
    shares = {(row.call, row.device): zero for row in rows}
    calls = dict.fromkeys(root_of, zero)
    roots = dict.fromkeys(root_of.values(), zero)
    devices = dict.fromkeys(parts, zero)
    for device, amounts in parts.items():
        for name, amount in amounts.items():
            shares[name, device] = amount
            calls[name] += amount
            roots[root_of[name]] += amount
            devices[device] += amount
    return Charges(shares, calls, roots, devices)
