"""FastAPI and Starlette: instruments every application of the process.

Named in the entry points of ``opentelemetry_instrumentor``, so that
``opentelemetry-instrument uvicorn app:app`` needs no code.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from typing import TYPE_CHECKING, Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from gputrace import faults
from gputrace.integrations import asgi, asgi_routes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_INSTRUMENTING = faults.contained("instrument FastAPI and Starlette")
_BUILDING = faults.contained("instrument an application")
_RESTORING = faults.contained("restore FastAPI and Starlette")

# FastAPI's overrides Starlette's without calling it.
_APPLICATIONS = (("starlette.applications", "Starlette"), ("fastapi.applications", "FastAPI"))
_BUILDER = "build_middleware_stack"
_ORIGINAL = "__gputrace_original__"

_instrumented: weakref.WeakSet[Any] = weakref.WeakSet()


class FastAPIInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments all applications, also those that exist but have not started."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what must be installed: what FastAPI is made of is enough."""
        return ("starlette >= 0.38",)

    def _instrument(self, **options: Any) -> None:
        # Anything but an ImportError would end all of auto-instrumentation.
        with _INSTRUMENTING:
            chosen = asgi.Options(**options)
            for application in _applications():
                builder = application.__dict__.get(_BUILDER)
                if builder is not None and not hasattr(builder, _ORIGINAL):
                    setattr(application, _BUILDER, _building(builder, chosen))

    def _uninstrument(self, **_: Any) -> None:
        with _RESTORING:
            for application in _applications():
                original = getattr(application.__dict__.get(_BUILDER), _ORIGINAL, None)
                if original is not None:
                    setattr(application, _BUILDER, original)
            for app in list(_instrumented):
                asgi.remove(app)
            _instrumented.clear()
            asgi_routes.unwatch()


def _applications() -> list[Any]:
    found = []
    for module_name, name in _APPLICATIONS:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        found.append(getattr(module, name))
    return found


def _building(builder: Callable[..., Any], options: asgi.Options) -> Callable[..., Any]:
    @functools.wraps(builder)
    def built(app: Any) -> Any:
        with _BUILDING:
            asgi.add(app, options)
            _instrumented.add(app)
        return builder(app)

    setattr(built, _ORIGINAL, builder)
    return built
