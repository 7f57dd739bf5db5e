"""Which price holds for a device, and when: the rows of a book laid out in time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gputrace.prices_rows import Fleet, Price, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

Amount = int | Fraction
"""Charged time in any unit; sums stay exact."""


class Ambiguity(NamedTuple):
    """Several rows claim a device with the same right, so that none of them holds.

    Attributes:
        rows: Their labels.
    """

    rows: tuple[str, ...]


Held = Price | Ambiguity | None
"""What a book says about a moment; `None` is no price."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The prices of one device.

    Attributes:
        changes_ns: Unix times at which another price begins.
        held: What holds before the first change, and from each change on.
    """

    changes_ns: tuple[int, ...]
    held: tuple[Held, ...]

    def at(self, at_ns: int) -> Held:
        """Return what holds at a moment; a change counts from its own instant on."""
        return self.held[bisect_right(self.changes_ns, at_ns)]

    def changes_between(self, start_ns: int, end_ns: int) -> tuple[int, ...]:
        """Return the changes after `start_ns` and before `end_ns`."""
        first = bisect_right(self.changes_ns, start_ns)
        return self.changes_ns[first : bisect_left(self.changes_ns, end_ns, first)]

    def split(self, start_ns: int, end_ns: int, amount: Amount) -> tuple[tuple[Held, Amount], ...]:
        """Split time that was charged evenly over a span at the changes inside it.

        The parts sum to `amount` exactly, and a span that is split in two beforehand gives the same.

        Args:
            start_ns: Unix time at which the span begins.
            end_ns: Unix time at which it ends.
            amount: Time charged in it.
        """
        inside = self.changes_between(start_ns, end_ns)
        if not inside:
            # Nearly every tick: no fraction is made, integers stay integers.
            return ((self.at(start_ns), amount),)
        edges = (start_ns, *inside, end_ns)
        rate = Fraction(amount) / (end_ns - start_ns)
        return tuple(
            (self.at(begin_ns), rate * (until_ns - begin_ns)) for begin_ns, until_ns in pairwise(edges)
        )


class PriceTable:
    """The rows of one book, which never change.

    Args:
        source: What messages call the book.
        rows: Its prices.
        fleet: Devices that are paid for.
    """

    def __init__(self, source: str, rows: Sequence[Row] = (), fleet: Sequence[Fleet] = ()) -> None:
        self.source = source
        self.rows = tuple(rows)
        self.fleet = tuple(fleet)
        self._timelines: dict[tuple[str | None, str | None, str | None], Timeline] = {}

    def timeline(self, device_id: str | None, name: str | None, kind: str | None) -> Timeline:
        """Return the prices of a device, made once.

        Args:
            device_id: `hw.id`; `None` asks for the price of any device of that name.
            name: `hw.name`.
            kind: `hw.type`.
        """
        key = (device_id, name, kind)
        found = self._timelines.get(key)
        if found is None:
            found = self._timelines[key] = _lay_out(self.rows, *key)
        return found


def _lay_out(rows: Sequence[Row], device_id: str | None, name: str | None, kind: str | None) -> Timeline:
    offers = [(row, price) for row in rows if (price := row.price_for(device_id, name, kind)) is not None]
    edges = {edge for row, _ in offers for edge in (row.valid_from_ns, row.valid_until_ns)} - {None}
    changes: list[int] = []
    held: list[Held] = [_held_at(offers, None)]
    for edge in sorted(edge for edge in edges if edge is not None):
        now = _held_at(offers, edge)
        if now != held[-1]:
            changes.append(edge)
            held.append(now)
    return Timeline(tuple(changes), tuple(held))


def _held_at(offers: Sequence[tuple[Row, Price]], at_ns: int | None) -> Held:
    holding = [offer for offer in offers if offer[0].holds_at(at_ns)]
    if not holding:
        return None
    highest = max(row.rank for row, _ in holding)
    best = [(row, price) for row, price in holding if row.rank == highest]
    return best[0][1] if len(best) == 1 else Ambiguity(tuple(row.label for row, _ in best))
