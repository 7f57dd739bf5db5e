"""Puts functions around those of a framework: all that were asked for, or none of them.

Most of what is wrapped is the framework's own business. So the parameters of every one are compared first,
and where a version has others everything is left as it is.
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


class Version(NamedTuple):
    """What the patches were written for.

    Attributes:
        framework: Its name.
        number: The version.
        package: What is to be pinned where it does not fit.
    """

    framework: str
    number: str
    package: str


class Patch(NamedTuple):
    """One function of a framework, and what goes around it.

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


def apply(patches: Iterable[Patch], version: Version) -> bool:
    """Wrap all functions, those that are wrapped already excepted.

    Args:
        patches: The functions, and what goes around them.
        version: Said where they are not as expected.

    Returns:
        Whether all of them are wrapped now. Where one is not as expected, none is and one line says which.
    """
    patches = list(patches)
    if not fits([patch[:3] for patch in patches], version):
        return False
    for patch in patches:
        place = _place(patch.module, patch.path)
        if not hasattr(place.function, _ORIGINAL):
            _wrap(place, patch)
    return True


def fits(functions: Iterable[tuple[str, str, tuple[str, ...]]], version: Version) -> bool:
    """Tell whether all functions are as expected.

    Args:
        functions: Of each the module, its path there, and what its parameters begin with.
        version: Said where they are not: one line says which.
    """
    for module, path, expected in functions:
        try:
            parameters = tuple(inspect.signature(_place(module, path).function).parameters)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            _refuse(module, path, version, str(error))
            return False
        if parameters[: len(expected)] != expected:
            _refuse(module, path, version, f"it has the parameters ({', '.join(parameters)})")
            return False
    return True


def restore(patches: Iterable[Patch]) -> None:
    """Put back what :func:`apply` has wrapped."""
    for patch in patches:
        place = _place(patch.module, patch.path)
        original = getattr(place.function, _ORIGINAL, None)
        if original is not None:
            setattr(place.owner, place.name, original)


def _place(module: str, path: str) -> _Place:
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return _Place(owner, name)


def _wrap(place: _Place, patch: Patch) -> None:
    original = place.function
    made = patch.around(original)
    functools.update_wrapper(made, original)
    setattr(made, _ORIGINAL, original)
    setattr(place.owner, place.name, made)


def _refuse(module: str, path: str, version: Version, why: str) -> None:
    faults.log_once(
        f"version:{version.package}",
        "gputrace leaves %s as it is: %s.%s is not as in %s %s (%s); upgrade gputrace, or pin %s",
        version.framework,
        module,
        path,
        version.framework,
        version.number,
        why,
        version.package,
    )
