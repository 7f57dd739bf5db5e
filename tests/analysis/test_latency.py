from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis import latency
from gputrace.analysis.latency import Percentiles
from gputrace.analysis.readings import Series
from gputrace.analysis.store import Store
from gputrace.analysis.stretches import NS
from gputrace.analysis.survey import survey


def calls(count, **attributes):
    named = {latency.FIELDS.get(field, field): value for field, value in attributes.items()}
    return Series("i1", catalogue.CALLS.name, {catalogue.HW_TYPE: "gpu", **named}, count)


@pytest.fixture
def read(lines, write):
    def run(spans, series, by=("feature",), since=None):
        folder = write(lines.spans((catalogue.SCOPE_NAME, spans)), name="spans-1-i1-0.jsonl")
        store = Store(survey(folder))
        try:
            store.load_calls()
            start_ns = None if since is None else lines.noon + since * NS
            return latency.read(store, series, by, start_ns)
        finally:
            store.close()

    return run


def test_percentiles_are_times_that_some_call_took(read, lines):
    spans = [
        lines.span({catalogue.FEATURE: "a", catalogue.CALL_DEVICE_TIME: n / 1000}, wall_s=n / 100)
        for n in range(1, 101)
    ]
    found = read(spans, [calls(100, feature="a")])
    assert found.groups == {("a",): Percentiles(0.5, 0.95, 0.05, 0.095)}
    assert (found.spans, found.broken) == (100, 0)


def test_a_span_stands_for_the_calls_of_its_kind_that_have_none(read, lines):
    # Of the quick model one call in 90 has a span, of the slow one each: most calls were quick.
    quick = [lines.span({catalogue.FEATURE: "a", catalogue.MODEL: "quick"}, wall_s=0.001)]
    slow = [lines.span({catalogue.FEATURE: "a", catalogue.MODEL: "slow"}, wall_s=1.0)] * 10
    found = read(quick + slow, [calls(90, feature="a", model="quick"), calls(10, feature="a", model="slow")])
    assert found.groups[("a",)].wall_p50_s == 0.001
    assert found.groups[("a",)].wall_p95_s == 1.0


def test_spans_without_device_time_have_wall_time_only(read, lines):
    found = read([lines.span({catalogue.FEATURE: "a"}, wall_s=2.0)], [calls(1, feature="a")])
    assert found.groups == {("a",): Percentiles(2.0, 2.0, None, None)}


def test_work_that_nobody_named_is_one_group(read, lines):
    spans = [lines.span({}), lines.span({catalogue.FEATURE: catalogue.NO_FEATURE})]
    assert set(read(spans, [calls(2, feature=catalogue.NO_FEATURE)]).groups) == {(catalogue.NO_FEATURE,)}


def test_a_tenant_that_metrics_do_not_carry_splits_no_group(read, lines):
    spans = [lines.span({catalogue.FEATURE: "a", catalogue.TENANT: name}) for name in ("x", "y")]
    by = ("feature", "tenant")
    assert set(read(spans, [calls(2, feature="a")], by).groups) == {("a", None)}
    series = [calls(1, feature="a", tenant="x"), calls(1, feature="a", tenant="y")]
    assert set(read(spans, series, by).groups) == {("a", "x"), ("a", "y")}


def test_the_name_of_a_span_is_its_operation_unless_it_has_one(read, lines):
    spans = [lines.span({}, name="rerank"), lines.span({catalogue.OPERATION: "embed"}, name="x")]
    series = [calls(1, operation="rerank"), calls(1, operation="embed")]
    assert set(read(spans, series, ("operation",)).groups) == {("rerank",), ("embed",)}


def test_where_types_differ_the_time_source_tells_them_apart(read, lines):
    spans = [
        lines.span({catalogue.TIME_SOURCE: source}, wall_s=wall)
        for source, wall in (("host", 1.0), ("cuda_event", 2.0), ("estimated", 3.0))
    ]
    spans.append(lines.span({catalogue.HW_TYPE: "gpu"}, wall_s=2.0))
    series = [calls(1, hw_type="cpu"), calls(2, hw_type="gpu")]
    groups = read(spans, series, ("hw_type",)).groups
    assert {key[0]: times.wall_p50_s for key, times in groups.items()} == {"cpu": 1.0, "gpu": 2.0, None: 3.0}


def test_calls_that_ended_before_the_window_are_left_out(read, lines):
    spans = [lines.span({}, start_s=0.0, wall_s=4.0), lines.span({}, start_s=3.0, wall_s=7.0)]
    found = read(spans, [calls(1)], since=5)
    assert found.spans == 1
    assert found.groups[(catalogue.NO_FEATURE,)].wall_p50_s == 7.0


def test_spans_that_end_before_they_start_are_counted_and_in_no_percentile(read, lines):
    spans = [
        lines.span({}, wall_s=-1.0),
        lines.span({}) | {"endTimeUnixNano": "soon"},
        lines.span({}, wall_s=2.0),
    ]
    found = read(spans, [calls(3)])
    assert (found.spans, found.broken) == (3, 2)
    assert found.groups[(catalogue.NO_FEATURE,)].wall_p50_s == 2.0


def test_spans_without_any_counted_call_weigh_alike(read, lines):
    spans = [lines.span({}, wall_s=1.0), lines.span({}, wall_s=2.0)]
    assert read(spans, []).groups[(catalogue.NO_FEATURE,)] == Percentiles(1.0, 2.0, None, None)


def test_no_spans_give_no_groups(read):
    found = read([], [calls(3)])
    assert found.groups == {}
    assert found.spans == 0
