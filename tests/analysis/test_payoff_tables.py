"""On measured tables, which know both outcomes; benchmarks/payoff_coverage.py is the whole study."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from gputrace.analysis import payoff_log
from gputrace.analysis.payoff import advise, estimate
from gputrace.analysis.payoff_totals import add_up
from gputrace.analysis.payoff_verdicts import verdict

pytestmark = pytest.mark.requires("shared")

NUMBERS = ("confidence", "light_cost", "heavy_cost", "light_quality", "heavy_quality")
SMALL, LARGER = "Qwen2.5-0.5B", "Qwen2.5-1.5B"


def table(path, threshold, pair=""):
    """A table as a log in which every kept request was audited."""
    with path.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["pair"].startswith(pair)]
    found = {name: np.array([float(row[name]) for row in rows]) for name in NUMBERS}
    found["escalated"] = found["confidence"] < threshold
    found["audit_propensity"] = np.ones(len(rows))
    found["threshold"] = np.full(len(rows), threshold)
    if "feature" in rows[0]:
        found["feature"] = np.array([row["feature"] for row in rows])
    return found


@pytest.fixture
def greengate(shared):
    return lambda pair, threshold: table(shared / "data" / "greengate_h100_mmlu.csv", threshold, pair)


def drawn(payoff_logs, whole, seed, size=2000, rate=0.1):
    """A log of production: requests drawn from the table, a tenth of the kept ones audited."""
    chosen = np.random.default_rng(seed).integers(len(whole["escalated"]), size=size)
    found = {name: values[chosen] for name, values in whole.items()}
    found["audit_propensity"] = np.where(found["escalated"], 1.0, rate)
    return payoff_logs.audited(found, seed)


def test_the_small_model_loses_energy_at_one_bit(payoff_logs, greengate):
    """Entropy of 1.0 bit is a confidence of 0.5: four of five requests escalate."""
    whole = greengate(SMALL, 0.5)
    found = estimate(payoff_logs.audited(whole))
    assert found["savings_frac"].value == pytest.approx(-0.040, abs=0.0005)
    assert "loses money: −4.0 %" in verdict(found)
    assert found["escalation_rate"].value > found["break_even_mix"].value
    sure = estimate(drawn(payoff_logs, whole, 0, size=20_000))
    assert verdict(sure).startswith("loses money: −")
    assert sure["savings_frac"].low < -0.0402 < sure["savings_frac"].high < 0


def test_the_larger_model_is_better_than_always_heavy(payoff_logs, greengate):
    whole = greengate(LARGER, 0.45)
    found = estimate(payoff_logs.audited(whole))
    assert found["quality_delta"].value == pytest.approx(0.067, abs=0.0005)
    assert "is better than always-heavy by 6.7 pt" in verdict(found)
    assert verdict(found).startswith("pays: saves 34 %")


def test_what_is_said_of_a_drawn_log_is_true_as_often_as_it_says(payoff_logs, greengate):
    """150 logs of 2000; a true 95 % falls below 89 % once in a thousand such sets."""
    whole = greengate(LARGER, 0.45)
    true = payoff_logs.by_definition(whole)
    names = ("always_heavy_cost", "savings_abs", "savings_frac", "quality_delta", "quality_heavy")
    hits = dict.fromkeys(names, 0)
    for seed in range(150):
        found = estimate(drawn(payoff_logs, whole, seed))
        for name in names:
            hits[name] += found[name].low <= true[name] <= found[name].high
    assert min(hits.values()) >= 133, hits


def test_57_subjects_add_up(payoff_logs, shared):
    whole = table(shared / "data" / "routellm_mmlu.csv", 0.75)
    log = payoff_logs.audited(whole | {"audit_propensity": np.where(whole["escalated"], 1.0, 0.3)})
    subjects = np.unique(log["feature"])
    assert len(subjects) == 57
    parts = [{name: column[log["feature"] == one] for name, column in log.items()} for one in subjects]
    total = add_up([payoff_log.read(part) for part in parts], 0.025, 0.0)
    told = [number for number in range(57) if number not in total.left_out]
    assert len(told) > 50
    found = [estimate(parts[number]) for number in told]
    sizes = [len(parts[number]["escalated"]) for number in told]
    for name in ("savings_abs", "always_heavy_cost", "cascade_cost", "quality_delta", "audit_tax"):
        whole_sum = sum(size * one[name].value for size, one in zip(sizes, found, strict=True))
        assert total.requests * total.estimates[name].value == pytest.approx(whole_sum), name
    true = payoff_logs.by_definition(whole)["savings_frac"]
    assert total.estimates["savings_frac"].value == pytest.approx(true, abs=0.02)


def test_advice_keeps_its_promise_on_measured_answers(payoff_logs, greengate):
    """80 logs of 2000, seeds fixed; a loss of two points is allowed."""
    whole = greengate(SMALL, 0.2)
    broke = point_broke = 0
    for seed in range(80):
        found = advise(drawn(payoff_logs, whole, seed), target_loss=0.02)
        for number, threshold in enumerate((found.guaranteed, found.point)):
            if threshold is not None:
                kept = whole["confidence"] >= threshold
                loss = -np.where(kept, whole["light_quality"] - whole["heavy_quality"], 0).mean()
                broke += number == 0 and loss > 0.02
                point_broke += number == 1 and loss > 0.02
    assert broke <= 5
    assert point_broke > 16
