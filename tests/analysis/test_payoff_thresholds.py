"""The sweep over thresholds, and which one is advised."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gputrace.analysis.payoff import ColumnError, advise, estimate, sweep


def truth(table, threshold):
    """What a threshold would have saved and lost, from the whole table."""
    kept = table["confidence"] >= threshold
    spent = (table["light_cost"] + np.where(kept, 0, table["heavy_cost"])).mean()
    lost = np.where(kept, table["light_quality"] - table["heavy_quality"], 0).mean()
    return 1 - spent / table["heavy_cost"].mean(), lost


def test_where_all_is_known_the_sweep_is_the_definition(payoff_logs):
    table = payoff_logs.whole()
    points = sweep(payoff_logs.audited(table))
    assert [one.threshold for one in points] == sorted({one.threshold for one in points})
    assert len(points) > 40
    for one in points:
        saved, lost = truth(table, one.threshold)
        assert one.savings_frac.value == pytest.approx(saved, abs=1e-9)
        assert one.quality_delta.value == pytest.approx(lost, abs=1e-9)
        assert one.supported


def test_at_the_threshold_in_force_it_says_what_estimate_says(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(1000, rate=0.2))
    (point,) = sweep(log, [0.5], overhead=0.1)
    found = estimate(log, overhead=0.1)
    for name in ("savings_frac", "quality_delta"):
        one, other = getattr(point, name), found[name]
        assert (one.value, one.low) == (pytest.approx(other.value), pytest.approx(other.low, rel=0.02)), name


def test_a_tie_is_kept(payoff_logs):
    table = payoff_logs.whole()
    tied = table["confidence"][7]
    at, above = sweep(payoff_logs.audited(table), [tied, np.nextafter(tied, 2)])
    assert at.savings_frac.value == pytest.approx(truth(table, tied)[0])
    assert above.savings_frac.value < at.savings_frac.value


def test_escalating_everything_loses_nothing_and_the_light_run(payoff_logs):
    table = payoff_logs.whole(1000, rate=0.2)
    last = sweep(payoff_logs.audited(table))[-1]
    assert last.threshold > table["confidence"].max()
    assert (last.quality_delta.value, last.quality_delta.low, last.quality_delta.high) == (0, 0, 0)
    assert last.savings_frac.high < 0
    assert last.supported


def test_a_lower_threshold_needs_the_light_answers_of_escalated_requests(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(1000, rate=0.2))
    log["light_quality"] = np.where(log["escalated"], np.nan, log["light_quality"])
    below, above = sweep(log, [0.3, 0.7])
    assert not below.supported
    assert below.quality_delta.value is None
    assert "light answers" in below.quality_delta.reason
    assert below.savings_frac.value is not None
    assert above.supported
    assert above.quality_delta.low < above.quality_delta.value


def test_where_no_audit_reaches_nothing_is_said(payoff_logs):
    table = payoff_logs.whole(1000, rate=0.2)
    log = payoff_logs.audited(table)
    log["audited"] &= log["confidence"] < 0.8
    log["heavy_cost"] = np.where(log["escalated"] | log["audited"], log["heavy_cost"], np.nan)
    points = sweep(log, [0.6, 0.9, 1.1])
    assert [one.supported for one in points] == [True, False, True]
    assert "0 were audited" in points[1].quality_delta.reason


def test_without_audits_no_threshold_is_supported(payoff_logs):
    points = sweep(payoff_logs.audited(payoff_logs.whole(rate=0.0)), [0.3, 0.7])
    assert [one.supported for one in points] == [False, False]
    assert all(one.savings_frac.value is None and one.savings_frac.reason for one in points)


def test_under_thirty_audits_a_sweep_has_no_bands(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(200, rate=0.15), seed=1)
    assert 5 < log["audited"].sum() < 30
    (point,) = sweep(log, [0.5])
    assert point.quality_delta.value is not None
    assert point.quality_delta.low is None
    assert point.savings_frac.needs == point.quality_delta.needs == 30 - log["audited"].sum()


def test_a_band_holds_for_all_thresholds_at_once(payoff_logs):
    """100 logs, seeds fixed: the truth leaves the band somewhere in about one of twenty."""
    table = payoff_logs.whole(800, rate=0.25)
    thresholds = np.linspace(0.1, 0.9, 9)
    true = [truth(table, one) for one in thresholds]
    missed = [0, 0]
    for seed in range(100):
        points = sweep(payoff_logs.audited(table, seed), thresholds)
        for number, name in enumerate(("savings_frac", "quality_delta")):
            found = [getattr(one, name) for one in points]
            inside = [one.low <= at[number] <= one.high for one, at in zip(found, true, strict=True)]
            missed[number] += not all(inside)
    assert max(missed) <= 10, missed


def test_the_band_is_wider_than_an_interval(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(1000, rate=0.2))
    found = estimate(log)
    point = next(one for one in sweep(log) if one.threshold == 0.5)
    assert point.quality_delta.half_width > 1.2 * found["quality_delta"].half_width
    assert point.savings_frac.half_width > 1.2 * found["savings_frac"].half_width


@pytest.mark.parametrize("name", ["confidence", "threshold"])
@pytest.mark.parametrize("ask", [sweep, lambda log: advise(log, target_loss=0.02)])
def test_confidence_and_threshold_are_needed_on_every_row(payoff_logs, name, ask):
    log = payoff_logs.audited(payoff_logs.whole())
    log[name][3] = math.nan
    with pytest.raises(ColumnError, match=f"column '{name}', row 3: there is none"):
        ask(log)
    del log[name]
    with pytest.raises(ColumnError, match=f"column '{name}', row 0: there is none"):
        ask(log)


def test_a_threshold_that_is_no_number_is_refused(payoff_logs):
    with pytest.raises(ValueError, match="thresholds are"):
        sweep(payoff_logs.audited(payoff_logs.whole()), [math.nan])


@pytest.mark.parametrize("loss", [-0.1, math.nan])
def test_a_target_that_is_no_loss_is_refused(payoff_logs, loss):
    with pytest.raises(ValueError, match="target_loss is"):
        advise(payoff_logs.audited(payoff_logs.whole()), target_loss=loss)


def easy(size=4000, rate=0.3):
    """The light model is as good as the heavy one from 0.4 on, and now and then wrong below."""
    random = np.random.default_rng(8)
    confidence = np.round(random.random(size), 3)
    heavy = (random.random(size) < 0.9).astype(float)
    spoiled = (confidence < 0.4) & (random.random(size) < 0.15)
    return {
        "confidence": confidence,
        "threshold": np.full(size, 0.5),
        "escalated": confidence < 0.5,
        "audit_propensity": np.where(confidence < 0.5, 1.0, rate),
        "light_cost": np.full(size, 0.1),
        "heavy_cost": 1 + random.random(size),
        "light_quality": np.where(spoiled, 0, heavy),
        "heavy_quality": heavy,
    }


def test_the_guaranteed_threshold_is_cheap_and_more_careful_than_the_point(payoff_logs):
    table = easy()
    found = advise(payoff_logs.audited(table), target_loss=0.02)
    assert found.point < found.guaranteed
    assert 0.26 < found.guaranteed < 0.42
    assert -truth(table, found.guaranteed)[1] <= 0.02
    assert "loses at most 2 points (confidence 95%)" in found.reason
    assert "The next," in found.reason


def test_a_looser_target_is_cheaper(payoff_logs):
    log = payoff_logs.audited(easy())
    assert advise(log, target_loss=0.1).guaranteed < advise(log, target_loss=0.02).guaranteed


def test_the_tests_stop_at_the_first_that_fails(payoff_logs):
    """Below 0.3 the light model is better by far, so that keeping everything loses nothing."""
    table = easy()
    random = np.random.default_rng(9)
    low, middle = table["confidence"] < 0.3, (table["confidence"] >= 0.3) & (table["confidence"] < 0.7)
    spoiled = middle & (random.random(4000) < 0.4)
    table["light_quality"] = np.where(low, 1, np.where(spoiled, 0, table["heavy_quality"]))
    table["heavy_quality"] = np.where(low, 0, table["heavy_quality"])
    found = advise(payoff_logs.audited(table), target_loss=0.02)
    assert found.point == table["confidence"].min()
    assert 0.6 < found.guaranteed < 0.75


def test_advice_seldom_breaks_its_target(payoff_logs):
    """60 logs, seeds fixed; the point estimate's choice breaks it in about half of them."""
    table = payoff_logs.whole(1500, rate=0.25)
    broke, point_broke = 0, 0
    for seed in range(60):
        found = advise(payoff_logs.audited(table, seed), target_loss=0.02)
        broke += found.guaranteed is not None and -truth(table, found.guaranteed)[1] > 0.02
        point_broke += -truth(table, found.point)[1] > 0.02
    assert broke <= 4
    assert point_broke > 12


def test_few_audits_guarantee_nothing(payoff_logs):
    log = payoff_logs.audited(payoff_logs.whole(200, rate=0.15), seed=1)
    found = advise(log, target_loss=0.02)
    assert found.guaranteed is None
    missing = 30 - log["audited"].sum()
    assert f"Nothing can be guaranteed before {missing} more graded audits" in found.reason


def test_no_audits_advise_nothing(payoff_logs):
    found = advise(payoff_logs.audited(payoff_logs.whole(rate=0.0)), target_loss=0.02)
    assert (found.guaranteed, found.point) == (None, None)
    assert "no kept request was audited" in found.reason


def test_advice_says_where_the_log_is_silent(payoff_logs):
    log = payoff_logs.audited(easy())
    log["light_quality"] = np.where(log["escalated"], np.nan, log["light_quality"])
    found = advise(log, target_loss=0.02)
    assert found.guaranteed == pytest.approx(0.5, abs=0.01)
    assert "The log cannot tell about" in found.reason
    assert "light answers were graded" in found.reason


def test_advice_says_when_the_safe_threshold_loses_money(payoff_logs):
    table = easy()
    table["light_cost"] = table["heavy_cost"] * 0.9
    found = advise(payoff_logs.audited(table), target_loss=0.02)
    assert found.guaranteed is not None
    assert "more than always-heavy all the same" in found.reason
