"""Mutations of the decorator: which kinds of callables it knows, and what decorating twice means."""

from __future__ import annotations

from mutations import Mutation

FILE = "gputrace/tracking.py"
BLOCKS = "gputrace/tracking_blocks.py"
SITE = "gputrace/call_site.py"
CALLABLES = "tests/tracking/test_callables.py::"
COROUTINES = "tests/tracking/test_coroutines.py::"
GENERATORS = "tests/tracking/test_generators.py::"
ASYNC_GENERATORS = "tests/tracking/test_async_generators.py::"
ARGUMENTS = "tests/tracking/test_arguments.py::"
TWICE = "tests/tracking/test_twice.py::"
ATTRIBUTION = "tests/tracking/test_attribution.py::"
SCOPES = "tests/tracking/test_scopes.py::"
PICKLING = "tests/tracking/test_pickling.py::"

MUTATIONS = [
    Mutation(
        "row 02: a coroutine function becomes a plain one",
        FILE,
        "    if inspect.iscoroutinefunction(subject):",
        "    if False:",
        COROUTINES + "test_row_02_stays_a_coroutine_function",
    ),
    Mutation(
        "row 03: a generator function becomes a plain one",
        FILE,
        "    elif inspect.isgeneratorfunction(subject):",
        "    elif False:",
        GENERATORS + "test_row_03_stays_a_generator_function",
    ),
    Mutation(
        "row 04: an async generator function becomes a plain one",
        FILE,
        "    elif inspect.isasyncgenfunction(subject):",
        "    elif False:",
        ASYNC_GENERATORS + "test_row_04_stays_an_async_generator_function",
    ),
    Mutation(
        "row 19: an interrupt does not end the call",
        FILE,
        "        except BaseException as error:\n            calls.leave(call, error)",
        "        except Exception as error:\n            calls.leave(call, error)",
        CALLABLES + "test_row_19_keyboard_interrupt_ends_the_call",
    ),
    Mutation(
        "row 20: methods lose their keyword arguments",
        FILE,
        "            result = function(*args, **kwargs)",
        "            result = function(*args)",
        CALLABLES + "test_row_20_methods",
    ),
    Mutation(
        "row 21: above staticmethod, the wrapper is a method",
        FILE,
        "            return type(function)(self(function.__func__))",
        "            return self(function.__func__)",
        CALLABLES + "test_sentry_python_2525_rows_21_22_static_methods_in_either_order",
    ),
    Mutation(
        "row 22: class methods become static",
        FILE,
        "            return type(function)(self(function.__func__))",
        "            return staticmethod(self(function.__func__))",
        CALLABLES + "test_rows_21_22_class_methods_in_either_order",
    ),
    Mutation(
        "row 23: signature and names are lost",
        FILE,
        "    functools.update_wrapper(wrapper, function)",
        "    wrapper.__wrapped__ = function\n    wrapper.__signature__ = inspect.Signature()",
        CALLABLES + "test_row_23_signature_annotations_and_names_are_kept",
    ),
    Mutation(
        "row 24: a ContextVar comes along with a function",
        FILE,
        "    def wrapper(*args: Any, **kwargs: Any) -> Any:\n        call = calls.enter(site)",
        "    scope = calls.current_scope\n\n    def wrapper(*args: Any, **kwargs: Any) -> Any:\n"
        "        scope.get()\n        call = calls.enter(site)",
        PICKLING + "test_rows_24_25_every_kind_in_a_fresh_interpreter",
    ),
    Mutation(
        "row 28: partials are taken for plain functions",
        FILE,
        "    while isinstance(subject, functools.partial):\n        subject = subject.func\n",
        "",
        CALLABLES + "test_row_28_partials_of_every_kind",
    ),
    Mutation(
        "row 29: callable objects are taken for plain functions",
        FILE,
        "        subject = type(subject).__call__\n    begin",
        "        pass\n    begin",
        CALLABLES + "test_row_29_callable_objects_of_every_kind",
    ),
    Mutation(
        "row 30: a class becomes a function",
        FILE,
        "        cls.__call__ = tracked\n        return cls",
        "        return self._applied(cls, None)",
        CALLABLES + "test_row_30_a_class_stays_a_class",
    ),
    Mutation(
        "row 31: a result is looked at",
        FILE,
        "        if type(result) in stepping.DEFERRED:",
        "        if result and type(result) in stepping.DEFERRED:",
        ARGUMENTS + "test_rows_31_32_functions",
    ),
    Mutation(
        "row 32: arguments are made strings",
        FILE,
        "        call = calls.enter(site)\n        try:\n",
        "        call = calls.enter(site)\n        str(args)\n        try:\n",
        ARGUMENTS + "test_rows_31_32_functions",
    ),
    Mutation(
        "row 34: decorating twice counts twice",
        FILE,
        "        if mark is None or mark.code != function.__code__:",
        "        if mark is None or mark:",
        TWICE + "test_row_34_twice_is_one_call_and_the_inner_words_win",
    ),
    Mutation(
        "row 34: a decorator in between is dropped",
        FILE,
        "        if mark is None or mark.code != function.__code__:",
        "        if mark is None:",
        TWICE + "test_row_34_a_decorator_in_between_still_runs",
    ),
    Mutation(
        "row 34: the outer words win",
        FILE,
        "{**self._fields, **inner.overrides}",
        "{**inner.overrides, **self._fields}",
        TWICE + "test_row_34_twice_is_one_call_and_the_inner_words_win",
    ),
    Mutation(
        "row 34: a default name wins over one that was given",
        FILE,
        "        operation = tracked.operation or self._operation or inner.operation",
        "        operation = inner.operation",
        TWICE + "test_row_34_an_explicit_operation_wins",
    ),
    Mutation(
        "row 34: device 0 counts as none given",
        FILE,
        'devices=outer["devices"] if inner.devices is None else inner.devices',
        'devices=inner.devices or outer["devices"]',
        TWICE + "test_row_34_devices_and_streams",
    ),
    Mutation(
        "row 34: a bound method loses its self",
        FILE,
        "inner._replace(function=types.MethodType(inner.function, owner))",
        "inner",
        TWICE + "test_row_34_a_bound_method_of_a_tracked_function",
    ),
    Mutation(
        "row 34: a partial loses its arguments",
        FILE,
        "functools.partial(inner.function, *function.args, **function.keywords)",
        "inner.function",
        TWICE + "test_row_34_a_partial_of_a_tracked_function",
    ),
    Mutation(
        "hold none: a container holds",
        SITE,
        '    return {"hold": hold,',
        '    return {"hold": HOLD_STEPS if hold == HOLD_NONE else hold,',
        "tests/tracking/test_hold.py::test_functions_and_blocks",
    ),
    Mutation(
        "options: a weight of True passes",
        SITE,
        "isinstance(weight, bool) or ",
        "",
        CALLABLES + "test_options_that_cannot_be_used_are_refused_by_name",
    ),
    Mutation(
        "options: what was refused before passes the second time",
        BLOCKS,
        " and weight.__class__ is int\n",
        "\n",
        CALLABLES + "test_so_are_those_of_a_span",
    ),
    Mutation(
        "options: devices that are none pass",
        SITE,
        "        cuda.check(devices, streams)",
        "        pass",
        CALLABLES + "test_options_that_cannot_be_used_are_refused_by_name",
    ),
    Mutation(
        "values: True finds what was kept for 1",
        BLOCKS,
        "            if plain and all(part is None or part.__class__ is str for part in key[:-1]):",
        "            if plain:",
        ATTRIBUTION + "test_opentelemetry_python_5573_equal_values_of_different_types_stay_apart",
    ),
    Mutation(
        "values: one without a hash fails the request",
        BLOCKS,
        "        except TypeError:",
        "        except ZeroDivisionError:",
        ATTRIBUTION + "test_values_are_strings",
    ),
    Mutation(
        "blocks: one object in many tasks leaves another's call",
        "gputrace/call_blocks.py",
        "        if not self._calls or last is current:",
        "        if True:",
        SCOPES + "test_one_span_object_in_many_tasks_at_once "
        "tests/test_requests.py::test_contrib_5081_one_request_object_in_many_tasks_at_once",
    ),
]
