"""How many calls there were, told to the other processes of the node in case this one is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import call as calls

if TYPE_CHECKING:
    from gputrace.hardware import Hardware


class Counts:
    """What a process that is killed has lost: the calls that it accepted and did not export.

    Args:
        hardware: The node's GPUs, which tell the other processes; None where there are none.

    Attributes:
        accepted: Calls that entered and were drained.
        concluded: Those that are settled.
        exports_tell: Exports say when they have arrived; else what a reader was shown counts as exported.
    """

    def __init__(self, hardware: Hardware | None) -> None:
        self._hardware = hardware
        self.accepted = self.concluded = 0
        self.exports_tell = False
        self._shown = self._exported = 0

    def begin(self) -> None:
        """Count calls as they enter."""
        if self._hardware is not None:
            calls.entered = self._hardware.entering(self.accepted)

    def end(self) -> None:
        """Tell the last counts: what is settled is exported next."""
        calls.entered = None
        if self._hardware is not None:
            self._hardware.count(self.accepted, self.concluded)

    def shown(self) -> None:
        """Take note that a reader is shown what is settled by now."""
        self._shown = self.concluded
        if not self.exports_tell:
            self._exported = self._shown

    def exported(self) -> None:
        """Take note that what was shown has arrived."""
        self._exported = self._shown
        self.tell()

    def tell(self) -> None:
        """Tell the other processes."""
        if self._hardware is not None:
            self._hardware.count(self.accepted, self._exported)
