"""Threads that flush and close what may hang, so that nobody else has to wait for it."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable


#: Between a 0 and the value that follows, s: servers keep one value a millisecond.
ANOTHER_MOMENT_S = 0.002


class Task:
    """Something that a :class:`Closer` was asked to do."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._done = threading.Event()
        self._succeeded = False

    def run(self) -> None:
        """Do it."""
        try:
            with faults.contained("flush or shut down a provider"):
                # Only False says that it failed: most of what is asked returns nothing.
                self._succeeded = self._action() is not False
        finally:
            self._done.set()

    def succeeded(self, deadline: float) -> bool:
        """Tell whether it was done well before ``deadline`` (``time.monotonic()``, s)."""
        return self._done.wait(max(0.0, deadline - monotonic())) and self._succeeded


class Closer:
    """A thread that flushes and shuts down one thing after the other, and may be left behind.

    Started beforehand: at exit an interpreter refuses new threads.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.start()

    def start(self) -> None:
        """Start the thread; once more in a forked child, which has none."""
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        threading.Thread(target=self._run, args=(self._tasks,), name=self._name, daemon=True).start()

    def _run(self, tasks: SimpleQueue[Task]) -> None:
        while True:
            tasks.get().run()

    def submit(self, action: Callable[[], object]) -> Task:
        """Run an action after those before it; returning False means that it failed."""
        task = Task(action)
        self._tasks.put(task)
        return task


def milliseconds_until(deadline: float) -> int:
    """Return the time left, ms, at least one: OpenTelemetry takes 0 for no limit in places."""
    return max(1, int((deadline - monotonic()) * 1000))
