"""Instrumentation of frameworks; imported as ``gputrace.integrations``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What torch.compile leaves on a function, and what this package does.
_MARKS_OF_FUNCTIONS = frozenset({"_torchdynamo_orig_callable", "_gputrace_named_function"})


def instrument(
    app: Any,
    *,
    feature: Callable[[Mapping[str, Any]], str | None] | None = None,
    tags: Mapping[str, str] | None = None,
    server_timing: bool = False,
    model: str | None = None,
) -> Any:
    """Sum up and bill every request of an ASGI application, or track every call of a torch module.

    ASGI: FastAPI, Starlette or any other. A request is billed to the feature that
    ``gputrace.feature`` names at its endpoint or that a dependency sets with
    ``gputrace.current().set(feature=…)``; else to that of its route
    (``openapi_extra={"x-gputrace-feature": …}``, then ``tags``); else to what ``feature``
    returns; else to the template of its route. Call it before the application starts; a second
    time changes nothing.

    torch: give the outermost callable, a module, a compiled module or a compiled function. Each of its
    calls is one call, billed to the feature in force where it is made, and ``forward`` stays as it is,
    signature and graph. A module may be compiled, copied or pickled afterwards.

    Args:
        app: The application, the module or the function.
        feature: Takes the ASGI scope and returns a feature or None. Asked when the request
            comes, and again once its route is known.
        tags: Feature by tag of the route.
        server_timing: Tell the client in a ``Server-Timing`` header what is known when the
            response starts: calls that are settled, and their charged time.
        model: Model that a module or a function of torch's is. A function that is not compiled needs it:
            nothing else tells it from an application.

    Returns:
        The same application where it has a middleware stack of its own, the same module; else what goes
        around it.

    Raises:
        TypeError: ``app`` is nothing that can be called, or an argument is for the other kind.
    """
    if model is not None or _is_of_torch(app):
        if feature is not None or tags is not None or server_timing:
            raise TypeError(
                f"instrument: {app!r} is no ASGI application; feature=, tags= and server_timing= are for one"
            )
        from gputrace.integrations import torch

        return torch.add(app, model=model)
    from gputrace.integrations import asgi

    options = asgi.Options(feature=feature, tags=dict(tags or {}), server_timing=server_timing)
    return asgi.add(app, options)


def _is_of_torch(target: Any) -> bool:
    # Where nobody has imported torch, it is none of its modules.
    kind = getattr(sys.modules.get("torch.nn"), "Module", None)
    if kind is None:
        return False
    # Not by hasattr, which some objects answer with yes whatever is asked.
    return isinstance(target, kind) or not _MARKS_OF_FUNCTIONS.isdisjoint(getattr(target, "__dict__", ()))


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
