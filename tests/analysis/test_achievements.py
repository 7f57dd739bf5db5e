"""Cost per outcome and per unit: which counts are divided by what, and what is unknown stays so."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis import formats
from gputrace.analysis.render import print_report

NOBODY = catalogue.NO_FEATURE


def outcome(one, feature, name, value):
    one.add(catalogue.OUTCOMES, value, {catalogue.FEATURE: feature, catalogue.OUTCOME_NAME: name})


def unit(one, feature, name, value):
    one.add(catalogue.UNITS, value, {catalogue.FEATURE: feature, catalogue.UNIT_NAME: name})


def cost(one, feature, value, currency="EUR"):
    attributes = {catalogue.FEATURE: feature, catalogue.HW_TYPE: "gpu", catalogue.CURRENCY: currency}
    one.add(catalogue.FEATURE_COST, value, attributes)


@pytest.fixture
def one(program):
    """Two features: `a` was charged 3 s, `b` 1 s."""
    made = program()
    made.device(charged=4.0, idle=4.0)
    made.call(2.0, feature="a", model="m")
    made.call(1.0, feature="a", model="n")
    made.call(1.0, feature="b")
    return made


@pytest.fixture
def found(one, report):
    def read(what="outcomes", **arguments):
        one.export()
        layout = report(**arguments).to_json()[what]
        assert json.loads(json.dumps(layout, allow_nan=False)) == layout
        return [tuple(entry.values()) for entry in layout]

    return read


def test_the_layout(one, report):
    outcome(one, "a", "solved", 2)
    one.export()
    keys = ["name", "feature", "count", "cost_per", "seconds_per", "currency"]
    assert [list(entry) for entry in report().to_json()["outcomes"]] == [keys]


def test_without_a_price_seconds_are_divided(one, found):
    outcome(one, "a", "solved", 2)
    outcome(one, "a", "opened", 0.5)
    outcome(one, "b", "solved", 4)
    unit(one, "a", "tokens", 300)
    assert found() == [
        ("opened", "a", 0.5, None, 6.0, None),
        ("solved", "a", 2, None, 1.5, None),
        ("solved", "b", 4, None, 0.25, None),
    ]
    assert found("units") == [("tokens", "a", 300, None, 0.01, None)]


@pytest.mark.parametrize("by", [("feature",), ("model",), ("feature", "model")])
def test_a_features_whole_cost_is_divided_however_rows_are_grouped(one, found, by):
    cost(one, "a", 0.5)
    cost(one, "b", 0.1)
    outcome(one, "a", "solved", 2)
    outcome(one, "b", "solved", 4)
    assert found(by=by) == [
        ("solved", "a", 2, 0.25, 1.5, "EUR"),
        ("solved", "b", 4, pytest.approx(0.025), 0.25, "EUR"),
    ]


def test_several_currencies_have_a_row_each_and_the_count_stands_in_one(one, found):
    cost(one, "a", 0.5, "USD")
    cost(one, "a", 0.25, "EUR")
    outcome(one, "a", "solved", 2)
    assert found() == [
        ("solved", "a", 2, 0.125, 1.5, "EUR"),
        ("solved", "a", None, 0.25, None, "USD"),
    ]


def test_idle_cost_that_rows_bear_is_in_the_cost_of_an_outcome(one, report):
    """As in the cost of 1000 calls."""
    cost(one, "a", 0.3)
    cost(one, "b", 0.1)
    for state, spent in (("charged", 0.4), ("idle", 0.4)):
        device = {catalogue.HW_ID: "GPU-1", catalogue.HW_TYPE: "gpu", catalogue.PUBLISHER: "p1"}
        attributes = {**device, catalogue.DEVICE_STATE: state, catalogue.CURRENCY: "EUR"}
        one.add(catalogue.DEVICE_COST, spent, attributes)
    outcome(one, "a", "solved", 2)
    one.export()
    for policy, expected in (("separate", 0.15), ("even", 0.25), ("weighted", 0.3), ("none", 0.15)):
        said = report(idle=policy)
        assert said.outcomes[0].cost_per == pytest.approx(expected), policy
        row = next(row for row in said.rows if row.key["feature"] == "a")
        assert said.outcomes[0].cost_per * 2 == pytest.approx(row.cost)


def test_seconds_of_two_types_are_never_added(one, found):
    one.call(5.0, feature="a", hw="cpu")
    outcome(one, "a", "solved", 2)
    assert found() == [("solved", "a", 2, None, None, None)]


def test_requests_that_hold_nothing_do_not_hide_the_time(one, found):
    """Containers are counted under no type of device."""
    one.add(catalogue.CALLS, 3, {catalogue.FEATURE: "a", catalogue.STATUS: "ok"})
    outcome(one, "a", "solved", 2)
    assert found() == [("solved", "a", 2, None, 1.5, None)]


def test_a_feature_that_held_nothing_has_no_cost_rather_than_none(one, found):
    outcome(one, "elsewhere", "solved", 2)
    assert found() == [("solved", "elsewhere", 2, None, None, None)]


def test_a_declared_outcome_without_events_is_named(one, found):
    outcome(one, NOBODY, "never", 0)
    outcome(one, NOBODY, "solved", 0)
    outcome(one, "a", "solved", 2)
    assert found() == [("never", None, 0, None, None, None), ("solved", "a", 2, None, 1.5, None)]


def test_only_the_window_counts(one, report):
    outcome(one, "a", "solved", 5)
    one.export()
    at_ns = report().end_ns
    outcome(one, "a", "solved", 2)
    one.call(4.0, feature="a")
    one.export()
    from gputrace.analysis.reporting import spend_report

    (entry,) = spend_report(one.folder, since_ns=at_ns).outcomes
    assert (entry.count, entry.seconds_per) == (2, pytest.approx(2.0))


# --- outcomes whose request was another process's


def event(lines, request, value=1.0, number=1, at_s=1.0):
    attributes = {
        catalogue.OUTCOME_NAME: "solved",
        catalogue.OUTCOME_VALUE: value,
        catalogue.REQUEST_ID: request,
    }
    return {
        **lines.span(attributes, wall_s=0.0, start_s=at_s, name=catalogue.OUTCOME_SPAN),
        "spanId": f"{number:016x}",
    }


def requested(lines, request, feature):
    attributes = {
        catalogue.CALL_ID: request,
        catalogue.CALL_DEVICE_TIME: 1.0,
        catalogue.STATUS: "ok",
        catalogue.TIME_SOURCE: "cuda_event",
    }
    return lines.span(attributes if feature is None else {**attributes, catalogue.FEATURE: feature})


@pytest.fixture
def late(lines, write):
    """One process with calls of `a` and `b`; another one, where outcomes come in late."""

    def made(nobodys, spans):
        family = {catalogue.HW_TYPE: "gpu"}
        points = [
            (catalogue.FEATURE_TIME.name, {**family, catalogue.FEATURE: feature}, seconds)
            for feature, seconds in (("a", 3.0), ("b", 1.0))
        ]
        points += [
            (catalogue.CALLS.name, {**family, catalogue.FEATURE: feature, catalogue.STATUS: "ok"}, 1)
            for feature in ("a", "b")
        ]
        named = {catalogue.FEATURE: NOBODY, catalogue.OUTCOME_NAME: "solved"}
        write(lines.metrics(10, points), name="metrics-1-i1-0.jsonl")
        write(
            lines.metrics(0, [(catalogue.OUTCOMES.name, named, 0)], instance="i2"),
            lines.metrics(10, [(catalogue.OUTCOMES.name, named, nobodys)], instance="i2"),
            name="metrics-1-i2-0.jsonl",
        )
        return write(lines.spans((catalogue.SCOPE_NAME, spans)), name="spans-1-i1-0.jsonl")

    return made


def entries(report, **arguments):
    return [(one.name, one.feature, one.count, one.seconds_per) for one in report(**arguments).outcomes]


def test_a_late_outcome_finds_its_request_by_the_spans(late, lines, report):
    spans = [requested(lines, "i1/1", "a"), requested(lines, "i1/2", "b"), requested(lines, "i1/3", None)]
    spans += [event(lines, "i1/1", value=2.0, number=5), event(lines, "i1/2", number=6)]
    spans += [event(lines, "i1/3", number=7), event(lines, "gone", number=8)]
    late(5, spans)
    expected = [
        ("solved", NOBODY, 2, None),
        ("solved", "a", 2, 1.5),
        ("solved", "b", 1, 1.0),
    ]
    assert entries(report) == expected
    said = report()
    assert any(note.startswith(f"2 outcomes are counted for {NOBODY}") for note in said.notes)
    assert said.spans == 3, "an outcome is no call"
    assert not any("skipped" in note for note in said.notes)


def test_without_spans_they_stay_nobodys(late, lines, report):
    late(3, [requested(lines, "i1/1", "a"), event(lines, "i1/1", value=3.0)])
    assert entries(report, percentiles=False) == [("solved", NOBODY, 3, None)]
    assert entries(report) == [("solved", "a", 3, 1.0)]


def test_spans_that_lie_there_twice_count_once(late, lines, report, data):
    folder = late(9, [requested(lines, "i1/1", "a"), event(lines, "i1/1", value=2.0)])
    spans = (folder / "spans-1-i1-0.jsonl").read_bytes()
    (folder / "spans-1-copy-0.jsonl").write_bytes(spans)
    assert entries(report) == [("solved", NOBODY, 7, None), ("solved", "a", 2, 1.5)]


def test_spans_never_make_more_of_an_outcome_than_was_counted(late, lines, report):
    late(1, [requested(lines, "i1/1", "a"), event(lines, "i1/1", value=5.0)])
    assert entries(report) == [("solved", "a", 1, 3.0)]


def test_only_events_of_the_window_find_their_request(late, lines, report):
    spans = [requested(lines, "i1/1", "a")]
    spans += [event(lines, "i1/1", number=1, at_s=-5.0), event(lines, "i1/1", number=2, at_s=5.0)]
    late(2, spans)
    assert entries(report, since=-1) == [("solved", NOBODY, 1, None), ("solved", "a", 1, 3.0)]


# --- as text


def printed(report, **arguments) -> str:
    console = Console(file=io.StringIO(), highlight=False, width=100)
    print_report(report(**arguments), console)
    return console.file.getvalue()


def test_the_tables(one, report):
    cost(one, "a", 0.0006)
    outcome(one, "a", "solved", 2)
    outcome(one, NOBODY, "never [red]", 0)
    unit(one, "a", "tokens", 300_000)
    one.export()
    text = printed(report)
    lines = [line.split() for line in text.splitlines()]
    assert ["solved", "a", "2", "0.000300", "1.50s"] in lines
    assert ["never", "[red]", "–", "none", "recorded", "–", "–"] in lines
    assert ["tokens", "a", "300,000", "0.00000000200", "10.0µs"] in lines


def test_there_is_no_table_where_nothing_was_counted(one, report):
    one.export()
    text = printed(report)
    assert "outcome" not in text
    assert "per unit" not in text


def test_several_currencies_are_named_beside_each_cost(one, report):
    cost(one, "a", 0.5, "USD")
    cost(one, "a", 0.25, "EUR")
    outcome(one, "a", "solved", 2)
    one.export()
    text = printed(report)
    assert "0.125 EUR" in text
    assert "0.250 USD" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (1234.5678, "1,235"),
        (12.345, "12.3"),
        (0.5, "0.500"),
        (0.00012345, "0.000123"),
        (1.5e-15, "1.50e-15"),
        (1.5e20, "1.50e+20"),
    ],
)
def test_a_unit_cost_has_three_digits_however_little_it_is(value, text):
    assert formats.unit_cost(value) == text


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (1234.0, "1,234"), (0.5, "0.500")])
def test_amounts(value, text):
    assert formats.amount(value) == text
