"""Keeps the faults of gputrace out of the user's program.

The only place with a broad ``except``. A fault is counted, logged once for
each place, and raised again when gputrace's own tests run, so that they never
hide one.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("gputrace")

#: Set to any value to let faults through; gputrace's own tests do.
RAISE_VARIABLE = "GPUTRACE_RAISE_FAULTS"

_count = 0
_logged: set[str] = set()


def count() -> int:
    """Return how many faults were contained in this process."""
    return _count


def reset() -> None:
    """Forget the count and what was logged, as a forked child must."""
    global _count  # noqa: PLW0603 - one counter a process
    _count = 0
    _logged.clear()


def log_once(key: str, message: str, *arguments: object) -> None:
    """Log a warning the first time that ``key`` is seen in this process."""
    if key not in _logged:
        _logged.add(key)
        logger.warning(message, *arguments)


@contextmanager
def contained(where: str) -> Iterator[None]:
    """Run a block whose exceptions must not reach the user.

    Args:
        where: What was being done, for the log: ``"start a span"``.

    Raises:
        Exception: The fault itself, only while ``GPUTRACE_RAISE_FAULTS`` is set.
    """
    global _count  # noqa: PLW0603 - one counter a process
    try:
        yield
    except Exception:
        _count += 1
        if where not in _logged:
            _logged.add(where)
            logger.exception(
                "gputrace could not %s; the program goes on, later faults of this kind are only counted", where
            )
        if os.environ.get(RAISE_VARIABLE):
            raise
