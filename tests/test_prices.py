from __future__ import annotations

import os
from fractions import Fraction

import pytest

from gputrace import prices
from gputrace.prices import PriceBook
from gputrace.prices_rows import PriceBookError

DAY_NS = 86_400 * 10**9
NEW_YEAR_NS = 1_767_225_600 * 10**9
H100 = "NVIDIA H100 80GB HBM3"


def row(per_hour: float, **values: str) -> str:
    """One [[price]]; without other keys it is for every H100."""
    keys = {"currency": '"USD"', "kind": '"on_demand"', "source": '"a list"', "as_of": "2026-05-31", **values}
    if "id" not in keys:
        keys.setdefault("name", '"NVIDIA H100*"')
    return "\n".join(["[[price]]", f"per_hour = {per_hour}", *(f"{k} = {v}" for k, v in keys.items()), ""])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "prices.toml"


@pytest.fixture
def book(path):
    """Open a book of these rows; what it complains about is in `book.said`."""

    def open_book(*rows: str, node_price: str = "") -> PriceBook:
        path.write_text("\n".join(rows))
        return PriceBook(path, node_price, open_book.said.append)

    open_book.said = []
    return open_book


def per_hour(opened: PriceBook, device="GPU-1", name: str | None = H100, kind="gpu", at=NEW_YEAR_NS):
    price = opened.price_of(device, name, kind, at)
    return None if price is None else price.per_hour


def test_the_most_specific_row_wins_in_any_order(book):
    rows = [row(1), row(2, name=f'"{H100}"'), row(3, id='"GPU-1"')]
    for order in (rows, rows[::-1]):
        opened = book(*order)
        assert per_hour(opened) == 3
        assert per_hour(opened, "GPU-2") == 2
        assert per_hour(opened, None) == 2
        assert per_hour(opened, "GPU-2", "NVIDIA H100 PCIe") == 1


def test_the_most_specific_row_wins_over_a_later_one(book):
    opened = book(row(3, id='"GPU-1"'), row(1, valid_from="2025-01-01"))
    assert per_hour(opened) == 3


def test_the_later_row_wins_while_it_holds(book):
    opened = book(row(1), row(2, valid_from="2026-01-01", valid_until="2026-01-03"))
    times = (NEW_YEAR_NS - 1, NEW_YEAR_NS, NEW_YEAR_NS + 2 * DAY_NS - 1, NEW_YEAR_NS + 2 * DAY_NS)
    assert [per_hour(opened, at=at) for at in times] == [1, 2, 2, 1]
    span = (NEW_YEAR_NS - DAY_NS, NEW_YEAR_NS + 9 * DAY_NS)
    assert opened.changes_between("GPU-1", H100, "gpu", *span) == (NEW_YEAR_NS, NEW_YEAR_NS + 2 * DAY_NS)


def test_a_device_that_no_row_names_has_no_price(book):
    opened = book(row(1, valid_from="2026-01-01"))
    assert per_hour(opened, at=NEW_YEAR_NS - 1) is None
    assert per_hour(opened, name="NVIDIA L4") is None
    assert per_hour(opened, name=None) is None
    # The host stand-in is no GPU, whatever its name.
    assert per_hour(book(row(1, name='"*"')), kind="cpu") is None
    assert per_hour(book(row(1, name='"*"', type='"cpu"')), kind="cpu", name="EPYC") == 1


def test_rows_of_equal_right_give_no_price_and_are_told_once(book):
    opened = book(row(1), row(2, name='"*80GB*"'))
    for _ in range(3):
        assert per_hour(opened) is None
        assert opened.split(("GPU-1", H100, "gpu"), 0, 10, 7) == ((None, 7),)
    (said,) = book.said
    assert "price 1 (NVIDIA H100*) and price 2 (*80GB*) claim NVIDIA H100 80GB HBM3 alike" in said
    assert per_hour(opened, name="NVIDIA H100 PCIe") == 1


def test_equal_patterns_are_told_apart_by_their_beginning(book):
    assert per_hour(book(row(1), row(2, name='"*80GB*"', valid_from="2025-01-01"))) == 2


@pytest.mark.parametrize(
    ("mig", "name", "expected"),
    [
        ('{ by = "slices", of = 7 }', f"{H100} MIG 1g.10gb", Fraction(7, 7)),
        ('{ by = "slices", of = 7 }', f"{H100} MIG 3g.40gb", Fraction(3 * 7, 7)),
        ('{ by = "memory", of = 80 }', f"{H100} MIG 1g.20gb", Fraction(7 * 20, 80)),
        # A compute instance bears its part of the slice that it divides, in either measure.
        ('{ by = "slices", of = 7 }', f"{H100} MIG 1c.3g.40gb", Fraction(7, 7)),
        ('{ by = "memory", of = 80 }', f"{H100} MIG 1c.3g.40gb", Fraction(7 * 40, 80 * 3)),
        ('{ by = "slices", of = 2 }', f"{H100} MIG 3g.40gb", None),
        ('{ by = "slices", of = 7 }', H100, None),
    ],
)
def test_a_slice_bears_its_share(book, mig, name, expected):
    assert per_hour(book(row(7, mig=mig)), "MIG-1", name) == expected


def test_slices_of_a_whole_device_cost_what_it_costs(book):
    opened = book(row(2.95, mig='{ by = "slices", of = 7 }'))
    shares = [per_hour(opened, f"MIG-{n}", f"{H100} MIG {n}g.{n}0gb") for n in (1, 2, 4)]
    assert sum(shares) == per_hour(opened) == Fraction(295, 100)


def test_a_pattern_of_whole_devices_prices_no_slice_by_accident(book):
    assert per_hour(book(row(7)), "MIG-1", f"{H100} MIG 1g.10gb") is None
    assert per_hour(book(row(7), node_price="9 USD"), "MIG-1", f"{H100} MIG 1g.10gb") is None
    opened = book(
        row(7, mig='{ by = "slices", of = 7 }'), row(2, name='"* MIG 1g.10gb"', valid_from="2025-01-01")
    )
    assert per_hour(opened, "MIG-1", f"{H100} MIG 1g.10gb") == 2
    assert per_hour(opened) == 7


def test_a_node_goes_before_every_row(book):
    opened = book(row(3, id='"GPU-1"', valid_from="2025-01-01"), node_price="1.5 USD")
    assert per_hour(opened) == Fraction(3, 2)
    assert per_hour(opened, "GPU-2", kind="cpu") is None


def test_of_the_prices_of_a_node_the_most_specific_wins(book):
    opened = book(node_price="1 USD; NVIDIA H100*=2 USD; NVIDIA L4=3 USD")
    assert per_hour(opened, name="NVIDIA L4") == 3
    assert per_hour(opened, name="NVIDIA A10") == 1
    assert per_hour(opened) == 2


def test_another_file_is_used_from_the_next_look_on(book, path):
    opened = book(row(1), node_price="")
    assert not opened.refresh()
    path.write_text(row(22))
    assert per_hour(opened) == 1
    assert opened.refresh()
    assert per_hour(opened) == 22
    assert not opened.refresh()


def test_a_file_put_in_the_place_of_the_old_one_is_seen(book, path):
    opened = book(row(1))
    facts = path.stat()
    other = path.with_suffix(".new")
    other.write_text(row(2))
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.replace(path)
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (facts.st_mtime_ns, facts.st_size)
    assert opened.refresh()
    assert per_hour(opened) == 2


def test_a_node_keeps_its_own_price_when_the_file_changes(book, path):
    opened = book(row(1), node_price="5 USD")
    path.write_text(row(22))
    assert opened.refresh()
    assert per_hour(opened) == 5


@pytest.mark.parametrize("spoil", ["broken", "gone", "folder"])
def test_a_file_gone_wrong_leaves_the_prices_and_is_told_once(book, path, spoil):
    opened = book(row(1))
    path.unlink()
    if spoil == "broken":
        path.write_text(row(1, kind='"free"'))
    elif spoil == "folder":
        path.mkdir()
    for _ in range(3):
        assert not opened.refresh()
        assert per_hour(opened) == 1
    (said,) = book.said
    assert str(path) in said
    assert "stay in force" in said
    if spoil == "folder":
        path.rmdir()
    path.write_text(row(2))
    assert opened.refresh()
    assert per_hour(opened) == 2


def test_a_wrong_file_is_not_read_again_until_it_changes(book, path, monkeypatch):
    opened = book(row(1))
    path.write_text("nonsense")
    assert not opened.refresh()
    monkeypatch.setattr(prices, "_read", None)
    assert not opened.refresh()


def test_a_file_that_could_not_be_opened_is_tried_again(book, path, monkeypatch):
    opened = book(row(1))
    path.write_text(row(22))
    with monkeypatch.context() as patched:
        patched.setattr(prices, "_read", lambda path: path.joinpath("inside").open())
        assert not opened.refresh()
    assert len(book.said) == 1
    assert opened.refresh()


def test_each_new_fault_is_told(book, path):
    opened = book(row(1))
    for text in ("nonsense", row(1, kind='"free"')):
        path.write_text(text)
        assert not opened.refresh()
    assert len(book.said) == 2


def test_a_wrong_book_is_refused_when_it_is_opened(path):
    with pytest.raises(PriceBookError, match=r"prices\.toml: No such file"):
        PriceBook(path)
    path.write_text("nonsense")
    with pytest.raises(PriceBookError, match=r"prices\.toml: "):
        PriceBook(path)
    with pytest.raises(PriceBookError, match="GPUTRACE_NODE_PRICE: "):
        PriceBook(None, "cheap")


def test_a_book_that_cannot_be_used_is_refused_by_the_name_it_was_given_under(path):
    for text, said in ((None, "No such file"), ("nonsense", "")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(PriceBookError, match=rf"^GPUTRACE_PRICES: {path}: {said}"):
            PriceBook.from_environment(environment={"GPUTRACE_PRICES": str(path)})
        with pytest.raises(PriceBookError, match=rf"^prices: {path}: {said}"):
            PriceBook.from_environment(path, environment={})
        with pytest.raises(PriceBookError, match=rf"^--prices: {path}: {said}"):
            PriceBook.from_environment(path, environment={}, name="--prices")
    with pytest.raises(PriceBookError, match=r"^GPUTRACE_NODE_PRICE: "):
        PriceBook.from_environment(path, environment={"GPUTRACE_NODE_PRICE": "cheap"})


def test_the_environment_names_the_book(path):
    path.write_text(row(1))
    assert PriceBook.from_environment(environment={}) is None
    assert PriceBook.from_environment(environment={"GPUTRACE_PRICES": "", "GPUTRACE_NODE_PRICE": " "}) is None
    named = PriceBook.from_environment(environment={"GPUTRACE_PRICES": str(path)})
    assert named is not None
    assert per_hour(named) == 1
    given = PriceBook.from_environment(path, environment={"GPUTRACE_PRICES": "/nowhere"})
    assert given is not None
    node = PriceBook.from_environment(environment={"GPUTRACE_NODE_PRICE": "2 EUR"})
    assert node is not None
    assert not node.refresh()
    assert per_hour(node, name=None) == 2


def test_an_increment_is_split_at_the_change(book):
    opened = book(row(1), row(2, valid_from="2026-01-01"))
    parts = opened.split(("GPU-1", H100, "gpu"), NEW_YEAR_NS - 30, NEW_YEAR_NS + 10, 80)
    assert [(price.per_hour, amount) for price, amount in parts if price is not None] == [(1, 60), (2, 20)]


def test_a_row_that_follows_another_at_the_same_price_is_no_change(book):
    opened = book(row(1, valid_until="2026-01-01"), row(1, valid_from="2026-01-01"))
    assert opened.changes_between("GPU-1", H100, "gpu", 0, 2 * NEW_YEAR_NS) == ()
    assert per_hour(opened, at=NEW_YEAR_NS - 1) == per_hour(opened) == 1
