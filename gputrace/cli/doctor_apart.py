"""Each check in a process of its own: whatever the driver does there, this one goes on and ends.

A call into a driver whose GPU is gone may never return, and on its way into the
kernel it cannot be killed either: a process with such a thread does not end. It
may also crash. A child that is left behind costs nobody anything.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import struct
import sys
import traceback
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 16


class Job(NamedTuple):
    """One check.

    Attributes:
        name: What it is called.
        work: Answers what can be pickled.
        patience_s: How long it may take, s.
    """

    name: str
    work: Callable[[], Any]
    patience_s: float


class Answer(NamedTuple):
    """What came of a check.

    Attributes:
        value: What it answered, `None` where it did not.
        problem: Why it did not, in words.
        fault: The traceback, where it failed by a fault of ours.
    """

    value: Any = None
    problem: str | None = None
    fault: str | None = None


class _Child:
    def __init__(self, job: Job) -> None:
        self.job = job
        # What stands in the buffers would be written twice.
        sys.stdout.flush()
        sys.stderr.flush()
        self.reading, writing = os.pipe()
        self.deadline = monotonic() + job.patience_s
        self._data = b""
        self._pid = os.fork()
        if self._pid == 0:
            _work(job, writing)
        os.close(writing)

    def read(self) -> Answer | None:
        """Take what came; `None` while there is more to come."""
        chunk = os.read(self.reading, _CHUNK_BYTES)
        self._data += chunk
        head, body = self._data[: _LENGTH.size], self._data[_LENGTH.size :]
        # By its length, not by the end of the pipe: a thread that hangs there keeps it open.
        if len(head) == _LENGTH.size and len(body) == _LENGTH.unpack(head)[0]:
            answer: Answer = pickle.loads(body)  # noqa: S301 - written by this program a moment ago
            return answer
        return None if chunk else Answer(problem=self._how_it_ended())

    def _how_it_ended(self) -> str:
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else "its process ended"

    def late(self) -> Answer:
        return Answer(problem=f"no answer within {self.job.patience_s:g} s")

    def leave(self) -> None:
        os.close(self.reading)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            # One that cannot be killed is not waited for.
            os.waitpid(self._pid, os.WNOHANG)


def _work(job: Job, writing: int) -> NoReturn:
    raised: BaseException | None = None
    data = b""
    try:
        data = pickle.dumps(Answer(job.work()))
    except BaseException as error:  # noqa: BLE001 - told to the parent, which raises it
        raised = error
    if raised is not None:
        told = "".join(traceback.format_exception(raised))
        data = pickle.dumps(Answer(problem=f"{type(raised).__name__}: {raised}", fault=told))
    with suppress(OSError), os.fdopen(writing, "wb") as pipe:
        pipe.write(_LENGTH.pack(len(data)) + data)
    # Neither exit handlers of the parent's nor destructors of a driver's library: they may hang too.
    os._exit(0)


def run_apart(jobs: Sequence[Job]) -> dict[str, Answer]:
    """Run all checks at once, each in a process of its own.

    Returns:
        By name; every check has an answer, if only that there was none in time.
    """
    children: list[_Child] = []
    answers: dict[str, Answer] = {}
    try:
        with selectors.DefaultSelector() as selector:
            for job in jobs:
                children.append(_Child(job))
                selector.register(children[-1].reading, selectors.EVENT_READ, children[-1])
            waiting = set(children)
            while waiting:
                first = min(child.deadline for child in waiting)
                for key, _ in selector.select(max(0.0, first - monotonic())):
                    child: _Child = key.data
                    answer = child.read()
                    if answer is not None:
                        answers[child.job.name] = answer
                now = monotonic()
                for child in list(waiting):
                    if child.deadline <= now:
                        answers.setdefault(child.job.name, child.late())
                    if child.job.name in answers:
                        selector.unregister(child.reading)
                        waiting.discard(child)
    finally:
        for child in children:
            child.leave()
    return answers


class CheckFailedError(Exception):
    """A check failed by a fault of gputrace's own; the message is its traceback."""
