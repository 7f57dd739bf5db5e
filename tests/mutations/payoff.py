"""Mutations of the pay-off of escalation: estimators, thresholds, what is read and what is said."""

from __future__ import annotations

from mutations import Mutation

ANALYSIS = "gputrace/analysis/payoff_"
LOG = ANALYSIS + "log.py"
COUNTERFACTUAL = ANALYSIS + "counterfactual.py"
COSTS = ANALYSIS + "costs.py"
QUALITY = ANALYSIS + "quality.py"
GRADES = ANALYSIS + "grades.py"
INTERVALS = ANALYSIS + "intervals.py"
THRESHOLDS = ANALYSIS + "thresholds.py"
ADVICE = ANALYSIS + "advice.py"
TOTALS = ANALYSIS + "totals.py"
CASCADES = ANALYSIS + "cascades.py"
SEQUENCES = ANALYSIS + "sequences.py"
SIGNAL = ANALYSIS + "signal.py"
PROVISION = ANALYSIS + "provision.py"
CSV = ANALYSIS + "csv.py"
TABLES = ANALYSIS + "tables.py"
VERDICTS = ANALYSIS + "verdicts.py"
ESTIMATES = "tests/analysis/test_payoff.py::"
SWEEPS = "tests/analysis/test_payoff_thresholds.py::"
BOUNDS = "tests/analysis/test_payoff_intervals.py::"
REPORTS = "tests/analysis/test_payoff_reports.py::"
FILES = "tests/analysis/test_payoff_csv.py::"

MUTATIONS = [
    Mutation(
        "payoff: retention keeps what noise adds to a ratio",
        QUALITY,
        "value=value - bias,",
        "value=value,",
        ESTIMATES + "test_retention_is_not_raised_by_the_noise_of_few_audits",
    ),
    Mutation(
        "payoff: audits all count alike",
        LOG,
        "np.where(self.audited, 1 / np.where(self.audited, self.propensity, 1), 0)",
        "np.where(self.audited, 1.0, 0)",
        ESTIMATES + "test_audits_that_are_drawn_more_often_count_for_less",
    ),
    Mutation(
        "payoff: labels all count alike",
        GRADES,
        "    return _graded(log.light_quality, 1 / _positive(log.light_grading))",
        "    return _graded(log.light_quality, np.ones(log.size))",
        ESTIMATES + "test_labels_that_depend_on_the_request_are_weighted",
    ),
    Mutation(
        "payoff: what production has not seen is used",
        LOG,
        "    heavy_quality = np.where(heavy_ran, _grades(",
        "    heavy_quality = np.where(True, _grades(",
        ESTIMATES + "test_what_production_cannot_have_seen_is_not_used",
    ),
    Mutation(
        "payoff: savings are clipped at zero",
        COSTS,
        "        return self._bounded(1 - ratio, 1 - high, 1 - low, ",
        "        return self._bounded(max(0.0, 1 - ratio), max(0.0, 1 - high), max(0.0, 1 - low), ",
        ESTIMATES + "test_savings_are_signed",
    ),
    Mutation(
        "payoff: audits are part of what the cascade costs",
        COSTS,
        "    spent = np.where(log.escalated, np.nan_to_num(log.heavy_cost), 0)\n    rate",
        "    spent = np.nan_to_num(log.heavy_cost)\n    rate",
        ESTIMATES + "test_whatever_was_seen_the_parts_add_up",
    ),
    Mutation(
        "payoff: an escalated request costs no light run",
        COSTS,
        "        saved = np.where(self.log.kept, heavy, 0) - light",
        "        saved = np.where(self.log.kept, heavy - light, 0)",
        ESTIMATES + "test_everything_escalated_needs_no_audit",
    ),
    Mutation(
        "payoff: requests that no audit could draw are like the others",
        COUNTERFACTUAL,
        "    if log.unreachable:",
        "    if False:",
        ESTIMATES + "test_some_kept_requests_that_no_audit_could_draw_leave_it_open",
    ),
    Mutation(
        "payoff: a dear light run drags the regression",
        COUNTERFACTUAL,
        "    return plain + min(1.0, max(0.0, part)) * change",
        "    return regressed",
        ESTIMATES + "test_a_light_run_that_is_an_outlier_does_not_drag_the_regression",
    ),
    Mutation(
        "payoff: two audits make an interval",
        ANALYSIS + "figures.py",
        "LEAST_AUDITS = 30",
        "LEAST_AUDITS = 2",
        ESTIMATES + "test_under_thirty_audits_there_is_a_value_and_how_many_are_missing",
    ),
    Mutation(
        "payoff: without a discordant pair all is certain",
        INTERVALS,
        "        return Bounds(-limit, limit)",
        "        return Bounds(0.0, 0.0 * limit)",
        ESTIMATES + "test_no_discordant_pair_is_no_certainty",
    ),
    Mutation(
        "payoff: labels drawn apart are taken for pairs",
        GRADES,
        "    if not certain and not together:",
        "    if False:",
        ESTIMATES + "test_labels_drawn_apart_are_compared_apart",
    ),
    Mutation(
        "payoff: dear requests are no skewness",
        INTERVALS,
        "    skew = float((deviations**3).sum()) / squares**1.5",
        "    skew = 0.0",
        BOUNDS + "test_hall_covers_skewed_costs_better_than_students_interval",
    ),
    Mutation(
        "payoff: a tie is escalated",
        THRESHOLDS,
        "        above = log.confidence >= threshold",
        "        above = log.confidence > threshold",
        SWEEPS + "test_where_all_is_known_the_sweep_is_the_definition",
    ),
    Mutation(
        "payoff: a band holds for one threshold at a time",
        ANALYSIS + "bands.py",
        "    return max(pointwise, float(",
        "    return min(pointwise, float(",
        SWEEPS + "test_the_band_is_wider_than_an_interval",
    ),
    Mutation(
        "payoff: no audit there is support enough",
        THRESHOLDS,
        "            if inside is None or inside.count < min(rows, _LEAST_SEEN):",
        "            if inside is None or not inside.count:\n                continue\n            if False:",
        SWEEPS + "test_where_no_audit_reaches_nothing_is_said",
    ),
    Mutation(
        "payoff: the guaranteed threshold is the one that looks best",
        ADVICE,
        "        worst = -asked.bounds(kept, quantile).low",
        "        worst = -kept.delta",
        SWEEPS + "test_advice_seldom_breaks_its_target",
    ),
    Mutation(
        "payoff: a test that failed ends nothing",
        ADVICE,
        "            break\n",
        "            continue\n",
        SWEEPS + "test_the_tests_stop_at_the_first_that_fails",
    ),
    Mutation(
        "payoff: the parts do not add up to the whole",
        TOTALS,
        "        values.append(np.where(log.kept, widened, heavy.values))",
        "        values.append(heavy.values * heavy.widen)",
        REPORTS + "test_the_parts_add_up_to_the_total",
    ),
    Mutation(
        "payoff: decisions that must be left out are used",
        CASCADES,
        '    used = [row for row in rows if not row["excluded"]]',
        "    used = list(rows)",
        REPORTS + "test_decisions_that_must_be_left_out_are_counted",
    ),
    Mutation(
        "payoff: the first score wins",
        CASCADES,
        "coalesce(stage, '') ORDER BY at_ns DESC) = 1",
        "coalesce(stage, '') ORDER BY at_ns) = 1",
        REPORTS + "test_decisions_and_scores_of_a_folder_are_joined",
    ),
    Mutation(
        "payoff: a sequence is an interval",
        SEQUENCES,
        "    half = (needed + costs) / np.cumsum(bets)",
        "    half = 0.5 * (needed + costs) / np.cumsum(bets)",
        "tests/analysis/test_payoff_sequences.py::"
        "test_a_bounded_sequence_never_loses_the_truth_more_often_than_it_says",
    ),
    Mutation(
        "payoff: an inverted signal is a signal",
        SIGNAL,
        "    if high is not None and high < 0:",
        "    if False:",
        "tests/analysis/test_payoff_signal.py::test_an_inverted_signal_is_warned_about",
    ),
    Mutation(
        "payoff: an idle replica costs nothing",
        PROVISION,
        "        if self.heavy >= self.always_heavy:",
        "        if False:",
        "tests/analysis/test_payoff_verdicts.py::test_replicas_are_paid_whether_asked_or_not",
    ),
    Mutation(
        "payoff: names in a CSV file are guessed as other types",
        CSV,
        "header=True, all_varchar=True",
        "header=True",
        FILES + "test_names_are_kept_as_they_are_written",
    ),
    Mutation(
        "payoff: what is wrong in a CSV file is named by the line above",
        CSV,
        "begin = lines.line_num + 1",
        "begin = lines.line_num",
        FILES + "test_what_is_wrong_is_named_by_column_and_line",
    ),
    Mutation(
        "payoff: a cost may be less than nothing",
        COSTS,
        "replace(cost, low=max(0.0, cost.low))",
        "cost",
        ESTIMATES + "test_no_cost_is_below_nothing",
    ),
    Mutation(
        "payoff: two escalated requests are a part of the sum",
        TOTALS,
        "else log.size >= LEAST_AUDITS",
        "else True",
        REPORTS + "test_a_dear_request_or_two_do_not_spoil_the_total",
    ),
    Mutation(
        "payoff: a loss that may be beyond the target is not said",
        VERDICTS,
        "    may = target_loss is not None and delta.low < -target_loss",
        "    may = target_loss is not None and delta.value < -target_loss",
        "tests/analysis/test_payoff_verdicts.py::test_a_loss_that_may_be_beyond_the_target_is_said",
    ),
    Mutation(
        "payoff: audits that no column names are not missed",
        TABLES,
        "    refuse_forgotten_audits(table)\n",
        "",
        FILES + "test_audits_without_a_column_that_says_so_are_refused",
    ),
]
