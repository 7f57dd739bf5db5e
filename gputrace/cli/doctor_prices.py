"""Which devices have a price at this moment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from gputrace.cli.doctor_findings import Section
from gputrace.prices import NODE_PRICE_VARIABLE, PRICES_VARIABLE, PriceBook
from gputrace.prices_rows import PriceBookError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gputrace.prices_rows import Price

_REMEDY = f"set {PRICES_VARIABLE} to a price book (see examples/prices.toml), or {NODE_PRICE_VARIABLE}"


class Priced(NamedTuple):
    """A device, as a price book knows it.

    Attributes:
        label: What people call it.
        id: `hw.id`.
        name: `hw.name`.
        type: `hw.type`.
    """

    label: str
    id: str
    name: str | None
    type: str


def prices_section(path: Path | None, devices: Sequence[Priced]) -> Section:
    """Say what each device costs.

    Args:
        path: The price book, where it was named; else the environment says.
        devices: What is charged here.
    """
    section = Section("prices", "Prices")
    section.facts = {"prices": {}, "book": None}
    problems: list[str] = []
    try:
        book = PriceBook.from_environment(path, on_problem=problems.append, name="--prices")
    except PriceBookError as error:
        section.fail(
            f"the price book cannot be used: {error}", "mend it: the format is in examples/prices.toml"
        )
        return section
    if book is None:
        section.note("there is no price book: time is reported, and no cost", _REMEDY)
        return section
    for device in devices:
        price = book.price_of(device.id, device.name, device.type, time.time_ns())
        section.facts["prices"][device.id] = None if price is None else _facts(price)
        if price is None:
            section.warn(
                f"{device.label} ({device.name}) has no price at this moment: its time is counted, "
                "and costs nothing",
                f'add a row to the price book: name = "{device.name}"',
            )
        else:
            section.ok(f"{device.label} ({device.name}): {_words(price)}")
    for problem in problems:
        section.warn(problem)
    return section


def _words(price: Price) -> str:
    since = "" if price.as_of is None else f" as of {price.as_of}"
    return f"{float(price.per_hour):.4g} {price.currency}/h, {price.kind}, from {price.source}{since}"


def _facts(price: Price) -> dict[str, str | float | None]:
    return {
        "per_hour": float(price.per_hour),
        "currency": price.currency,
        "kind": price.kind,
        "source": price.source,
        "as_of": None if price.as_of is None else price.as_of.isoformat(),
    }
