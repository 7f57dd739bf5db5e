"""Mutations of the instrumentation of SGLang."""

from __future__ import annotations

from mutations import Mutation

REGISTERED = "integrations/sglang.py"
STAMPS = "integrations/sglang_stamps.py"
MEMBERS = "integrations/sglang_members.py"
SCHEDULER = "integrations/sglang_scheduler.py"
REQUESTS = "integrations/sglang_requests.py"
PLUGGED = "tests/integrations/test_sglang.py::"
RULE = "tests/integrations/test_sglang_members.py::"
STEPS = "tests/integrations/test_sglang_scheduler.py::"
MUTATIONS = [
    Mutation(
        "sglang: a client's own value stays",
        STAMPS,
        "{**(given or {}), serving_stamps.KEY: serving_stamps.outgoing()}",
        "{serving_stamps.KEY: serving_stamps.outgoing(), **(given or {})}",
        PLUGGED + "test_what_a_client_wrote_is_always_taken_away",
    ),
    Mutation(
        "sglang: a scheduler believes a stamp without a mark",
        "integrations/serving_stamps.py",
        "    if not (isinstance(given, dict) and _is_ours(given.get(_MARK))):",
        "    if not isinstance(given, dict):",
        PLUGGED + "test_a_scheduler_believes_no_client_that_came_past_the_front_end",
    ),
    Mutation(
        "sglang: parameters that several requests share are written to",
        STAMPS,
        "        params = copy.copy(request.sampling_params)",
        "        params = request.sampling_params",
        PLUGGED + "test_a_request_takes_along_whom_it_is_billed_to",
    ),
    Mutation(
        "sglang: of requests that are sent together one is stamped",
        STAMPS,
        "        for one in tokenized_objs:",
        "        for one in tokenized_objs[:1]:",
        PLUGGED + "test_requests_that_are_sent_together_are_stamped_each",
    ),
    Mutation(
        "sglang: newer versions are wrapped",
        REGISTERED,
        "_OLDEST, _NEXT = (0, 5, 20), (0, 5, 24)",
        "_OLDEST, _NEXT = (0, 5, 20), (9, 0, 0)",
        PLUGGED + "test_other_versions_are_left_as_they_are",
    ),
    Mutation(
        "sglang: a child imports what it does not run",
        REGISTERED,
        "if hook.module in sys.modules or not started]",
        "]",
        PLUGGED + "test_a_process_that_sglang_has_started_imports_nothing_more",
    ),
    Mutation(
        "sglang: fields are not looked at",
        REGISTERED,
        "    return not missing",
        "    return True",
        PLUGGED + "test_batches_without_a_field_are_named",
    ),
    Mutation(
        "sglang: the middleware is put on twice",
        REGISTERED,
        "        if not any(one.cls is Middleware for one in module.app.user_middleware):",
        "        if True:",
        PLUGGED + "test_the_middleware_is_put_around_its_application_once",
    ),
    Mutation(
        "sglang: what decodes in a mixed batch is prefill",
        MEMBERS,
        "        prompts = len(batch.reqs) - len(batch.decoding_reqs or ())",
        "        prompts = len(batch.reqs)",
        RULE + "test_in_a_mixed_batch_those_that_decode_stand_at_the_end",
    ),
    Mutation(
        "sglang: decoding is prefill",
        MEMBERS,
        "(0, drafts or rows.get(index, 1), end - 1, 0, 0)",
        "(drafts or rows.get(index, 1), 0, end - 1, 0, 0)",
        RULE + "test_a_prompt_is_prefill_and_what_follows_is_not",
    ),
    Mutation(
        "sglang: nothing is recomputed",
        MEMBERS,
        "    again = max(0, min(end, one.reach, valid) - context)",
        "    again = 0",
        RULE + "test_what_the_real_scheduler_computes_is_known_to_the_token",
    ),
    Mutation(
        "sglang: drafts that were refused were computed",
        MEMBERS,
        "- (1 if self._drafts else 0)",
        "+ 9",
        RULE + "test_drafts_are_computed_whether_they_are_accepted_or_not",
    ),
    Mutation(
        "sglang: what a second retraction costs is forgotten",
        MEMBERS,
        "    one.reach = max(one.reach, end)",
        "    one.reach = end",
        RULE + "test_a_request_that_is_retracted_on_its_way_back_is_known_by_how_far_it_had_come",
    ),
    Mutation(
        "sglang: a prompt in chunks is its own cache",
        MEMBERS,
        "    cached = max(0, context - one.reach)",
        "    cached = context",
        RULE + "test_what_the_cache_had_is_what_sglang_counts_itself",
    ),
    Mutation(
        "sglang: a request ends as often as it is told",
        MEMBERS,
        "        if not one.ended:",
        "        if True:",
        RULE + "test_how_a_request_ended_is_told_once",
    ),
    Mutation(
        "sglang: every rank of tensor parallelism counts",
        SCHEDULER,
        "ranks.pp_rank == ranks.attn_tp_rank == ranks.attn_cp_rank == 0",
        "ranks.pp_rank == ranks.attn_cp_rank == 0",
        STEPS + "test_only_one_rank_counts_and_all_charge",
    ),
    Mutation(
        "sglang: every stage of a pipeline counts",
        SCHEDULER,
        "ranks.pp_rank == ranks.attn_tp_rank == ranks.attn_cp_rank == 0",
        "ranks.attn_tp_rank == ranks.attn_cp_rank == 0",
        STEPS + "test_only_one_rank_counts_and_all_charge",
    ),
    Mutation(
        "sglang: a step is timed on the stream that launches it",
        SCHEDULER,
        "        if not scheduler.enable_overlap:",
        "        if True:",
        STEPS + "test_batches_that_are_launched_ahead_do_not_overlap_on_the_device",
    ),
    Mutation(
        "sglang: a step ends before its sample",
        SCHEDULER,
        '    if getattr(result, "delay_sample_func", None) is None:',
        "    if True:",
        STEPS + "test_a_step_that_waits_for_its_grammar_ends_with_its_sample",
    ),
    Mutation(
        "sglang: a batch that cannot be read is not counted",
        SCHEDULER,
        "        faults.unmeasured(UNREADABLE)",
        "        pass",
        STEPS + "test_a_fault_of_ours_leaves_the_batch_running_and_the_step_counted",
    ),
    Mutation(
        "sglang: a fault of ours stops the batch",
        SCHEDULER,
        "    with _BEGINNING:\n",
        "    if True:\n",
        STEPS + "test_a_fault_of_ours_leaves_the_batch_running_and_the_step_counted",
    ),
    Mutation(
        "sglang: what was computed elsewhere is a step",
        SCHEDULER,
        "        if mode.is_prebuilt():",
        "        if False:",
        STEPS + "test_what_was_computed_elsewhere_is_no_step",
    ),
    Mutation(
        "sglang: prefill in parts is counted in full each time",
        SCHEDULER,
        "        if mode.is_split_prefill():",
        "        if False:",
        STEPS + "test_prefill_in_parts_of_the_model_is_counted_as_unmeasured",
    ),
    Mutation(
        "sglang: a forked scheduler goes on with its parent's requests",
        SCHEDULER,
        "    if steps is None or steps.process_id != os.getpid():",
        "    if steps is None:",
        STEPS + "test_a_forked_scheduler_begins_anew",
    ),
    Mutation(
        "sglang: a request that ends while it waits stays open",
        SCHEDULER,
        '        if type(output).__name__ == "AbortReq":',
        "        if False:",
        STEPS + "test_a_request_that_ends_while_it_waits_is_closed",
    ),
    Mutation(
        "sglang: a time limit is a client that went",
        REQUESTS,
        "    if code is None:",
        "    if True:",
        STEPS + "test_a_request_is_told_with_its_status_and_all_its_steps",
    ),
    Mutation(
        "sglang: the adapter is not told",
        REQUESTS,
        "        if lora_id is None:",
        "        if True:",
        STEPS + "test_the_adapter_is_the_variant",
    ),
    Mutation(
        "sglang: doctor does not read SGLANG_PLUGINS",
        "gputrace/cli/doctor_sglang.py",
        "    elif allowed and PLUGIN not in allowed:",
        "    elif False:",
        "tests/cli/test_doctor_sglang.py::test_what_is_lost_is_said",
    ),
]
