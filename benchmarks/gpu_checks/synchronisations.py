"""Counts how often somebody waits for a device."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

_MISSING = object()


class Synchronisations:
    """Counts calls of the functions that wait for a device, within a ``with`` block, on all threads.

    Args:
        places: Modules, classes or objects, each with the name of such a function of theirs.

    Attributes:
        called: The names of what was called, in order.
    """

    def __init__(self, places: Iterable[tuple[Any, str]]) -> None:
        self._places = list(places)
        self._before: list[tuple[Any, str, Any]] = []
        self.called: list[str] = []

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self.called)

    def __enter__(self) -> Synchronisations:  # noqa: PYI034 - Self needs Python 3.11
        for owner, name in self._places:
            # What is inherited must be so again afterwards.
            self._before.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, self._counting(f"{_named(owner)}.{name}", getattr(owner, name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            owner, name, before = self._before.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _counting(self, called: str, function: Any) -> Any:
        @functools.wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            self.called.append(called)
            return function(*arguments, **named)

        return counted


def _named(owner: Any) -> str:
    return str(getattr(owner, "__name__", type(owner).__name__))
