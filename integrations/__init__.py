"""Instrumentation of frameworks; imported as ``gputrace.integrations``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def instrument(
    app: Any,
    *,
    feature: Callable[[Mapping[str, Any]], str | None] | None = None,
    tags: Mapping[str, str] | None = None,
    server_timing: bool = False,
) -> Any:
    """Sum up and bill every request of an ASGI application: FastAPI, Starlette or any other.

    A request is billed to the feature that ``gputrace.feature`` names at its endpoint
    or that a dependency sets with ``gputrace.current().set(feature=…)``; else to that of its
    route (``openapi_extra={"x-gputrace-feature": …}``, then ``tags``); else to what ``feature``
    returns; else to the template of its route. Call it before the application
    starts; a second time changes nothing.

    Args:
        app: The application.
        feature: Takes the ASGI scope and returns a feature or None. Asked when the request
            comes, and again once its route is known.
        tags: Feature by tag of the route.
        server_timing: Tell the client in a ``Server-Timing`` header what is known when the
            response starts: calls that are settled, and their charged time.

    Returns:
        The application: the same where it has a middleware stack of its own, else one around it.

    Raises:
        TypeError: ``app`` is nothing that can be called.
    """
    from gputrace.integrations import asgi

    options = asgi.Options(feature=feature, tags=dict(tags or {}), server_timing=server_timing)
    return asgi.add(app, options)


def instrument_ray(**settings: Any) -> None:
    """Let Ray's tasks and actors continue the trace of whoever calls them, and bill the same feature.

    Before ``ray.init()``: the job's runtime environment then sets up every worker. A
    ``worker_process_setup_hook`` of the user's is kept and runs in each as well. Signatures and arguments
    stay as they are. gputrace must be installed wherever workers of the job run.

    Args:
        **settings: What each worker gives to ``configure``, such as ``data_dir``. Without any, workers
            do as their own environment says; their files go where this process's would by default.

    Raises:
        ImportError: Ray is not installed.
        TypeError: There is no such setting, or it cannot be sent to another process, as ``trust``.
        SettingError: A value cannot be used; the message names the setting.
    """
    from gputrace.integrations import ray

    ray.instrument(settings)
