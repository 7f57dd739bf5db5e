"""What several processes charged at once is taken off features by name of the device and minute."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gputrace import catalogue
from gputrace.analysis.reporting import spend_report

GPU = {catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "H100"}
L4 = {catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "L4"}
TIME = catalogue.FEATURE_TIME.name


def device(name="GPU-1", family=GPU, publisher="p"):
    return {**family, catalogue.HW_ID: name, catalogue.PUBLISHER: publisher}


def states(charged, idle, overlap=None, of=None):
    """Points of one device; all values are what its counters show."""
    of = of or device()
    points = [
        (catalogue.DEVICE_TIME.name, {**of, catalogue.DEVICE_STATE: "charged"}, float(charged)),
        (catalogue.DEVICE_TIME.name, {**of, catalogue.DEVICE_STATE: "idle"}, float(idle)),
    ]
    return [*points, *([] if overlap is None else [(catalogue.DEVICE_OVERLAP_TIME.name, of, float(overlap))])]


def feature(name, seconds, family=GPU):
    return (TIME, {**family, catalogue.FEATURE: name}, float(seconds))


def rows(found, figure="charged_s"):
    return {row.key["feature"]: getattr(row, figure) for row in found.rows}


@pytest.fixture
def shared(write, lines):
    """Two processes on one GPU: alone in the first minute, both for all of the second."""
    write(
        lines.metrics(0, [feature("a", 0), feature("b", 0), *states(0, 0, 0)], "i1"),
        lines.metrics(60, [feature("a", 30), feature("b", 0), *states(30, 30, 0)], "i1"),
        lines.metrics(120, [feature("a", 60), feature("b", 30), *states(60, 60, 30)], "i1"),
        lines.metrics(0, [feature("c", 0)], "i2"),
        lines.metrics(60, [feature("c", 0)], "i2"),
        lines.metrics(120, [feature("c", 0)], "i2"),
    )


@pytest.mark.usefixtures("shared")
def test_only_the_minute_in_which_two_held_the_device_is_corrected(report):
    found = report()
    assert rows(found) == pytest.approx({"a": 45.0, "b": 15.0})
    times = found.totals.times
    assert (times.charged_s, times.overlap_s, times.counted_twice_s) == (pytest.approx(60.0), 30.0, 0.0)
    assert times.overlap_corrected_s == pytest.approx(30.0)
    assert found.balance.balanced
    (note,) = [note for note in found.notes if "at once" in note]
    assert "30.000 s (gpu) were charged by several processes at once and are taken off" in note
    assert "minute by minute" in note


@pytest.mark.usefixtures("shared")
def test_a_window_is_corrected_for_its_own_minutes(report):
    found = report(since=60)
    assert rows(found) == pytest.approx({"a": 15.0, "b": 15.0})
    assert found.balance.balanced


def test_cost_and_energy_lose_the_share_that_time_loses(write, lines, report):
    def points(scale):
        of = {**GPU, catalogue.FEATURE: "a"}
        cost = {**of, catalogue.CURRENCY: "EUR"}
        energy = {**of, catalogue.ENERGY_SOURCE: "counter", catalogue.ENERGY_SPLIT: "idle_power"}
        return [
            feature("a", 60 * scale),
            (catalogue.FEATURE_COST.name, cost, 6.0 * scale),
            (catalogue.FEATURE_ENERGY.name, energy, 18_000.0 * scale),
            *states(40 * scale, 20 * scale, 20 * scale),
        ]

    write(lines.metrics(0, points(0)), lines.metrics(60, points(1)))
    (row,) = report().rows
    assert (row.charged_s, row.cost, row.energy_j) == pytest.approx((40.0, 4.0, 12_000.0))


def test_a_price_book_prices_what_is_left(write, lines, report):
    from gputrace.prices_file import read_table

    row = '[[price]]\nname = "H100"\nper_hour = 3600\ncurrency = "EUR"\nkind = "spot"\nsource = "s"\n'
    book = read_table(f"{row}as_of = 2026-01-01\n".encode(), "book.toml")
    write(
        lines.metrics(0, [feature("a", 0), *states(0, 0, 0)]),
        lines.metrics(60, [feature("a", 60), *states(40, 20, 20)]),
    )
    found = report(prices=book)
    assert rows(found, "cost") == pytest.approx({"a": 40.0})
    assert found.totals.device_costs == pytest.approx({"charged": 40.0, "idle": 20.0})


def test_devices_of_another_name_bear_nothing(write, lines, report):
    write(
        lines.metrics(0, [feature("a", 0), feature("b", 0, L4), *states(0, 0, 0)]),
        lines.metrics(
            60,
            [
                feature("a", 60),
                feature("b", 30, L4),
                *states(30, 30, 30),
                *states(30, 30, of=device("GPU-2", L4)),
            ],
        ),
    )
    found = report()
    assert rows(found) == pytest.approx({"a": 30.0, "b": 30.0})
    assert found.balance.balanced


def test_without_overlap_no_number_changes(write, lines, report):
    write(
        lines.metrics(0, [feature("a", 0), *states(0, 0, 0)]),
        lines.metrics(60, [feature("a", 0.1 + 0.2), *states(0.1 + 0.2, 59.7, 0)]),
    )
    found = report()
    assert rows(found) == {"a": 0.1 + 0.2}
    assert not any("at once" in note for note in found.notes)


def test_books_that_do_not_balance_are_not_made_to_by_the_correction(write, lines, report):
    write(
        lines.metrics(0, [feature("a", 0), *states(0, 0, 0)]),
        lines.metrics(60, [feature("a", 60), *states(40, 20, 10)]),
    )
    found = report()
    assert rows(found) == pytest.approx({"a": 50.0})
    assert found.balance.imbalance_s == pytest.approx(10.0)
    assert not found.balance.balanced


@st.composite
def exports(draw):
    """When a process exports, seconds; and what its feature grew by since the last time."""
    gaps = draw(st.lists(st.integers(1, 200), min_size=1, max_size=6))
    times = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    return [(at, draw(st.integers(0, gap))) for at, gap in zip(times, gaps, strict=True)]


# The only fixture holds no state.
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(processes=st.lists(exports(), min_size=2, max_size=3), overlap_percent=st.integers(0, 50))
def test_what_is_left_and_what_is_taken_off_is_what_was_charged(lines, processes, overlap_percent):
    """However the exports of the processes lie: nothing is lost, and no row grows."""
    texts, raw = [], {}
    whole = sum(grown for process in processes for _, grown in process)
    end = max(process[-1][0] for process in processes)
    for number, process in enumerate(processes):
        total, name = 0, f"f{number}"
        texts.append(lines.metrics(0, [feature(name, 0)], f"i{number}"))
        for at, grown in process:
            total += grown
            texts.append(lines.metrics(at, [feature(name, total)], f"i{number}"))
        raw[name] = total
    overlap = whole * overlap_percent / 100
    texts.append(lines.metrics(0, states(0, 0, 0), "p"))
    texts.append(lines.metrics(end, states(whole - overlap, max(0.0, end - whole + overlap), overlap), "p"))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "metrics-1-i-0.jsonl").write_text("".join(texts))
        found = spend_report(Path(folder), percentiles=False)
    left = rows(found)
    corrected = sum(times.overlap_corrected_s for times in found.totals.by_type.values())
    assert math.fsum(left.values()) + corrected == pytest.approx(whole, abs=1e-6)
    assert all(0 <= left.get(name, 0) <= total + 1e-9 for name, total in raw.items())
    assert corrected <= overlap + 1e-6
    assert found.totals.by_type["gpu"].counted_twice_s == pytest.approx(overlap - corrected, abs=1e-5)
    assert json.dumps(found.to_json(), allow_nan=False)


def test_what_was_taken_off_before_the_window_is_not_in_it(write, lines, report):
    write(*(lines.metrics(at, [feature("a", at), *states(at / 2, at / 2, at / 2)]) for at in (0, 60, 120)))
    found = report(since=60)
    assert rows(found) == pytest.approx({"a": 30.0})
    assert found.totals.times.overlap_corrected_s == pytest.approx(30.0)
    assert found.balance.balanced


def test_no_feature_is_relieved_of_more_than_it_was_charged(write, lines, report):
    write(
        lines.metrics(0, [feature("a", 0), *states(0, 0, 0)]),
        lines.metrics(60, [feature("a", 10), *states(10, 50, 30)]),
        lines.metrics(120, [feature("a", 60), *states(30, 90, 30)]),
    )
    found = report()
    assert rows(found) == pytest.approx({"a": 50.0})
    # The rest stays where it is seen.
    assert found.totals.times.counted_twice_s == pytest.approx(20.0)
    assert any("20.000 s (gpu)" in note and "could not be taken off" in note for note in found.notes)


def test_intervals_that_are_longer_than_a_minute_are_spread_over_it(write, lines, report):
    # One exports every minute, the other every two; both hold the device in the second minute.
    write(
        *(
            lines.metrics(at, [feature("a", busy), *states(at, 0, over)], "i1")
            for at, busy, over in ((0, 0, 0), (60, 0, 0), (120, 30, 30))
        ),
        lines.metrics(0, [feature("b", 0)], "i2"),
        lines.metrics(120, [feature("b", 120)], "i2"),
    )
    found = report()
    # 30 s of the second minute are twice in the 30 s of one and 60 s of the other.
    assert rows(found) == pytest.approx({"a": 20.0, "b": 100.0})
    assert found.balance.balanced


def test_energy_that_is_corrected_by_time_balances_though_power_changed(write, lines, report):
    energy = {catalogue.ENERGY_SOURCE: "counter", catalogue.ENERGY_SPLIT: "idle_power"}

    def points(seconds, joules, drawn):
        spent = {**GPU, catalogue.FEATURE: "a", **energy}
        held = {**device(), catalogue.DEVICE_STATE: "charged", **energy}
        return [
            feature("a", seconds),
            (catalogue.FEATURE_ENERGY.name, spent, float(joules)),
            (catalogue.DEVICE_ENERGY.name, held, float(drawn)),
            *states(seconds / 2, 0, seconds / 2),
        ]

    write(lines.metrics(0, points(0, 0, 0)), lines.metrics(60, points(60, 20_000, 10_050)))
    found = report()
    assert found.rows[0].energy_j == pytest.approx(10_000.0)
    assert found.energy_balance.imbalance_j == pytest.approx(-50.0)
    assert found.energy_balance.balanced
