"""The calls that one block object has open: several tasks may be in it at once, and each leaves its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import faults
from gputrace.attribution import current_scope

if TYPE_CHECKING:
    from gputrace.call import Call


class OpenCalls:
    """What a ``with`` block has entered and not left."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def entered(self, call: Call) -> None:
        """Keep a call until its task leaves the block."""
        self._calls.append(call)

    def left(self) -> Call | None:
        """Return the call that this task has entered, the last one where that cannot be told.

        Returns:
            None where nothing is open: who calls ``__exit__`` by hand has called it twice.
        """
        if not self._calls:
            faults.log_once(
                "block-left",
                "gputrace: a block was left in which nobody is: __exit__ twice, or without __enter__",
            )
            return None
        last = self._calls.pop()
        current = current_scope.get()
        if not self._calls or last is current:
            return last
        for position, call in enumerate(self._calls):
            if call is current:
                self._calls[position] = last
                return call
        return last
