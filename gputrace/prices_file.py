"""Reads a price book: TOML in, rows and fleet out, or one sentence about what is wrong with it."""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from typing import Any

from gputrace.prices_entry import Entry, shown
from gputrace.prices_rows import (
    KINDS,
    MIG_MEASURES,
    Fleet,
    MigShare,
    Price,
    PriceBookError,
    Row,
    is_pattern,
    names_slices,
)
from gputrace.prices_timeline import PriceTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TYPES = ("gpu", "cpu")
_OVERRIDE = re.compile(
    r"(?:(?P<name>.*\S)\s*=\s*)?(?P<amount>[0-9.]+)\s+(?P<currency>\w+)(?:\s+(?P<kind>\w+))?"
)


def read_table(content: bytes, file: str) -> PriceTable:
    """Return what a price book says.

    Args:
        content: The TOML file.
        file: What messages call it.

    Raises:
        PriceBookError: It cannot be used.
    """
    try:
        found = tomllib.loads(content.decode(), parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise PriceBookError(f"{file}: {str(error) or 'nested too deeply'}") from error
    whole = Entry(file, "top level", found, ("price", "fleet"))
    rows = [_row(file, number, values) for number, values in enumerate(_entries(whole, "price"), 1)]
    fleet = [_fleet(file, number, values) for number, values in enumerate(_entries(whole, "fleet"), 1)]
    _refuse_twins(file, rows)
    _refuse_nodes_twice(file, fleet)
    return PriceTable(file, rows, fleet)


def read_overrides(text: str, variable: str) -> tuple[Row, ...]:
    """Return the rows of a node's own prices, which stand above those of the file.

    Args:
        text: `[NAME=]AMOUNT CURRENCY [KIND]`, several of them separated by `;`. Without a name, or with a
            pattern that names no slices, it is for whole devices.
        variable: The environment variable that holds it.

    Raises:
        PriceBookError: It cannot be read.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    rows = [_override(part, number, variable) for number, part in enumerate(parts, 1)]
    _refuse_twins(variable, rows)
    return tuple(rows)


def _override(text: str, number: int, variable: str) -> Row:
    found = _OVERRIDE.fullmatch(text)
    if found is None:
        raise PriceBookError(
            f"{variable}: {text!r} must read like '2.10 USD' or 'NVIDIA H100*=2.10 USD spot'"
        )
    try:
        amount = Decimal(found["amount"])
    except ArithmeticError:
        raise PriceBookError(f"{variable}: {found['amount']!r} is not a number") from None
    known = ("per_hour", "currency", "kind")
    values = {"per_hour": amount, "currency": found["currency"], "kind": found["kind"] or "amortised"}
    label = f"price {number}"
    entry = Entry(variable, label, values, known)
    price = Price(
        entry.number("per_hour"), entry.currency("currency"), entry.choice("kind", KINDS), variable, None
    )
    return Row(f"{variable} {label}", price, name=found["name"] or "*", overrides=True)


def _entries(whole: Entry, key: str) -> list[Any]:
    found = whole.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        whole.fail(key, f"must be a list: write [[{key}]]")
    return found


_PRICE_KEYS = (
    *("sku", "name", "id", "type", "per_hour", "currency", "kind", "source", "as_of"),
    *("valid_from", "valid_until", "mig"),
)


def _row(file: str, number: int, values: Any) -> Row:
    label = _label("price", number, values)
    entry = Entry(file, label, values, _PRICE_KEYS)
    name, device_id, sku = entry.text("name"), entry.text("id"), entry.text("sku")
    if (name is None) == (device_id is None):
        entry.fail("name", "say which devices: by `name`, or by `id`, and not by both; `sku` is only a label")
    source = entry.required("source") and entry.text("source")
    price = Price(
        per_hour=entry.number("per_hour"),
        currency=entry.currency("currency"),
        kind=entry.choice("kind", KINDS),
        source=source or entry.fail("source", "must say where the price comes from"),
        as_of=entry.day("as_of"),
        sku=sku,
    )
    begin_ns, end_ns = entry.moment_ns("valid_from"), entry.moment_ns("valid_until")
    if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
        entry.fail("valid_until", "must be later than valid_from; it is the moment at which the price ends")
    return Row(
        label=label,
        price=price,
        device_id=device_id,
        name=name,
        type=entry.choice("type", _TYPES, "gpu"),
        valid_from_ns=begin_ns,
        valid_until_ns=end_ns,
        mig=_mig(file, label, entry, name),
    )


def _mig(file: str, label: str, entry: Entry, name: str | None) -> MigShare | None:
    values = entry.get("mig")
    if values is None:
        return None
    if name is None or names_slices(name):
        entry.fail(
            "mig", "is for rows that name the whole device; a row of a slice has the slice's own price"
        )
    share = Entry(file, f"{label}: mig", values, ("by", "of"))
    return MigShare(share.choice("by", MIG_MEASURES), share.number("of", positive=True))


def _fleet(file: str, number: int, values: Any) -> Fleet:
    entry = Entry(file, _label("fleet", number, values), values, ("name", "type", "count", "nodes"))
    name = entry.required("name") and entry.text("name")
    if not name or is_pattern(name):
        entry.fail("name", f"{shown(name)} must be the whole hw.name of the devices, no pattern")
    nodes = entry.get("nodes")
    nodes = [] if nodes is None else nodes
    if not isinstance(nodes, list) or not all(isinstance(node, str) and node for node in nodes):
        entry.fail("nodes", "must be a list of names")
    if "nodes" in values and not nodes:
        entry.fail("nodes", "is empty; leave it out where `count` is the whole fleet")
    return Fleet(name, entry.choice("type", _TYPES, "gpu"), entry.whole("count"), tuple(nodes))


def _label(table: str, number: int, values: Any) -> str:
    names = [values.get(key) for key in ("sku", "name", "id")] if isinstance(values, dict) else []
    said = next((name for name in names if isinstance(name, str)), None)
    return f"{table} {number}" + (f" ({said})" if said else "")


def _refuse_twins(file: str, rows: list[Row]) -> None:
    """Refuse rows that claim the same devices from the same moment: neither could be preferred."""
    seen: dict[tuple[object, ...], Row] = {}
    for row in rows:
        selected = (row.device_id,) if row.device_id is not None else (row.name, row.type)
        first = seen.setdefault((*selected, row.valid_from_ns), row)
        if first is not row:
            raise PriceBookError(
                f"{file}: {first.label} and {row.label} are for the same devices from the same moment: "
                "valid_from must differ"
            )


def _refuse_nodes_twice(file: str, fleet: list[Fleet]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for number, part in enumerate(fleet, 1):
        for node in part.nodes or ("",):
            if (part.type, part.name, node) in seen:
                where = f"{part.name} on node {node}" if node else part.name
                raise PriceBookError(f"{file}: fleet {number}: nodes: {where} is listed twice")
            seen.add((part.type, part.name, node))
