"""Mutations of the instrumentation of Ray."""

from __future__ import annotations

from mutations import Mutation

CONTEXT = "integrations/ray_context.py"
CALLS = "integrations/ray_calls.py"
EXECUTION = "integrations/ray_execution.py"
ENVIRONMENT = "integrations/ray_environment.py"
PATCHES = "integrations/patching.py"
WORKER = "integrations/ray_worker.py"
CARRIER = "tests/integrations/test_ray_context.py::"
EXECUTED = "tests/integrations/test_ray_execution.py::"
SET_UP = "tests/integrations/test_ray_environment.py::"
CLUSTER = "tests/integrations/test_ray.py::"
WORKERS = "tests/integrations/test_ray_worker.py::"
MUTATIONS = [
    Mutation(
        "ray: names of gputrace's own travel",
        "integrations/ray_context.py",
        'if value is not None and not value.startswith("__"):',
        "if value is not None:",
        "tests/integrations/test_ray_context.py::test_names_of_gputraces_own_stay_here",
    ),
    Mutation(
        "ray: the trace stays behind",
        CONTEXT,
        "            propagator.inject(carrier)",
        "            pass",
        CARRIER + "test_trace_and_baggage_travel_whatever_the_propagators",
    ),
    Mutation(
        "ray: only the feature travels",
        CONTEXT,
        '_FIELDS = ("feature", "tenant", "model", "variant", "stage")',
        '_FIELDS = ("feature",)',
        CARRIER + "test_every_field_travels",
    ),
    Mutation(
        "ray: a carried context stays attached",
        CONTEXT,
        "                context_api.attach(self._outside)",
        "                pass",
        EXECUTED + "test_a_function_gets_its_arguments_alone",
    ),
    Mutation(
        "ray: a context that another task left is overwritten",
        CONTEXT,
        "            if context_api.get_current() is self._inside:",
        "            if True:",
        CARRIER + "test_a_context_that_another_task_left_is_not_touched",
    ),
    Mutation(
        "ray: a generator has its caller's context for the first step alone",
        EXECUTION,
        "                    item = generator.send(given) if thrown is None else generator.throw(thrown)\n",
        "                    item = generator.send(given) if thrown is None else generator.throw(thrown)\n"
        "                carried = Carried(None)\n",
        EXECUTED + "test_a_generator_runs_in_the_callers_context_step_by_step",
    ),
    Mutation(
        "ray: the caller's context stays in force between the steps of an async generator",
        EXECUTION,
        "                step = generator.asend((yield item))",
        "                carried.__enter__(); step = generator.asend((yield item))",
        EXECUTED + "test_an_async_generator_runs_in_the_callers_context_step_by_step",
    ),
    Mutation(
        "ray: a method runs outside of its caller's context",
        EXECUTION,
        "        carried = Carried(kwargs.pop(ray_context.KEY, None))",
        "        kwargs.pop(ray_context.KEY, None); carried = Carried(None)",
        EXECUTED + "test_a_coroutine_keeps_the_callers_context_while_it_waits",
    ),
    Mutation(
        "ray: what libraries of Ray's run is never configured",
        EXECUTION,
        "                before()\n        return info",
        "                pass\n        return info",
        EXECUTED + "test_rays_own_are_left_as_they_are_and_may_run_what_is_tracked",
    ),
    Mutation(
        "ray 46252: an actor of a job without gputrace is sent the carrier",
        CALLS,
        "            and _is_of_this_job(self)\n",
        "",
        CLUSTER + "test_results_signatures_and_errors_do_not_depend_on_gputrace",
    ),
    Mutation(
        "ray 46252: workers without the hook are sent the carrier",
        CALLS,
        "        return [*flat, ray_context.KEY, kwargs[ray_context.KEY]] if hooked else flat",
        "        return [*flat, ray_context.KEY, kwargs[ray_context.KEY]]",
        "tests/integrations/test_ray_calls.py::test_workers_that_do_not_take_it_off_get_none",
    ),
    Mutation(
        "ray: what waits for an actor of a pool is billed to whoever takes a result",
        CALLS,
        "                fn = gputrace.carry(fn)",
        "                pass",
        CLUSTER + "test_work_belongs_to_the_trace_and_the_feature_of_its_caller[pool]",
    ),
    Mutation(
        "ray: a hook of the user's is lost",
        ENVIRONMENT,
        "        variables[USERS_HOOK_VARIABLE] = users",
        "        pass",
        SET_UP + "test_a_hook_of_the_users_becomes_a_variable_and_comes_back",
    ),
    Mutation(
        "ray: a hook of the user's is not run",
        WORKER,
        "    if users:",
        "    if False:",
        WORKERS + "test_the_users_hook_and_variables_are_kept",
    ),
    Mutation(
        "ray: workers write where they happen to run",
        ENVIRONMENT,
        '        chosen["data_dir"] = told["folder"]',
        "        pass",
        SET_UP + "test_workers_write_where_the_driver_would",
    ),
    Mutation(
        "ray: a child of a worker passes for the worker",
        WORKER,
        "    finally:\n        _set(before)",
        "    finally:\n        pass",
        SET_UP + "test_the_environment_is_changed_for_a_block_alone",
    ),
    Mutation(
        "ray: a task that was cancelled has failed",
        WORKER,
        "            signal.signal(signal.SIGINT, _cancel)",
        "            pass",
        CLUSTER + "test_each_call_is_counted_once_with_its_status",
    ),
    Mutation(
        "ray: another version of Ray is half patched",
        PATCHES,
        "fits([patch[:3] for patch in patches], version)",
        "fits([patch[:3] for patch in patches[:1]], version)",
        "tests/integrations/test_ray_patches.py::test_another_version_is_left_as_it_is_and_said_so_once",
    ),
]
