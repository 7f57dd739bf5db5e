"""One sentence for the estimates, whatever they are."""

from __future__ import annotations

import pytest

from gputrace.analysis.payoff import Estimate
from gputrace.analysis.payoff_provision import Provision
from gputrace.analysis.payoff_verdicts import number, verdict


def said(saved, delta=None, *, audits=100, rate=0.3, target=None):
    return verdict(
        {
            "savings_frac": saved,
            "quality_delta": delta or Estimate(-0.006, -0.017, 0.005),
            "audit_count": Estimate(audits),
            "escalation_rate": Estimate(rate),
        },
        target,
    )


def test_bounds_that_are_not_as_far_both_ways_are_given_as_they_are():
    assert said(Estimate(0.9, 0.5, 1.0)).startswith("pays: saves 90 % (50 to 100)")
    assert said(SAVES, Estimate(-0.01, -0.06, 0.01)).endswith(
        ", loses 1.0 pt (−6.0 to 1.0, below 0 is a loss)"
    )


UNGRADED = Estimate(None, reason="no heavy answer of an audit was graded")
FEW_GRADES = Estimate(-0.01, reason="only 20 graded audits: bounds need 30", needs=10)
FEW = Estimate(0.2, reason="only 20 audits: bounds need 30", needs=10)
NONE = Estimate(None, reason="no kept request was audited", needs=30)
UNREACHABLE = Estimate(None, reason="3 kept requests had an audit propensity of 0")
SAVES = Estimate(0.22, 0.18, 0.26)


@pytest.mark.parametrize(
    ("saved", "delta", "expected"),
    [
        (SAVES, None, "pays: saves 22 % ± 4.0, loses 0.6 pt ± 1.1"),
        (
            SAVES,
            Estimate(0.067, 0.02, 0.114),
            "pays: saves 22 % ± 4.0, and is better than always-heavy by 6.7 pt ± 4.7",
        ),
        (SAVES, Estimate(0.01, -0.01, 0.03), "pays: saves 22 % ± 4.0, gains 1.0 pt ± 2.0"),
        (SAVES, Estimate(0.0, -0.02, 0.02), "pays: saves 22 % ± 4.0, quality as always-heavy's ± 2.0 pt"),
        (SAVES, UNGRADED, "pays: saves 22 % ± 4.0; quality unknown: no heavy answer of an audit was graded"),
        (SAVES, FEW_GRADES, "pays: saves 22 % ± 4.0; loses 1.0 pt so far, needs 10 more graded audits"),
        (Estimate(-0.039, -0.05, -0.028), None, "loses money: −3.9 % ± 1.1, loses 0.6 pt ± 1.1"),
        (Estimate(-0.04, -0.09, 0.01), None, "probably loses money: −4.0 % ± 5.0, loses 0.6 pt ± 1.1"),
        (Estimate(0.04, -0.01, 0.09), None, "probably pays: saves 4.0 % ± 5.0, loses 0.6 pt ± 1.1"),
        (
            Estimate(0.02, -0.02, 0.06),
            None,
            "cannot tell yet: saves 2.0 % ± 4.0, needs about 300 more audits",
        ),
        (Estimate(0.0, -0.02, 0.02), None, "cannot tell yet: saves 0.0 % ± 2.0, which may be nothing"),
        (FEW, None, "cannot tell yet: saves 20 % so far, needs 10 more audits"),
        (NONE, None, "cannot tell yet: needs 30 more audits"),
        (UNREACHABLE, None, "cannot tell yet: 3 kept requests had an audit propensity of 0"),
    ],
)
def test_the_sentence(saved, delta, expected):
    assert said(saved, delta) == expected


def test_a_loss_beyond_the_target_is_said():
    delta = Estimate(-0.05, -0.061, -0.039)
    assert said(SAVES, delta, target=0.02).endswith("but loses 5.0 pt ± 1.1, more than the 2.0 pt allowed")
    assert said(SAVES, delta, target=0.07).endswith(", loses 5.0 pt ± 1.1")


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (
            Estimate(-0.058, -0.122, 0.006),
            ", loses 5.8 pt ± 6.4; a loss above the 2.0 pt allowed is not ruled out",
        ),
        (
            Estimate(0.01, -0.03, 0.05),
            ", gains 1.0 pt ± 4.0; a loss above the 2.0 pt allowed is not ruled out",
        ),
        (
            Estimate(-0.01, -0.021, 0.001),
            ", loses 1.0 pt ± 1.1; a loss above the 2.0 pt allowed is not ruled out",
        ),
        (
            Estimate(0.0, -0.03, 0.03),
            ", quality as always-heavy's ± 3.0 pt; a loss above the 2.0 pt allowed is not ruled out",
        ),
        (Estimate(-0.01, -0.019, -0.001), ", loses 1.0 pt ± 0.9"),
        (Estimate(0.0, -0.01, 0.01), ", quality as always-heavy's ± 1.0 pt"),
    ],
)
def test_a_loss_that_may_be_beyond_the_target_is_said(delta, expected):
    assert said(SAVES, delta, target=0.02) == "pays: saves 22 % ± 4.0" + expected


def test_where_everything_is_escalated_the_reason_is_plain():
    text = said(Estimate(-0.058, -0.059, -0.057), rate=1.0)
    assert text == "loses money: −5.8 %, since every request is escalated after its light run"


@pytest.mark.parametrize(("value", "text"), [(0.04, "0.0"), (-0.04, "0.0"), (-9.94, "−9.9"), (9.96, "10")])
def test_numbers_have_two_digits(value, text):
    assert number(value) == text


def test_replicas_are_paid_whether_asked_or_not():
    """Of an 8-GPU replica that has to run anyway, no escalation saves anything."""
    same = Provision(1, 1, 1, 1.0, 8.0)
    assert same.savings_frac == pytest.approx(-0.125)
    assert "nothing is saved at this load" in same.in_words()
    fewer = Provision(1, 2, 6, 1.0, 8.0)
    assert fewer.savings_frac == pytest.approx(1 - 17 / 48)
    assert "saves 65%" in fewer.in_words()
    assert "loses" in Provision(30, 5, 6, 1.0, 1.0).in_words()
    assert Provision(1, 0, 0, 1.0, 1.0).savings_frac is None
    assert "nothing can be saved" in Provision(1, 0, 1, 1.0, 0.0).in_words()
