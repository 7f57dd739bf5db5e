"""Mutations of outcomes, units of work, what they cost, and `gputrace run`."""

from __future__ import annotations

from mutations import Mutation

OUTCOMES = "gputrace/outcomes.py"
VALUES = "gputrace/outcomes_values.py"
REGISTER = "gputrace/call_register.py"
CALL = "gputrace/call.py"
SPANS = "gputrace/telemetry/spans.py"
ATTRIBUTION = "gputrace/attribution.py"
CURRENT = "gputrace/attribution_current.py"
SETTLER = "gputrace/settler.py"
PROCESS = "gputrace/lifecycle_process.py"
RUNTIME = "gputrace/lifecycle_runtime.py"
ACHIEVEMENTS = "gputrace/analysis/achievements.py"
LATENCY = "gputrace/analysis/latency.py"
CHILD = "gputrace/cli/run_child.py"
RUN = "gputrace/cli/run.py"
COUNTED = "tests/test_outcomes.py::"
IN_PROCESSES = "tests/test_outcomes_processes.py::"
DIVIDED = "tests/analysis/test_achievements.py::"
ENCLOSING = "tests/tracking/test_enclosing.py::"
RUNS = "tests/cli/test_run.py::"

MUTATIONS = [
    Mutation(
        "outcomes: a feature that is given loses to the request's",
        OUTCOMES,
        "feature or billed.feature, tenant",
        "billed.feature or feature, tenant",
        COUNTED + "test_a_late_outcome_is_counted_for_its_request",
    ),
    Mutation(
        "outcomes: one of another request is counted for what it is told in",
        OUTCOMES,
        "            billed = call_register.attribution_of(request_id)",
        "            scope = scope_in_force()\n"
        "            billed = call_register.attribution_of(request_id) or (scope and scope.attribution)",
        COUNTED + "test_a_request_of_another_process_is_counted_for_nobody_here",
    ),
    Mutation(
        "outcomes: a request is looked up by its number alone",
        REGISTER,
        "    if instance != identity.settled():\n        return None\n",
        "",
        COUNTED + "test_a_call_of_another_process_with_a_number_that_this_one_knows_is_not_ours",
    ),
    Mutation(
        "outcomes: requests are remembered for ever",
        REGISTER,
        "        while len(_known) > LIMIT:",
        "        while False:",
        COUNTED + "test_the_requests_asked_for_first_are_forgotten_first",
    ),
    Mutation(
        "outcomes: the last request asked for is forgotten first",
        REGISTER,
        "popitem(last=False)",
        "popitem(last=True)",
        COUNTED + "test_the_requests_asked_for_first_are_forgotten_first",
    ),
    Mutation(
        "outcomes: an ended call stays in memory",
        REGISTER,
        "                _known[call.number] = call.attribution",
        "                _known[call.number] = call",
        COUNTED + "test_an_ended_call_is_not_kept_alive",
    ),
    Mutation(
        "outcomes: every call is remembered",
        CALL,
        '        """The same, for who only shows it."""\n',
        '        """The same, for who only shows it."""\n        call_register.remember(self)\n',
        COUNTED + "test_the_spans_own_look_at_identities_makes_nothing_forgotten",
    ),
    Mutation(
        "outcomes: not a number is an amount",
        VALUES,
        "    if 0 <= amount <= LARGEST:",
        "    if not (amount < 0 or amount > LARGEST):",
        COUNTED + "test_an_amount_that_is_none_is_dropped_with_one_line",
    ),
    Mutation(
        "outcomes: an amount that no metric can carry",
        VALUES,
        "    if 0 <= amount <= LARGEST:",
        "    if 0 <= amount < float('inf'):",
        COUNTED + "test_an_amount_that_is_none_is_dropped_with_one_line",
    ),
    Mutation(
        "outcomes: whoever finds a sum being made makes another",
        OUTCOMES,
        "            if self._summing:\n                return\n",
        "",
        COUNTED + "test_a_count_in_the_middle_of_a_sum_is_not_lost",
    ),
    Mutation(
        "outcomes: the queue waits for a reader",
        OUTCOMES,
        "        if len(self._queue) >= _LONG_QUEUE:",
        "        if False:",
        COUNTED + "test_what_nobody_reads_is_summed_all_the_same",
    ),
    Mutation(
        "outcomes: names are not capped",
        OUTCOMES,
        "return {name: self._totals.kept(name, value) for name",
        "return {name: value for name",
        COUNTED + "test_names_beyond_the_limit_fold_and_nothing_is_lost",
    ),
    Mutation(
        "outcomes: tenants are on metrics unasked",
        OUTCOMES,
        "        tenant = billed.tenant if self._with_tenant else None",
        "        tenant = billed.tenant",
        COUNTED + "test_a_tenant_is_on_metrics_when_asked_for",
    ),
    Mutation(
        "outcomes: what is declared shows only when it is counted",
        OUTCOMES,
        "        for name in declared:",
        "        for name in ():",
        IN_PROCESSES + "test_the_variable_declares_too_and_before_the_first_call",
    ),
    Mutation(
        "outcomes: the span of one is a child of what is current",
        SPANS,
        "catalogue.OUTCOME_SPAN, Context(), start_time",
        "catalogue.OUTCOME_SPAN, start_time",
        COUNTED + "test_what_this_process_cannot_tell_is_left_to_the_spans",
    ),
    Mutation(
        "outcomes: the events wait for a reader of metrics",
        RUNTIME,
        "        done = self.settler.flush(deadline)\n        self.outcomes.tell()\n",
        "        done = self.settler.flush(deadline)\n",
        IN_PROCESSES + "test_with_the_users_tracer_provider_the_event_leaves_with_its_flush",
    ),
    Mutation(
        "outcomes: counted on after a shutdown",
        PROCESS,
        "    outcomes.record(None)\n",
        "",
        IN_PROCESSES + "test_after_a_shutdown_nothing_is_counted_and_nothing_fails",
    ),
    Mutation(
        "report: an outcome is a call",
        LATENCY,
        " AND outcome IS NULL",
        "",
        DIVIDED + "test_a_late_outcome_finds_its_request_by_the_spans",
    ),
    Mutation(
        "report: spans make outcomes",
        ACHIEVEMENTS,
        "        moved = min(value, counts[name, catalogue.NO_FEATURE])",
        "        moved = value",
        DIVIDED + "test_spans_never_make_more_of_an_outcome_than_was_counted",
    ),
    Mutation(
        "report: seconds of all types are added",
        ACHIEVEMENTS,
        "math.fsum(timed[0].charged) / count if len(timed) == 1 else None",
        "math.fsum(part for one in timed for part in one.charged) / count",
        DIVIDED + "test_seconds_of_two_types_are_never_added",
    ),
    Mutation(
        "report: without time an outcome is free",
        ACHIEVEMENTS,
        "if len(timed) == 1 else None",
        "if timed else 0.0",
        DIVIDED + "test_a_feature_that_held_nothing_has_no_cost_rather_than_none",
    ),
    Mutation(
        "report: what is declared and never counted is left out",
        ACHIEVEMENTS,
        "    found += [Achievement(name, None, 0) for name in names - {one.name for one in found}]\n",
        "",
        DIVIDED + "test_a_declared_outcome_without_events_is_named",
    ),
    Mutation(
        "run: one part of a process changes the scope of all",
        CURRENT,
        "        if scope is None or scope is attribution.outermost or (scope is call and over):",
        "        if scope is None or (scope is call and over):",
        ENCLOSING + "test_one_part_of_a_process_does_not_change_it_for_all",
    ),
    Mutation(
        "run: threads are billed to nobody",
        ATTRIBUTION,
        "        if scope is None:\n            scope = outermost\n",
        "",
        ENCLOSING + "test_all_that_nobody_names_is_billed_to_it",
    ),
    Mutation(
        "run: what came with a request loses to the process",
        ATTRIBUTION,
        "    if scope is None or scope is outermost:",
        "    if scope is None:",
        ENCLOSING + "test_what_came_with_a_request_wins_over_what_holds_for_the_process",
    ),
    Mutation(
        "run: is charged for an hour at most",
        SETTLER,
        "        if followed.call is attribution.outermost:",
        "        if False:",
        ENCLOSING + "test_it_may_hold_for_as_long_as_the_process_lives",
    ),
    Mutation(
        "run: everything is one trace",
        CHILD,
        "    calls.suspend(call)\n",
        "",
        RUNS
        + "test_a_thread_is_billed_like_the_program "
        + RUNS
        + "test_it_is_no_parent_of_the_programs_spans",
    ),
    Mutation(
        "run: the main module is not the program's",
        CHILD,
        '    sys.modules["__main__"] = module\n',
        "",
        RUNS + "test_multiprocessing_finds_the_main_module",
    ),
    Mutation(
        "run: a failure is no error",
        CHILD,
        "        calls.leave(call, end if end.code else None)",
        "        calls.leave(call)",
        RUNS + "test_the_exit_status_is_the_programs",
    ),
    Mutation(
        "run: SIGTERM loses what was counted",
        CHILD,
        "            gputrace.shutdown()\n",
        "",
        RUNS + "test_sigterm_ends_it_and_what_is_known_is_exported",
    ),
    Mutation(
        "run: a forked child that is ended ends the call",
        CHILD,
        "        if os.getpid() == process:",
        "        if True:",
        RUNS + "test_sigterm_ends_a_forked_child_like_any_other",
    ),
    Mutation(
        "run: what Python ignores stays ignored",
        RUN,
        "        signal.signal(getattr(signal, name), signal.SIG_DFL)",
        "        pass",
        RUNS + "test_another_program_has_the_signals_that_it_would_have",
    ),
]
