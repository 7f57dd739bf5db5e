"""Keeps the faults of gputrace out of the user's program.

The only place that catches whatever comes. A fault is counted, logged once for
each place, and raised again when gputrace's own tests run, so that they never
hide one.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

logger = logging.getLogger("gputrace")

#: Set to any value to let faults through; gputrace's own tests do.
RAISE_VARIABLE = "GPUTRACE_RAISE_FAULTS"

_count = 0
_logged: set[str] = set()
_unmeasured: dict[str, int] = {}


def count() -> int:
    """Return how many faults were contained in this process."""
    return _count


def reset() -> None:
    """Forget the count and what was logged, as a forked child must."""
    global _count  # noqa: PLW0603 - one counter a process
    _count = 0
    _logged.clear()
    _unmeasured.clear()


def unmeasured(reason: str) -> None:
    """Count a call that an integration could not time, or could not say whose it was.

    From the thread that does the work, or any other one: what two count at the same moment may be one.

    Args:
        reason: Why, of a closed set.
    """
    _unmeasured[reason] = _unmeasured.get(reason, 0) + 1


def all_unmeasured() -> dict[str, int]:
    """Return how many there were in this process, by reason."""
    return dict(_unmeasured)


def log_once(key: str, message: str, *arguments: object) -> None:
    """Log a warning the first time that ``key`` is seen in this process."""
    if key not in _logged:
        _logged.add(key)
        logger.warning(message, *arguments)


class tolerated:  # noqa: N801 - used like a function
    """Call what the user gave; its exceptions are told once, and break nothing.

    Args:
        where: What was called, for the log: ``"the rule of cascade 'answer'"``.
    """

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Swallow an exception, but never an exit or an interrupt."""
        if error is None or not isinstance(error, Exception):
            return False
        told(self._where, error)
        return True


def told(where: str, error: BaseException) -> None:
    """Log once that something of the user's raised."""
    if where not in _logged:
        _logged.add(where)
        logger.warning("gputrace: %s raised; the program goes on", where, exc_info=error)


class contained:  # noqa: N801 - used like a function
    """Run a block whose exceptions must not reach the user.

    An instance keeps nothing between uses: make it once where the block is hot.

    Args:
        where: What was being done, for the log: ``"start a span"``.

    Raises:
        Exception: The fault itself, only while ``GPUTRACE_RAISE_FAULTS`` is set.
    """

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Swallow an exception, but never an exit or an interrupt."""
        global _count  # noqa: PLW0603 - one counter a process
        if error is None or not isinstance(error, Exception):
            return False
        _count += 1
        if self._where not in _logged:
            _logged.add(self._where)
            logger.error(
                "gputrace could not %s; the program goes on, later faults of this kind are only counted",
                self._where,
                exc_info=error,
            )
        return not os.environ.get(RAISE_VARIABLE)
