"""BentoML: what an adaptive batch of a service computes is split among the requests that were put into it.

BentoML runs a batch in a task that the first request of all has started, and in a thread of its own. So each
request is noted where it is queued.
"""

from __future__ import annotations

import functools
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults
from gputrace.integrations import patching
from gputrace.integrations.patching import Patch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gputrace.batching import Member

    Function = Callable[..., Any]

VERSION = patching.Version("BentoML", "1.4.40", "bentoml")

_NAME = "_gputrace_name"
_TRACKED = "_gputrace_tracked"
_DISPATCHER = "bentoml._internal.marshal.dispatcher"
_FACTORY = "_bentoml_impl.server.app"

_QUEUEING = faults.contained("note whose request waits for a batch of BentoML's")
_SPLITTING = faults.contained("note whose the parts of a BentoML request are")
_OPENING = faults.contained("split a batch of BentoML's among its requests")

#: The method that is asked for, on its way to the queue; in a batch the one that runs.
_method: ContextVar[str | None] = ContextVar("gputrace_bentoml_method", default=None)
_running: ContextVar[str | None] = ContextVar("gputrace_bentoml_running", default=None)
#: Whose request the task is putting into a queue.
_queueing: ContextVar[Member | None] = ContextVar("gputrace_bentoml_member", default=None)
#: By what each request waits for.
_members: weakref.WeakKeyDictionary[asyncio.Future[Any], Member] = weakref.WeakKeyDictionary()


def instrument() -> bool:
    """Split the batches of all services of this process, from here on.

    Call it where the service is defined, and add ``gputrace.integrations.asgi.RequestMiddleware`` to the
    service, which makes each request one.

    Returns:
        Whether it does: where this version of BentoML is not as expected, one line says so and
        everything is left as it is.
    """
    return patching.apply(PATCHES, VERSION)


def uninstrument() -> None:
    """Leave BentoML as it was before :func:`instrument`."""
    patching.restore(PATCHES)


def _infer(original: Function) -> Function:
    """Return ``ServiceAppFactory.batch_infer``, which alone knows the name of the method."""

    async def batch_infer(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        token = _method.set(f"{self.service.name}.{name}")
        try:
            return await original(self, name, *args, **kwargs)
        finally:
            _method.reset(token)

    return batch_infer


def _inbound(original: Function) -> Function:
    """Return ``CorkDispatcher.inbound_call``, in the task of a request."""

    async def inbound_call(self: Any, data: Any) -> Any:
        member: Member | None = None
        with _QUEUEING:
            member = gputrace.member()
            setattr(self, _NAME, _method.get() or "batch")
        token = _queueing.set(member)
        try:
            return await original(self, data)
        finally:
            _queueing.reset(token)
            if member is not None:
                # Served, or given up before it was.
                member.forget()

    return inbound_call


def _job(original: Function) -> Function:
    """Return ``Job.__init__``: what stands in the queue."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        member = _queueing.get()
        if member is not None:
            with _QUEUEING:
                _members[self.future] = member

    return init


def _split(original: Function) -> Function:
    """Return ``CorkDispatcher.split_job``: a request that is too large for what is left of a batch."""

    def split_job(self: Any, job: Any, *args: Any, **kwargs: Any) -> Any:
        parts = original(self, job, *args, **kwargs)
        with _SPLITTING:
            member = _members.get(job.future)
            for part in parts:
                if member is not None:
                    _members[part.future] = member
        return parts

    return split_job


def _outbound(original: Function) -> Function:
    """Return ``CorkDispatcher.outbound_call``, which runs one batch."""

    async def outbound_call(self: Any, inputs_info: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self, _NAME, "batch")
        tracked = getattr(self, _TRACKED, None)
        if tracked is None:
            # Held while a coroutine of the user's runs, not while it waits.
            tracked = gputrace.track(operation=name)(original)
            setattr(self, _TRACKED, tracked)
        block = None
        with _OPENING:
            block = _block(self, name, inputs_info)
        if block is None:
            return await original(self, inputs_info, *args, **kwargs)
        _running.set(name)
        async with block:
            return await tracked(self, inputs_info, *args, **kwargs)

    return outbound_call


def _block(dispatcher: Any, name: str, jobs: Any) -> gputrace.batch:
    return gputrace.batch(
        [_members.get(job.future) for job in jobs],
        [dispatcher.get_batch_size(job.data) for job in jobs],
        operation=f"batch {name}",
        hold="none",
    )


def _to_thread(original: Function) -> Function:
    """Return ``ServiceAppFactory._to_thread``, where methods that are no coroutines run."""

    async def to_thread(self: Any, func: Function, *args: Any, **kwargs: Any) -> Any:
        name = _running.get()
        return await original(self, func if name is None else _held(func, name), *args, **kwargs)

    return to_thread


def _held(function: Function, name: str) -> Function:
    @functools.wraps(function)
    def held(*args: Any, **kwargs: Any) -> Any:
        with gputrace.span(name):
            return function(*args, **kwargs)

    return held


PATCHES = (
    Patch(_FACTORY, "ServiceAppFactory.batch_infer", ("self", "name"), _infer),
    Patch(_FACTORY, "ServiceAppFactory._to_thread", ("self", "func"), _to_thread),
    Patch(_DISPATCHER, "Job.__init__", ("self", "enqueue_time", "data", "future"), _job),
    Patch(_DISPATCHER, "CorkDispatcher.inbound_call", ("self", "data"), _inbound),
    Patch(_DISPATCHER, "CorkDispatcher.split_job", ("self", "job"), _split),
    Patch(_DISPATCHER, "CorkDispatcher.outbound_call", ("self", "inputs_info"), _outbound),
)
