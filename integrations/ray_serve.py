"""Ray Serve: calls of deployments are billed to what their caller is billed to, however many hops down.

Each process that takes part is instrumented, by ``gputrace.instrument_ray()``. Serve's own tracing is neither
used nor needed.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import wrapt

import gputrace
from gputrace import faults
from gputrace.integrations import asgi, ray_patches, ray_serve_batch, ray_serve_calls, ray_serve_context
from gputrace.integrations.ray_patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[..., Any]

T = TypeVar("T")

_PATCHING = faults.contained("instrument Ray Serve")
_RESTORING = faults.contained("restore Ray Serve")
_FLUSHING = faults.contained("flush when a replica stops")

_MODULE = "ray.serve"


def _sending(original: Function) -> Function:
    def metadata(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        ray_serve_context.send(made)
        return made

    return metadata


def _on_users_loop(replacing: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return what replaces a method whose body Serve runs in the loop of the user's code."""

    def replaced(method: Function) -> Function:
        from ray.serve._private.replica import UserCallableWrapper

        body = method.__wrapped__  # type: ignore[attr-defined]
        within = functools.wraps(body)(replacing(body))
        return UserCallableWrapper._run_user_code(within)  # type: ignore[no-any-return]  # noqa: SLF001

    return replaced


def _flushing(original: Function) -> Function:
    async def shutdown(self: Any) -> None:
        try:
            await original(self)
        finally:
            # Serve kills the process next: no exit hook runs.
            with _FLUSHING:
                await asyncio.to_thread(gputrace.flush, asgi.FLUSH_TIMEOUT_S)

    return shutdown


_REPLICA = "ray.serve._private.replica"
_BATCHING = "ray.serve.batching"

PATCHES = (
    Patch(
        "ray.serve._private.default_impl",
        "get_request_metadata",
        ("init_options", "handle_options"),
        _sending,
    ),
    Patch(
        _REPLICA,
        "UserCallableWrapper.initialize_callable",
        ("self",),
        _on_users_loop(ray_serve_calls.initialising),
    ),
    Patch(
        _REPLICA,
        "UserCallableWrapper.call_user_method",
        ("self", "request_metadata", "request_args", "request_kwargs"),
        _on_users_loop(ray_serve_calls.unary),
    ),
    Patch(
        _REPLICA,
        "UserCallableWrapper._call_user_generator",
        ("self", "request_metadata", "request_args", "request_kwargs", "enqueue"),
        _on_users_loop(ray_serve_calls.streaming),
    ),
    Patch(
        _REPLICA,
        "UserCallableWrapper._call_http_entrypoint",
        ("self", "user_method_info", "scope", "receive", "send"),
        _on_users_loop(ray_serve_calls.http),
    ),
    Patch(_REPLICA, "Replica.shutdown", ("self",), _flushing),
    Patch(
        _BATCHING,
        "_BatchQueue.__init__",
        ("self", "max_batch_size", "batch_wait_timeout_s", "max_concurrent_batches", "handle_batch_func"),
        ray_serve_batch.made,
    ),
    Patch(_BATCHING, "_BatchQueue.put", ("self", "request"), ray_serve_batch.put),
    Patch(_BATCHING, "_BatchQueue._process_batch_inner", ("self", "func", "batch"), ray_serve_batch.process),
)

#: What is read of Serve's own records.
_FIELDS = (
    ("ray.serve._private.common", "RequestMetadata", ("call_method",)),
    (_REPLICA, "UserMethodInfo", ("callable", "is_asgi_app")),
    (_BATCHING, "_SingleRequest", ("flattened_args", "future", "request_context")),
)

_wanted = False


def batch_weight(weight: Callable[..., float]) -> Callable[[T], T]:
    """Say what an item of ``@serve.batch`` weighs: its request is charged for that part of its batch.

    Marks the function and returns it as it is; without it all items of a batch weigh alike::

        @serve.batch(max_batch_size=8)
        @batch_weight(lambda text: len(text.split()))
        async def embed(self, texts): ...

    Args:
        weight: Takes what a call of the batched function takes, one item, and returns a number that
            is not negative. Asked when the item is queued.

    Raises:
        TypeError: ``weight`` cannot be called.
    """
    if not callable(weight):
        message = f"batch_weight({weight!r}): give a function that takes an item and returns its weight"
        raise TypeError(message)

    def marked(function: T) -> T:
        # In any order with `serve.batch`, which keeps the function that it wraps.
        ray_serve_batch.mark(function, weight)
        return function

    return marked


def instrument() -> None:
    """Instrument Ray Serve in this process, now or as soon as it is imported; twice is as good as once."""
    global _wanted  # noqa: PLW0603 - import hooks cannot be taken back
    if not _wanted:
        _wanted = True
        wrapt.register_post_import_hook(_imported, _MODULE)


def uninstrument() -> None:
    """Give Serve its own functions back. What is served meanwhile ends as it began."""
    global _wanted  # noqa: PLW0603 - see instrument()
    _wanted = False
    with _RESTORING:
        if _MODULE in sys.modules:
            ray_patches.restore(PATCHES)
            ray_serve_calls.restore_applications()


def _imported(_: Any) -> None:
    with _PATCHING:
        if _wanted and _is_known():
            ray_patches.apply(PATCHES)


def _is_known() -> bool:
    """Tell whether Serve's records have the fields that are read; log those that are missing."""
    missing = []
    for module, name, fields in _FIELDS:
        record = getattr(sys.modules.get(module), name, None)
        known = getattr(record, "__dataclass_fields__", {})
        missing += [f"{name}.{field}" for field in fields if field not in known]
    if missing:
        faults.log_once(
            "ray-serve-version",
            "gputrace leaves Ray Serve as it is, which has no %s; upgrade gputrace, or pin ray",
            ", ".join(missing),
        )
    return not missing
