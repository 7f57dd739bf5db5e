from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis import readings
from gputrace.analysis.store import Store
from gputrace.analysis.stretches import NS
from gputrace.analysis.survey import NoDataError, survey


@pytest.fixture
def read(data, lines):
    def run(since=None):
        store = Store(survey(data))
        try:
            store.load_points()
            since_ns = None if since is None else lines.noon + round(since * NS)
            return readings.read(store, since_ns)
        finally:
            store.close()

    return run


def charged(found):
    return {
        (one.process, one.attributes[catalogue.FEATURE]): one.value
        for one in found.series
        if one.metric == catalogue.FEATURE_TIME.name
    }


def seconds(lines, at_ns):
    return (at_ns - lines.noon) / NS


def test_a_counter_is_its_last_value_never_the_sum(write, lines, read):
    write(lines.export(1.0), lines.export(2.0, charged=1.0), lines.export(3.0, charged=1.5))
    assert charged(read()) == {("i1", "search"): 1.5}


def test_exports_may_lie_in_any_order_and_in_rotated_files(write, lines, read):
    write(lines.export(3.0, charged=1.5), name="metrics-1-i1-1.jsonl")
    write(lines.export(1.0), lines.export(2.0, charged=1.0))
    assert charged(read()) == {("i1", "search"): 1.5}


def test_processes_and_restarts_within_one_add_up(write, lines, read):
    write(
        lines.export(2.0, charged=1.0),
        lines.export(2.0, charged=0.25, start_s=1.0),
        lines.export(2.0, charged=2.0, instance="i2"),
    )
    values = [one.value for one in read().series if one.metric == catalogue.FEATURE_TIME.name]
    assert sorted(values) == [0.25, 1.0, 2.0]


def test_since_takes_the_last_export_before_it_for_all_series(write, lines, read):
    write(*(lines.export(float(at), charged=at / 10, idle=at * 0.9) for at in range(0, 100, 10)))
    found = read(since=33.0)
    assert charged(found) == {("i1", "search"): pytest.approx(6.0)}
    assert found.clip_error_s == 3.0
    (run,) = found.runs
    assert (seconds(lines, run.start_ns), seconds(lines, run.end_ns)) == (30.0, 90.0)
    assert run.wall_s == pytest.approx(60.0)


def test_since_at_an_export_has_no_clip_error(write, lines, read):
    write(*(lines.export(float(at), charged=at / 10) for at in range(0, 100, 10)))
    found = read(since=30.0)
    assert charged(found) == {("i1", "search"): pytest.approx(6.0)}
    assert found.clip_error_s == 0.0


def test_a_series_born_after_the_cut_counts_from_zero(write, lines, read):
    write(
        lines.export(0.0),
        lines.export(10.0, charged=1.0),
        lines.export(20.0, charged=1.0, feature="new"),
    )
    assert charged(read(since=15.0))[("i1", "new")] == 1.0


def test_a_process_started_after_the_cut_counts_from_zero(write, lines, read):
    write(lines.export(0.0), lines.export(10.0, charged=1.0))
    write(lines.export(30.0, charged=4.0, instance="i2", start_s=25.0), name="b.jsonl")
    found = read(since=20.0)
    assert charged(found) == {("i2", "search"): 4.0}
    assert found.clip_error_s == 0.0


def test_where_older_files_are_gone_the_first_export_that_is_left_is_the_start(write, lines, read):
    write(lines.export(50.0, charged=100.0), lines.export(60.0, charged=101.0), name="metrics-1-i1-7.jsonl")
    found = read(since=20.0)
    assert charged(found) == {("i1", "search"): 1.0}
    assert found.clip_error_s == 30.0


def test_a_process_that_ended_before_the_cut_is_not_in_the_window(write, lines, read):
    write(lines.export(0.0), lines.export(10.0, charged=1.0))
    write(lines.export(0.0, instance="i2"), lines.export(30.0, charged=2.0, instance="i2"), name="b.jsonl")
    found = read(since=20.0)
    assert charged(found) == {("i2", "search"): 2.0}
    assert {run.process for run in found.runs} == {"i2"}


def test_no_reading_after_since_says_when_the_last_one_was(write, lines, read):
    write(lines.export(0.0), lines.export(10.0, charged=1.0))
    with pytest.raises(NoDataError, match=r"the last one is of 2026-01-31T12:00:10\.000000Z"):
        read(since=10.0)


def test_otlp_without_our_metrics_is_no_data(write, lines, read):
    write(lines.metrics(1.0, [("http.server.duration", {}, 1.0)]))
    with pytest.raises(NoDataError, match="no metric of gputrace"):
        read()


def test_a_run_begins_where_its_states_say_though_the_first_export_shows_zero(write, lines, read):
    write(
        lines.export(5.0),
        lines.export(10.0, charged=4.0, idle=6.0),
        lines.export(20.0, charged=4.0, idle=16.0),
    )
    (run,) = read().runs
    assert seconds(lines, run.start_ns) == 0.0
    assert run.wall_s == 20.0
    assert (run.states_s, run.elapsed_s) == (10.0, 10.0)


def test_deltas_are_clipped_like_counters(write, lines, read):
    points = [(catalogue.FEATURE_TIME.name, {catalogue.FEATURE: "a"}, 1.0)]
    exports = [lines.metrics(at, points, start_s=at - 1, temporality=1) for at in (1.0, 2.0, 3.0)]
    write(*exports, exports[-1])
    assert charged(read()) == {("i1", "a"): 3.0}
    assert charged(read(since=1.5)) == {("i1", "a"): 2.0}


def test_a_counter_that_went_backwards_is_marked(write, lines, read):
    write(lines.export(1.0, charged=2.0), lines.export(2.0, charged=1.0))
    fell = {one.metric for one in read().series if one.fell}
    assert fell == {catalogue.FEATURE_TIME.name, catalogue.DEVICE_TIME.name}


def test_the_order_of_attributes_makes_no_second_series(write, lines, read):
    family = {catalogue.FEATURE: "a", catalogue.MODEL: "m"}
    turned = dict(reversed(family.items()))
    name = catalogue.FEATURE_TIME.name
    write(lines.metrics(1.0, [(name, family, 1.0)]), lines.metrics(2.0, [(name, turned, 2.0)]))
    assert charged(read()) == {("i1", "a"): 2.0}


def test_without_an_instance_id_the_whole_resource_tells_processes_apart(write, lines, read):
    first = lines.export(1.0, charged=1.0).replace("service.instance.id", "host.name")
    second = lines.export(2.0, charged=2.0, instance="i2").replace("service.instance.id", "host.name")
    write(first, second)
    assert sorted(charged(read()).values()) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("at_ns", "text"),
    [(0, "1970-01-01T00:00:00.000000Z"), (1_769_860_800_123_456_789, "2026-01-31T12:00:00.123456Z")],
)
def test_moments_are_utc_to_the_microsecond(at_ns, text):
    assert readings.utc(at_ns) == text
