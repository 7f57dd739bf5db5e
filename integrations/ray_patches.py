"""Puts functions around those of Ray: all that were asked for, or none of them.

Most of what is wrapped is Ray's own business. So the parameters of every one are compared first, and where a
version of Ray has others everything is left as it is.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ORIGINAL = "__gputrace_original__"


class Patch(NamedTuple):
    """One function of Ray, and what goes around it.

    Attributes:
        module: The module that the function is found through.
        path: Its name there, with its class.
        parameters: What its parameters begin with.
        around: Called with the function; returns what takes its place.
    """

    module: str
    path: str
    parameters: tuple[str, ...]
    around: Callable[[Callable[..., Any]], Callable[..., Any]]


class _Place(NamedTuple):
    owner: Any
    name: str

    @property
    def function(self) -> Any:
        return getattr(self.owner, self.name)


def apply(patches: Iterable[Patch]) -> bool:
    """Wrap all functions, those that are wrapped already excepted.

    Returns:
        Whether all of them are wrapped now. Where one is not as expected, none is and one line says which.
    """
    found = []
    for patch in patches:
        try:
            place = _place(patch)
            parameters = tuple(inspect.signature(place.function).parameters)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            _refuse(patch, str(error))
            return False
        if parameters[: len(patch.parameters)] != patch.parameters:
            _refuse(patch, f"it has the parameters ({', '.join(parameters)})")
            return False
        found.append((place, patch))
    for place, patch in found:
        if not hasattr(place.function, _ORIGINAL):
            _wrap(place, patch)
    return True


def restore(patches: Iterable[Patch]) -> None:
    """Put back what :func:`apply` has wrapped."""
    for patch in patches:
        place = _place(patch)
        original = getattr(place.function, _ORIGINAL, None)
        if original is not None:
            setattr(place.owner, place.name, original)


def _place(patch: Patch) -> _Place:
    owner: Any = importlib.import_module(patch.module)
    *outer, name = patch.path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return _Place(owner, name)


def _wrap(place: _Place, patch: Patch) -> None:
    original = place.function
    made = patch.around(original)
    functools.update_wrapper(made, original)
    setattr(made, _ORIGINAL, original)
    setattr(place.owner, place.name, made)


def _refuse(patch: Patch, why: str) -> None:
    faults.log_once(
        "ray-version",
        "gputrace leaves Ray as it is: %s.%s is not as in Ray 2.60 (%s); upgrade gputrace, or pin ray",
        patch.module,
        patch.path,
        why,
    )
