from __future__ import annotations

import math

import pytest

from gputrace import catalogue
from gputrace.prices_file import read_table
from gputrace.prices_rows import PriceBookError

ROW = """
[[price]]
name = "H100"
per_hour = 3
currency = "USD"
kind = "reserved"
source = "a list"
as_of = 2026-01-01
"""
FLEET = '[[fleet]]\nname = "H100"\ncount = 2\nnodes = ["a", "b"]\n'
LATER = ROW.replace("per_hour = 3", "per_hour = 30\nvalid_from = 2026-01-31T12:30:00Z")
SPAN = 3600


def book(*parts: str):
    return read_table("\n".join(parts).encode(), "book.toml")


@pytest.fixture
def idle_hour(write, lines):
    """One of the fleet's devices, which somebody read for an hour: all of it idle."""
    device = {**lines.gpu, catalogue.DEVICE_STATE: "idle"}
    return write(
        *(lines.metrics(at, [(catalogue.DEVICE_TIME.name, device, float(at))]) for at in (0, 1800, SPAN))
    )


def test_a_device_that_nobody_uses_is_idle_at_its_price(idle_hour, report):
    found = report(idle_hour, prices=book(ROW))
    assert found.totals.device_costs == {"idle": 3.0}
    assert found.totals.by_type["gpu"].idle_s == SPAN
    assert (found.totals.capacity_s, found.totals.uncovered_s) == (None, None)


def test_what_no_publisher_covered_is_unknown_and_priced(idle_hour, report):
    found = report(idle_hour, prices=book(ROW, FLEET))
    totals = found.totals
    assert totals.capacity_s == 4 * SPAN
    assert (totals.uncovered_s, totals.uncovered_cost) == (3 * SPAN, 9.0)
    assert (totals.times.unknown_s, totals.times.wall_s) == (3 * SPAN, 4 * SPAN)
    assert totals.device_costs == {"idle": 3.0, "unknown": 9.0}
    assert math.fsum(totals.device_costs.values()) == 3 * totals.capacity_s / 3600
    assert found.devices[-1].id == "__uncovered__/H100"
    assert not found.devices[-1].read
    assert any("Of 4 H100 in the fleet list 3.000 h of 4.000 h" in note for note in found.notes)
    assert found.balance.balanced


def test_uncovered_time_is_priced_at_its_moment(idle_hour, report):
    found = report(idle_hour, prices=book(ROW, LATER, FLEET))
    assert found.totals.uncovered_cost == pytest.approx(3 * (1.5 + 15))
    assert found.totals.device_costs["idle"] == pytest.approx(16.5)


def test_a_gap_between_two_publishers_is_unknown(write, lines, report):
    device = {**lines.gpu, catalogue.DEVICE_STATE: "idle"}
    other = {**device, catalogue.PUBLISHER: "p2"}
    name = catalogue.DEVICE_TIME.name
    write(
        lines.metrics(0, [(name, device, 0.0)]),
        lines.metrics(1800, [(name, device, 1800.0)]),
        lines.metrics(5400, [(name, other, 0.0)], instance="i2"),
        lines.metrics(7200, [(name, other, 1800.0)], instance="i2"),
    )
    found = report(prices=book(ROW, LATER, '[[fleet]]\nname = "H100"\ncount = 1\n'))
    # The price changes at the beginning of the gap.
    assert (found.totals.uncovered_s, found.totals.uncovered_cost) == (3600, 30.0)


def test_a_fleet_that_is_covered_lacks_nothing(idle_hour, report):
    found = report(idle_hour, prices=book(ROW, '[[fleet]]\nname = "H100"\ncount = 1\n'))
    assert (found.totals.capacity_s, found.totals.uncovered_s) == (SPAN, 0)
    assert found.totals.uncovered_cost is None
    assert len(found.devices) == 1


def test_more_devices_than_the_list_has_are_named(write, lines, report):
    points = [
        (
            catalogue.DEVICE_TIME.name,
            {**lines.gpu, catalogue.HW_ID: f"GPU-{n}", catalogue.DEVICE_STATE: "idle"},
            60.0,
        )
        for n in range(2)
    ]
    write(lines.metrics(60, points))
    found = report(prices=book(ROW, '[[fleet]]\nname = "H100"\ncount = 1\n'))
    assert "2 devices called H100 were read, and the fleet list has 1." in found.notes
    assert found.totals.uncovered_s == 0
    found = report(prices=book(ROW, '[[fleet]]\nname = "L4"\ncount = 1\n'))
    assert any("The fleet list does not have H100" in note for note in found.notes)
    # No row prices an L4: its time is unknown, without a cost.
    assert (found.totals.uncovered_s, found.totals.uncovered_cost) == (60, None)
    assert any("No price for __uncovered__/L4" in note for note in found.notes)


def test_a_fleet_whose_price_is_ambiguous_is_refused(idle_hour, report):
    rows = [ROW.replace('"H100"', f'"{name}"') for name in ("H100", "L*", "*4")]
    with pytest.raises(PriceBookError, match="claim L4 alike"):
        report(idle_hour, prices=book(*rows, '[[fleet]]\nname = "L4"\ncount = 1\n'))


def test_devices_beyond_the_list_do_not_make_up_for_time_that_nobody_read(write, lines, report):
    device = {**lines.gpu, catalogue.DEVICE_STATE: "idle"}
    other = {**device, catalogue.HW_ID: "GPU-2"}
    name = catalogue.DEVICE_TIME.name
    write(
        lines.metrics(0, [(name, device, 0.0), (name, other, 0.0)]),
        lines.metrics(1800, [(name, device, 1800.0), (name, other, 1800.0)]),
        lines.metrics(
            3599, [(name, {**device, catalogue.HW_NAME: "L4", catalogue.HW_ID: "GPU-3"}, 3599.0)], "i2"
        ),
    )
    found = report(prices=book(ROW, LATER, '[[fleet]]\nname = "H100"\ncount = 1\n'))
    # The price changes when both stop, so that both halves stand for themselves.
    assert found.totals.uncovered_s == 1799
