"""Mutations of what instruments model servers."""

from __future__ import annotations

from mutations import Mutation

TORCH = "integrations/torch.py"
TORCH_TESTS = "tests/integrations/test_torch.py::"
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
]
