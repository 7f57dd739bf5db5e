"""What the gauge says of the estimates: bounds that may be watched, or how many more audits these take."""

from __future__ import annotations

import numpy as np
import pytest

from gputrace import catalogue
from gputrace.analysis.payoff import estimate
from gputrace.analysis.payoff_sequences import LEAST_VALUES
from gputrace.analysis.payoff_watch import rows_of


def shown(log):
    rows = rows_of("qa", "answer", estimate(log), 0.95)
    return {(of[catalogue.ESCALATION_QUANTITY], of[catalogue.ESCALATION_BOUND]): value for of, value in rows}


def with_audits(payoff_logs, count):
    """A log of which so many kept requests are audited."""
    table = payoff_logs.whole(400, rate=0.2)
    log = payoff_logs.audited(table | {"audit_propensity": np.ones(400)})
    kept = np.flatnonzero(~log["escalated"])
    log["audit_propensity"] = np.where(log["escalated"], 1.0, count / len(kept))
    hidden = kept[count:]
    log["audited"][hidden] = False
    for name in ("heavy_cost", "heavy_quality"):
        log[name][hidden] = np.nan
    return log


@pytest.mark.parametrize("audits", [12, 30, 42, 49, 50, 80])
def test_what_is_needed_is_what_bounds_begin_at(payoff_logs, audits):
    found = shown(with_audits(payoff_logs, audits))
    assert found["audit_count", "value"] == audits
    assert found["audits_needed", "value"] == max(0, LEAST_VALUES - audits)
    assert (("quality_delta", "low") in found) == (audits >= LEAST_VALUES)


def test_none_is_needed_where_all_is_escalated(payoff_logs):
    table = payoff_logs.whole(40)
    table |= {"escalated": np.ones(40, dtype=bool), "audit_propensity": np.ones(40)}
    assert shown(payoff_logs.audited(table))["audits_needed", "value"] == 0
