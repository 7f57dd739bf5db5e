"""Calls that may never return, kept from holding up anything else.

A call into a driver whose GPU has fallen off the bus can hang for good, and
cannot be interrupted. It releases the GIL, so it costs a thread and no more.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from gputrace.devices.nvml_library import HANGS, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_Job = tuple["concurrent.futures.Future[Any]", "Callable[[], Any]"]


class Worker:
    """Runs jobs on a thread of its own; one that hangs keeps the thread, and the next gets another.

    Args:
        patience_s: How long a job may take, s.
        wait: Waits for a job in the place of a timeout.
    """

    def __init__(
        self,
        patience_s: float = 2.0,
        wait: Callable[[concurrent.futures.Future[Any]], object] | None = None,
    ) -> None:
        self._wait = wait or (lambda job: concurrent.futures.wait([job], timeout=patience_s))
        self._jobs: queue.SimpleQueue[_Job | None] | None = None
        self._hanging: dict[object, concurrent.futures.Future[Any]] = {}

    def run(self, key: object, job: Callable[[], _T]) -> _T:
        """Run a job.

        Args:
            key: Whose job it is. While one of its jobs hangs, it gets no other.
            job: Called on the thread.

        Raises:
            RefusedError: It hangs, or the last one of the same key still does. What it
                answers after all is dropped: nobody knows to which moment it belongs.
        """
        hanging = self._hanging.get(key)
        if hanging is not None and not hanging.done():
            raise RefusedError(HANGS)
        self._hanging.pop(key, None)
        future: concurrent.futures.Future[_T] = concurrent.futures.Future()
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name="gputrace-nvml", daemon=True).start()
        self._jobs.put((future, job))
        self._wait(future)
        if not future.done():
            self._hanging[key] = future
            self.stop()
            raise RefusedError(HANGS)
        return future.result()

    @property
    def hanging(self) -> bool:
        """Whether any job still hangs."""
        return any(not job.done() for job in self._hanging.values())

    def stop(self) -> None:
        """End the thread once its job is done; another job starts another thread."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (item := jobs.get()) is not None:
        future, job = item
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever gave the job
            future.set_exception(error)
        del item, future, job
