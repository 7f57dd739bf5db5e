"""Runs audits in the shadow: the heavy stage of requests whose light answer was served."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import deque
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any

from gputrace import call as calls, faults, staged, tracking
from gputrace.call_site import HOLD_CALL
from gputrace.cascades_policy import AUDIT_STAGE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from gputrace.call import Call
    from gputrace.cascades_requests import CascadeRequest

#: Audits that wait or run in this process; further ones are not drawn.
MOST_WAITING = 64

#: An audit that takes longer is given up, s.
PATIENCE_S = 600.0

_SITES_LIMIT = 256
_sites: dict[str, staged.StagedSite] = {}


class Audit(staged.StagedWork):
    """One audit: waiting, running or done.

    Attributes:
        failure: What ended it.
        cancelled: It is not to begin any more.
        has_ended: It ran, and nothing of it goes on.
        begun_s: When it was asked for, ``time.monotonic()``.
    """

    billed_stage = AUDIT_STAGE
    apart = True

    def __init__(self, request: CascadeRequest, callback: Callable[[], Any]) -> None:
        super().__init__(None)
        self.rest.name = AUDIT_STAGE
        self._request = request
        self._callback: Callable[[], Any] | None = callback
        # As it is in the request: what the callback reads there, and the span to link to.
        self._context = copy_context()
        self._loop = _running_loop()
        self.failure: BaseException | None = None
        self.cancelled = False
        self.has_ended = False
        self.begun_s = monotonic()

    def run(self) -> None:
        """Run it on this thread, or in the loop of its request what is awaited there."""
        self._context.run(self._run)

    def _run(self) -> None:
        request, callback = self._request, self._callback
        if self.cancelled or callback is None:
            return
        container = calls.enter(_site(request.cascade.name), staged=self)
        self.rest.call = container
        container.attribution = request.attribution.merged({"stage": AUDIT_STAGE})
        # A block around it, as a stage would be: what it calls keeps its own ways.
        within = tracking.track(
            operation=container.site.operation, stage=AUDIT_STAGE, hold=request.cascade.hold or HOLD_CALL
        )
        try:
            result = within(lambda: callback())()  # noqa: PLW0108 - the call, not what is called
        except BaseException as error:  # noqa: BLE001 - the audit's result
            self.failure = error
            self._ended(container)
            return
        if inspect.iscoroutine(result):
            # The call that made it goes on.
            self._await(result, container)
        elif inspect.isawaitable(result):
            self._await(within(_awaiting)(result), container)
        else:
            self._ended(container)

    def _await(self, result: Awaitable[Any], container: Call) -> None:
        # `import gputrace` stays light.
        import asyncio

        awaited = self._awaiting(result, container)
        if self._loop is None or self._loop.is_closed():
            asyncio.run(awaited)
        else:
            asyncio.run_coroutine_threadsafe(awaited, self._loop)

    async def _awaiting(self, result: Awaitable[Any], container: Call) -> None:
        try:
            await result
        except BaseException as error:
            self.failure = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._ended(container)

    def _ended(self, container: Call) -> None:
        self._callback = None
        self.rest.completed = self.failure is None
        if self.failure is not None:
            faults.told(f"an audit of cascade {self._request.cascade.name!r}", self.failure)
        calls.leave(container, self.failure, block=True)
        self.has_ended = True

    def told(self) -> None:
        """Hand what it came to to its request."""
        self._request.audit_told()


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _site(cascade: str) -> staged.StagedSite:
    site = _sites.get(cascade)
    if site is None:
        if len(_sites) >= _SITES_LIMIT:
            _sites.clear()
        site = _sites[cascade] = staged.container_site(f"{cascade}.{AUDIT_STAGE}", is_request=False)
    return site


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # Where nobody has imported it, no loop runs.
    asyncio: Any = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.get_running_loop()
    except RuntimeError:
        return None


class Shadow:
    """The thread that runs audits, one after the other."""

    def __init__(self) -> None:
        self._jobs: deque[Audit] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, audit: Audit) -> None:
        """Run an audit when those before it are done.

        Raises:
            RuntimeError: The interpreter is shutting down, and starts no thread.
        """
        with self._wake:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="gputrace-audits", daemon=True)
                thread.start()
                self._thread = thread
            self._jobs.append(audit)
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._jobs:
                    self._wake.wait()
                audit = self._jobs.popleft()
            with faults.contained("run an audit"):
                audit.run()
            del audit


_in_force = Shadow()


def reset() -> None:
    """Begin anew in a forked child: what waits is the parent's."""
    global _in_force  # noqa: PLW0603 - state of a process
    _in_force = Shadow()


def in_force() -> Shadow:
    """Return what runs the audits of this process."""
    return _in_force


class AtOnce(Shadow):
    """Runs audits on the thread that asks for them: in virtual time they delay nobody."""

    def submit(self, audit: Audit) -> None:
        """Run an audit now."""
        audit.run()


def use(shadow: Shadow) -> None:
    """Let something else run the audits of this process.

    Args:
        shadow: What runs them.
    """
    global _in_force  # noqa: PLW0603 - state of a process
    _in_force = shadow
