from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis.latency import Latencies, Percentiles
from gputrace.analysis.readings import Readings, Series
from gputrace.analysis.spend import grouping, spend
from gputrace.analysis.stretches import NS, Run


def series(metric, value, process="i1", **attributes):
    return Series(
        process, metric.name, {f"gputrace.{k}".replace("__", "."): v for k, v in attributes.items()}, value
    )


def typed(kind, one):
    return Series(one.process, one.metric, {**one.attributes, catalogue.HW_TYPE: kind}, one.value)


def device(kind="gpu", name="GPU-1", **states):
    return [
        Series(
            "i1",
            catalogue.DEVICE_TIME.name,
            {catalogue.HW_ID: name, catalogue.HW_TYPE: kind, catalogue.DEVICE_STATE: state},
            value,
        )
        for state, value in states.items()
    ]


def readings(*found, end=100, devices=("GPU-1",)):
    runs = tuple(Run("i1", "", name, 0, end * NS, end, end, end) for name in devices)
    return Readings(tuple(found), runs, 0, end * NS)


def gpu(*found):
    return [typed("gpu", one) for one in found]


def one_feature(charged=20.0, **names):
    return gpu(
        series(catalogue.FEATURE_TIME, charged, feature="a", **names),
        series(catalogue.CALLS, 7, feature="a", status="ok", **names),
        series(catalogue.CALLS, 2, feature="a", status="error", **names),
        series(catalogue.CALLS, 1, feature="a", status="cancelled", **names),
    )


def test_a_row_counts_calls_by_how_they_ended_and_shares_the_wall_time():
    report = spend(readings(*one_feature(), *device(charged=20.0, idle=80.0)), ("feature",))
    (row,) = report.rows
    assert (row.calls, row.errors, row.cancelled) == (10, 2, 1)
    assert (row.charged_s, row.share) == (20.0, 0.2)
    assert (row.cost, row.currency, row.cost_per_1000_calls, row.energy_j) == (None, None, None, None)
    assert (report.totals.calls, report.totals.errors, report.totals.cancelled) == (10, 2, 1)
    assert report.balance.balanced


def test_rows_and_remainder_sum_to_the_wall():
    found = [
        *gpu(
            *(series(catalogue.FEATURE_TIME, value, feature=name) for name, value in (("a", 1.0), ("b", 2.0)))
        ),
        *device(charged=3.0, untracked=4.0, idle=5.0, unknown=6.0),
    ]
    times = spend(readings(*found), ("feature",)).totals.by_type["gpu"]
    parts = (times.charged_s, times.untracked_s, times.idle_s, times.unknown_s)
    assert parts == (3.0, 4.0, 5.0, 6.0)
    assert sum(parts) - times.overlap_s == times.wall_s


def test_rows_go_by_charged_time_and_unnamed_work_stands_last():
    values = {catalogue.NO_FEATURE: 9.0, "small": 1.0, "large": 5.0}
    found = gpu(*(series(catalogue.FEATURE_TIME, value, feature=name) for name, value in values.items()))
    rows = spend(readings(*found), ("feature",)).rows
    assert [row.key["feature"] for row in rows] == ["large", "small", catalogue.NO_FEATURE]
    assert [row.unnamed for row in rows] == [False, False, True]


def test_a_point_without_a_feature_is_unnamed_work():
    (row,) = spend(readings(*gpu(series(catalogue.FEATURE_TIME, 1.0))), ("feature",)).rows
    assert row.unnamed


def test_other_fields_split_rows_and_are_none_where_absent():
    found = [*one_feature(model="small"), *one_feature(model="large"), *one_feature()]
    rows = spend(readings(*found), ("feature", "model")).rows
    assert {row.key["model"] for row in rows} == {"small", "large", None}


def test_a_declared_feature_that_spent_nothing_is_no_row():
    found = gpu(series(catalogue.FEATURE_TIME, 0.0, feature="a"), series(catalogue.CALLS, 0, feature="a"))
    assert spend(readings(*found), ("feature",)).rows == ()


def cost(value, currency="EUR", **names):
    return gpu(series(catalogue.FEATURE_COST, value, currency=currency, **names))


def test_cost_per_thousand_calls():
    found = [*one_feature(), *cost(0.5, feature="a"), *cost(1.5, feature="a", model="m")]
    report = spend(readings(*found), ("feature",))
    (row,) = report.rows
    assert (row.cost, row.currency, row.cost_per_1000_calls) == (2.0, "EUR", 200.0)
    assert (report.totals.cost, report.totals.currency) == (2.0, "EUR")


def test_two_currencies_are_never_added_and_no_number_stands_twice():
    found = [*one_feature(), *device(charged=20.0), *cost(2.0, feature="a"), *cost(3.0, "USD", feature="a")]
    report = spend(readings(*found), ("feature",))
    assert [(row.currency, row.cost) for row in report.rows] == [("EUR", 2.0), ("USD", 3.0)]
    assert [row.calls for row in report.rows] == [10, None]
    assert [row.charged_s for row in report.rows] == [20.0, None]
    assert [row.share for row in report.rows[1:]] == [None]
    assert (report.totals.cost, report.totals.currency) == (None, None)
    assert any("Several currencies" in note for note in report.notes)


def test_what_devices_cost_is_summed_by_state():
    bill = [
        Series(
            "i1",
            catalogue.DEVICE_COST.name,
            {catalogue.HW_ID: "GPU-1", catalogue.DEVICE_STATE: state, catalogue.CURRENCY: "EUR"},
            value,
        )
        for state, value in (("charged", 1.0), ("idle", 3.0))
    ]
    totals = spend(readings(*device(charged=1.0), *bill), ("feature",)).totals
    assert totals.device_costs == {"charged": 1.0, "idle": 3.0}


def test_energy_is_summed():
    found = [*one_feature(), *gpu(series(catalogue.FEATURE_ENERGY, 300.0, feature="a"))]
    report = spend(readings(*found), ("feature",))
    assert (report.rows[0].energy_j, report.totals.energy_j) == (300.0, 300.0)


def test_gpus_and_hosts_are_never_added():
    found = [
        *one_feature(10.0),
        typed("cpu", series(catalogue.FEATURE_TIME, 3.0, feature="a")),
        *device(charged=10.0, idle=90.0),
        *device("cpu", "host/i1", charged=3.0, idle=7.0),
    ]
    values = readings(*found, devices=("GPU-1", "host/i1"))
    by = grouping(values, ("feature",))
    assert by == ("feature", "hw_type")
    report = spend(values, by)
    assert [(row.key["hw_type"], row.charged_s, row.share) for row in report.rows] == [
        ("cpu", 3.0, 0.3),
        ("gpu", 10.0, 0.1),
    ]
    assert {kind: times.wall_s for kind, times in report.totals.by_type.items()} == {
        "cpu": 10.0,
        "gpu": 100.0,
    }
    assert report.totals.times is None
    assert report.balance.balanced


def test_one_type_adds_no_field():
    assert grouping(readings(*one_feature()), ("feature",)) == ("feature",)


def test_the_window_is_that_of_the_device_readings():
    report = spend(readings(*one_feature(), end=60), ("feature",))
    assert (report.start_ns, report.end_ns) == (0, 60 * NS)


def test_without_a_device_the_exports_bound_the_window_and_shares_are_unknown():
    report = spend(readings(*one_feature(), end=60, devices=()), ("feature",))
    assert (report.start_ns, report.end_ns) == (0, 60 * NS)
    assert report.rows[0].share is None
    assert not report.balance.balanced


@pytest.mark.parametrize(("spans", "share"), [(10, 1.0), (1, 0.1), (0, 0.0), (20, 1.0)])
def test_percentiles_and_the_sampled_share(spans, share):
    times = Percentiles(1.0, 2.0, 3.0, 4.0)
    report = spend(readings(*one_feature()), ("feature",), Latencies({("a",): times}, spans, 0))
    assert report.rows[0].percentiles == times
    assert report.sampled_share == share


def test_the_sampled_share_is_unknown_unless_spans_were_read():
    assert spend(readings(*one_feature()), ("feature",)).sampled_share is None


def test_skipped_lines_are_summed_and_named():
    report = spend(readings(*one_feature()), ("feature",), None, {"a.jsonl": 2, "b.jsonl": 1})
    assert report.skipped_lines == 3
    assert any("a.jsonl: 2 lines skipped" in note for note in report.notes)
    assert any("b.jsonl: 1 line skipped" in note for note in report.notes)
