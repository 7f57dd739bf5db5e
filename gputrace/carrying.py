"""Hands the context of the caller to a function that runs in another thread."""

from __future__ import annotations

import functools
import inspect
from contextvars import copy_context
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

# Their bodies run after the call.
_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)

P = ParamSpec("P")
R = TypeVar("R")


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function as one that runs in a copy of this context, wherever it is called.

    For what starts work without its context: ``ThreadPoolExecutor.submit``,
    ``loop.run_in_executor``, ``threading.Thread``. What the work is billed to,
    the span and the baggage of here are in force there. Each call has a copy of
    its own: they may run at once, and see nothing of each other.

    Args:
        function: Runs from start to end where it is called.

    Raises:
        TypeError: It cannot be called, or its body runs later than its call: asyncio hands its
            context to coroutines itself.
    """
    if not callable(function):
        raise TypeError(f"gputrace.carry({function!r}): it must be callable")
    if any(is_kind(body) for is_kind in _LATER for body in (function, type(function).__call__)):
        raise TypeError(
            f"gputrace.carry({function!r}): its body does not run when it is called, but where the result is "
            "awaited or read; carry the function that does that"
        )
    context = copy_context()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered once at a time.
        return context.copy().run(function, *args, **kwargs)

    return carried
