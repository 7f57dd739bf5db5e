"""Which route answers a request, and which feature that route names.

Both are known only once the framework has chosen the route. Starlette's and
FastAPI's routes therefore say so, in the moment before they hand the request
on, to what the middleware has left in its scope. Nothing is matched twice.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping

    Scope = MutableMapping[str, Any]
    Handle = Callable[..., Awaitable[None]]

#: Where the middleware leaves what is known of a request, in its scope.
SCOPE_KEY = "gputrace"
#: Key of ``openapi_extra`` that names the feature of a route.
EXTRA_KEY = "x-gputrace-feature"

_LOOKING = faults.contained("look at the route of a request")
_WATCHING = faults.contained("watch the routes of Starlette")

# The class attribute that says what stood in its place.
_ORIGINAL = "__gputrace_original__"
_CLASSES = {
    "starlette.routing": ("Route", "WebSocketRoute", "Mount"),
    # It does not call the method that it overrides, for routers that are included.
    "fastapi.routing": ("APIRoute",),
}


def watch() -> None:
    """Let routes say when they are chosen, in this process; costs nothing where they do already."""
    with _WATCHING:
        for route_class in _route_classes():
            handle = route_class.__dict__.get("handle")
            if handle is not None and not hasattr(handle, _ORIGINAL):
                route_class.handle = _watched(handle)


def unwatch() -> None:
    """Give the routes their own methods back."""
    for route_class in _route_classes():
        original = getattr(route_class.__dict__.get("handle"), _ORIGINAL, None)
        if original is not None:
            route_class.handle = original


def _route_classes() -> Iterator[Any]:
    for module_name, class_names in _CLASSES.items():
        module = sys.modules.get(module_name)
        for class_name in class_names:
            route_class = getattr(module, class_name, None)
            if route_class is not None:
                yield route_class


def _watched(handle: Handle) -> Handle:
    @functools.wraps(handle)
    async def chosen(route: Any, scope: Scope, receive: Any, send: Any) -> None:
        handling = scope.get(SCOPE_KEY)
        if handling is not None:
            with _LOOKING:
                handling.chosen(route, scope)
        await handle(route, scope, receive, send)

    setattr(chosen, _ORIGINAL, handle)
    return chosen


def effective(route: Any, scope: Mapping[str, Any]) -> Any:
    """Return what knows the whole path, the tags and the dependencies of a route.

    In newer FastAPI a route that is included by way of a router is shared between
    those that include it; what they add is kept beside it.
    """
    context = (scope.get("fastapi") or {}).get("effective_route_context")
    whose = (getattr(context, "original_route", None), getattr(context, "starlette_route", None))
    return context if any(one is route for one in whose) else route


def template(route: Any) -> str:
    """Return the path of a route as it is written: ``/answers/{id}``."""
    return str(getattr(route, "path_format", None) or getattr(route, "path", None) or "")


def marked_feature(route: Any) -> str | None:
    """Return the feature that ``gputrace.feature`` gave the endpoint, or the dependency nearest to it."""
    named = gputrace.feature.of(getattr(route, "endpoint", None))
    if named is None:
        named = _feature_of_dependencies(getattr(route, "dependant", None))
    return named


def _feature_of_dependencies(dependant: Any) -> str | None:
    # Those of the application come first, then those of routers, then the endpoint's own.
    for dependency in reversed(getattr(dependant, "dependencies", None) or ()):
        named = gputrace.feature.of(dependency.call) or _feature_of_dependencies(dependency)
        if named is not None:
            return named
    return None


def declared_feature(route: Any, tags: Mapping[str, str]) -> str | None:
    """Return the feature that the declaration of a route names, or its first tag that has one."""
    extra = (getattr(route, "openapi_extra", None) or {}).get(EXTRA_KEY)
    if extra is not None:
        return str(extra)
    known = (tags.get(getattr(tag, "value", tag)) for tag in getattr(route, "tags", None) or ())
    return next((feature for feature in known if feature is not None), None)
