from __future__ import annotations

import math

import pytest

from gputrace import catalogue
from gputrace.prices_file import read_table
from gputrace.prices_rows import PriceBookError

FEATURE = {catalogue.FEATURE: "search", catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "H100"}
# An hour after noon of 2026-01-31, when the tests' clocks start.
ONE = "2026-01-31T13:00:00Z"


def row(per_hour, **values: str) -> str:
    keys = {"currency": '"USD"', "kind": '"spot"', "source": '"a list"', "as_of": "2026-01-01", **values}
    if "id" not in keys:
        keys.setdefault("name", '"H100"')
    return "\n".join(["[[price]]", f"per_hour = {per_hour}", *(f"{k} = {v}" for k, v in keys.items()), ""])


def book(*rows: str):
    return read_table("\n".join(rows).encode(), "book.toml")


def device_points(device, **states):
    return [
        (catalogue.DEVICE_TIME.name, {**device, catalogue.DEVICE_STATE: state}, float(value))
        for state, value in states.items()
    ]


def feature_points(seconds, calls=0, **names):
    family = {**FEATURE, **names}
    return [
        (catalogue.FEATURE_TIME.name, family, float(seconds)),
        (catalogue.CALLS.name, {**family, catalogue.STATUS: "ok"}, calls),
    ]


@pytest.fixture
def two_hours(write, lines):
    """One GPU, read every half hour; the feature held it for half of the first hour and all of the second."""
    held = {0: (0, 0), 1800: (900, 900), 3600: (1800, 1800), 5400: (3600, 1800), 7200: (5400, 1800)}
    return write(
        *(
            lines.metrics(
                at,
                [*feature_points(charged, at // 100), *device_points(lines.gpu, charged=charged, idle=idle)],
            )
            for at, (charged, idle) in held.items()
        )
    )


def test_history_is_priced_by_a_book(two_hours, report):
    found = report(two_hours, prices=book(row(3)))
    (search,) = found.rows
    assert (search.cost, search.currency) == (4.5, "USD")
    assert search.cost_per_1000_calls == pytest.approx(1000 * 4.5 / 72)
    assert found.devices[0].costs == {"USD": {"charged": 4.5, "idle": 1.5}}
    assert found.totals.device_costs == {"charged": 4.5, "idle": 1.5}
    assert "Costs are those of book.toml, whatever was recorded." in found.notes
    assert not any("split" in note for note in found.notes)


def test_without_a_book_there_is_no_cost(two_hours, report):
    found = report(two_hours)
    assert (found.rows[0].cost, found.totals.cost) == (None, None)
    assert "No device has a price, so there is no cost." in found.notes


def test_time_is_priced_at_its_own_moment(two_hours, report):
    found = report(two_hours, prices=book(row(1), row(10, valid_from=ONE)))
    # Half an hour at 1, a whole one at 10; the idle half hour was all in the first.
    assert found.rows[0].cost == 10.5
    assert found.devices[0].costs["USD"] == {"charged": 10.5, "idle": 0.5}


def test_a_change_between_two_exports_is_split_pro_rata_and_said(two_hours, report):
    found = report(two_hours, prices=book(row(1), row(10, valid_from="2026-01-31T13:20:00Z")))
    assert found.rows[0].cost == pytest.approx(0.5 + 1 / 3 + 10 * 2 / 3)
    (note,) = (note for note in found.notes if "pro rata" in note)
    assert "at most 1,800.000 s" in note


def test_a_change_before_the_window_is_no_change(two_hours, report):
    found = report(two_hours, since=3600, prices=book(row(1), row(10, valid_from=ONE)))
    assert found.rows[0].cost == 10
    assert not any("pro rata" in note for note in found.notes)


def test_time_before_the_first_export_counts_from_the_beginning_of_the_device(write, lines, report):
    write(lines.metrics(7200, [*feature_points(3600), *device_points(lines.gpu, charged=3600, idle=3600)]))
    found = report(prices=book(row(1), row(10, valid_from=ONE)))
    assert found.devices[0].costs["USD"] == {"charged": 5.5, "idle": 5.5}
    assert found.rows[0].cost == 5.5


def test_a_series_that_begins_late_is_all_after_the_change(write, lines, report):
    write(
        lines.metrics(0, device_points(lines.gpu, charged=0, idle=0)),
        lines.metrics(3600, device_points(lines.gpu, charged=0, idle=3600)),
        lines.metrics(7200, [*feature_points(3600), *device_points(lines.gpu, charged=3600, idle=3600)]),
    )
    found = report(prices=book(row(1), row(10, valid_from=ONE)))
    assert found.rows[0].cost == 10
    assert found.devices[0].costs["USD"] == {"charged": 10, "idle": 1}


def test_recorded_costs_are_replaced(write, lines, report):
    device = {**lines.gpu, catalogue.DEVICE_STATE: "charged"}
    write(
        lines.metrics(
            3600,
            [
                *feature_points(3600),
                (catalogue.FEATURE_COST.name, {**FEATURE, catalogue.CURRENCY: "EUR"}, 99.0),
                *device_points(lines.gpu, charged=3600),
                (catalogue.DEVICE_COST.name, {**device, catalogue.CURRENCY: "EUR"}, 99.0),
            ],
        )
    )
    assert report().totals.cost == 99.0
    found = report(prices=book(row(3)))
    assert (found.totals.cost, found.totals.currency) == (3.0, "USD")
    assert found.devices[0].costs == {"USD": {"charged": 3.0}}


def test_a_device_without_a_price_has_time_and_no_cost_and_one_note(write, lines, report):
    other = {**lines.gpu, catalogue.HW_ID: "GPU-2", catalogue.HW_NAME: "L4"}
    write(
        lines.metrics(
            3600,
            [
                *feature_points(1800),
                *feature_points(600, **{catalogue.HW_NAME: "L4", catalogue.FEATURE: "tags"}),
                *device_points(lines.gpu, charged=1800, idle=1800),
                *device_points(other, charged=600, idle=3000),
            ],
        )
    )
    found = report(prices=book(row(2)))
    assert {row.key["feature"]: row.cost for row in found.rows} == {"search": 1.0, "tags": None}
    assert found.devices[1].costs == {}
    assert found.devices[1].charged_s == 600
    assert [note for note in found.notes if "GPU-2" in note] == [
        "No price for GPU-2: its time is in no cost."
    ]


def test_a_price_that_begins_in_the_window_leaves_time_without_cost_and_says_so(two_hours, report):
    found = report(two_hours, prices=book(row(10, valid_from=ONE)))
    assert found.rows[0].cost == 10
    assert "Device GPU-1 had no price for a part of the window: 3,600.000 s are in no cost." in found.notes


def test_a_change_of_currency_is_two_rows_never_added(two_hours, report):
    found = report(two_hours, prices=book(row(1), row(10, currency='"EUR"', valid_from=ONE)))
    assert {row.currency: row.cost for row in found.rows} == {"USD": 0.5, "EUR": 10.0}
    assert (found.totals.currency, found.totals.cost) == (None, None)


def test_feature_time_bears_the_price_of_the_only_device_it_can_have_run_on(two_hours, report):
    found = report(two_hours, prices=book(row(1), row(3, id='"GPU-1"')))
    assert found.rows[0].cost == 4.5
    assert not any("differ in price" in note for note in found.notes)


def test_devices_of_one_name_and_several_prices_leave_features_the_price_of_the_name(write, lines, report):
    other = {**lines.gpu, catalogue.HW_ID: "GPU-2"}
    write(
        lines.metrics(
            3600,
            [
                *feature_points(3600),
                *device_points(lines.gpu, charged=3600),
                *device_points(other, charged=0, idle=3600),
            ],
        )
    )
    found = report(prices=book(row(1), row(3, id='"GPU-1"')))
    assert found.rows[0].cost == 1
    assert {device.id: device.costs for device in found.devices} == {
        "GPU-1": {"USD": {"charged": 3}},
        "GPU-2": {"USD": {"idle": 1, "charged": 0}},
    }
    assert any("Devices called H100 differ in price" in note for note in found.notes)


def test_another_process_that_reads_the_devices_tells_their_price(write, lines, report):
    write(
        lines.metrics(3600, feature_points(3600), instance="worker"),
        lines.metrics(3600, device_points(lines.gpu, charged=3600), instance="publisher"),
    )
    assert report(prices=book(row(3, id='"GPU-1"'))).rows[0].cost == 3


def test_rows_that_claim_a_device_alike_are_refused(two_hours, report):
    with pytest.raises(PriceBookError, match=r"price 1 \(H\*\) and price 2 \(\*100\) claim H100 alike"):
        report(two_hours, prices=book(row(1, name='"H*"'), row(2, name='"*100"')))
    late = {"valid_from": "2027-01-01"}
    assert report(two_hours, prices=book(row(1), row(1, name='"H*"', **late), row(2, name='"*1*"', **late)))


@pytest.mark.parametrize("minute", [1, 29, 30, 31, 59, 90, 119])
def test_wherever_the_price_changes_costs_sum_to_those_of_the_device(two_hours, report, minute):
    change = f"2026-01-31T{12 + minute // 60}:{minute % 60:02}:00Z"
    found = report(two_hours, prices=book(row(1), row(10, valid_from=change)))
    assert found.totals.cost == pytest.approx(found.totals.device_costs["charged"], rel=1e-12)
    whole = math.fsum(found.totals.device_costs.values())
    assert whole == pytest.approx((minute + 10 * (120 - minute)) / 60, rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "costs", "spread"),
    [
        ("separate", [0.45, 0.15], None),
        ("even", [1.65, 1.35], 2.4),
        ("weighted", [2.25, 0.75], 2.4),
        ("none", [0.45, 0.15], None),
    ],
)
def test_idle_policies_from_files(  # noqa: PLR0913 - fixtures and the case
    write, lines, report, policy, costs, spread
):
    write(
        lines.metrics(
            3600,
            [
                *feature_points(540, 10, **{catalogue.FEATURE: "A"}),
                *feature_points(180, 10, **{catalogue.FEATURE: "B"}),
                *device_points(lines.gpu, charged=720, idle=2880),
            ],
        )
    )
    found = report(prices=book(row(3)), idle=policy)
    assert [row.cost for row in found.rows] == pytest.approx(costs)
    assert found.rows[0].cost_per_1000_calls == pytest.approx(costs[0] * 100)
    assert found.totals.cost == pytest.approx(sum(costs))
    assert found.totals.idle_spread_cost == (None if spread is None else pytest.approx(spread))
    # What the device cost is a fact that no policy changes.
    assert found.totals.device_costs == pytest.approx({"charged": 0.6, "idle": 2.4})
    if policy != "none":
        left = found.totals.device_costs["idle"] - (found.totals.idle_spread_cost or 0)
        assert found.totals.cost + left == pytest.approx(3.0)


@pytest.mark.parametrize("policy", ["even", "weighted"])
def test_untracked_and_unknown_are_never_spread(write, lines, report, policy):
    states = {"charged": 900, "untracked": 900, "idle": 900, "unknown": 900}
    write(lines.metrics(3600, [*feature_points(900), *device_points(lines.gpu, **states)]))
    found = report(prices=book(row(4)), idle=policy)
    assert found.rows[0].cost == pytest.approx(2.0)
    assert found.totals.device_costs["untracked"] == found.totals.device_costs["unknown"] == 1.0


def test_a_counter_that_went_backwards_costs_what_is_left_of_it_and_no_more(write, lines, report):
    held = {0: 0, 3600: 3600, 7200: 1800}
    write(
        *(
            lines.metrics(at, [*feature_points(s), *device_points(lines.gpu, charged=s)])
            for at, s in held.items()
        )
    )
    assert report(prices=book(row(1), row(10, valid_from=ONE))).rows[0].cost == 0.5


def test_idle_of_one_type_is_not_spread_over_another(write, lines, report):
    host = {**lines.gpu, catalogue.HW_ID: "host/1", catalogue.HW_TYPE: "cpu", catalogue.HW_NAME: "EPYC"}
    names = {catalogue.HW_TYPE: "cpu", catalogue.HW_NAME: "EPYC", catalogue.FEATURE: "parse"}
    write(
        lines.metrics(
            3600,
            [
                *feature_points(1800),
                *feature_points(3600, **names),
                *device_points(lines.gpu, charged=1800, idle=1800),
                *device_points(host, charged=3600),
            ],
        )
    )
    found = report(prices=book(row(2), row(1, name='"EPYC"', type='"cpu"')), idle="even")
    assert {row.key["feature"]: row.cost for row in found.rows} == {"search": 2.0, "parse": 1.0}
