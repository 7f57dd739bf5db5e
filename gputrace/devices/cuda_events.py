"""The pool of timing events of one device.

torch pools only events that cannot be timed, and creating one costs as much as
recording it: so we keep our own. An event is bound to the device of the stream
that records it first, hence one pool a device.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.devices.base import Event

#: Events in use at once, on one device; a device that hangs must not eat the memory.
MOST_IN_USE = 65_536
#: Events kept for reuse.
MOST_FREE = 4_096


class EventPool:
    """Timing events of one device, in use by one holder at a time. Thread safe without a lock.

    Args:
        make: Makes an event that can be timed.
    """

    def __init__(self, make: Callable[[], Event]) -> None:
        self._make = make
        self._free: deque[Event] = deque()
        # By identity. Also keeps them alive in a forked child, which must not destroy them.
        self._in_use: dict[int, Event] = {}

    def acquire(self) -> Event | None:
        """Return an event that nobody else holds, None where too many are in use."""
        try:
            event = self._free.pop()
        except IndexError:
            if len(self._in_use) >= MOST_IN_USE:
                return None
            event = self._make()
        self._in_use[id(event)] = event
        return event

    def release(self, *events: Event) -> None:
        """Take events back. One that is not in use is left alone, so that no two calls ever share it."""
        for event in events:
            if self._in_use.pop(id(event), None) is not None and len(self._free) < MOST_FREE:
                self._free.append(event)
