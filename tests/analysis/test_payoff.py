from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gputrace.analysis.payoff import ColumnError, Estimate, estimate

KEYS = {
    "escalation_rate",
    "light_cost",
    "cascade_cost",
    "wasted_light_cost",
    "heavy_cost_escalated",
    "always_heavy_cost",
    "savings_abs",
    "savings_frac",
    "savings_net_abs",
    "audit_tax",
    "audit_count",
    "quality_light",
    "quality_cascade",
    "quality_heavy",
    "quality_delta",
    "quality_retention",
    "break_even_simple",
    "break_even_mix",
    "cost_weighted_escalation",
}
NEED_AUDITS = {
    "always_heavy_cost",
    "savings_abs",
    "savings_frac",
    "savings_net_abs",
    "quality_heavy",
    "quality_delta",
    "quality_retention",
    "break_even_simple",
    "break_even_mix",
    "cost_weighted_escalation",
}


def check_shape(found):
    """What holds for every estimate, whatever the log."""
    assert set(found) == KEYS
    for name, one in found.items():
        if one.value is None:
            assert one.reason, name
            assert (one.low, one.high) == (None, None), name
        else:
            assert math.isfinite(one.value), name
        if one.low is None:
            assert one.high is None, name
            assert one.reason, name
        else:
            assert math.isfinite(one.low), name
            assert math.isfinite(one.high), name
            assert one.low <= one.value <= one.high, name
        assert one.method, name


costs = st.floats(0.01, 100)
grades = st.sampled_from([0.0, 1.0])
rows = st.lists(
    st.tuples(st.sampled_from([0.2, 0.5, 0.7]), costs, costs, grades, grades), min_size=2, max_size=60
)


@given(rows, st.sampled_from([0.1, 0.2, 0.5, 0.6, 0.9]), st.sampled_from([0.0, 0.3]))
def test_where_all_is_audited_the_estimates_are_the_definitions(payoff_logs, found, threshold, overhead):
    names = ("confidence", "light_cost", "heavy_cost", "light_quality", "heavy_quality")
    table = dict(zip(names, map(np.array, zip(*found, strict=True)), strict=True))
    table["escalated"] = table["confidence"] < threshold
    table["audit_propensity"] = np.ones(len(found))
    estimates = estimate(payoff_logs.audited(table), overhead=overhead)
    check_shape(estimates)
    for name, true in payoff_logs.by_definition(table, overhead).items():
        assert estimates[name].value == pytest.approx(true, abs=1e-9), name


@given(st.integers(0, 10_000), st.sampled_from([0.02, 0.1, 0.5]), st.sampled_from([0.25, 1.0]))
def test_whatever_was_seen_the_parts_add_up(payoff_logs, seed, rate, graded):
    log = payoff_logs.audited(payoff_logs.whole(200, seed=seed, rate=rate), seed, graded)
    estimates = estimate(log, overhead=0.05)
    check_shape(estimates)
    found = {name: one.value for name, one in estimates.items()}
    if found["savings_abs"] is not None:
        assert found["savings_abs"] == pytest.approx(found["always_heavy_cost"] - found["cascade_cost"])
        assert found["savings_frac"] == pytest.approx(found["savings_abs"] / found["always_heavy_cost"])
        assert found["savings_net_abs"] == pytest.approx(found["savings_abs"] - found["audit_tax"])
        gap = found["break_even_mix"] - found["escalation_rate"]
        assert found["savings_abs"] == pytest.approx(found["heavy_cost_escalated"] * gap)
        at_break_even = found["break_even_simple"] - found["cost_weighted_escalation"]
        assert found["savings_frac"] == pytest.approx(at_break_even)
    # A handful of audits may differ so much from the rest that the difference would leave 0 to 1.
    if estimates["quality_heavy"].method.startswith("by difference"):
        served = found["quality_cascade"] - found["quality_heavy"]
        assert found["quality_delta"] == pytest.approx(served)
        ratio = found["quality_cascade"] / found["quality_heavy"]
        # Without what noise adds to a ratio on average: much less than the noise itself.
        retention = estimates["quality_retention"]
        off = 0 if retention.low is None else (retention.high - retention.low) / 4
        assert found["quality_retention"] == pytest.approx(ratio, abs=max(1e-9, off))


def test_retention_is_not_raised_by_the_noise_of_few_audits(payoff_logs):
    """A ratio of noisy means is too high on average; by 1.4 points here if nothing were taken off."""
    off = []
    for seed in range(1_000):
        table = payoff_logs.whole(400, seed=seed, rate=0.2)
        random = np.random.default_rng([seed, 2])
        for name in ("heavy_quality", "light_quality"):
            table[name] *= random.random(400) < 0.4
        served = np.where(table["escalated"], table["heavy_quality"], table["light_quality"]).mean()
        found = estimate(payoff_logs.audited(table, seed))["quality_retention"]
        if found.low is not None:
            off.append(found.value - served / table["heavy_quality"].mean())
    assert abs(np.mean(off)) < 0.008


def test_what_production_cannot_have_seen_is_not_used(payoff_logs):
    table = payoff_logs.whole(rate=0.2)
    log = payoff_logs.audited(table)
    peeking = log | {"heavy_cost": table["heavy_cost"] * 10, "heavy_quality": 1 - table["heavy_quality"]}
    seen = log["escalated"] | log["audited"]
    for name in ("heavy_cost", "heavy_quality"):
        peeking[name] = np.where(seen, log[name], peeking[name])
    assert estimate(peeking) == estimate(log)


@pytest.mark.parametrize("columns", [(), ("audited",), ("audited", "audit_propensity")])
def test_without_audits_nothing_counterfactual_is_said(payoff_logs, columns):
    log = payoff_logs.audited(payoff_logs.whole(rate=0.0))
    for name in columns:
        del log[name]
    found = estimate(log)
    check_shape(found)
    silent = {name for name, one in found.items() if one.value is None}
    assert silent == NEED_AUDITS
    assert "no kept request was audited" in found["savings_frac"].reason
    assert found["savings_frac"].needs == 30
    assert found["cascade_cost"].low < found["cascade_cost"].value
    assert found["audit_tax"].value == 0


def test_under_thirty_audits_there_is_a_value_and_how_many_are_missing(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(300, rate=0.1), seed=1)
    audits = int(log["audited"].sum())
    assert 1 < audits < 30
    found = estimate(log)
    check_shape(found)
    for name in NEED_AUDITS | {"audit_tax"}:
        assert found[name].value is not None, name
        assert found[name].low is None, name
        assert found[name].needs == 30 - audits, name
        assert f"only {audits}" in found[name].reason, name
    assert found["quality_cascade"].low is not None


def test_bounds_of_quality_need_thirty_graded_audits(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(800, rate=0.15), graded=0.25)
    pairs = int((log["audited"] & ~np.isnan(log["light_quality"])).sum())
    assert pairs < 30 <= log["audited"].sum()
    found = estimate(log)
    assert found["savings_frac"].low is not None
    assert found["quality_delta"].low is None
    assert found["quality_delta"].needs == 30 - pairs
    assert "graded audits" in found["quality_delta"].reason


def test_an_audit_that_no_label_reaches_is_no_pair(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(rate=0.5))
    log["heavy_quality"] = np.where(log["audited"], np.nan, log["heavy_quality"])
    found = estimate(log)
    check_shape(found)
    assert found["savings_frac"].low is not None
    assert found["quality_delta"].value is None
    assert "no heavy answer of an audit was graded" in found["quality_delta"].reason
    assert found["quality_cascade"].value is not None


def test_everything_escalated_needs_no_audit(payoff_logs):
    table = payoff_logs.whole(threshold=2.0)
    found = estimate(payoff_logs.audited(table))
    check_shape(found)
    true = payoff_logs.by_definition(table)
    assert found["escalation_rate"].value == 1
    assert found["savings_abs"].value == pytest.approx(-true["light_cost"])
    assert found["savings_abs"].high < 0
    delta = found["quality_delta"]
    assert (delta.value, delta.low, delta.high) == (0, 0, 0)
    assert found["quality_retention"].value == 1
    assert found["quality_heavy"].low < found["quality_heavy"].value < found["quality_heavy"].high


def test_nothing_escalated_costs_the_light_stage(payoff_logs):
    table = payoff_logs.whole(threshold=-1.0, rate=0.3)
    found = estimate(payoff_logs.audited(table))
    check_shape(found)
    assert found["escalation_rate"].value == 0
    assert found["escalation_rate"].high > 0
    assert found["heavy_cost_escalated"].value is None
    assert found["break_even_mix"].value is None
    assert "no request was escalated" in found["break_even_mix"].reason
    assert found["cost_weighted_escalation"].value == 0
    assert found["cascade_cost"].value == pytest.approx(found["light_cost"].value)


def test_one_request_is_enough_to_answer():
    found = estimate({"escalated": [True], "light_cost": [1.0], "heavy_cost": [2.0]})
    check_shape(found)
    assert found["savings_frac"].value == -0.5


def test_of_one_request_no_cost_has_bounds():
    found = estimate({"escalated": [True], "light_cost": [1.0], "heavy_cost": [10.0]})
    bounded = {name for name, one in found.items() if one.low is not None}
    # What was served is what always-heavy serves, however little that was.
    assert bounded == {"escalation_rate", "audit_count", "quality_delta"}
    assert found["always_heavy_cost"].value == 10.0
    assert found["always_heavy_cost"].reason == found["cascade_cost"].reason == "one request has no spread"


def test_one_escalated_request_does_not_say_what_they_cost(payoff_logs):
    table = payoff_logs.whole(500, rate=1.0)
    table["escalated"][:] = False
    table["escalated"][7] = True
    found = estimate(payoff_logs.audited(table))
    assert found["break_even_mix"].value is not None
    assert found["break_even_mix"].low is None
    assert found["break_even_mix"].reason == found["heavy_cost_escalated"].reason.replace(
        "one", "one escalated"
    )
    assert found["break_even_simple"].low is not None


@pytest.mark.parametrize("size", [2, 3, 40])
def test_no_cost_is_below_nothing(size):
    """Two requests of very different cost have a wide interval; a cost of less than nothing is not in it."""
    heavy = np.ones(size)
    heavy[0] = 1000.0
    found = estimate({"escalated": np.full(size, True), "light_cost": heavy, "heavy_cost": heavy})
    costs = ("light_cost", "cascade_cost", "wasted_light_cost", "heavy_cost_escalated", "always_heavy_cost")
    for name in costs:
        assert 0 <= found[name].low < found[name].value < found[name].high, name
    kept = {
        "escalated": np.arange(size) == 0,
        "audited": np.arange(size) > 0,
        "audit_propensity": np.ones(size),
    }
    found = estimate(kept | {"light_cost": heavy, "heavy_cost": heavy[::-1]})
    assert all((found[name].low or 0) >= 0 for name in (*costs, "audit_tax"))


def test_savings_are_signed(payoff_logs):
    table = payoff_logs.whole(1000, rate=0.2)
    table["light_cost"] = table["heavy_cost"] * 1.5
    found = estimate(payoff_logs.audited(table))
    check_shape(found)
    assert found["savings_frac"].high < -0.5
    assert found["break_even_simple"].high < 0
    assert found["break_even_mix"].high < 0


def test_audits_that_are_drawn_more_often_count_for_less():
    """Two kinds, equally many: one costs 1 and is always audited, one costs 3 and is every tenth time."""
    kind = np.repeat([0, 1], 1000)
    audited = (kind == 0) | (np.arange(2000) % 10 == 0)
    heavy = np.where(kind == 0, 1.0, 3.0)
    log = {
        "escalated": np.zeros(2000, dtype=bool),
        "audited": audited,
        "audit_propensity": np.where(kind == 0, 1.0, 0.1),
        "light_cost": np.full(2000, 0.1),
        "heavy_cost": np.where(audited, heavy, np.nan),
        "light_quality": np.ones(2000),
        "heavy_quality": np.where(audited, kind == 1, np.nan).astype(float),
    }
    found = estimate(log)
    assert found["always_heavy_cost"].value == pytest.approx(2.0)
    assert found["quality_delta"].value == pytest.approx(0.5)
    assert found["quality_heavy"].value == pytest.approx(0.5)
    assert found["always_heavy_cost"].effective_n == pytest.approx(2000**2 / (1000 + 100 * 100))
    assert found["audit_tax"].value == pytest.approx((1000 + 300) / 2000)


def test_no_discordant_pair_is_no_certainty(payoff_logs):
    table = payoff_logs.whole(rate=0.3)
    table["heavy_quality"] = table["light_quality"].copy()
    log = payoff_logs.audited(table)
    found = estimate(log)
    check_shape(found)
    delta = found["quality_delta"]
    kept = 1 - found["escalation_rate"].value
    limit = kept * (1 - 0.025 ** (1 / log["audited"].sum()))
    assert (delta.value, delta.low, delta.high) == (0, pytest.approx(-limit), pytest.approx(limit))


def test_all_right_is_no_certainty_either(payoff_logs):
    table = payoff_logs.whole(rate=0.3)
    table["heavy_quality"] = table["light_quality"] = np.ones(400)
    found = estimate(payoff_logs.audited(table))
    check_shape(found)
    for name in ("quality_light", "quality_cascade", "quality_heavy"):
        assert found[name].value == 1, name
        assert 0.9 < found[name].low < 1, name


def test_quality_may_be_any_number(payoff_logs):
    table = payoff_logs.whole(2000, rate=0.2)
    random = np.random.default_rng(3)
    table["light_quality"] = random.normal(3.0, 1.0, 2000)
    table["heavy_quality"] = table["light_quality"] + random.normal(0.5, 0.2, 2000)
    found = estimate(payoff_logs.audited(table))
    check_shape(found)
    for name in ("quality_light", "quality_cascade", "quality_heavy", "quality_delta", "quality_retention"):
        true = payoff_logs.by_definition(table)[name]
        assert found[name].low < true < found[name].high, name
    assert found["quality_delta"].high < -0.2
    assert "Hall" in found["quality_delta"].method


def test_one_request_that_is_a_tenth_of_all_cost_widens_the_right_side(payoff_logs):
    table = payoff_logs.whole(1000, rate=0.2)
    log = payoff_logs.audited(table)
    calm = estimate(log)["always_heavy_cost"]
    victim = int(np.argmax(log["audited"]))
    log["heavy_cost"][victim] = table["heavy_cost"].sum() / 9
    found = estimate(log)
    check_shape(found)
    wild = found["always_heavy_cost"]
    assert wild.high - wild.value > 2 * (wild.value - wild.low)
    assert wild.low < calm.value < wild.high


def test_a_light_run_that_is_an_outlier_does_not_drag_the_regression(payoff_logs):
    """On the measured tables the first request waited for the model to warm up: ten times the light cost."""
    table = payoff_logs.whole(1000, rate=0.2)
    log = payoff_logs.audited(table)
    victim = int(np.argmax(~log["escalated"] & ~log["audited"]))
    before = estimate(log)["always_heavy_cost"]
    log["light_cost"][victim] = 1000.0
    after = estimate(log)["always_heavy_cost"]
    assert after.value == pytest.approx(before.value, rel=0.05)


def test_the_regression_takes_out_noise(payoff_logs):
    """Heavy costs that follow the light ones are known nearly without audits."""
    table = payoff_logs.whole(2000, rate=0.1)
    table["heavy_cost"] = 10 * table["light_cost"]
    log = payoff_logs.audited(table)
    found = estimate(log)["always_heavy_cost"]
    assert found.method == "doubly robust, Hall"
    assert found.value == pytest.approx(table["heavy_cost"].mean(), rel=0.01)
    plain = estimate(log | {"light_cost": np.ones(2000), "confidence": None})["always_heavy_cost"]
    assert plain.method == "post-stratified, Hall"
    assert found.half_width < 0.7 * plain.half_width


def test_costs_in_another_unit_are_the_same_costs(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(1000, rate=0.2))
    scaled = log | {name: log[name] * 1e-6 for name in ("light_cost", "heavy_cost")}
    one, other = estimate(log), estimate(scaled)
    for name in ("savings_frac", "break_even_mix", "cost_weighted_escalation"):
        for part in ("value", "low", "high"):
            assert getattr(other[name], part) == pytest.approx(getattr(one[name], part)), name
    assert other["savings_abs"].low == pytest.approx(one["savings_abs"].low * 1e-6)


def test_a_higher_level_is_a_wider_interval(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(1000, rate=0.2))
    narrow, wide = estimate(log, level=0.5), estimate(log, level=0.99)
    for name in KEYS - {"audit_count"}:
        assert wide[name].half_width > narrow[name].half_width, name


def test_labels_drawn_apart_are_compared_apart(payoff_logs):
    table = payoff_logs.whole(4000, rate=0.3)
    log = payoff_logs.audited(table)
    random = np.random.default_rng(5)
    del log["label_propensity"]
    for name, rate in (("light", 0.5), ("heavy", 0.8)):
        log[f"{name}_label_propensity"] = np.full(4000, rate)
        log[f"{name}_quality"] = np.where(random.random(4000) < rate, log[f"{name}_quality"], np.nan)
    found = estimate(log)
    check_shape(found)
    assert "unpaired" in found["quality_delta"].method
    true = payoff_logs.by_definition(table)["quality_delta"]
    assert found["quality_delta"].low < true < found["quality_delta"].high
    # With every light answer graded, a pair is as likely as its heavy label.
    log["light_quality"] = table["light_quality"]
    log["light_label_propensity"] = np.ones(4000)
    found = estimate(log)
    assert "Bonett-Price" in found["quality_delta"].method
    assert found["quality_delta"].low < true < found["quality_delta"].high


def test_labels_that_depend_on_the_request_are_weighted(payoff_logs):
    """Half of the answers are always graded and right, half every fourth and wrong."""
    kind = np.repeat([0, 1], 2000)
    graded = (kind == 0) | (np.arange(4000) % 4 == 0)
    log = {
        "escalated": np.zeros(4000, dtype=bool),
        "light_cost": np.ones(4000),
        "heavy_cost": np.full(4000, np.nan),
        "light_quality": np.where(graded, kind == 0, np.nan).astype(float),
        "label_propensity": np.where(kind == 0, 1.0, 0.25),
    }
    found = estimate(log)
    assert found["quality_light"].value == found["quality_cascade"].value == pytest.approx(0.5)
    assert found["quality_light"].low < 0.5 < found["quality_light"].high


def test_some_kept_requests_that_no_audit_could_draw_leave_it_open(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(rate=0.5))
    log["audit_propensity"][np.argmax(~log["escalated"] & ~log["audited"])] = 0.0
    found = estimate(log)
    check_shape(found)
    assert found["savings_frac"].value is None
    assert "1 kept requests had an audit propensity of 0" in found["savings_frac"].reason
    assert found["savings_frac"].needs is None


def test_the_interval_covers_the_truth_as_often_as_it_says(payoff_logs):
    """A short form of benchmarks/payoff_coverage.py; 200 logs of 600 requests, seeds fixed."""
    table = payoff_logs.whole(600, rate=0.2)
    true = payoff_logs.by_definition(table)
    names = ("always_heavy_cost", "savings_abs", "savings_frac", "quality_delta", "quality_heavy")
    hits = dict.fromkeys(names, 0)
    errors = dict.fromkeys(names, 0.0)
    for seed in range(200):
        found = estimate(payoff_logs.audited(table, seed))
        for name in names:
            hits[name] += found[name].low <= true[name] <= found[name].high
            errors[name] += (found[name].value - true[name]) / 200
    assert min(hits.values()) >= 186, hits
    assert abs(errors["savings_frac"]) < 0.003
    assert abs(errors["quality_delta"]) < 0.006


def good():
    return {
        "escalated": [True, False, False],
        "audited": [False, True, False],
        "audit_propensity": [1.0, 0.5, 0.5],
        "light_cost": [1.0, 1.0, 1.0],
        "heavy_cost": [5.0, 5.0, math.nan],
        "light_quality": [1.0, 1.0, 1.0],
        "heavy_quality": [1.0, 1.0, math.nan],
        "label_propensity": [1.0, 1.0, 1.0],
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"escalated": None}, "column 'escalated' is missing"),
        ({"light_cost": [1.0, 1.0]}, "column 'light_cost', row 2: there are 2 rows"),
        ({"light_cost": [[1.0], [1.0], [1.0]]}, "column 'light_cost' has 2 dimensions"),
        ({"light_cost": [1.0, "much", 1.0]}, "column 'light_cost', row 1: 'much' is no number"),
        ({"light_cost": [1.0, 1.0, math.nan]}, "column 'light_cost', row 2: the stage ran, and has no cost"),
        ({"light_cost": [1.0, -1.0, 1.0]}, "column 'light_cost', row 1: it is negative"),
        ({"light_cost": [1.0, math.inf, 1.0]}, "column 'light_cost', row 1: it is infinite"),
        ({"heavy_cost": [math.nan, 5.0, math.nan]}, "column 'heavy_cost', row 0: the stage ran"),
        ({"heavy_cost": [5.0, math.nan, math.nan]}, "column 'heavy_cost', row 1: the stage ran"),
        ({"escalated": [True, 2, False]}, "column 'escalated', row 1: it must be true or false"),
        ({"audited": [True, True, False]}, "column 'audited', row 0: the request was escalated"),
        ({"audit_propensity": [1.0, 0.0, 0.5]}, "column 'audit_propensity', row 1: an audited request needs"),
        (
            {"audit_propensity": [1.0, 0.5, 1.5]},
            "column 'audit_propensity', row 2: it must lie between 0 and 1",
        ),
        ({"audit_propensity": None}, "column 'audit_propensity', row 1: an audited request needs"),
        ({"label_propensity": [1.0, 1.0, 0.0]}, "column 'label_propensity', row 2: the answer was graded"),
        ({"label_propensity": [math.nan, 1.0, 1.0]}, "column 'label_propensity', row 0: a graded answer"),
        ({"light_label_propensity": [1.0, 1.0, 0.0]}, "column 'light_label_propensity', row 2"),
    ],
)
def test_a_wrong_log_is_refused_by_column_and_row(change, says):
    with pytest.raises(ColumnError) as refused:
        estimate(good() | change)
    assert says in str(refused.value)


def test_an_empty_log_is_refused():
    with pytest.raises(ColumnError, match="no request"):
        estimate({name: [] for name in good()})


@pytest.mark.parametrize("level", [0, 1, 95, math.nan])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises(ValueError, match="level is"):
        estimate(good(), level=level)


@pytest.mark.parametrize("overhead", [-1, math.nan, math.inf])
def test_an_overhead_that_is_no_cost_is_refused(overhead):
    with pytest.raises(ValueError, match="overhead is"):
        estimate(good(), overhead=overhead)


def test_unknown_columns_are_left_alone():
    assert estimate(good() | {"comment": ["a", "b", "c"], "feature": ["x"] * 3}) == estimate(good())


def test_an_estimate_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Estimate(1.0).value = 2.0
