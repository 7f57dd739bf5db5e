"""``@serve.batch``: one call of the function serves many requests, and is split among all of them."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults
from gputrace.integrations import ray_serve_calls, ray_serve_context
from gputrace.integrations.ray_serve_context import Share

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from gputrace.batching import Member

    Function = Callable[..., Any]

_WEIGHT = "__gputrace_batch_weight__"

_ITEM = "gputrace_item"
_FUNCTION = "gputrace_function"
_TRACKED = "gputrace_tracked"

_QUEUEING = faults.contained("note whose item waits for a batch")
_WEIGHING = faults.contained("ask batch_weight for the weight of an item")
_DROPPING = faults.contained("forget items that were cancelled before their batch")
_ENCLOSING = faults.contained("split a batch among its requests")


def made(original: Function) -> Function:
    """Return ``_BatchQueue.__init__``, whose task serves all requests: it begins outside of the first."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        ray_serve_context.outside().run(original, self, *args, **kwargs)
        given = inspect.signature(original).bind(self, *args, **kwargs).arguments
        setattr(self, _FUNCTION, given.get("handle_batch_func"))

    return init


def put(original: Function) -> Function:
    """Return ``_BatchQueue.put``, which notes whose item it is."""

    def queued(self: Any, request: Any) -> None:
        with _QUEUEING:
            setattr(request, _ITEM, Share(gputrace.member(), _weight(self, request)))
        original(self, request)

    return queued


def mark(function: Any, weigh: Callable[..., float]) -> None:
    """Say what an item of a function weighs, whatever is wrapped around the function."""
    setattr(inspect.unwrap(function), _WEIGHT, weigh)


def weigher_of(function: Any) -> Callable[..., float] | None:
    """Return what tells the weight of an item; None where all weigh alike."""
    return getattr(inspect.unwrap(function), _WEIGHT, None)


def _weight(queue: Any, request: Any) -> Any:
    # A queue that existed before it was instrumented does not say whose it is.
    weigh = weigher_of(getattr(queue, _FUNCTION, None))
    if weigh is None:
        return 1
    from ray._common.signature import recover_args

    with _WEIGHING:
        args, kwargs = recover_args(request.flattened_args)
        return weigh(*args, **kwargs)
    return 1


def process(original: Function) -> Function:
    """Return ``_BatchQueue._process_batch_inner``, which runs the function as one batch of its requests."""

    async def processed(self: Any, func: Function, batch: list[Any]) -> None:
        live = [one for one in batch if not one.future.cancelled()]
        enclosed = func
        with _DROPPING:
            for one in batch:
                if one.future.cancelled() and hasattr(one, _ITEM):
                    getattr(one, _ITEM).member.forget()
        if live:
            with _ENCLOSING:
                enclosed = _enclosed(self, func, live)
        await original(self, enclosed, live)

    return processed


def _enclosed(queue: Any, func: Function, live: Sequence[Any]) -> Function:
    """Return the function as one batch of these requests; it holds the device while its own code runs."""
    # Of an item that was queued before its queue was instrumented nobody is known.
    shares = [getattr(one, _ITEM, None) or Share(gputrace.member(), 1) for one in live]
    own = ray_serve_context.own_fields(ray_serve_calls.deployment_name(), live[0].request_context)
    members = [one.member for one in shares]
    block = functools.partial(
        gputrace.batch,
        members,
        [one.weight for one in shares],
        operation=f"batch {func.__qualname__}",
        hold="none",
        **{**own, **_common_fields(members)},
    )
    tracked = getattr(queue, _TRACKED, None)
    if tracked is None:
        tracked = gputrace.track(func)
        setattr(queue, _TRACKED, tracked)

    @functools.wraps(func)
    async def generated(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        ray_serve_context.serve(own, shares)
        with block():
            async with contextlib.aclosing(tracked(*args, **kwargs)) as all_results:
                async for results in all_results:
                    yield results

    @functools.wraps(func)
    async def called(*args: Any, **kwargs: Any) -> Any:
        ray_serve_context.serve(own, shares)
        with block():
            return await tracked(*args, **kwargs)

    return generated if inspect.isasyncgenfunction(func) else called


def _common_fields(members: Sequence[Member]) -> dict[str, Any]:
    """Return what all members say alike of the work: a batch has one model, variant and stage."""
    fields: dict[str, Any] = {}
    for name in ("model", "variant", "stage"):
        values = {getattr(one.attribution, name) for one in members}
        if len(values) == 1 and None not in values:
            fields[name] = values.pop()
    return fields
