from __future__ import annotations

from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from gputrace.prices_file import read_overrides, read_table
from gputrace.prices_rows import Fleet, PriceBookError

GOOD = {
    "name": '"H100"',
    "per_hour": "2.95",
    "currency": '"USD"',
    "kind": '"on_demand"',
    "source": '"a list"',
    "as_of": "2026-05-31",
}
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "prices.toml"


def row(**values: str | None) -> str:
    """One [[price]]; a value of None leaves the key out."""
    lines = [f"{key} = {value}" for key, value in (GOOD | values).items() if value is not None]
    return "\n".join(["[[price]]", *lines, ""])


def read(*parts: str):
    return read_table("\n".join(parts).encode(), "book.toml")


def test_a_row_is_read_exactly_as_written():
    (found,) = read(row(sku='"SXM"', valid_from="2026-01-01", valid_until="2026-01-02T01:00:00+01:00")).rows
    # 2.95 has no exact double: a price must not become 2.9500000000000001776.
    assert found.price.per_hour == Fraction(295, 100)
    assert found.price.currency == "USD"
    assert (found.price.kind, found.price.source, found.price.sku) == ("on_demand", "a list", "SXM")
    assert found.price.as_of == date(2026, 5, 31)
    assert found.valid_from_ns == 1_767_225_600 * 10**9
    assert found.valid_until_ns == (1_767_225_600 + 86_400) * 10**9


def test_moments_are_exact_to_the_microsecond_also_before_1970():
    (found,) = read(row(valid_from="1969-12-31T23:59:59.999999Z")).rows
    assert found.valid_from_ns == -1_000


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"per_hour": None}, "per_hour: is missing"),
        ({"per_hour": "-1"}, "per_hour: -1 must be a number from 0"),
        ({"per_hour": '"2.95"'}, "per_hour: '2.95' must be a number"),
        ({"per_hour": "nan"}, "per_hour: NaN must be a number"),
        ({"per_hour": "inf"}, "per_hour: Infinity must be a number"),
        ({"per_hour": "true"}, "per_hour: True must be a number"),
        ({"per_hour": "1e999999999"}, "per_hour: 1E+999999999 must be a number"),
        ({"per_hour": "1e-999999999"}, "per_hour: 1E-999999999 must be a number"),
        ({"currency": '"usd"'}, "currency: 'usd' must be a code of ISO 4217"),
        ({"currency": '"USB"'}, "currency: 'USB' must be a code of ISO 4217"),
        ({"currency": "[1]"}, "currency: [1] must be a code of ISO 4217"),
        ({"kind": '"list"'}, "kind: 'list' must be one of on_demand, reserved, spot, amortised"),
        ({"kind": None}, "kind: is missing"),
        ({"source": None}, "source: is missing"),
        ({"source": '""'}, "source: must say where the price comes from"),
        ({"as_of": '"2026-05-31"'}, "as_of: '2026-05-31' must be a date"),
        ({"as_of": None}, "as_of: is missing"),
        ({"valid_from": "12:00:00"}, "valid_from: datetime.time(12, 0) must be a date or time"),
        ({"valid_form": "2026-01-01"}, "valid_form: is no known key"),
        ({"name": None, "sku": '"SXM"'}, "name: say which devices: by `name`, or by `id`"),
        ({"id": '"GPU-1"'}, "name: say which devices: by `name`, or by `id`, and not by both"),
        ({"name": '" "'}, "name: ' ' must be a text that is not empty"),
        ({"type": '"tpu"'}, "type: 'tpu' must be one of gpu, cpu"),
        (
            {"valid_from": "2026-01-02", "valid_until": "2026-01-02"},
            "valid_until: must be later than valid_from",
        ),
        ({"mig": '"slices"'}, "must be a table"),
        ({"mig": '{ by = "cores", of = 7 }'}, "mig: by: 'cores' must be one of slices, memory"),
        ({"mig": '{ by = "slices", of = 0 }'}, "mig: of: must be more than 0"),
        ({"mig": '{ by = "slices" }'}, "mig: of: is missing"),
        (
            {"name": '"* MIG 1g.10gb"', "mig": '{ by = "slices", of = 7 }'},
            "mig: is for rows that name the whole",
        ),
        ({"name": None, "id": '"GPU-1"', "mig": '{ by = "slices", of = 7 }'}, "mig: is for rows that name"),
    ],
)
def test_a_wrong_row_is_refused_by_file_row_and_key(values, says):
    with pytest.raises(PriceBookError) as refused:
        read(row(name='"other"'), row(**values))
    message = str(refused.value)
    assert message.startswith("book.toml: price 2")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("price = 3", "price: must be a list: write [[price]]"),
        ("price = [3]", "price 1: must be a table"),
        ("prices = []", "prices: is no known key; known: price, fleet"),
        ("= 3", "line 1"),
        ("x = 1e99999999999999999999", ""),
        ('[[fleet]]\nname = "H100"', "fleet 1 (H100): count: is missing"),
        ('[[fleet]]\nname = "H100*"\ncount = 1', "name: 'H100*' must be the whole hw.name"),
        ('[[fleet]]\nname = "H100"\ncount = 0', "count: 0 must be a whole number of at least 1"),
        ('[[fleet]]\nname = "H100"\ncount = 1.0', "count: 1.0 must be a whole number"),
        ('[[fleet]]\nname = "H100"\ncount = 1\nnodes = "a"', "nodes: must be a list of names"),
        ('[[fleet]]\nname = "H100"\ncount = 1\nnodes = []', "nodes: is empty"),
        ('[[fleet]]\nname = "H100"\ncount = 1\nnodes = ["a", "a"]', "H100 on node a is listed twice"),
        ('[[fleet]]\nname = "H100"\ncount = 1\n[[fleet]]\nname = "H100"\ncount = 2', "H100 is listed twice"),
    ],
)
def test_a_wrong_file_is_refused(text, says):
    with pytest.raises(PriceBookError) as refused:
        read(text)
    assert str(refused.value).startswith("book.toml: ")
    assert says in str(refused.value)


def test_what_is_no_text_is_refused():
    with pytest.raises(PriceBookError, match=r"^book\.toml: .*utf-8"):
        read_table(b"\xff\xfe", "book.toml")


def test_rows_for_the_same_devices_from_the_same_moment_are_refused():
    same = {"valid_from": "2026-01-01"}
    with pytest.raises(
        PriceBookError, match=r"price 1 \(H100\) and price 3 \(H100\) are for the same devices"
    ):
        read(row(**same), row(valid_from="2026-02-01"), row(**same))
    read(row(), row(type='"cpu"'), row(name='"H200"'), row(name=None, id='"H100"'))


def test_a_fleet_counts_devices_on_each_node():
    table = read(
        '[[fleet]]\nname = "H100"\ncount = 8\nnodes = ["a", "b"]',
        '[[fleet]]\nname = "L4"\ncount = 3',
    )
    assert table.fleet == (Fleet("H100", "gpu", 8, ("a", "b")), Fleet("L4", "gpu", 3))
    assert [part.devices for part in table.fleet] == [16, 3]


def test_a_node_has_prices_of_its_own():
    plain, named = read_overrides("2.10 USD; NVIDIA L4 = 0.5 EUR spot;", "GPUTRACE_NODE_PRICE")
    assert (plain.name, plain.price.per_hour, plain.price.currency) == ("*", Fraction(21, 10), "USD")
    assert (named.name, named.price.currency, named.price.kind) == ("NVIDIA L4", "EUR", "spot")
    assert plain.overrides
    assert named.price.source == "GPUTRACE_NODE_PRICE"
    assert named.price.as_of is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2.10", "'2.10' must read like"),
        ("USD 2.10", "'USD 2.10' must read like"),
        ("-1 USD", "must read like"),
        ("1.2.3 USD", "'1.2.3' is not a number"),
        ("2.10 DOLLARS", "price 1: currency: 'DOLLARS' must be a code"),
        ("1 USD; 2 USD cheap", "price 2: kind: 'cheap' must be one of"),
        ("1 USD; 2 USD", "price 1 and GPUTRACE_NODE_PRICE price 2 are for the same devices"),
    ],
)
def test_a_wrong_price_of_a_node_is_refused(text, says):
    with pytest.raises(PriceBookError) as refused:
        read_overrides(text, "GPUTRACE_NODE_PRICE")
    assert str(refused.value).startswith("GPUTRACE_NODE_PRICE: ")
    assert says in str(refused.value)


def test_the_example_book_can_be_read_and_calls_every_price_an_example():
    table = read_table(EXAMPLE.read_bytes(), "prices.toml")
    assert len(table.rows) >= 4
    assert all("example" in row.price.source.lower() for row in table.rows)
    assert table.fleet
