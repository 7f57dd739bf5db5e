"""Exports what a worker of a model server has done whenever it pauses: servers kill their workers.

No exit hook runs then. What is lost all the same, in the middle of work, is at most what was done since the
last export, and is counted by the publisher of the node.
"""

from __future__ import annotations

import threading
from time import sleep

import gputrace
from gputrace import faults

#: Work that pauses for so long is exported, s; and for so long after that nothing is.
QUIET_S = 0.25

_EXPORTING = faults.contained("export what a worker of a model server has done")


class Exports:
    """A thread that exports when work has ended and no more does, for as long as the process lives."""

    def __init__(self) -> None:
        self._worked = threading.Event()
        threading.Thread(target=self._run, name="gputrace-serving", daemon=True).start()

    def worked(self) -> None:
        """Take note that there is something to export."""
        # Cheaper than to set it again and again.
        if not self._worked.is_set():
            self._worked.set()

    def _run(self) -> None:
        while True:
            self._worked.wait()
            while self._worked.is_set():
                self._worked.clear()
                sleep(QUIET_S)
            with _EXPORTING:
                gputrace.flush()
            sleep(QUIET_S)
