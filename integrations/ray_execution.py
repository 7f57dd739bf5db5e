"""The worker's side of Ray's calls: each runs within its caller's context, as a call of its own.

What Ray executes is a container, which holds no device itself and sums up what is tracked in it: a root,
since no owner of a device spans processes, whose span hangs under the caller's.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults
from gputrace.integrations import ray_calls, ray_context
from gputrace.integrations.ray_context import Carried
from gputrace.integrations.ray_patches import Patch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

_WRAPPING = faults.contained("wrap what Ray executes")

#: Parts of Ray that run no code of the user's, in workers of their own.
_SERVICES = (
    "ray.dashboard.",
    "ray.serve._private.controller",
    "ray.serve._private.proxy",
    "ray.util.queue",
)

#: Called before each call of a worker, and after each; the worker puts its own here.
before: Callable[[], None] = lambda: None  # noqa: E731
after: Callable[[], None] = lambda: None  # noqa: E731


def executed(function: Callable[..., Any], operation: str | None) -> Callable[..., Any]:
    """Return what Ray executes in the place of a function or method of the user's.

    Args:
        function: Takes the arguments of the call.
        operation: Name of the work; None for what is not tracked.
    """
    tracked = function if operation is None else gputrace.track(operation=operation, hold="none")(function)

    def within(*args: Any, **kwargs: Any) -> Any:
        carried = Carried(kwargs.pop(ray_context.KEY, None))
        before()
        deferred = False
        try:
            with carried:
                result = tracked(*args, **kwargs)
            kind = _DEFERRED.get(type(result))
            deferred = kind is not None
            return result if kind is None else kind(result, carried)
        finally:
            if not deferred:
                after()

    return within


async def _awaited(coroutine: Coroutine[Any, Any, Any], carried: Carried) -> Any:
    # In a task of its own: nothing else sees its context while it waits.
    try:
        with carried:
            return await coroutine
    finally:
        after()


def _stepped(generator: Generator[Any, Any, Any], carried: Carried) -> Generator[Any, Any, Any]:
    """Run a generator with the caller's context in force for each step alone, delegating everything."""
    given = thrown = None
    try:
        while True:
            try:
                with carried:
                    item = generator.send(given) if thrown is None else generator.throw(thrown)
            except StopIteration as stop:
                return stop.value
            finally:
                thrown = None
            try:
                given = yield item
            except BaseException as error:  # noqa: BLE001 - goes into the generator, as it would without us
                thrown, given = error, None
    finally:
        after()


async def _stepped_async(generator: AsyncGenerator[Any, Any], carried: Carried) -> AsyncGenerator[Any, Any]:
    step = _first_step(generator)
    try:
        while True:
            try:
                with carried:
                    item = await step
            except StopAsyncIteration:
                return
            try:
                step = generator.asend((yield item))
            except BaseException as error:  # noqa: BLE001 - goes into the generator, as it would without us
                step = generator.athrow(error)
    finally:
        after()


def _first_step(generator: AsyncGenerator[Any, Any]) -> Any:
    """Ask for the first item such that the event loop, which closes all that it knows, knows this one not.

    It knows the generator around it, which hands the closing on.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, lambda _: None)
    try:
        return generator.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


_DEFERRED: dict[type, Callable[..., Any]] = {
    types.CoroutineType: _awaited,
    types.GeneratorType: _stepped,
    types.AsyncGeneratorType: _stepped_async,
}


def _around_lookup(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_execution_info(self: Any, job_id: Any, function_descriptor: Any) -> Any:
        info = original(self, job_id, function_descriptor)
        with _WRAPPING:
            module = function_descriptor.module_name
            if not ray_calls.is_rays(module):
                info = _wrapped(info, function_descriptor)
            elif not module.startswith(_SERVICES):
                # Libraries of Ray's run the user's code in actors and tasks of their own.
                before()
        return info

    return get_execution_info


def _wrapped(info: Any, descriptor: Any) -> Any:
    function: Any = info.function
    method = getattr(function, "method", None)
    if method is None:
        return info._replace(function=executed(function, f"task {descriptor.function_name}"))
    if function.name.startswith("__ray"):
        return info
    # A class without __init__ gets one of Ray's.
    rays = ray_calls.is_rays(getattr(method, "__module__", None))
    class_name = descriptor.class_name.rpartition(".")[2]
    within: Any = executed(function, None if rays else f"actor {class_name}.{function.name}")
    # By these Ray decides how it runs the method.
    within.name, within.method = function.name, method
    return info._replace(function=within)


PATCHES = (
    Patch(
        "ray._private.function_manager",
        "FunctionActorManager.get_execution_info",
        ("self", "job_id", "function_descriptor"),
        _around_lookup,
    ),
)
