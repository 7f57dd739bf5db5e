"""Totals over a range, as boards ask for them: of sums that rules record once a window."""

from __future__ import annotations

import json

import pytest

from gputrace import catalogue
from gputrace.grafana import recorded, spend_overview
from gputrace.grafana.promql import SHORT, Scope, match
from gputrace.grafana.sources import UnknownNameError
from tests.grafana.promtool import DEVICE, RATES, SPENT, SUMS, near

ALL = Scope(())
NEEDS_PROMTOOL = pytest.mark.requires("promtool")


def over(window: str, expr: str) -> str:
    return expr.replace("$__range", window)


def record(evaluate, series: dict[str, str], true: list[tuple[str, str]]) -> None:
    """Promtool evaluates every group as often as it is told, whatever the group says."""
    evaluate([RATES, SUMS], series, true, every=SHORT)


# --- what is read ------------------------------------------------------------


def test_a_total_reads_the_fewest_series_that_have_its_labels():
    assert "(feature:" in ALL.total(recorded.FEATURE_COST, per=(catalogue.FEATURE,))
    assert "(model:" in ALL.total(recorded.FEATURE_COST, per=(catalogue.FEATURE, catalogue.MODEL))
    assert "(feature:" in ALL.total(recorded.REQUESTS)
    assert "(status:" in ALL.total(recorded.REQUESTS, match(catalogue.STATUS, "ok"))
    assert "(model:" in Scope(("hw_type",)).total(recorded.FEATURE_TIME)


def test_a_total_that_no_sum_can_give_is_refused():
    with pytest.raises(UnknownNameError, match=r"has no sum by .*gputrace_tenant"):
        ALL.total(recorded.FEATURE_COST, per=(catalogue.TENANT,))
    with pytest.raises(UnknownNameError, match="is no matcher"):
        ALL.total(recorded.FEATURE_COST, "gputrace_feature=~chat")


# --- what comes of it --------------------------------------------------------


@NEEDS_PROMTOOL
@pytest.mark.parametrize("per", [catalogue.FEATURE, catalogue.MODEL])
def test_a_total_counts_every_second_once(evaluate, per):
    """Over a process that starts anew, one that comes midway and one that ends."""
    series = {
        SPENT % "a": "0+0.1x80 0+0.1x220",
        SPENT % "b": "_x100 0+0.2x200",
        SPENT % "c": "0+0.3x60 stale",
    }
    total = ALL.total(recorded.FEATURE_COST, per=(per,))
    record(
        evaluate,
        series,
        [
            ("62m", near(over("1h", f"sum({total})"), 24, 0.05)),
            ("302m", near(over("5h", f"sum({total})"), 30 + 40 + 18)),
            # Nothing of what was before, nor of who has ended.
            ("302m", near(over("1h", f"sum({total})"), 18)),
        ],
    )


@NEEDS_PROMTOOL
def test_a_total_goes_on_after_a_gap(evaluate):
    """Half an hour in which nothing came is missing, and no more than that."""
    total = ALL.total(recorded.FEATURE_COST)
    record(
        evaluate,
        {SPENT % "a": "0+0.1x60 _x30 9.1+0.1x90"},
        [("182m", near(over("3h", f"sum({total})"), 15, 0.05))],
    )


@NEEDS_PROMTOOL
def test_what_came_midway_was_nothing_before(evaluate):
    series = {
        SPENT % "a": "_x150 0+0.1x150",
        SPENT % "b": "0+0.2x150 stale",
    }
    now, before = (ALL.total(recorded.FEATURE_COST, before=one) for one in (False, True))
    record(
        evaluate,
        series,
        [
            ("302m", near(over("150m", now), 15, 0.04)),
            ("302m", near(over("150m", before), 30, 0.04)),
            ("120m", f"absent({over('150m', before)})"),
        ],
    )


@NEEDS_PROMTOOL
def test_ranges_are_compared_if_both_were_recorded(evaluate):
    seen = over("1d", ALL.seen_before(recorded.FLEET_TIME))
    (fleet,) = recorded.FLEET_TIME.sums
    half, whole = f"absent({seen})", f"count({seen})"
    restarted, down = "1x100 _x2 1x600", "1x100 _x12 1x600"
    for values, at, true in (
        ("1x600", "30h", half),
        ("1x600", "48h", whole),
        (restarted, "48h", whole),
        (down, "48h", half),
    ):
        evaluate([], {f'{fleet.name}{{hw_name="H100"}}': values}, [(at, true)], interval="5m")


@NEEDS_PROMTOOL
def test_a_device_of_several_publishers_is_summed_once(evaluate):
    series = {
        DEVICE % ("a", "charged"): "0+30x120",
        DEVICE % ("a", "idle"): "0+30x120",
        DEVICE % ("b", "charged"): "0+12x120",
        DEVICE % ("b", "idle"): "0+48x120",
    }
    for source in (recorded.FLEET_TIME, recorded.DEVICE_TIME):
        total = over("1h", ALL.total(source, match(catalogue.DEVICE_STATE, "charged")))
        record(evaluate, series, [("92m", near(total, 1800))])


@NEEDS_PROMTOOL
@pytest.mark.parametrize(("features", "parts"), [(3, 3), (10, 10), (14, 11)])
def test_the_ring_has_ten_parts_and_one_for_all_others(evaluate, features, parts):
    spent = 'gputrace_feature_cost_total{job="api", gputrace_feature="f%d", gputrace_currency="USD"}'
    board = json.loads(spend_overview.board().to_json())
    (ring,) = [panel for panel in board["panels"] if panel["title"].startswith("Share of spend")]
    asked = ring["targets"][0]["expr"]
    for name, value in (("$currency", "USD"), ("$environment", ".*"), ("$job", ".*"), ("$feature", ".*")):
        asked = asked.replace(name, value)
    asked = over("1h", asked)
    others = sum(0.01 * rank for rank in range(1, features - 9)) * 60
    of_others = f'count(({asked}) and on (gputrace_feature) label_replace(vector(1), "gputrace_feature", '
    of_others += '"all others", "", ""))'
    true = [
        ("62m", f"count({asked}) == {parts}"),
        ("62m", near(f"sum({asked})", sum(0.01 * rank for rank in range(1, features + 1)) * 60, 0.05)),
    ]
    if others:
        true.append(("62m", f"{of_others} == 1"))
    record(evaluate, {spent % rank: f"0+{0.01 * rank:.2f}x70" for rank in range(1, features + 1)}, true)
