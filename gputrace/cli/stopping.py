"""What ends a command that runs until it is told to stop."""

from __future__ import annotations

import queue
import signal


class StopSignal:
    """SIGTERM or SIGINT, from the moment this is made.

    A handler runs between two instructions of the thread that waits. ``threading.Event`` takes its lock
    in ``wait`` and in ``set``, so that a signal in the wrong microsecond would leave both waiting for ever;
    ``put`` and ``get`` of this queue are single instructions.
    """

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._told.put(None))

    def has_come(self) -> bool:
        """Whether the command shall end."""
        return not self._told.empty()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the signal.

        Args:
            timeout: Longest time to wait, s; by default until it comes.

        Returns:
            Whether it has come.
        """
        try:
            self._told.get(timeout=timeout)
        except queue.Empty:
            return False
        self._told.put(None)
        return True
