"""Mutations of what instruments model servers."""

from __future__ import annotations

from mutations import Mutation

TORCH = "integrations/torch.py"
TORCH_TESTS = "tests/integrations/test_torch.py::"
GENERATE = "integrations/transformers.py"
SHAPES = "integrations/transformers_shapes.py"
CONTINUOUS = "integrations/transformers_continuous.py"
TRANSFORMERS_TESTS = "tests/integrations/test_transformers.py::"
TRITON = "integrations/triton.py"
TRITON_REQUESTS = "integrations/triton_requests.py"
TRITON_TESTS = "tests/integrations/test_triton.py::"
MUTATIONS = [
    Mutation(
        "torch: a hook does something where a compiler traces it",
        TORCH,
        "    if not torch.compiler.is_compiling():\n        with _ENTERING:",
        "    if True:\n        with _ENTERING:",
        TORCH_TESTS + "test_inside_somebody_elses_graph_it_does_nothing",
    ),
    Mutation(
        "torch: no hook hears of an exception",
        TORCH,
        "    target.register_forward_hook(_leaving, always_call=True)",
        "    target.register_forward_hook(_leaving)",
        TORCH_TESTS + "test_an_exception_ends_the_call",
    ),
    Mutation(
        "torch: what a handler calls has failed with what is handled",
        TORCH,
        "        _end(last, None if error is last.handled else error)",
        "        _end(last, error)",
        TORCH_TESTS + "test_a_module_that_a_handler_calls_is_no_error",
    ),
    Mutation(
        "torch: an interrupted module is never ended",
        TORCH,
        "    _end_interrupted()\n    block = None",
        "    block = None",
        TORCH_TESTS + "test_an_interrupt_ends_the_call_when_the_next_begins",
    ),
    Mutation(
        "torch: what is compiled of an instrumented module is not tracked",
        TORCH,
        "            return _compiled(made)",
        "            return made",
        TORCH_TESTS + "test_compiled_it_is_one_graph_and_one_call_each_time",
    ),
    Mutation(
        "torch: where the compiler gives up, a call is counted twice",
        TORCH,
        "    return running is module or ",
        "    return running is module and ",
        TORCH_TESTS + "test_a_module_that_calls_itself_is_one_call",
    ),
    Mutation(
        "transformers: padding is paid for by whoever has it",
        SHAPES,
        "        self._real = mask.sum(1) if is_usable else None",
        "        self._real = None",
        TRANSFORMERS_TESTS + "test_rows_are_split_by_real_tokens_and_padding_is_everybodys",
    ),
    Mutation(
        "transformers: the last token of an answer is counted as computed",
        SHAPES,
        "        return max(0, new if self._is_encoder_decoder else new - 1)",
        "        return max(0, new)",
        TRANSFORMERS_TESTS + "test_generate_is_one_call_of_its_caller",
    ),
    Mutation(
        "transformers: beams are not counted",
        SHAPES,
        "        self.width = max(beams, answers)",
        "        self.width = 1",
        TRANSFORMERS_TESTS + "test_rows_are_split_by_real_tokens_and_padding_is_everybodys",
    ),
    Mutation(
        "transformers: an assistant is billed beside what it assists",
        GENERATE,
        "            block = _block(generation, None if nested else members)",
        "            block = _block(generation, members)",
        TRANSFORMERS_TESTS + "test_what_an_assistant_generates_is_inside",
    ),
    Mutation(
        "transformers: a streamer's thread is billed to nobody",
        GENERATE,
        "        if carried is None:",
        "        if True:",
        TRANSFORMERS_TESTS + "test_a_streamer_carries_whose_it_is_into_the_thread",
    ),
    Mutation(
        "transformers: a request in continuous batching is billed to whoever started the loop",
        CONTINUOUS,
        "                setattr(self, _WHOSE, Whose(gputrace.member()))",
        "                pass",
        TRANSFORMERS_TESTS + "test_continuous_batching_counts_what_was_computed_for_each_request",
    ),
    Mutation(
        "transformers: what is computed again is not seen",
        CONTINUOUS,
        "                setattr(made, _WHOSE, getattr(self, _WHOSE))",
        "                setattr(made, _WHOSE, Whose(getattr(self, _WHOSE).member))",
        TRANSFORMERS_TESTS + "test_a_request_that_lost_its_cache_is_still_whose_it_was",
    ),
    Mutation(
        "transformers: a request that never ran is waited for",
        CONTINUOUS,
        "            self.member.forget()",
        "            pass",
        TRANSFORMERS_TESTS + "test_a_request_that_never_ran_is_waited_for_no_longer",
    ),
    Mutation(
        "triton: a parameter of the client's stands in for a header that arrived",
        TRITON_REQUESTS,
        '            found[key] = f"{found[key]},{value}" if key in found else value',
        "            found[key] = value",
        TRITON_TESTS + "test_nothing_is_believed_that_is_not_signed",
    ),
    Mutation(
        "triton: requests are billed to whoever loaded the model",
        TRITON_REQUESTS,
        "        self._context = Context()",
        "        self._context = __import__('contextvars').copy_context()",
        TRITON_TESTS + "test_what_the_loading_process_is_billed_to_says_nothing_of_requests",
    ),
    Mutation(
        "triton: one that is decoupled holds the device",
        TRITON,
        '            hold = "none"\n        has_rows',
        "            pass\n        has_rows",
        TRITON_TESTS + "test_one_that_is_decoupled_holds_nothing_itself",
    ),
    Mutation(
        "triton: a request that is answered with an error has gone well",
        TRITON_REQUESTS,
        "        if error is None and response is not None and response.has_error():",
        "        if False:",
        TRITON_TESTS + "test_a_request_that_is_answered_with_an_error_is_one",
    ),
    Mutation(
        "triton: rows weigh nothing",
        TRITON_REQUESTS,
        "        if has_rows:",
        "        if False:",
        TRITON_TESTS + "test_a_batch_is_split_by_rows",
    ),
]
