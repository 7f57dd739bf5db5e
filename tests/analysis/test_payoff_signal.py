"""Whether the confidence is any good."""

from __future__ import annotations

import numpy as np
import pytest

from gputrace.analysis.payoff import judge_signal as judge


def log(size=3000, slope=1.0, seed=0):
    """Everything graded; the light answer is right with odds = odds of confidence ** slope."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.05, 0.95, size)
    odds = (confidence / (1 - confidence)) ** slope
    return {
        "confidence": confidence,
        "escalated": confidence < 0.5,
        "audited": confidence >= 0.5,
        "audit_propensity": np.ones(size),
        "light_cost": np.ones(size),
        "heavy_cost": np.ones(size),
        "light_quality": (random.random(size) < odds / (1 + odds)).astype(float),
        "heavy_quality": np.ones(size),
    }


@pytest.mark.parametrize("slope", [1.0, 0.5])
def test_the_slope_of_a_calibrated_confidence_is_one(slope):
    found = judge(log(slope=slope))
    assert found.low < slope < found.high
    assert found.slope == pytest.approx(slope, abs=0.15)
    assert found.warning is None


def test_an_inverted_signal_is_warned_about():
    found = judge(log(slope=-1.0))
    assert found.high < 0
    assert found.audc < 0
    assert "inverted signal" in found.warning


def test_a_signal_that_says_nothing_is_warned_about():
    found = judge(log(slope=0.0, size=400))
    assert found.low < 0 < found.high
    assert found.warning is not None


def test_grades_count_for_how_likely_they_were():
    """The light model is calibrated where it is sure alone, and answers there are graded less often."""
    whole = log(20_000)
    random = np.random.default_rng(1)
    guessed = whole["confidence"] < 0.5
    whole["light_quality"] = np.where(guessed, random.random(20_000) < 0.5, whole["light_quality"]) * 1.0
    true = judge(whole).slope
    whole["label_propensity"] = np.where(guessed, 0.8, 0.1)
    graded = random.random(20_000) < whole["label_propensity"]
    whole["light_quality"] = np.where(graded, whole["light_quality"], np.nan)
    assert judge(whole).slope == pytest.approx(true, abs=0.07)
    assert judge(whole | {"label_propensity": None}).slope < true - 0.1


def test_a_confidence_that_is_no_probability_is_judged_by_its_spread():
    whole = log()
    whole["confidence"] = 7 - 100 * whole["confidence"]
    whole["light_quality"] = 1 - whole["light_quality"]
    found = judge(whole)
    assert found.low > 0


def test_knowing_everything_is_an_area_of_one():
    whole = log()
    whole["confidence"] = whole["light_quality"] + 0.5
    whole["escalated"] = whole["confidence"] < 1
    whole["audited"] = ~whole["escalated"]
    assert judge(whole).audc == pytest.approx(1.0)


def test_the_area_is_known_by_audits_alone():
    whole = log(20_000)
    true = judge(whole).audc
    random = np.random.default_rng(2)
    whole["audit_propensity"] = np.where(whole["escalated"], 1.0, 0.2)
    whole["audited"] &= random.random(20_000) < 0.2
    assert 0 < true < 1
    assert judge(whole).audc == pytest.approx(true, abs=0.05)


def test_few_grades_say_nothing():
    whole = log(200)
    whole["light_quality"] = np.where(np.arange(200) < 20, whole["light_quality"], np.nan)
    found = judge(whole)
    assert (found.slope, found.audc, found.warning) == (None, None, None)


def test_where_the_light_model_is_always_right_there_is_nothing_to_judge():
    whole = log()
    whole["light_quality"] = np.ones(3000)
    found = judge(whole)
    assert (found.slope, found.audc) == (None, None)


def test_perfectly_told_apart_has_no_slope():
    whole = log()
    whole["light_quality"] = (whole["confidence"] > 0.4).astype(float)
    assert judge(whole).slope is None
