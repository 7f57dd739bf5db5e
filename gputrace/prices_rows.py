"""What a price book says: prices, the devices each is for, and the fleet."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date

KINDS = ("on_demand", "reserved", "spot", "amortised")
MIG_MEASURES = ("slices", "memory")

# As the driver names slices: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", with `1c.` where a slice is itself divided.
_SLICE = re.compile(r"(?P<whole>.*) MIG (?:(?P<part>\d+)c\.)?(?P<slices>\d+)g\.(?P<memory>\d+)gb")
_SLICE_MARK = " MIG "
_SLICE_ID = "MIG-"


class PriceBookError(ValueError):
    """A price book cannot be used; the message names the file, the row and the key."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one device costs.

    Attributes:
        per_hour: Amount for an hour of the device, in `currency`.
        currency: ISO 4217.
        kind: One of `KINDS`.
        source: Where the number comes from.
        as_of: When the source said so; `None` if it does not tell.
        sku: Name of the offer.
    """

    per_hour: Fraction
    currency: str
    kind: str
    source: str
    as_of: date | None
    sku: str | None = None

    def __hash__(self) -> int:
        # The settler looks prices up for every charge; the hash of a fraction costs more than all the rest.
        return hash((self.currency, self.source, self.as_of))


@dataclass(frozen=True, slots=True)
class MigShare:
    """How much of a whole device's price its slices bear.

    Attributes:
        by: One of `MIG_MEASURES`.
        of: Slices, or gigabytes, of the whole device.
    """

    by: str
    of: Fraction

    def of_slice(self, found: re.Match[str]) -> Fraction | None:
        """Return the share of a slice; `None` where it would exceed the whole."""
        slices = int(found["slices"])
        share = (slices if self.by == "slices" else int(found["memory"])) / self.of
        if found["part"] and slices:
            share *= Fraction(int(found["part"]), slices)
        return share if 0 < share <= 1 else None


@dataclass(frozen=True, slots=True)
class Row:
    """One price and the devices it is for.

    Attributes:
        label: How messages call it.
        price: The price of a whole device.
        device_id: `hw.id` of the one device; `None` if `name` selects.
        name: `hw.name`, or a pattern of it.
        type: `hw.type`.
        valid_from_ns: Unix time from which it holds; `None` is always.
        valid_until_ns: Unix time from which it holds no longer.
        mig: What slices of the device bear; without it the row prices no slice.
        overrides: Whether it stands above the rows of the file.
    """

    label: str
    price: Price
    device_id: str | None = None
    name: str | None = None
    type: str = "gpu"
    valid_from_ns: int | None = None
    valid_until_ns: int | None = None
    mig: MigShare | None = None
    overrides: bool = False

    @property
    def rank(self) -> tuple[bool, int, bool, int]:
        """How specific it is, then how late it begins: the greatest of the rows that hold wins."""
        name = self.name or ""
        level = 3 if self.device_id is not None else 2 if not is_pattern(name) else 1 if name != "*" else 0
        since_ns = self.valid_from_ns
        return (self.overrides, level, since_ns is not None, since_ns or 0)

    def holds_at(self, at_ns: int | None) -> bool:
        """Say whether it holds at a moment; `None` is the beginning of time."""
        if at_ns is None:
            return self.valid_from_ns is None
        begun = self.valid_from_ns is None or self.valid_from_ns <= at_ns
        return begun and (self.valid_until_ns is None or at_ns < self.valid_until_ns)

    def price_for(self, device_id: str | None, name: str | None, kind: str | None) -> Price | None:
        """Return the price of a device, or `None` if the row is not for it.

        Args:
            device_id: `hw.id`; `None` where only the name is known.
            name: `hw.name`.
            kind: `hw.type`.
        """
        if self.device_id is not None:
            return self.price if device_id == self.device_id else None
        if kind != self.type or self.name is None:
            return None
        found = _SLICE.match(name or "")
        if found is None:
            # A slice whose name does not tell its size has no share that could be known.
            whole = not (device_id or "").startswith(_SLICE_ID)
            return self.price if whole and fnmatchcase(name or "", self.name) else None
        if names_slices(self.name):
            return self.price if fnmatchcase(name or "", self.name) else None
        share = self.mig.of_slice(found) if self.mig and fnmatchcase(found["whole"], self.name) else None
        return None if share is None else replace(self.price, per_hour=self.price.per_hour * share)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices that are paid for, whether anything reads them or not.

    Attributes:
        name: `hw.name` of the devices.
        type: `hw.type`.
        count: Devices on each node.
        nodes: Names of the nodes; empty where `count` is the whole.
    """

    name: str
    type: str
    count: int
    nodes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """How many devices these are."""
        return self.count * max(1, len(self.nodes))


def is_pattern(name: str) -> bool:
    """Say whether a name selects by pattern."""
    return any(mark in name for mark in "*?[")


def names_slices(name: str) -> bool:
    """Say whether a name or pattern is one of MIG slices."""
    return _SLICE_MARK in name
