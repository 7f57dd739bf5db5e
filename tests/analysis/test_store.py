from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis.store import FilesChangedError, Store
from gputrace.analysis.survey import survey

GOOD_SPANS = 'the name "quoted", \\ and ünïcode'


@pytest.fixture
def load(data):
    stores = []

    def open_store(advance=None) -> Store:
        store = Store(survey(data), advance)
        stores.append(store)
        store.load_points()
        store.load_calls()
        return store

    yield open_store
    for store in stores:
        store.close()


def skipped(store):
    return {path.name: count for path, count in store.skipped().items()}


@pytest.mark.parametrize(
    "bad",
    [
        "hello",
        '{"resourceMetrics":[{"resource',
        b'{"resourceMetrics":"\xff\xfe"}',
        b"\0" * 64,
        '{"foreign":1}',
        "[1,2]",
        '{"resourceMetrics":[]} trailing',
        '{"resourceMetrics":[]}{"resourceMetrics":[]}',
    ],
)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_bad_line_is_counted_and_costs_no_other(write, lines, load, bad, where):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    good = lines.export(1.0, charged=1.0), lines.export(2.0, charged=2.0)
    order = {
        "first": (bad, b"\n", *good),
        "middle": (good[0], bad, b"\n", good[1]),
        "last": (*good, bad),  # and no line end: half written
    }
    write(*order[where])
    store = load()
    assert store.rows("SELECT count(DISTINCT at_ns) FROM point") == [(2,)]
    assert skipped(store) == {"metrics-1-i1-0.jsonl": 1}


def test_signals_mixed_in_one_file_are_each_read_and_bad_lines_counted_once(write, lines, load):
    write(
        lines.export(1.0, charged=1.0),
        lines.spans((catalogue.SCOPE_NAME, [lines.span({})])),
        '{"resourceLogs":[]}\n',
        "bad\n",
        '{"resourceSpans":[{"half',
        name="all.jsonl",
    )
    store = load()
    assert store.rows("SELECT count(DISTINCT at_ns) FROM point") == [(1,)]
    assert store.rows("SELECT count(*) FROM raw_call WHERE NOT bad") == [(1,)]
    assert skipped(store) == {"all.jsonl": 2}


def test_a_foreign_file_beside_ours_is_counted(write, lines, load):
    write(lines.export(1.0))
    write('{"a": 1}\n{"a": 2}\n', name="other.jsonl")
    assert skipped(load()) == {"other.jsonl": 2}


def test_logs_are_left_out_without_a_word(write, lines, load):
    write(lines.export(1.0))
    write('{"resourceLogs":[]}\n', name="logs.jsonl")
    assert skipped(load()) == {}


def test_lines_above_the_buffer_of_duckdb_are_read(write, lines, load):
    # DuckDB refuses lines above 16 MiB unless it is told, whatever ignore_errors says.
    spans = [lines.span({"padding": "x" * 1_000_000}) for _ in range(40)]
    write(lines.export(1.0), lines.spans((catalogue.SCOPE_NAME, spans)), lines.export(2.0))
    store = load()
    assert store.rows("SELECT count(*) FROM raw_call WHERE NOT bad") == [(40,)]
    assert skipped(store) == {}


def test_names_of_files_are_no_patterns(write, lines, load):
    write(lines.export(1.0), name="it's [a-c]*?{x}.jsonl")
    write("bad\n", lines.export(2.0), name="a.jsonl")
    store = load()
    assert store.rows("SELECT count(DISTINCT at_ns) FROM point") == [(2,)]
    assert skipped(store) == {"a.jsonl": 1}


def test_an_export_that_lies_in_two_files_counts_once(write, lines, load):
    line = lines.export(1.0, charged=1.0)
    write(line, line)
    write(line, name="copy.jsonl")
    assert load().rows("SELECT count(*) FROM point") == [(4,)]


def test_deltas_are_added_up(write, lines, load):
    points = [(catalogue.FEATURE_TIME.name, {catalogue.FEATURE: "a"}, 1.0)]
    write(*(lines.metrics(at, points, start_s=at - 1, temporality=1) for at in (1.0, 2.0, 3.0)))
    assert load().rows("SELECT value FROM point ORDER BY at_ns") == [(1.0,), (2.0,), (3.0,)]


def test_values_that_are_no_numbers_are_no_points(write, lines, load):
    name = catalogue.FEATURE_TIME.name
    write(lines.metrics(1.0, [(name, {}, float("nan")), (name, {"a": "b"}, 1.0)]).replace("NaN", '"NaN"'))
    assert load().rows("SELECT value FROM point") == [(1.0,)]


def test_metrics_that_a_report_does_not_use_are_left_out(write, lines, load):
    write(lines.metrics(1.0, [("http.server.duration", {}, 1.0), (catalogue.CALLS.name, {}, 2)]))
    assert load().rows("SELECT metric FROM point") == [(catalogue.CALLS.name,)]


def test_only_spans_of_our_scope_are_calls(write, lines, load):
    ours = [lines.span({catalogue.FEATURE: "ours"})]
    theirs = [lines.span({catalogue.FEATURE: "theirs"})]
    write(
        lines.spans((catalogue.SCOPE_NAME, ours)),
        lines.spans((catalogue.SCOPE_NAME, ours), ("fastapi", theirs)),
        lines.spans(("fastapi", theirs)),
        lines.spans((None, theirs)),
        lines.spans((catalogue.SCOPE_NAME, ours), (None, theirs)),
    )
    store = load()
    assert store.rows("SELECT feature, count(*) FROM raw_call GROUP BY feature") == [("ours", 3)]
    assert skipped(store) == {}


def test_attributes_of_every_type_are_told_apart_by_key(write, lines, load):
    odd = [
        {"key": "empty", "value": {}},
        {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "x"}, {"intValue": "1"}]}}},
        {"key": catalogue.FEATURE, "value": {"stringValue": GOOD_SPANS}},
        {"key": "flag", "value": {"boolValue": True}},
        {"key": catalogue.CALL_DEVICE_TIME, "value": {"doubleValue": 0.25}},
    ]
    write(lines.spans((catalogue.SCOPE_NAME, [lines.span(odd), lines.span(odd[1:])])))
    assert load().rows("SELECT feature, device_s FROM raw_call") == [(GOOD_SPANS, 0.25)] * 2


def test_attributes_of_events_are_not_those_of_the_span(write, lines, load):
    span = lines.span({catalogue.MODEL: "small"})
    event = {"name": "e", "attributes": [{"key": catalogue.FEATURE, "value": {"stringValue": "no"}}]}
    write(lines.spans((catalogue.SCOPE_NAME, [span | {"events": [event]}])))
    assert load().rows("SELECT feature, model FROM raw_call") == [(None, "small")]


def test_a_file_that_went_away_asks_for_another_survey(write, lines, data):
    write(lines.export(1.0))
    found = survey(data)
    (data / "metrics-1-i1-0.jsonl").unlink()
    store = Store(found)
    with pytest.raises(FilesChangedError, match="gputrace-data"):
        store.load_points()
    store.close()


def test_progress_of_each_stage_ends_at_the_whole(write, lines, load):
    seen = {}
    write(lines.export(1.0))
    load(seen.__setitem__)
    assert seen == {"Reading metrics": 1.0, "Reading spans": 1.0}


def test_a_listener_that_raises_stops_the_query(write, lines, load, monkeypatch):
    monkeypatch.setattr("gputrace.analysis.store._POLL_S", 0.0)
    write(*[lines.export(float(at)) for at in range(2000)])

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(interrupt)
