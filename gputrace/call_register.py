"""The calls whose identity somebody has asked for: an outcome may refer to them, long after they ended.

Of an open call what it is billed to can still change, so the call itself is
kept; of one that has ended, that alone.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING

from gputrace import identity
from gputrace.attribution import Attribution

if TYPE_CHECKING:
    from gputrace.call import Call

#: So many are remembered; those asked for first are forgotten first.
LIMIT = 10_000

_known: OrderedDict[int, Call | Attribution] = OrderedDict()
_lock = RLock()


def remember(call: Call) -> None:
    """Keep what a call is billed to, from the first time that somebody asks who it is."""
    number = call.call_number
    if number in _known:
        return
    with _lock:
        _known[number] = call.attribution if call.closed else call
        while len(_known) > LIMIT:
            _known.popitem(last=False)


def ended(call: Call) -> None:
    """Let go of a call that has ended: what it was billed to is all that is asked for."""
    if call.number in _known:
        with _lock:
            if call.number in _known:
                _known[call.number] = call.attribution


def attribution_of(call_id: str) -> Attribution | None:
    """Return what a call of this process is or was billed to.

    Args:
        call_id: As ``Call.id`` gave it.

    Returns:
        None for a call of another process, one that nobody asked for, and one that was forgotten.
    """
    instance, _, number = call_id.rpartition("/")
    if instance != identity.settled():
        return None
    try:
        known = _known.get(int(number, 16))
    except ValueError:
        return None
    return known if known is None or isinstance(known, Attribution) else known.attribution


def reset() -> None:
    """Begin anew in a forked child: the parent's calls are not its own."""
    global _lock  # noqa: PLW0603 - state of a process
    _lock = RLock()
    _known.clear()
