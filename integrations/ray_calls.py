"""The caller's side of Ray's calls: each takes the caller's context along, beside the arguments.

Ray flattens the arguments of every call into one list once they are checked against the user's signature.
There one keyword more is appended, which the other side takes off again (``ray_execution``): neither
signatures nor arguments change. It is sent only where the other side is known to do that.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults
from gputrace.integrations import ray_context
from gputrace.integrations.ray_patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ASKING = faults.contained("ask whether a call of Ray's can carry its context")
_POOLING = faults.contained("hand the context of a call to an actor pool")
#: Ray's own methods of actors, which do not go through what takes the keyword off.
_RAYS_OWN = "__ray"

#: Whether the workers of the job that this process belongs to take the keyword off.
hooked = False

#: Whether any call was made whose worker may have something to export.
called = False


def is_rays(module: str | None) -> bool:
    """Tell whether a module is part of Ray: its actors serve everybody, and are nobody's work."""
    return module is not None and (module == "ray" or module.startswith("ray."))


def _given(kwargs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return keywords with the carrier among them; as they are where there is nothing to carry."""
    carrier = ray_context.outgoing()
    if not carrier:
        return kwargs if kwargs is None else dict(kwargs)
    return {**(kwargs or {}), ray_context.KEY: carrier}


def _by_client() -> bool:
    """Tell whether a call goes to the server of Ray Client, which makes it again over there."""
    from ray._private.client_mode_hook import client_mode_should_convert

    return bool(client_mode_should_convert())


def _is_task_carrying(function: Any) -> bool:
    with _ASKING:
        return not (
            function._is_cross_language  # noqa: SLF001 - Ray's
            or function._decorator is not None  # noqa: SLF001 - it would see the keyword
            or is_rays(getattr(function._function, "__module__", None))  # noqa: SLF001
            or _by_client()
        )
    return False


def _is_actor_carrying(descriptor: Any, *, cross_language: bool) -> bool:
    with _ASKING:
        return not (cross_language or is_rays(descriptor.module_name) or _by_client())
    return False


def _is_of_this_job(handle: Any) -> bool:
    """Tell whether an actor is of this job: a named one of another may have workers without gputrace."""
    with _ASKING:
        from ray._private.worker import global_worker

        return bool(handle._ray_actor_id.job_id == global_worker.current_job_id)  # noqa: SLF001
    return False


def _around_task(original: Callable[..., Any]) -> Callable[..., Any]:
    def _remote(self: Any, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        if _is_task_carrying(self):
            kwargs = _given(kwargs)
        return original(self, args, kwargs, *more, **options)

    return _remote


def _around_creation(original: Callable[..., Any]) -> Callable[..., Any]:
    def _remote(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        meta = self.__ray_metadata__
        descriptor = meta.actor_creation_function_descriptor
        if ray_context.KEY not in (kwargs or {}) and _is_actor_carrying(
            descriptor, cross_language=meta.is_cross_language
        ):
            kwargs = _given(kwargs)
        return original(self, args, kwargs, **options)

    return _remote


def _around_method(original: Callable[..., Any]) -> Callable[..., Any]:
    def _actor_method_call(
        self: Any, method_name: str, args: Any = None, kwargs: Any = None, *more: Any, **options: Any
    ) -> Any:
        descriptor = self._ray_actor_creation_function_descriptor
        if (
            hooked
            and not method_name.startswith(_RAYS_OWN)
            and _is_actor_carrying(descriptor, cross_language=self._ray_is_cross_language)
            and _is_of_this_job(self)
        ):
            kwargs = _given(kwargs)
        return original(self, method_name, args, kwargs, *more, **options)

    return _actor_method_call


def _around_flattening(original: Callable[..., Any]) -> Callable[..., Any]:
    def flatten_args(signature_parameters: Any, args: Any, kwargs: Any) -> Any:
        global called  # noqa: PLW0603 - a latch
        called = True
        if ray_context.KEY not in kwargs:
            return original(signature_parameters, args, kwargs)
        rest = {name: value for name, value in kwargs.items() if name != ray_context.KEY}
        flat = original(signature_parameters, args, rest)
        # Only here is it certain that this process is connected, which a first call does by itself.
        return [*flat, ray_context.KEY, kwargs[ray_context.KEY]] if hooked else flat

    return flatten_args


def _around_submitting(original: Callable[..., Any]) -> Callable[..., Any]:
    def submit(self: Any, fn: Any, value: Any) -> Any:
        # Where no actor is idle, it is called later by whoever takes the next result.
        with _POOLING:
            if inspect.isfunction(fn) and not inspect.iscoroutinefunction(fn):
                fn = gputrace.carry(fn)
        return original(self, fn, value)

    return submit


PATCHES = (
    Patch(
        "ray.remote_function",
        "RemoteFunction._remote",
        ("self", "args", "kwargs", "serialized_runtime_env_info"),
        _around_task,
    ),
    Patch("ray.actor", "ActorClass._remote", ("self", "args", "kwargs", "actor_options"), _around_creation),
    Patch(
        "ray.actor",
        "ActorHandle._actor_method_call",
        ("self", "method_name", "args", "kwargs"),
        _around_method,
    ),
    Patch(
        "ray._common.signature",
        "flatten_args",
        ("signature_parameters", "args", "kwargs"),
        _around_flattening,
    ),
    Patch("ray.util.actor_pool", "ActorPool.submit", ("self", "fn", "value"), _around_submitting),
)
