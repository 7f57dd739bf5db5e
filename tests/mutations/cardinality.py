"""Mutations of the cap on names: who keeps one, what folds first, and what must never move."""

from __future__ import annotations

from mutations import Mutation

CAP = "gputrace/cardinality.py"
SERIES = "gputrace/cardinality_series.py"
ACCOUNTS = "gputrace/accounts.py"
OF_CAP = "tests/test_cardinality.py::"
OF_EXPORTS = "tests/telemetry/test_cardinality_exports.py::"

MUTATIONS = [
    Mutation(
        "hindsight 850: later values of an attribute keep their names too",
        CAP,
        "            if len(kept) < self._value_limit:\n",
        "            if True:\n",
        OF_CAP + "test_the_first_values_of_an_attribute_keep_their_names",
    ),
    Mutation(
        "cardinality: a higher limit gives names to values that were folded",
        CAP,
        "            self._full.add(name)\n",
        "",
        OF_CAP + "test_what_was_folded_stays_folded_whatever_the_limit_is_by_then",
    ),
    Mutation(
        "cardinality: a higher limit gives names to sets that were folded",
        CAP,
        "            self.refused.add(step)\n",
        "",
        OF_CAP + "test_what_was_folded_stays_folded_whatever_the_limit_is_by_then",
    ),
    Mutation(
        "opentelemetry-python 2700: an instrument may have any number of sets",
        CAP,
        "if step in self.refused or len(self.series) >= most:",
        "if step in self.refused:",
        OF_EXPORTS + "test_no_point_decreases_and_no_sum_changes_whatever_folds",
    ),
    Mutation(
        "cardinality: operations fold before tenants",
        CAP,
        "    _Step(0.85, (catalogue.TENANT,)),\n    _Step(0.92, (catalogue.OPERATION,)),\n",
        "    _Step(0.85, (catalogue.OPERATION,)),\n    _Step(0.92, (catalogue.TENANT,)),\n",
        OF_CAP + "test_tenants_fold_first_then_operations_then_variants",
    ),
    Mutation(
        "cardinality: tenants leave no room for what comes after them",
        CAP,
        "    _Step(0.70, ()),\n    _Step(0.85, (catalogue.TENANT,)),\n",
        "    _Step(1.00, ()),\n    _Step(1.00, (catalogue.TENANT,)),\n",
        OF_CAP + "test_a_new_feature_is_told_from_the_rest_after_tenants_took_their_share",
    ),
    Mutation(
        "cardinality: declared features fold like any other",
        CAP,
        "            if not (step.spares and self._is_declared(name, attributes[name]))\n",
        "",
        OF_CAP + "test_a_declared_feature_keeps_its_name_when_all_sets_are_taken",
    ),
    Mutation(
        "cardinality: no room is kept for declared features",
        CAP,
        "        reserved = _ROWS_OF_DECLARED * named_features\n",
        "        reserved = 0 * named_features\n",
        OF_CAP + "test_a_declared_feature_keeps_its_name_when_all_sets_are_taken",
    ),
    Mutation(
        "cardinality: declared values take part in the race for names",
        CAP,
        "            self._kept.setdefault(name, set()).update(values)\n",
        "            self._kept.setdefault(name, set())\n",
        OF_CAP + "test_declared_values_keep_their_names_whatever_comes_before",
    ),
    Mutation(
        "cardinality: work that nobody named folds with late features",
        CAP,
        "        if value in kept or (name == catalogue.FEATURE and value in _ROWS_OF_OUR_OWN):\n",
        "        if value in kept:\n",
        OF_CAP + "test_work_that_nobody_named_keeps_its_row_beside_any_number_of_features",
    ),
    Mutation(
        "cardinality: how time was measured folds too",
        CAP,
        "            name: attributes[name] if name in CLOSED else catalogue.OTHER\n",
        "            name: catalogue.OTHER\n",
        OF_CAP + "test_what_is_closed_by_nature_never_folds",
    ),
    Mutation(
        "cardinality: rows that fold replace each other",
        CAP,
        "shown[series] + value if series in shown else value",
        "value",
        OF_CAP + "test_rows_that_fold_are_summed",
    ),
    Mutation(
        "cardinality: a folded value is counted once, for all the calls that it is folded in",
        ACCOUNTS,
        "        self.folded += folded\n",
        "        self.folded = max(self.folded, folded)\n",
        OF_CAP + "test_each_folded_value_of_a_finished_call_is_counted",
    ),
    Mutation(
        "cardinality: what is declared is not shown until it is used",
        SERIES,
        "self._declared.append({catalogue.FEATURE: self.cap.value(catalogue.FEATURE, feature)})",
        "pass",
        OF_EXPORTS + "test_declared_features_are_exported_from_the_start",
    ),
    Mutation(
        "cardinality: what is declared later is never shown",
        ACCOUNTS,
        '        """Return all counters, rounded."""\n        self._show_declared()\n',
        '        """Return all counters, rounded."""\n',
        OF_CAP + "test_what_is_declared_later_is_shown_from_then_on",
    ),
    Mutation(
        "cardinality: series are remembered for ever",
        SERIES,
        "    if len(remembered) >= _REMEMBERED_LIMIT:\n",
        "    if False:\n",
        OF_CAP + "test_series_that_requests_bring_are_forgotten",
    ),
    Mutation(
        "cardinality: every site remembers as much as all of them may",
        "gputrace/call_site.py",
        "            if len(_merged) > _MERGED_LIMIT:\n",
        "            if len(self.merged) > _MERGED_LIMIT:\n",
        OF_CAP + "test_attributions_that_requests_make_are_forgotten_however_many_sites_there_are",
    ),
    Mutation(
        "cardinality: a tenant's calls are counted under the tenant that came before",
        SERIES,
        "        key = (_fields(billed), tenant, call.site.operation, account, estimated, status)\n",
        "        key = (_fields(billed), call.site.operation, account, estimated, status)\n",
        OF_EXPORTS + "test_every_process_of_one_cap_gives_the_same_names",
    ),
    Mutation(
        "cardinality: the cost by currency has sets without number",
        ACCOUNTS,
        "self.names.cap.rows(catalogue.FEATURE_COST, costs.by_feature())",
        "costs.by_feature()",
        "tests/test_costs.py::test_a_second_currency_makes_no_more_sets_than_an_instrument_may_have",
    ),
    Mutation(
        "cardinality: energy has sets without number",
        "gputrace/settler.py",
        "self.totals.bounded(hardware.rows(publisher))",
        "hardware.rows(publisher)",
        "tests/test_hardware_features.py::test_energy_has_no_more_sets_than_an_instrument_may_have",
    ),
    Mutation(
        "cardinality: outcomes have sets without number",
        "gputrace/outcomes.py",
        "            attributes = self._totals.counted_as(metric, self._attributes(counted))\n",
        "            attributes = self._attributes(counted)\n",
        OF_CAP + "test_outcomes_units_and_requests_have_no_more_sets_than_an_instrument_may_have",
    ),
    Mutation(
        "cardinality: a forked child has names of its own",
        "gputrace/lifecycle_process.py",
        "self.own, self.instruments, self.cap)",
        "self.own, self.instruments, Cap())",
        "tests/test_lifecycle_fork.py::test_names_are_those_of_the_parent",
    ),
]
