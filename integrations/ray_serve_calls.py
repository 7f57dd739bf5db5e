"""Calls of deployments: each is a container in the replica that serves it, billed as its caller's work is."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import gputrace
from gputrace import faults
from gputrace.integrations import asgi, asgi_routes, ray_execution, ray_serve_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from gputrace.requests import Request

    Call = Callable[..., Awaitable[Any]]

_OPENING = faults.contained("open a call of a deployment")

#: Applications that may have been instrumented here.
_applications: weakref.WeakSet[Any] = weakref.WeakSet()


class Endpoint(NamedTuple):
    """Stands for the route of a deployment that is reached by HTTP and has no routes of its own."""

    endpoint: Any
    path: str


def restore_applications() -> None:
    """Take from the applications of deployments what they were given."""
    for app in list(_applications):
        asgi.remove(app)
    _applications.clear()


def deployment_name() -> str:
    """Return the name of the deployment that this process serves."""
    from ray.serve import context

    return str(context._get_internal_replica_context().deployment)  # noqa: SLF001


def _operation(replica: Any, method: str) -> str:
    name = str(replica._deployment_id.name)  # noqa: SLF001
    return name if method == "__call__" else f"{name}.{method}"


def _marked(replica: Any, function: Any) -> Any:
    """Return what bears the mark of a feature: the method, else the class."""
    return function if gputrace.feature.of(function) is not None else replica._deployment_def  # noqa: SLF001


@contextmanager
def _container(replica: Any, metadata: Any) -> Iterator[None]:
    """Open the container of a call that came through a handle, or by gRPC."""
    operation = metadata.call_method
    with _OPENING:
        operation = _operation(replica, metadata.call_method)
    with ray_serve_context.received(replica, metadata) as shares:
        if shares:
            # A batch has made it, and it is split among the members in the same way.
            members, weights = zip(*shares, strict=True)
            with gputrace.batch(members, weights, operation=operation, hold="none"):
                yield
            return
        with gputrace.request(operation) as call:
            with _OPENING:
                _bill(call, replica, metadata)
            yield


def _bill(call: Request, replica: Any, metadata: Any) -> None:
    function = replica.user_callable
    if inspect.isclass(replica._deployment_def):  # noqa: SLF001
        # One that does not exist is for Serve to complain about.
        function = getattr(function, metadata.call_method, None)
    named = gputrace.feature.of(_marked(replica, function))
    if named is None and metadata.is_grpc_request and call.attribution.feature is None:
        # Nobody was before it who could have named a feature: its name stands for the route.
        named = _operation(replica, metadata.call_method)
    if named is not None:
        call.set(feature=named)


def initialising(original: Call) -> Call:
    """Return ``UserCallableWrapper.initialize_callable``, before which the process is set up."""

    async def initialize_callable(self: Any) -> Any:
        ray_execution.before()
        return await original(self)

    return initialize_callable


def unary(original: Call) -> Call:
    """Return ``UserCallableWrapper.call_user_method`` with a container around the user's code."""

    async def call_user_method(self: Any, request_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        with _container(self, request_metadata):
            return await original(self, request_metadata, *args, **kwargs)

    return call_user_method


def streaming(original: Call) -> Call:
    """Return ``UserCallableWrapper._call_user_generator`` with a container around all that is streamed."""

    async def call_user_generator(
        self: Any, request_metadata: Any, *args: Any, enqueue: Any = None, **kwargs: Any
    ) -> Any:
        if enqueue is None:
            # The user's code runs in the loop of the replica, as it is read.
            begin = functools.partial(original, self, request_metadata, *args, **kwargs)
            return _streamed(self, request_metadata, begin)
        with _container(self, request_metadata):
            return await original(self, request_metadata, *args, enqueue=enqueue, **kwargs)

    return call_user_generator


async def _streamed(replica: Any, metadata: Any, begin: Call) -> AsyncGenerator[Any, None]:
    with _container(replica, metadata):
        results = await begin()
        try:
            async for result in results:
                yield result
        finally:
            await results.aclose()


def http(original: Call) -> Call:
    """Return ``UserCallableWrapper._call_http_entrypoint`` with the container of an HTTP request."""

    async def call_http_entrypoint(self: Any, info: Any, scope: Any, receive: Any, send: Any) -> Any:
        with ray_serve_context.received(self):
            if not info.is_asgi_app:
                return await _plain(functools.partial(original, self, info), self, info, scope, receive, send)
            with _OPENING:
                app = self.user_callable.app
                instrumented = asgi.add(app, asgi.Options())
                if instrumented is app:
                    # It has a middleware stack of its own, where it was instrumented if it was not yet.
                    _applications.add(app)
                else:
                    info = dataclasses.replace(info, callable=instrumented)
            return await original(self, info, scope, receive, send)

    return call_http_entrypoint


async def _plain(  # noqa: PLR0913 - ASGI's three, and what is behind them
    serve: Call, replica: Any, info: Any, scope: Any, receive: Any, send: Any
) -> Any:
    """Serve a request of a deployment without an application: its prefix is its only route."""
    results = []

    async def application(scope: Any, _: Any, send: Any) -> None:
        with _OPENING:
            handling = scope.get(asgi_routes.SCOPE_KEY)
            if handling is not None:
                path = ray_serve_context.request_context().route or scope.get("root_path") or "/"
                handling.chosen(Endpoint(_marked(replica, info.callable), path), scope)
        # Serve's own `receive` has more than the protocol says, and hears by itself when the client has gone.
        results.append(await serve(scope, receive, send))

    await asgi.RequestMiddleware(application)(scope, receive, send)
    return results[0]
