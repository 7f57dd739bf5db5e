"""Mutations of scopes, spans and attribution, and of what an interrupt leaves behind."""

from __future__ import annotations

from mutations import Mutation

CALL = "gputrace/call.py"
SCOPE = "gputrace/attribution.py"
CURRENT = "gputrace/attribution_current.py"
SPANS = "gputrace/telemetry/spans.py"
GENERATORS = "tests/tracking/test_generators.py::"
ASYNC_GENERATORS = "tests/tracking/test_async_generators.py::"
ATTRIBUTION = "tests/tracking/test_attribution.py::"
SCOPES = "tests/tracking/test_scopes.py::"
SPAN = "tests/tracking/test_spans.py::"
ORDER = "tests/tracking/test_call.py::"
ASYNC_ELSEWHERE = "tests/tracking/test_async_generators_elsewhere.py::"
MUTATIONS = [
    Mutation(
        "row 08: the span stays with the consumer",
        SPANS,
        "        _restore(call.outside)\n        call.outside = None",
        "        call.outside = None",
        GENERATORS + "test_row_08_the_callers_span_is_current_between_two_yields",
    ),
    Mutation(
        "row 08: the span is not current in the next step",
        SPANS,
        "        context_api.attach(call.context)\n\n\ndef _restore",
        "\n\ndef _restore",
        GENERATORS + "test_row_08_the_callers_span_is_current_between_two_yields",
    ),
    Mutation(
        "row 09: the scope stays with the consumer",
        CALL,
        "        _mark(call)\n    current_scope.set(call.previous)",
        "        _mark(call)",
        GENERATORS + "test_row_09_the_callers_scope_is_in_force_between_two_yields",
    ),
    Mutation(
        "row 15: a block that another task leaves takes that task's scope",
        SCOPE,
        "        if isinstance(scope, Scope) and scope.block is self:\n            current_scope",
        "        if isinstance(scope, Scope):\n            current_scope",
        ASYNC_ELSEWHERE + "test_row_15_an_untracked_async_generator_with_blocks",
    ),
    Mutation(
        "row 15: a span that another task leaves takes that task's scope",
        CALL,
        "        elif not block:",
        "        else:",
        ASYNC_ELSEWHERE + "test_row_15_an_untracked_async_generator_with_blocks",
    ),
    Mutation(
        "row 15: a scope stays in the consumer's OpenTelemetry context",
        CALL,
        "        if call.span is None:\n            _unmirror(call, inner)",
        "",
        ASYNC_ELSEWHERE + "test_row_15_without_any_provider",
    ),
    Mutation(
        "row 15: a scope is not back in the OpenTelemetry context",
        CALL,
        "        if call.span is None:\n            _mirror(call, inner)\n",
        "",
        SCOPES + "test_a_thread_that_a_generator_starts_in_a_scope",
    ),
    Mutation(
        "row 33: an error is recorded twice",
        SPANS,
        "        span.record_exception(error)\n",
        "        span.record_exception(error)\n        span.record_exception(error)\n",
        SPAN + "test_row_33_one_error_through_two_levels_is_one_event_on_each",
    ),
    Mutation(
        "spans: an error without a text is none",
        SPANS,
        "    span.set_status(Status(StatusCode.ERROR, kind.__name__))\n",
        "",
        SPAN + "test_an_error_without_a_text_is_still_an_error",
    ),
    Mutation(
        "spans: an unsampled root lets others begin below it",
        SPANS,
        "        context_api.attach(call.context)\n        call.span = span",
        "        if span.is_recording():\n            context_api.attach(call.context)\n"
        "        call.span = span",
        SPAN + "test_an_unsampled_root_keeps_traces_from_beginning_below_it",
    ),
    Mutation(
        "spans: a user's attribute hides the error",
        SPANS,
        "        span.set_attributes(call.site.attributes)\n        if error is not None:\n"
        '            _record_error(span, error, cancelled=call.status == "cancelled")',
        "        if error is not None:\n"
        '            _record_error(span, error, cancelled=call.status == "cancelled")\n'
        "        span.set_attributes(call.site.attributes)\n        if True:\n            pass",
        SPAN + "test_a_users_attribute_does_not_hide_the_error",
    ),
    Mutation(
        "precedence: the outer value wins",
        SCOPE,
        "        fields.update(overrides)",
        "        fields = {**overrides, **{name: value for name, value in fields.items() if value}}",
        ATTRIBUTION + "test_the_innermost_explicit_value_wins",
    ),
    Mutation(
        "precedence: fields that nobody names are forgotten",
        SCOPE,
        "        fields.update(overrides)",
        "        fields = overrides",
        ATTRIBUTION + "test_each_field_has_its_own_precedence",
    ),
    Mutation(
        "values: reserved ones pass",
        SCOPE,
        "    if not text.startswith(catalogue.RESERVED_PREFIX):",
        "    if True:",
        ATTRIBUTION + "test_reserved_values_are_refused_at_decoration",
    ),
    Mutation(
        "values: reserved ones fail a request",
        SCOPE,
        "            if refusal is None:\n                fields[name] = text\n            else:\n"
        '                faults.log_once(f"{where}:{name}", "%s; ignored", refusal)',
        "            if refusal is not None:\n                raise ValueError(refusal)\n"
        "            fields[name] = text",
        ATTRIBUTION + "test_reserved_values_are_ignored_at_run_time_with_one_line",
    ),
    Mutation(
        "values: each reserved one is logged",
        SCOPE,
        '                faults.log_once(f"{where}:{name}", "%s; ignored", refusal)',
        '                faults.logger.warning("%s; ignored", refusal)',
        ATTRIBUTION + "test_reserved_values_are_ignored_at_run_time_with_one_line",
    ),
    Mutation(
        "values: an enumeration is its name in the code",
        SCOPE,
        "str.__str__(value) if isinstance(value, str) else str(value)",
        "str(value)",
        ATTRIBUTION + "test_values_are_strings",
    ),
    Mutation(
        "scopes: current().set renames a call that has ended",
        CURRENT,
        "        if scope is None or scope is attribution.outermost or (scope is call and over):",
        "        if scope is None or scope is attribution.outermost:",
        SCOPES + "test_what_runs_on_after_its_call_does_not_rename_it",
    ),
    Mutation(
        "scopes: what encloses a block comes back in one of the two contexts only",
        SCOPE,
        "            current_scope.set(scope.previous)\n            scope.previous = None",
        "            current_scope.set(None)\n            scope.previous = None",
        SCOPES + "test_a_scope_is_in_force_where_the_opentelemetry_context_was_lost",
    ),
    Mutation(
        "scopes: what came through the OpenTelemetry context is not seen",
        CALL,
        "scope if scope is not None or not attribution.mirrored else scope_in_force()",
        "scope",
        SCOPES + "test_a_thread_that_is_handed_the_opentelemetry_context_alone",
    ),
    Mutation(
        "scopes: a block takes away what others attached in it",
        SCOPE,
        "    if now is outermost.inside:",
        "    if True:",
        SCOPES + "test_what_others_attach_within_a_block_is_not_undone",
    ),
    Mutation(
        "scopes: a block leaves a trace in the OpenTelemetry context",
        SCOPE,
        "    if now is outermost.inside:",
        "    if False:",
        SCOPES + "test_a_block_leaves_the_opentelemetry_context_as_it_found_it",
    ),
    Mutation(
        "scopes: what a body leaves open stays",
        CALL,
        "        elif not block:\n            _unmirror(call, inner)\n"
        "            current_scope.set(call.previous)",
        "",
        SCOPES + "test_what_a_body_leaves_open_ends_with_it",
    ),
    Mutation(
        "scopes: work that outlives its call belongs to it",
        CALL,
        "            if parent is not None and parent.closed:",
        "            if False:",
        SCOPES + "test_contrib_4251_work_that_outlives_its_call_is_an_owner_of_its_own",
    ),
    Mutation(
        "memory: calls keep what went before them",
        CALL,
        "        call.previous = None\n        if call.span",
        "        if call.span",
        SCOPES + "test_tasks_that_start_their_successors_keep_nothing_of_their_predecessors",
    ),
    Mutation(
        "memory: a scope and its context keep each other alive",
        SCOPE,
        "            scope.outside = scope.inside = _NOWHERE",
        "            scope.outside = _NOWHERE",
        SCOPES + "test_a_block_leaves_no_ring_of_objects",
    ),
    Mutation(
        "order: a call is queued after its first mark",
        CALL,
        "        call.marks.append(clock() if timer is None else timer.mark())\n"
        "        call.pending = False\n"
        "        current_scope.set(call)",
        "        queue.pop()\n        call.marks.append(clock() if timer is None else timer.mark())\n"
        "        queue.append(call)\n        call.pending = False\n        current_scope.set(call)",
        ORDER + "test_each_mark_is_taken_while_its_call_is_queued_and_pending",
    ),
    Mutation(
        "order: a call is no longer pending when its last mark is taken",
        CALL,
        "    call.pending = True\n    try:\n        timer = call.timer\n"
        "        call.marks.append(clock() if timer is None"
        " else timer.mark())\n    finally:\n        # After",
        "    try:\n        timer = call.timer\n        call.marks.append(clock() if timer is None"
        " else timer.mark())\n    finally:\n        # After",
        ORDER + "test_each_mark_is_taken_while_its_call_is_queued_and_pending",
    ),
    Mutation(
        "interrupts: an entry that is broken off stays open",
        CALL,
        "        _abandon(call, error)\n",
        "",
        ORDER + "test_an_interrupt_at_any_mark_leaves_no_call_that_holds_up_the_settler",
    ),
    Mutation(
        "interrupts: an end that is broken off leaves the scope behind",
        CALL,
        "        inner = current_scope.get()\n        if inner is call:\n"
        "            current_scope.set(call.previous)\n"
        "        elif not block:",
        "        inner = current_scope.get()\n        if len(call.marks) % 2:\n            return\n"
        "        if inner is call:\n            current_scope.set(call.previous)\n        elif not block:",
        ORDER + "test_an_interrupt_at_any_mark_leaves_no_call_that_holds_up_the_settler",
    ),
]
