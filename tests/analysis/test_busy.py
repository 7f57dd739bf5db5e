from __future__ import annotations

import io

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis.busy import METRICS, Alone, known_by
from gputrace.analysis.readings import Series
from gputrace.analysis.render import print_report

TIME, BUSY, PERIODS = METRICS


@pytest.fixture
def alone(program):
    """A GPU that features held alone: by name (seconds, busy seconds, periods)."""

    def of(**features):
        one = program()
        one.device(charged=float(len(features)), idle=1.0)
        for name, (length, busy, periods) in features.items():
            one.call(1.0, feature=name, model="m")
            family = {catalogue.FEATURE: name, catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "H100"}
            one.add(catalogue.FEATURE_ALONE_TIME, length, family)
            one.add(catalogue.FEATURE_ALONE_BUSY_TIME, busy, family)
            one.add(catalogue.FEATURE_ALONE_PERIODS, periods, family)
        one.export()

    return of


def test_the_share_is_that_of_the_time_in_which_the_feature_was_alone(alone, report):
    alone(a=(20.0, 5.0, 10), b=(9.0, 9.0, 9))
    found = report()
    assert [(row.busy_share, row.busy_periods) for row in found.rows] == [(0.25, 10), (None, 9)]
    rows = found.to_json()["rows"]
    assert [(row["busy_share"], row["busy_periods"]) for row in rows] == [(0.25, 10), (None, 9)]
    stream = io.StringIO()
    print_report(found, Console(file=stream, highlight=False))
    table = stream.getvalue()
    assert "busy" in table
    assert "25.0%" in table


def test_with_too_few_periods_there_is_no_column(alone, report):
    alone(a=(9.0, 9.0, 9))
    stream = io.StringIO()
    print_report(report(), Console(file=stream, highlight=False))
    assert "busy" not in stream.getvalue()


def test_without_readings_neither_share_nor_periods_are_known(program, report):
    one = program()
    one.call(1.0, feature="a")
    one.export()
    (row,) = report().rows
    assert (row.busy_share, row.busy_periods) == (None, None)


def test_rows_finer_than_features_have_none_and_say_where_it_is(alone, report):
    alone(a=(20.0, 5.0, 10))
    found = report(by=("feature", "model"))
    assert [row.busy_share for row in found.rows] == [None]
    assert "Busy shares are counted by feature alone: --by feature shows them." in found.notes
    assert not any("Busy" in note for note in report().notes)


@pytest.mark.parametrize(
    ("by", "known"),
    [
        (("feature",), True),
        (("feature", "hw_type"), True),
        (("model",), False),
        (("feature", "model"), False),
    ],
)
def test_fields_that_it_is_known_by(by, known):
    assert known_by(by) is known


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1), st.integers(0, 20)), max_size=6))
def test_the_share_of_several_devices_is_weighted_by_time(devices):
    alone = Alone()
    for length, share, periods in devices:
        for metric, value in ((TIME, float(length)), (BUSY, length * share), (PERIODS, float(periods))):
            alone.add(Series("i1", metric, {}, value))
    periods = sum(count for _, _, count in devices)
    assert alone.periods == (periods if devices else None)
    if periods < 10:
        assert alone.share is None
    else:
        busy = sum(length * share for length, share, _ in devices)
        assert alone.share == pytest.approx(busy / sum(length for length, _, _ in devices))
        assert 0 <= alone.share <= 1 + 1e-9
