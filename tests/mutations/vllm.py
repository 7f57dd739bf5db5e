"""Mutations of the instrumentation of vLLM."""

from __future__ import annotations

from mutations import Mutation

COMMON = "integrations/serving_stamps.py"
STAMPS = "integrations/vllm_stamps.py"
MEMBERS = "integrations/vllm_members.py"
WORKER = "integrations/vllm_worker.py"
SCHEDULER = "integrations/vllm_scheduler.py"
MIDDLEWARE = "integrations/serving_middleware.py"
CONTAINERS = "integrations/serving_requests.py"
OPEN_STEP = "integrations/serving_steps.py"
REGISTERED = "integrations/vllm.py"
RULE = "tests/integrations/test_vllm_members.py::"
STEPS = "tests/integrations/test_vllm_worker.py::"
PLUGGED = "tests/integrations/test_vllm.py::"
DOCTOR = "tests/cli/test_doctor_vllm.py::"
MUTATIONS = [
    Mutation(
        "vllm: a client's own value stays",
        STAMPS,
        "{**given, serving_stamps.KEY: serving_stamps.outgoing()}",
        "{serving_stamps.KEY: serving_stamps.outgoing(), **given}",
        PLUGGED + "test_what_a_client_wrote_is_always_taken_away",
    ),
    Mutation(
        "vllm: a worker believes a stamp without a mark",
        COMMON,
        "    return bool(expected) and isinstance(mark, str) and hmac.compare_digest(mark, expected)",
        "    return True",
        PLUGGED + "test_a_worker_believes_no_client_that_came_past_the_front_end",
    ),
    Mutation(
        "vllm: an empty mark is one",
        COMMON,
        "    return bool(expected) and isinstance(mark, str)",
        "    return isinstance(mark, str)",
        PLUGGED + "test_without_a_mark_nothing_is_believed",
    ),
    Mutation(
        "vllm: the caller's parameters are written to",
        STAMPS,
        "    made = copy.copy(params)",
        "    made = params",
        PLUGGED + "test_a_request_takes_along_whom_it_is_billed_to",
    ),
    Mutation(
        "vllm: a resumed request is all decode",
        MEMBERS,
        "        self.target = target\n        self.computed",
        "        self.computed",
        RULE + "test_all_that_a_request_needs_is_computed_and_what_is_computed_twice_is_known",
    ),
    Mutation(
        "vllm: nothing is recomputed",
        MEMBERS,
        "    again = max(0, min(context + prefill, one.computed) - context)",
        "    again = 0",
        RULE + "test_all_that_a_request_needs_is_computed_and_what_is_computed_twice_is_known",
    ),
    Mutation(
        "vllm: what a second preemption costs is forgotten",
        MEMBERS,
        "max(self.computed, min(self.reach, target - drafts))",
        "min(self.reach, target - drafts)",
        RULE + "test_a_request_that_is_preempted_on_its_way_back_is_known_by_how_far_it_had_come",
    ),
    Mutation(
        "vllm: what the cache had is found again after a preemption",
        MEMBERS,
        "            return progress, 0",
        "            return progress, new.num_computed_tokens",
        RULE + "test_all_that_a_request_needs_is_computed_and_what_is_computed_twice_is_known",
    ),
    Mutation(
        "vllm: requests that ended are kept",
        MEMBERS,
        "{one: known.pop(one) for one in",
        "{one: known[one] for one in",
        RULE + "test_what_has_ended_is_forgotten",
    ),
    Mutation(
        "vllm: a step ends with its launch",
        WORKER,
        "        if result is not None:\n",
        "        if True:\n",
        STEPS + "test_a_step_lasts_from_its_launch_to_its_last_sample",
    ),
    Mutation(
        "vllm: a pooled step never ends",
        WORKER,
        "        if result is not None:\n",
        "        if False:\n",
        STEPS + "test_pooling_ends_where_nothing_is_sampled",
    ),
    Mutation(
        "vllm: every rank counts",
        WORKER,
        "        counted = wrapper.rpc_rank == 0",
        "        counted = True",
        STEPS + "test_only_one_rank_counts_and_all_charge",
    ),
    Mutation(
        "vllm: steps get spans",
        OPEN_STEP,
        "counted=self._counted, span=False\n",
        "counted=self._counted, span=True\n",
        STEPS + "test_its_span_is_a_child_of_the_trace_that_it_came_with",
    ),
    Mutation(
        "vllm: a step that cannot be read is not counted",
        WORKER,
        "            faults.unmeasured(UNREADABLE)",
        "            pass",
        STEPS + "test_a_fault_of_ours_leaves_the_request_served_and_the_step_counted",
    ),
    Mutation(
        "vllm: a forked worker goes on with its parent's requests",
        WORKER,
        "    if steps is None or steps.process_id != os.getpid():",
        "    if steps is None:",
        STEPS + "test_a_forked_worker_begins_anew",
    ),
    Mutation(
        "vllm: a step that raises is left open",
        OPEN_STEP,
        "        end(steps, error)\n        raise\n",
        "        raise\n",
        STEPS + "test_a_step_that_raises_is_charged_and_failed",
    ),
    Mutation(
        "vllm: an abort is a good end",
        CONTAINERS,
        "        if status is None:",
        "        if True:",
        STEPS + "test_a_request_is_told_with_its_status_and_all_its_steps",
    ),
    Mutation(
        "vllm: a request begins a trace of its own",
        CONTAINERS,
        "        if stamp.trace:",
        "        if False:",
        STEPS + "test_its_span_is_a_child_of_the_trace_that_it_came_with",
    ),
    Mutation(
        "vllm: requests without a stamp are not counted",
        CONTAINERS,
        "                faults.unmeasured(self._unstamped)",
        "                pass",
        STEPS + "test_a_request_without_a_stamp_is_nobodys_and_counted",
    ),
    Mutation(
        "vllm: the adapter is not told",
        CONTAINERS,
        "    return gputrace.member(variant=variant)",
        "    return gputrace.member()",
        STEPS + "test_the_adapter_is_the_variant",
    ),
    Mutation(
        "vllm: a stop string is a client that went",
        SCHEDULER,
        "    if reason == _ABORTED and not _may_have_stopped(request):",
        "    if reason == _ABORTED:",
        PLUGGED + "test_how_a_request_ended_travels_with_the_next_output",
    ),
    Mutation(
        "vllm: how a request ended is told with every output",
        SCHEDULER,
        "            pending = self.__dict__.pop(_PENDING, None)",
        "            pending = self.__dict__.get(_PENDING)",
        PLUGGED + "test_how_a_request_ended_travels_with_the_next_output",
    ),
    Mutation(
        "vllm: the middleware leaves the trace",
        MIDDLEWARE,
        "        if carrier:",
        "        if False:",
        PLUGGED + "test_trusted_baggage_and_the_trace_are_taken_from_a_request",
    ),
    Mutation(
        "vllm: newer versions are wrapped",
        REGISTERED,
        "_OLDEST <= (int(number[1]), int(number[2])) < _NEXT",
        "_OLDEST <= (int(number[1]), int(number[2]))",
        PLUGGED + "test_other_versions_are_left_as_they_are",
    ),
    Mutation(
        "vllm: methods that were added stay where nothing is wrapped",
        REGISTERED,
        "            _take_back(added)",
        "            pass",
        PLUGGED + "test_where_one_function_is_another_none_is_wrapped",
    ),
    Mutation(
        "vllm: fields are not looked at",
        REGISTERED,
        "    return not missing",
        "    return True",
        PLUGGED + "test_records_without_a_field_are_named",
    ),
    Mutation(
        "vllm: doctor does not read VLLM_PLUGINS",
        "gputrace/cli/doctor_vllm.py",
        '    elif allowed is not None and PLUGIN not in allowed.split(","):',
        "    elif False:",
        DOCTOR + "test_what_is_lost_is_said",
    ),
    Mutation(
        "telemetry: ids follow the seed of the program",
        "gputrace/telemetry/ids.py",
        "_own = random.Random()",
        "_own = random",
        "tests/telemetry/test_ids.py::test_a_program_that_seeds_gets_other_ids_each_time",
    ),
    Mutation(
        "telemetry: a forked child has its parent's ids",
        "gputrace/telemetry/ids.py",
        "os.register_at_fork(after_in_child=_own.seed)",
        "",
        "tests/telemetry/test_ids.py::test_a_forked_child_has_ids_of_its_own",
    ),
    Mutation(
        "batching: a member's own variant is lost",
        "gputrace/batching.py",
        "        one.variant or of_call.variant,",
        "        of_call.variant,",
        "tests/test_batching.py::test_a_member_may_have_a_variant_of_its_own",
    ),
]
