"""Mutations of boards and rules: what others shipped, and what would be as wrong."""

from __future__ import annotations

from mutations import Mutation

OVERVIEW = "grafana/spend_overview.py"
FEATURE = "grafana/feature_detail.py"
HEALTH = "grafana/telemetry_health.py"
PROMQL = "grafana/promql.py"
RECORDED = "grafana/recorded.py"
ALERTS = "grafana/alerts.py"
BOARD = "grafana/board.py"
TABLES = "grafana/tables.py"
SOURCES = "grafana/sources.py"
BUDGETS = "gputrace/settings_budgets.py"
CONTRACT = "tests/grafana/test_contract.py::"
RULES = "tests/grafana/test_rules.py::"
ANY_SOURCE = "tests/grafana/test_sources.py::"
TOTALS = "tests/grafana/test_totals.py::"
SERVERS = "tests/grafana/test_model_servers.py::"

MUTATIONS = [
    Mutation(
        "boards: what is beyond the ten largest features is not in the ring",
        "grafana/spend_overview.py",
        "_LARGEST = f'{_TOP} or label_replace(",
        "_LARGEST = f'{_TOP} and label_replace(",
        "tests/grafana/test_totals.py::test_the_ring_has_ten_parts_and_one_for_all_others",
    ),
    Mutation(
        "boards: totals read more series than they need",
        PROMQL,
        "self.select(sums[0], *matchers)",
        "self.select(sums[-1], *matchers)",
        TOTALS + "test_a_total_reads_the_fewest_series_that_have_its_labels",
    ),
    Mutation(
        "boards: totals read sums that lack a label",
        PROMQL,
        "if needed <= known_labels(one)]",
        "if known_labels(one)]",
        TOTALS + "test_a_total_reads_the_fewest_series_that_have_its_labels",
    ),
    Mutation(
        "boards: totals add up rates",
        PROMQL,
        "self.select(sums[0], *matchers)",
        "self.select(source, *matchers)",
        CONTRACT + "test_windows_are_those_of_grafana_or_of_a_rule",
    ),
    Mutation(
        "boards: one window that is missing forbids a comparison",
        PROMQL,
        "> 0) <= 1.01",
        "> 0) <= 1",
        TOTALS + "test_ranges_are_compared_if_both_were_recorded",
    ),
    Mutation(
        "rules: sums of a window are of a second",
        RECORDED,
        '({SHORT_S} * {rate.name})"',
        '({rate.name})"',
        TOTALS + "test_a_total_counts_every_second_once",
    ),
    Mutation(
        "rules: sums are recorded five times a window",
        "grafana/rules.py",
        '("gputrace-sums", SUMS, SHORT)',
        '("gputrace-sums", SUMS, _EVERY)',
        RULES + "test_sums_are_recorded_once_a_window",
    ),
    Mutation(
        "boards: seconds are shown as milliseconds",
        "grafana/units.py",
        'SECONDS = Unit("s")',
        'SECONDS = Unit("ms")',
        CONTRACT + "test_the_unit_is_what_the_query_measures",
    ),
    Mutation(
        "boards: a share of 0 to 1 is shown as a percentage of 0 to 100",
        "grafana/units.py",
        'SHARE = Unit("percentunit", 1)',
        'SHARE = Unit("percent", 1)',
        CONTRACT + "test_the_unit_is_what_the_query_measures",
    ),
    Mutation(
        "boards: money by an unexplained factor",
        OVERVIEW,
        '_PER_THOUSAND = f"1000 * ',
        '_PER_THOUSAND = f"10000 * ',
        CONTRACT + "test_the_unit_is_what_the_query_measures",
    ),
    Mutation(
        "boards: a metric that nothing emits",
        HEALTH,
        "series = 'count by (__name__) ({__name__=~\"gputrace_.+\"})'",
        "series = 'count by (job) (gputrace_sdk_dropped_total)'",
        CONTRACT + "test_every_metric_and_label_is_in_the_catalogue",
    ),
    Mutation(
        "boards: the sources do not ask the catalogue",
        SOURCES,
        "    if source not in catalogue.METRICS:",
        "    if False:",
        ANY_SOURCE + "test_a_metric_that_the_catalogue_does_not_hold_is_refused",
    ),
    Mutation(
        "boards: a counter since the process began",
        PROMQL,
        'return f"sum {by(*per)}(increase({self.select(source, *matchers, suffix=suffix)}[$__range]))"',
        'return f"sum {by(*per)}({self.select(source, *matchers, suffix=suffix)})"',
        CONTRACT + "test_counters_are_read_through_rate_or_increase",
    ),
    Mutation(
        "boards: a division by zero",
        PROMQL,
        'return f"{part} / ({whole} > 0)"',
        'return f"{part} / ({whole})"',
        CONTRACT + "test_divisions_are_guarded",
    ),
    Mutation(
        "alerts: a simulation pages",
        "grafana/alerts.py",
        ', match(ENVIRONMENT, catalogue.SIMULATION, "!="))',
        ")",
        "tests/grafana/test_rules.py::test_nobody_is_woken_for_a_simulation",
    ),
    Mutation(
        "boards: where nothing reports nothing is wrong",
        PROMQL,
        'return f"{expr} or 0 * {there}"',
        'return f"{expr} or vector(0)"',
        CONTRACT + "test_nothing_is_said_of_what_is_not_there",
    ),
    Mutation(
        "boards: All matches only what has the label",
        BOARD,
        'found["allValue"] = ".*"',
        'found["allValue"] = ".+"',
        CONTRACT + "test_all_matches_what_has_no_such_label",
    ),
    Mutation(
        "boards: several values are compared with one",
        PROMQL,
        '"=~" if several else "="',
        '"="',
        CONTRACT + "test_all_matches_what_has_no_such_label",
    ),
    Mutation(
        "boards: two currencies are added",
        PROMQL,
        '    "currency": (catalogue.CURRENCY, False),',
        '    "currency": (catalogue.HW_PARENT, False),',
        CONTRACT + "test_money_is_of_one_currency",
    ),
    Mutation(
        "boards: the whole range is asked for at every step",
        OVERVIEW,
        'Query(f"sort_desc({_LARGEST})", "{{gputrace_feature}}", instant=True)',
        'Query(f"sort_desc({_LARGEST})", "{{gputrace_feature}}")',
        CONTRACT + "test_the_whole_range_and_topk_are_asked_for_once",
    ),
    Mutation(
        "boards: bars of a table are measured by all its columns",
        TABLES,
        '"fieldMinMax": True',
        '"fieldMinMax": False',
        CONTRACT + "test_bars_in_tables_are_measured_by_their_own_column",
    ),
    Mutation(
        "rules: quantiles lose the bounds of their buckets",
        PROMQL,
        "{by('le', *per)}",
        "{by(*per)}",
        CONTRACT + "test_quantiles_keep_the_bounds_of_their_buckets",
    ),
    Mutation(
        "rules: every publisher of a device is added",
        RECORDED,
        '({each} and on ({_ONE_PUBLISHER}) {chosen})"',
        '({each} unless on ({_ONE_PUBLISHER}) absent({chosen}))"',
        RULES + "test_one_publisher_of_a_device_counts",
    ),
    Mutation(
        "rules: an hour holds a step of five minutes too many",
        PROMQL,
        'HOUR_OF_STEPS = "59m59s999ms"',
        'HOUR_OF_STEPS = "1h"',
        RULES + "test_spend_survives_a_reset_and_adds_processes",
    ),
    Mutation(
        "rules: the month to date knows no month",
        RECORDED,
        '_THIS_MONTH = "month(vector(time() - 1)) == on ()',
        '_THIS_MONTH = "month(vector(time() - 1)) != bool on ()',
        RULES + "test_the_month_begins_on_the_first",
    ),
    Mutation(
        "alerts: budgets of several processes are added",
        ALERTS,
        '_BUDGET = f"max {by(*_SPENDER)}',
        '_BUDGET = f"sum {by(*_SPENDER)}',
        RULES + "test_an_alert_fires_when_it_should_and_not_otherwise",
    ),
    Mutation(
        "alerts: escalation is judged by a handful of audits",
        ALERTS,
        "({_AUDITED} > 30)",
        "({_AUDITED} > 0)",
        RULES + "test_an_alert_fires_when_it_should_and_not_otherwise",
    ),
    Mutation(
        "budgets: one of nothing is taken",
        BUDGETS,
        'not 0 < amount < float("inf")',
        'not -2 < amount < float("inf")',
        "tests/test_settings_budgets.py::test_what_is_wrong_is_named",
    ),
    Mutation(
        "model servers: all devices have one price",
        "grafana/server_queries.py",
        "_SERVER = (catalogue.MODEL, catalogue.HW_TYPE, catalogue.HW_NAME)",
        "_SERVER = (catalogue.MODEL, catalogue.HW_TYPE)",
        SERVERS + "test_each_kind_of_device_has_its_price",
    ),
    Mutation(
        "model servers: cached tokens are computed ones",
        "grafana/server_queries.py",
        '"prefill|decode", "=~"',
        '"prefill|decode|cached", "=~"',
        SERVERS + "test_a_number_is_what_was_exported",
    ),
    Mutation(
        "model servers: a batch holds the chosen feature alone",
        "grafana/model_servers.py",
        "SERVERS.now(recorded.STEP_MEMBERS, per=_MODEL)",
        "SCOPE.now(recorded.STEP_MEMBERS, per=_MODEL)",
        SERVERS + "test_a_batch_holds_the_sequences_of_everybody",
    ),
    Mutation(
        "model servers: a share is of the chosen features",
        "grafana/server_queries.py",
        "whole = SERVERS.total(",
        "whole = SCOPE.total(",
        SERVERS + "test_a_share_is_of_all_time_of_the_model",
    ),
    Mutation(
        "model servers: weights are of any process",
        "grafana/server_weights.py",
        "and on ({labels(INSTANCE, *_REGIME)}) {best}",
        "and on ({labels(*_REGIME)}) {best}",
        SERVERS + "test_weights_are_of_the_process_that_learnt_most",
    ),
    Mutation(
        "model servers: what steps never do takes nothing",
        "grafana/server_weights.py",
        'f"{learnt(catalogue.STEP_WEIGHT, *per)} > 0"',
        "learnt(catalogue.STEP_WEIGHT, *per)",
        SERVERS + "test_what_steps_never_do_is_not_free",
    ),
]
