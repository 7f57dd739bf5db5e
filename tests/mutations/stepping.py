"""Mutations of the steps of generators and coroutines, and of what holds the device."""

from __future__ import annotations

from mutations import Mutation

FILE = "gputrace/stepping.py"
CALL = "gputrace/call.py"
COROUTINES = "tests/tracking/test_coroutines.py::"
GENERATORS = "tests/tracking/test_generators.py::"
ASYNC_GENERATORS = "tests/tracking/test_async_generators.py::"
ARGUMENTS = "tests/tracking/test_arguments.py::"
HOLD = "tests/tracking/test_hold.py::"
STEPPING = "tests/tracking/test_stepping.py::"
ORDER = "tests/tracking/test_call.py::"
PICKLING = "tests/tracking/test_pickling.py::"
ASYNC_ELSEWHERE = "tests/tracking/test_async_generators_elsewhere.py::"
ELSEWHERE = "tests/tracking/test_generators_elsewhere.py::"
RETURNED = "tests/tracking/test_returned.py::"
MUTATIONS = [
    Mutation(
        "row 01: what follows an await is not covered",
        FILE,
        "        calls.resume(call)\n        if closing:",
        "        if closing:",
        COROUTINES + "test_row_01_a_coroutine_is_covered_to_its_end",
    ),
    Mutation(
        "row 01: the span ends with the first await",
        FILE,
        "        calls.suspend(call)\n        closing = False",
        "        calls.leave(call)\n        call.span.end()\n        closing = False",
        COROUTINES + "test_row_01_the_span_covers_the_await",
    ),
    Mutation(
        "row 05: a step of a generator does not end",
        FILE,
        "                    append(clock())\n                    call.pending = False\n"
        "                    make_previous",
        "                    call.pending = False\n                    make_previous",
        GENERATORS + "test_row_05_a_generator_is_covered_and_holds_only_its_own_steps",
    ),
    Mutation(
        "row 06: what is sent is lost",
        FILE,
        "                    item = send(item) if thrown",
        "                    item = send(None) if thrown",
        GENERATORS + "test_row_06_send",
    ),
    Mutation(
        "row 07: the return value is lost",
        FILE,
        "            calls.leave(call)\n            return stop.value",
        "            calls.leave(call)\n            return None",
        GENERATORS + "test_row_07_return_value",
    ),
    Mutation(
        "row 09: the scope stays with the consumer after a step in short",
        FILE,
        "                    make_previous(token)\n                    token = None",
        "                    token = None",
        GENERATORS + "test_row_09_the_callers_scope_is_in_force_between_two_yields",
    ),
    Mutation(
        "row 10: early close is a cancellation",
        FILE,
        "        except GeneratorExit:\n            _keep(token, call)\n            calls.leave(call)",
        "        except GeneratorExit as error:\n            _keep(token, call)\n"
        "            calls.leave(call, error)",
        GENERATORS + "test_row_10_early_close_is_no_error_and_runs_finally_at_once",
    ),
    Mutation(
        "row 11: awaits in an async generator are not seen",
        FILE,
        "                item = await _drive(steps.pop(), call)",
        "                item = await steps.pop()",
        ASYNC_GENERATORS + "test_row_11_awaits_within_it_hold_nothing",
    ),
    Mutation(
        "row 12: what is sent to an async generator is lost",
        FILE,
        "generator.asend(item)",
        "generator.asend(None)",
        ASYNC_GENERATORS + "test_row_12_dd_trace_py_14399_asend",
    ),
    Mutation(
        "row 13: the scope stays with the async consumer",
        FILE,
        "                calls.suspend(call)\n                try:\n                    item = yield item\n"
        "                except GeneratorExit as",
        "                try:\n                    item = yield item\n"
        "                except GeneratorExit as",
        ASYNC_GENERATORS + "test_row_13_so_is_its_scope",
    ),
    Mutation(
        "row 14: aclose() does not reach the body",
        FILE,
        "                    if generator.ag_frame is None:",
        "                    if True:",
        ASYNC_GENERATORS + "test_row_14_aclose_runs_finally_at_once_and_is_no_error",
    ),
    Mutation(
        "row 16: athrow() does not reach the body",
        FILE,
        "                    steps = [generator.athrow(error)]\n                else:",
        "                    raise error\n                else:",
        ASYNC_GENERATORS + "test_row_16_athrow",
    ),
    Mutation(
        "row 17: what a context manager throws does not reach the generator",
        FILE,
        "                    thrown, item = error, None",
        "                    raise error",
        GENERATORS + "test_row_17_under_contextmanager",
    ),
    Mutation(
        "row 18: cancellation is an error",
        CALL,
        'frozenset({"CancelledError", "Cancelled", "GeneratorExit"})',
        'frozenset({"Cancelled", "GeneratorExit"})',
        COROUTINES + "test_row_18_cancellation_is_its_own_status",
    ),
    Mutation(
        "row 18: a cancelled coroutine cannot clean up",
        FILE,
        "            thrown = error\n            value = None",
        "            raise error",
        COROUTINES + "test_row_18_a_coroutine_may_refuse_to_be_cancelled",
    ),
    Mutation(
        "row 25: a ContextVar comes along with a generator",
        FILE,
        "    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:\n",
        "    current = calls.current_scope\n\n"
        "    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:\n        current.get()\n",
        PICKLING + "test_rows_24_25_every_kind_in_a_fresh_interpreter",
    ),
    Mutation(
        "row 26: returned generators are not covered",
        FILE,
        "types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType",
        "types.CoroutineType",
        RETURNED + "test_row_26_a_function_that_returns_a_generator_is_covered",
    ),
    Mutation(
        "row 27: returned coroutines are not covered",
        FILE,
        "types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType",
        "types.GeneratorType, types.AsyncGeneratorType",
        RETURNED + "test_row_27_a_function_that_returns_a_coroutine_is_covered",
    ),
    Mutation(
        "row 27: a result that is dropped leaves its call open",
        FILE,
        "        if call is not None and not call.closed:",
        "        if call is None:",
        RETURNED + "test_row_27_a_returned_coroutine_that_is_dropped_leaves_no_open_call",
    ),
    Mutation(
        "kinds: what could be awaited no longer can",
        FILE,
        "    return types.coroutine(wrapper) if code.co_flags & inspect.CO_ITERABLE_COROUTINE else wrapper",
        "    return wrapper",
        COROUTINES + "test_a_generator_based_coroutine_can_still_be_awaited",
    ),
    Mutation(
        "delegation: a body is still handling what was thrown",
        FILE,
        "                    thrown, item = error, None",
        "                    item = generator.throw(error)\n                    yield item",
        ELSEWHERE + "test_the_generator_is_no_longer_handling_what_was_thrown_into_it",
    ),
    Mutation(
        "memory: a generator keeps its arguments",
        FILE,
        "        del args, kwargs\n        call = begin()\n        # suspend()",
        "        call = begin()\n        # suspend()",
        ARGUMENTS + "test_an_argument_that_the_body_drops_is_freed",
    ),
    Mutation(
        "memory: a coroutine keeps its arguments",
        FILE,
        "        del args, kwargs\n        if type(coroutine)",
        "        if type(coroutine)",
        ARGUMENTS + "test_an_argument_that_the_body_drops_is_freed",
    ),
    Mutation(
        "memory: an async generator keeps its arguments",
        FILE,
        "        del args, kwargs\n        call = begin()\n        guard",
        "        call = begin()\n        guard",
        ARGUMENTS + "test_an_argument_that_the_body_drops_is_freed",
    ),
    Mutation(
        "memory: a generator keeps the last item",
        FILE,
        "                    item = yield item\n                except BaseException as error:",
        "                    kept = item\n                    item = yield kept\n"
        "                except BaseException as error:",
        ARGUMENTS + "test_an_item_that_the_consumer_drops_is_freed_before_the_next_is_made",
    ),
    Mutation(
        "memory: an error thrown into an async generator keeps itself alive",
        FILE,
        "            awaited = None\n            raise",
        "            raise",
        ARGUMENTS + "test_an_error_does_not_keep_itself_alive",
    ),
    Mutation(
        "loops: each async generator is known twice",
        FILE,
        "    sys.set_asyncgen_hooks(None, _left_to_the_wrapper)",
        "    sys.set_asyncgen_hooks(*hooks)",
        ASYNC_ELSEWHERE + "test_a_loop_that_shuts_down_closes_each_once",
    ),
    Mutation(
        "loops: an async generator that outlives its loop stays open",
        FILE,
        "        guard = _Guard(call)  # noqa: F841 - lives as long as this frame\n",
        "",
        ASYNC_ELSEWHERE + "test_one_that_outlives_its_event_loop_leaves_no_open_call",
    ),
    Mutation(
        "the short way: taken also where a call holds throughout",
        FILE,
        " and call.site.hold is calls.HOLD_STEPS\n        scope",
        "\n        scope",
        HOLD + "test_generators",
    ),
    Mutation(
        "the short way: taken also where a call is timed on a GPU",
        FILE,
        " and call.timer is None and ",
        " and ",
        STEPPING + "test_a_generator_on_a_gpu_is_timed_step_by_step",
    ),
    Mutation(
        "the short way: taken also where a call has a span",
        FILE,
        "        plain = call.span is None and ",
        "        plain = ",
        GENERATORS + "test_row_08_the_callers_span_is_current_between_two_yields",
    ),
    Mutation(
        "the short way: taken also where blocks are open",
        FILE,
        "                if plain and call.inner is None:",
        "                if plain:",
        HOLD + "test_so_does_a_block_in_a_generator_of_either_kind",
    ),
    Mutation(
        "the short way: never taken",
        FILE,
        "                if plain and call.inner is None:",
        "                if plain is None:",
        STEPPING + "test_the_short_way_is_taken",
    ),
    Mutation(
        "the short way: a mark is taken while nobody waits for it",
        FILE,
        "                    token = make_current(call)\n                    call.pending = True\n",
        "                    token = make_current(call)\n",
        ORDER + "test_each_mark_is_taken_while_its_call_is_queued_and_pending",
    ),
    Mutation(
        "the short way: a mark is published while it is taken",
        FILE,
        "                    token = make_current(call)\n                    call.pending = True\n"
        "                    append(clock())\n                    call.pending = False\n",
        "                    token = make_current(call)\n                    now = clock()\n"
        "                    call.pending = True\n                    append(now)\n"
        "                    call.pending = False\n",
        STEPPING + "test_ticks_at_every_instruction_of_a_generators_steps",
    ),
    Mutation(
        "hold steps: an await does not end the step",
        FILE,
        "        calls.suspend(call)\n        closing = False",
        "        closing = False",
        HOLD + "test_of_ten_coroutines_that_await_one_tracked_batch_only_the_batch_is_charged",
    ),
    Mutation(
        "hold call: an await ends the hold",
        CALL,
        "    if call.site.hold is HOLD_STEPS:\n        _mark(call)\n    current_scope.set(call.previous)",
        "    _mark(call)\n    current_scope.set(call.previous)",
        HOLD + "test_coroutines",
    ),
    Mutation(
        "hold steps: a block goes on while its coroutine is suspended",
        CALL,
        "        _mark_blocks(call, inner)\n        if call.span",
        "        if call.span",
        HOLD + "test_a_block_in_a_coroutine_holds_nothing_while_that_is_suspended",
    ),
    Mutation(
        "hold steps: a block does not go on when its coroutine does",
        CALL,
        "            _mirror(call, inner)\n        _mark_blocks(call, inner)",
        "            _mirror(call, inner)",
        HOLD + "test_a_block_in_a_coroutine_holds_nothing_while_that_is_suspended",
    ),
    Mutation(
        "hold call: a block's hold ends with its coroutine's step",
        CALL,
        "        if block.site.hold is HOLD_STEPS and not block.closed:",
        "        if not block.closed:",
        HOLD + "test_hold_of_the_block_itself",
    ),
    Mutation(
        "hold: compared by identity, but not the constants",
        "gputrace/call_site.py",
        "        self.hold = HOLDS[HOLDS.index(hold)]",
        "        self.hold = hold",
        "tests/tracking/test_twice.py::test_row_34_hold",
    ),
    Mutation(
        "a collection in the midst of a set: contexts are not kept",
        FILE,
        "        call.outlasting = contextvars.copy_context()",
        "        pass",
        "tests/tracking/test_abandoned.py",
    ),
]
