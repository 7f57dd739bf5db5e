"""Mutations of cascades: decisions, stages, audits, scores and the records of them."""

from __future__ import annotations

from mutations import Mutation

POLICY = "gputrace/cascades_policy.py"
AUDITS = "gputrace/cascades_audits.py"
SHADOW = "gputrace/cascades_shadow.py"
REQUESTS = "gputrace/cascades_requests.py"
RECORDS = "gputrace/cascades_records.py"
COUNTING = "gputrace/cascades_counting.py"
RECORDING = "gputrace/cascades_recording.py"
CASCADES = "gputrace/cascades.py"
STAGED = "gputrace/staged.py"
STAGES = "gputrace/settler_stages.py"
CHARGES = "gputrace/settler_charges.py"
FEATURES = "gputrace/hardware_features.py"
BATCHING = "gputrace/batching.py"
CALL = "gputrace/call.py"
PROCESS = "gputrace/lifecycle_process.py"
PROVIDERS = "gputrace/telemetry/providers.py"
EVENTS = "gputrace/telemetry/events.py"
RUNTIME = "gputrace/lifecycle_runtime.py"
DECIDED = "tests/test_cascades.py::"
AUDITED = "tests/test_cascades_audits.py::"
DECORATED = "tests/test_cascades_decorator.py::"
HELD = "tests/test_cascades_holding.py::"
JOINING = "gputrace/analysis/payoff_cascades.py"
JOINED = "tests/analysis/test_payoff_cascades.py::"
SCORED = "tests/test_cascades_scores.py::"
POWERED = "tests/test_cascades_energy.py::"
IN_PROCESSES = "tests/test_cascades_processes.py::"

MUTATIONS = [
    Mutation(
        "cascades: a decision under way at the end is lost",
        REQUESTS,
        "self._counting.deciding(self)",
        "pass",
        IN_PROCESSES + "test_a_decision_that_is_under_way_at_the_end_is_left_out_by_name",
    ),
    Mutation(
        "cascades: a decision names no request around it",
        RECORDS,
        "if call.root is not None and call.root.site.is_request",
        "if False and call.root is not None",
        SCORED + "test_a_decision_names_the_request_around_it",
    ),
    Mutation(
        "cascades: a score of no request is kept",
        "gputrace/cascades_scores.py",
        '"" if request_id is None else str(request_id)',
        "str(request_id)",
        SCORED + "test_a_score_that_cannot_be_used_is_left_out_with_one_line",
    ),
    Mutation(
        "cascades: a score of a request counts for every decision in it",
        JOINING,
        "GROUP BY enclosing_id, cascade HAVING count(*) = 1",
        "GROUP BY enclosing_id, cascade",
        JOINED + "test_scores_that_belong_to_no_decision_are_counted",
    ),
    Mutation(
        "cascades: a score of one decision is that of those inside it too",
        JOINING,
        "own.request_id = decision.enclosing_id",
        "own.request_id = '' || decision.cascade",
        JOINED + "test_a_score_by_an_identity_that_a_decision_has_itself_is_of_no_other",
    ),
    Mutation(
        "cascades: a heavy stage of a kept request is lost",
        RECORDS,
        "if heavy and not request.escalated:",
        "if False and heavy:",
        DECIDED + "test_a_heavy_stage_that_ran_although_the_answer_was_kept_is_told_and_the_row_left_out",
    ),
    Mutation(
        "cascades: an audit is told in place of a kept request's own heavy stage",
        RECORDS,
        "if audit is not None and audited and not heavy:",
        "if audit is not None and audited:",
        DECIDED + "test_a_heavy_stage_that_ran_although_the_answer_was_kept_is_told_and_the_row_left_out",
    ),
    Mutation(
        "cascades: an awaited audit holds only its steps",
        SHADOW,
        "hold=request.cascade.hold or HOLD_CALL",
        'hold="steps"',
        HELD + "test_what_is_awaited_counts_for_escalated_and_audited_requests_alike",
    ),
    Mutation(
        "cascades: what an audit awaits and no coroutine is held by nobody",
        SHADOW,
        "self._await(within(_awaiting)(result), container)",
        "self._await(result, container)",
        HELD + "test_what_is_awaited_counts_for_escalated_and_audited_requests_alike",
    ),
    Mutation(
        "cascades: a stage holds only its steps in a tracked coroutine",
        REQUESTS,
        "return self._entered(self._awaiting)",
        "return self._entered(self._site)",
        HELD + "test_what_is_awaited_counts_for_escalated_and_audited_requests_alike",
    ),
    Mutation(
        "cascades: the audit of two functions holds not as they do",
        "gputrace/cascades_decorator.py",
        "stages=stages, hold=HOLD_NONE, **options",
        "stages=stages, **options",
        HELD + "test_two_functions_hold_as_they_were_tracked_in_audits_too",
    ),
    Mutation(
        "cascades: a tensor is no confidence",
        POLICY,
        "number = as_scalar(confidence)",
        "number = as_number(confidence)",
        DECIDED + "test_a_tensor_of_one_element_is_a_number",
    ),
    Mutation(
        "cascades: a tie is escalated",
        POLICY,
        "number < threshold if self.higher_is_better else number > threshold",
        "number <= threshold if self.higher_is_better else number >= threshold",
        DECIDED + "test_a_request_below_the_threshold_is_escalated_and_a_tie_is_kept",
    ),
    Mutation(
        "cascades: a low value that is the surer escalates",
        POLICY,
        "number < threshold if self.higher_is_better else number > threshold",
        "number < threshold",
        DECIDED + "test_where_a_low_value_is_the_surer_a_high_one_escalates",
    ),
    Mutation(
        "cascades: not a number is confident",
        POLICY,
        "return value if math.isfinite(value) else None",
        "return value",
        DECIDED + "test_what_is_no_confidence_escalates_and_is_told_once",
    ),
    Mutation(
        "cascades: a rule that raises keeps",
        POLICY,
        "        escalated = True\n        with faults.tolerated",
        "        escalated = False\n        with faults.tolerated",
        DECIDED + "test_a_rule_that_raises_escalates_and_is_told_once",
    ),
    Mutation(
        "cascades: the policy keeps its name with another threshold",
        POLICY,
        "            name=self.given_name,",
        "            name=self.name,",
        DECIDED + "test_the_threshold_in_force_is_recorded_with_each_decision",
    ),
    Mutation(
        "cascades: a stage is what a call says of itself",
        STAGED,
        "        call = call.parent\n    return None",
        "        call = None\n    return None",
        DECIDED + "test_a_stage_is_charged_for_all_inside_it_whatever_stage_that_names_itself",
    ),
    Mutation(
        "cascades: a cascade in a request takes its work away from it",
        REQUESTS,
        "request=None if inside else opened, staged=opened",
        "request=opened, staged=opened",
        DECIDED + "test_it_is_a_request_of_its_own_and_part_of_one_that_it_stands_in",
    ),
    Mutation(
        "cascades: what a batch is charged is in no stage",
        CHARGES,
        "[(billed, one.request, one.tally, part)",
        "[(billed, one.request, None, part)",
        DECIDED + "test_a_batch_is_charged_to_the_stages_of_its_members",
    ),
    Mutation(
        "cascades: a decision does not wait for the batch that serves it",
        BATCHING,
        "        made.tally.work.awaited.append(None)",
        "        made.tally_awaited = False",
        DECIDED + "test_a_batch_is_charged_to_the_stages_of_its_members",
    ),
    Mutation(
        "cascades: a cascade in a stage is not the stage's work",
        STAGED,
        "        tally = tally.work.outer\n",
        "        tally = None\n",
        DECIDED + "test_cascades_within_a_stage_count_for_both",
    ),
    Mutation(
        "cascades: what was not measured is 0",
        STAGED,
        "if self.measured and not self.unmeasured else None",
        "if not self.unmeasured else None",
        DECIDED + "test_what_was_not_measured_is_absent",
    ),
    Mutation(
        "cascades: a heavy stage that failed has a cost",
        RECORDS,
        "        return HEAVY_FAILED\n",
        "        return None\n",
        DECIDED + "test_a_heavy_stage_that_failed_leaves_the_row_out",
    ),
    Mutation(
        "cascades: what goes on is as good as settled",
        STAGES,
        "                work.unsettled = pending\n",
        "",
        DECIDED + "test_work_that_goes_on_for_too_long_is_said_to_be_unsettled",
    ),
    Mutation(
        "audits: they are part of the request that they were drawn in",
        SHADOW,
        "    apart = True\n",
        "",
        AUDITED + "test_an_audit_is_no_part_of_the_cascade_and_of_no_request",
    ),
    Mutation(
        "audits: the stage is what the heavy model says of itself",
        STAGES,
        '                call.attribution = call.attribution.merged({"stage": work.billed_stage})',
        "                pass",
        AUDITED + "test_an_audit_runs_the_heavy_stage_in_the_shadow",
    ),
    Mutation(
        "audits: they begin while the answer is awaited",
        REQUESTS,
        "            self.audit = Audit(self, callback)\n",
        "            self.audit = Audit(self, callback)\n            self.audit.run()\n",
        AUDITED + "test_it_begins_only_when_the_request_has_ended",
    ),
    Mutation(
        "audits: one that failed was none",
        RECORDS,
        "    if audit is not None and not audited:\n        propensity = None\n",
        "    if audit is not None and not audited:\n",
        AUDITED + "test_one_that_fails_is_left_out_and_counted",
    ),
    Mutation(
        "audits: one that failed counts as one",
        RECORDS,
        "        return AUDIT_FAILED\n",
        "        return None\n",
        AUDITED + "test_one_that_fails_is_left_out_and_counted",
    ),
    Mutation(
        "audits: the propensity is the rate, whatever the budget",
        AUDITS,
        "return Draw(drawn, runs, rate * chance,",
        "return Draw(drawn, runs, rate,",
        AUDITED + "test_weighing_by_the_propensity_is_unbiased",
    ),
    Mutation(
        "audits: a budget is a door, not a chance",
        AUDITS,
        "        return min(1.0, max(0.0, 2.0 * self.level / self._capacity))",
        "        return min(1.0, max(0.0, 2.0 * self.level / self._capacity)) or 0.5",
        AUDITED + "test_the_share_of_requests_is_kept_to_and_the_probability_is_told",
    ),
    Mutation(
        "audits: what is spent stays in the budget",
        AUDITS,
        "            self._audits.level -= 1.0\n",
        "            self._audits.level -= 0.0\n",
        AUDITED + "test_the_share_of_requests_is_kept_to_and_the_probability_is_told",
    ),
    Mutation(
        "audits: device seconds are not counted",
        AUDITS,
        "            self._seconds.level -= seconds - reserved\n",
        "            self._seconds.level += reserved\n",
        AUDITED + "test_the_device_seconds_of_an_hour_are_kept_to",
    ),
    Mutation(
        "audits: load that cannot be told is none",
        AUDITS,
        "            return bool(self._load())\n        return True",
        "            return bool(self._load())\n        return False",
        AUDITED + "test_under_load_none_is_drawn",
    ),
    Mutation(
        "audits: children of a fork draw what their parent draws",
        AUDITS,
        'None if self._seed is None else f"{self._seed}/{lineage}"',
        "self._seed",
        AUDITED + "test_children_of_a_fork_draw_other_numbers_than_their_parent_and_each_other",
    ),
    Mutation(
        "audits: one that never ends is waited for for ever",
        COUNTING,
        "                self._give_up(request)\n        for score",
        "                pass\n        for score",
        AUDITED + "test_one_that_takes_too_long_is_given_up",
    ),
    Mutation(
        "audits: a request is told twice",
        COUNTING,
        "            if request.is_told:\n                return\n",
        "",
        AUDITED + "test_one_that_takes_too_long_is_given_up",
    ),
    Mutation(
        "audits: at exit those under way are forgotten",
        RUNTIME,
        "        self.escalations.give_up()\n",
        "",
        IN_PROCESSES + "test_an_exit_waits_for_no_audit_and_says_so_of_the_row",
    ),
    Mutation(
        "audits: a forked child runs those of its parent",
        REQUESTS,
        "        if self._counting is not cascades_counting.in_force():",
        "        if False:",
        IN_PROCESSES + "test_a_request_that_is_open_at_a_fork_is_the_parents",
    ),
    Mutation(
        "audits: at exit none gets a moment",
        PROCESS,
        "            runtime.escalations.finish(monotonic() + timeout / 4)\n",
        "            pass\n",
        IN_PROCESSES + "test_an_exit_tells_of_an_audit_that_is_nearly_done",
    ),
    Mutation(
        "audits: one's own without its propensity is weighed",
        RECORDING,
        "    if valid and not (decision == AUDITED and not number):",
        "    if valid:",
        DECORATED + "test_an_audit_without_its_propensity_is_left_out",
    ),
    Mutation(
        "scores: they are of the light stage unless they say",
        RECORDS,
        "for one in reversed(request.stages) if one.completed",
        "for one in request.stages if one.completed",
        SCORED + "test_a_score_is_of_the_stage_that_answered",
    ),
    Mutation(
        "scores: only of what is settled is known who answered",
        COUNTING,
        "        if not request.is_told:\n            self._remember(identity, request)",
        "        return",
        SCORED + "test_a_request_that_is_still_open_is_known",
    ),
    Mutation(
        "scores: those that nobody takes pile up",
        "gputrace/cascades_scores.py",
        "        if len(self._waiting) >= _MOST_WAITING:",
        "        if False:",
        SCORED + "test_scores_that_nobody_takes_do_not_pile_up",
    ),
    Mutation(
        "stages: energy that was not read is none",
        FEATURES,
        "            _share_with_stages(dict.fromkeys(charges))\n            return\n        source, split",
        "            return\n        source, split",
        POWERED + "test_of_a_stage_in_two_periods_both_must_be_read",
    ),
    Mutation(
        "stages: a decision does not wait for readings",
        STAGES,
        "READINGS_NS if _is_unread(work) else 0",
        "0",
        POWERED + "test_a_decision_waits_for_the_readings_of_its_last_period",
    ),
    Mutation(
        "stages: a flush leaves behind what waits for readings",
        "gputrace/settler.py",
        "                self._stages.hasten()\n",
        "",
        POWERED + "test_a_flush_waits_for_none",
    ),
    Mutation(
        "events: they belong to whatever span is current where they are told",
        EVENTS,
        "trace_api.NonRecordingSpan(event.span)",
        "trace_api.INVALID_SPAN",
        IN_PROCESSES + "test_decisions_and_scores_lie_in_the_files",
    ),
    Mutation(
        "events: every program has threads for them",
        PROVIDERS,
        "        resource = self._resource = _resource_of(service_name)\n",
        "        resource = self._resource = _resource_of(service_name)\n        self.take_logs()\n",
        IN_PROCESSES + "test_nothing_of_logs_begins_without_a_cascade",
    ),
    Mutation(
        "events: a child that has the first ones signs with its parent's name",
        PROVIDERS,
        "self.logs = OwnLogs(self._log_makers, self._resource.merge(own), self._on_lost)",
        "self.logs = OwnLogs(self._log_makers, self._resource, self._on_lost)",
        IN_PROCESSES + "test_a_child_may_have_the_first_cascade",
    ),
    Mutation(
        "events: a flush leaves them behind",
        PROVIDERS,
        "        tasks += self._flush_logs().values()\n",
        "",
        IN_PROCESSES + "test_a_flush_exports_them",
    ),
    Mutation(
        "cascades: a worker shares the requests of where it came from",
        CASCADES,
        'return {**self.__dict__, "open_requests": set(), "_sites": {}}',
        "return dict(self.__dict__)",
        DECORATED + "test_a_cascade_goes_to_a_worker_by_value",
    ),
]
