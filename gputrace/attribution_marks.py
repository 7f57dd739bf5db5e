"""``feature``: which feature an endpoint serves, written at the endpoint."""

from __future__ import annotations

import functools
import inspect
from typing import Any, TypeVar

from gputrace.attribution import checked_fields

T = TypeVar("T")

_MARK = "__gputrace_feature__"


class feature:  # noqa: N801 - used like a function
    """Say which feature an endpoint serves: the requests that it answers are billed to it.

    Marks the function and returns it as it is. In FastAPI also as a dependency, for
    one endpoint or a whole router: ``dependencies=[Depends(gputrace.feature("search"))]``,
    or on the function of a dependency. The endpoint's own mark wins, then that of
    the dependency nearest to it. Heeded where the application is instrumented.

    Args:
        name: The feature.

    Raises:
        ValueError: ``name`` starts with ``__``, which is reserved for gputrace's own rows.
    """

    # What FastAPI asks for to call this as a dependency: nothing.
    __signature__ = inspect.Signature()

    def __init__(self, name: str) -> None:
        setattr(self, _MARK, checked_fields({"feature": name}, "feature")["feature"])

    def __call__(self, function: T = None) -> T:  # type: ignore[assignment]
        """Mark a function; without one, as a dependency is called, do nothing.

        Raises:
            TypeError: ``function`` takes no attributes, as built-in functions do.
        """
        if function is not None:
            try:
                setattr(function, _MARK, getattr(self, _MARK))
            except AttributeError as error:
                message = f"feature: {function!r} cannot be marked; wrap it in a function of your own"
                raise TypeError(message) from error
        return function

    @staticmethod
    def of(function: Any) -> str | None:
        """Return the feature that a function was marked with, None without a mark."""
        while True:
            marked = getattr(function, _MARK, None)
            if marked is not None or not isinstance(function, functools.partial):
                return None if marked is None else str(marked)
            function = function.func
