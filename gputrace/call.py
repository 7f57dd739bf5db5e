"""One tracked piece of work, and the queue on which it goes to the settler.

The hot path of the SDK. What runs here runs on the user's thread: it takes no
lock, calls no metrics API and waits for nothing.

The settler reads calls while their threads write them, so the order of the
writes matters:

    enter:  queue the call (born pending) → take the mark → append it → not pending
    leave:  pending → take the mark → append it → closed → not pending

A reader that sees a call not pending, after it took its instant T, has every
mark up to T. One that sees it pending knows only that the missing mark lies
after the last instant at which it was seen otherwise, and waits.
"""

from __future__ import annotations

import itertools
from collections import deque
from threading import RLock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api

from gputrace import attribution, call_register, identity
from gputrace.attribution import UNNAMED, current_scope, enclosing_call, scope_in_force
from gputrace.call_site import HOLD_CALL, HOLD_NONE, HOLD_STEPS, HOLDS, Site
from gputrace.devices import selection
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from gputrace.attribution import Attribution, Scope
    from gputrace.devices.base import Mark, Timer

__all__ = [
    "HOLDS",
    "HOLD_CALL",
    "HOLD_NONE",
    "HOLD_STEPS",
    "Call",
    "Site",
    "clock",
    "current_scope",
    "ensure_settled",
    "enter",
    "entered",
    "is_cancellation",
    "leave",
    "queue",
    "record",
    "reset",
    "resume",
    "settling",
    "stop_recording",
    "suspend",
]

#: Calls that entered and were not drained yet: the queue of the settler in force.
queue: deque[Call] = deque()

#: Takes a mark on the host: nanoseconds on CLOCK_MONOTONIC.
clock: Callable[[], int] = monotonic_ns

_numbers = itertools.count(1)
_numbering = RLock()


class Call:
    """One tracked piece of work, from its first step to its end.

    Written by the thread that runs it, read by the settler.

    Attributes:
        site: What the decorator said.
        parent: The call it was made in, None for an outermost one or when
            that call had ended already.
        root: The outermost call, the owner that shares a device; None for itself.
        attribution: What it is billed to.
        marks: Starts and ends of its steps, in turn.
        pending: A mark is being taken.
        closed: The last mark is in ``marks``.
        status: None for ok, ``error`` or ``cancelled``.
        error_type: Class name of the exception that ended it.
        timer: Times its steps on GPUs; None on the host stand-in.
        span: Its span, where the trace is sampled.
        batch: The batch that it is, set for batches alone.
        request: The request that it is, set for containers of that kind alone.
        staged: What sums up the stage or the cascade that it is, set for those alone.
        outlasting: A context that must outlast its closing.
        settled: What the settler keeps about it.
    """

    __slots__ = (
        "attribution",
        "batch",
        "closed",
        "context",
        "error_type",
        "inner",
        "marks",
        "number",
        "outlasting",
        "outside",
        "parent",
        "pending",
        "previous",
        "request",
        "root",
        "settled",
        "site",
        "span",
        "staged",
        "status",
        "timer",
    )

    attribution: Attribution
    root: Call | None
    marks: list[int | Mark | None]
    timer: Timer | selection.Untimed | None
    span: Span | None
    context: Context | None
    outside: Context | None
    previous: Scope | Call | None
    inner: Scope | Call | None
    outlasting: Any
    request: Any
    staged: Any
    batch: Any

    def __init__(self, site: Site, outer: Scope | Call | None) -> None:
        self.site = site
        self.pending = True
        self.closed = False
        self.status: str | None = None
        self.error_type: str | None = None
        self.timer = None
        self.span = None
        self.marks = []
        self.inner = None
        self.number = 0
        self.settled: Any = None
        parent: Call | None
        if outer is None:
            parent = None
            billed = UNNAMED
        else:
            billed = outer.attribution
            parent = outer if outer.__class__ is Call else outer.call  # type: ignore[union-attr]
            # Work that outlives the call it was started in is an owner of its own.
            if parent is not None and parent.closed:
                parent = None
        self.parent = parent
        self.root = None if parent is None else parent.root or parent
        merged = site.merged.get(billed)
        self.attribution = site.attribution_under(billed) if merged is None else merged

    @property
    def id(self) -> str:
        """Identity of the call: unique in its process and, with the instance, everywhere.

        Whoever asks may refer to the call by it, long after it has ended.
        """
        call_register.remember(self)
        return self.label

    @property
    def label(self) -> str:
        """The same, for who only shows it."""
        return f"{identity.instance_id()}/{self.call_number:x}"

    @property
    def call_number(self) -> int:
        """Number of the call in its process, given when first asked for."""
        number = self.number
        if number == 0:
            with _numbering:
                number = self.number
                if number == 0:
                    number = self.number = next(_numbers)
        return number


def reset() -> None:
    """Begin anew in a forked child: what was queued is the parent's."""
    global _numbering, entered, queue, settling  # noqa: PLW0603 - state of a process
    entered = None
    queue = deque()
    _numbering = RLock()
    settling = False
    call_register.reset()


def stop_recording() -> None:
    """Let tracked functions run on unrecorded: nothing settles calls any more."""
    global queue, settling  # noqa: PLW0603 - state of a process
    queue = deque(maxlen=0)
    settling = True


def record(settled: deque[Call]) -> None:
    """Record calls from now on.

    Args:
        settled: The queue of the settler that takes them.
    """
    global queue, settling  # noqa: PLW0603 - state of a process
    queue = settled
    settling = True


#: Starts what settles calls; the settler puts itself here when it is imported.
ensure_settled: Callable[[], None] = lambda: None  # noqa: E731

#: Counts calls as they enter, where the other processes of the node are told of them.
entered: Callable[[], None] | None = None

#: Whether ``ensure_settled`` ran in this process.
settling = False


def enter(site: Site, *, request: Any = None, batch: Any = None, staged: Any = None) -> Call:
    """Open a call on this thread and make it the innermost scope.

    Args:
        site: What it was made through.
        request: What sums it up, where it is the container of a request: that begins
            anew, whatever it is in.
        batch: The members, where it is a batch.
        staged: What sums it up, where its site is staged.
    """
    if not settling:
        ensure_settled()
    scope = current_scope.get()
    call = Call(site, scope if scope is not None or not attribution.mirrored else scope_in_force())
    call.previous = scope
    if request is not None:
        call.request = request
        call.parent = call.root = None
    elif batch is not None:
        _join(call, batch)
    if staged is not None:
        call.staged = staged
        if staged.apart:
            call.parent = call.root = None
    if selection.gpu:
        call.timer = selection.timer_for(site.hold, site.devices, site.streams)
        if entered is not None:
            entered()
    # Before its first mark, so that the settler waits for a thread that stalls here.
    queue.append(call)
    try:
        if trace_api._TRACER_PROVIDER is not None:  # noqa: SLF001 - get_tracer_provider() builds a proxy each time
            spans.begin(call)
        timer = call.timer
        call.marks.append(clock() if timer is None else timer.mark())
        call.pending = False
        current_scope.set(call)
    except BaseException as error:
        _abandon(call, error)
        raise
    return call


def _join(call: Call, batch: Any) -> None:
    """Make a call the batch of its members: inside no request, whichever started its thread or task."""
    call.batch = batch
    call.attribution = batch.own_attribution(call.attribution)
    if call.root is not None and call.root.site.is_request:
        call.parent = call.root = None


def _abandon(call: Call, error: BaseException) -> None:
    """Close a call whose entry an interrupt broke off: nobody else has it, and the settler waits for it."""
    if call.marks:
        leave(call, error)
        return
    call.status = "error"
    call.closed = True
    call.pending = False
    if call.span is not None:
        spans.leave(call, error)


def leave(call: Call, error: BaseException | None = None, *, block: bool = False) -> None:
    """Close a call, ended well or by ``error``.

    Args:
        call: An open call.
        error: What ended it.
        block: It is a ``with`` block, which may stand in a generator that another task
            closes: in that foreign context there is nothing to restore. What is not a
            block ends where its last step began, whatever its body left open there.
    """
    if error is not None:
        call.error_type = type(error).__qualname__
        call.status = "cancelled" if is_cancellation(error) else "error"
    call.pending = True
    try:
        timer = call.timer
        call.marks.append(clock() if timer is None else timer.mark())
    finally:
        # After an interrupt too.
        call.closed = True
        call.pending = False
        inner = current_scope.get()
        if inner is call:
            current_scope.set(call.previous)
        elif not block:
            _unmirror(call, inner)
            current_scope.set(call.previous)
        # A task that starts its successor in here would else keep them all.
        call.previous = None
        if call.span is not None:
            spans.leave(call, error, block=block)


def suspend(call: Call) -> None:
    """End a step: the caller of a generator or coroutine goes on, and sees its own scope again."""
    inner = current_scope.get()
    if inner is not call:
        call.inner = inner
        _mark_blocks(call, inner)
        if call.span is None:
            _unmirror(call, inner)
    if call.site.hold is HOLD_STEPS:
        _mark(call)
    current_scope.set(call.previous)
    if call.span is not None:
        spans.suspend(call)


def resume(call: Call) -> None:
    """Begin a step, on whichever thread or task it comes."""
    call.previous = current_scope.get()
    if call.span is not None:
        spans.resume(call)
    if call.site.hold is HOLD_STEPS:
        _mark(call)
    inner = call.inner
    if inner is None:
        current_scope.set(call)
    else:
        call.inner = None
        current_scope.set(inner)
        if call.span is None:
            _mirror(call, inner)
        _mark_blocks(call, inner)


def _mark(call: Call) -> None:
    # An interrupt in here ends the call, and so what is pending.
    call.pending = True
    timer = call.timer
    call.marks.append(clock() if timer is None else timer.mark())
    call.pending = False


def _mark_blocks(call: Call, inner: Scope | Call | None) -> None:
    """Stop or restart the ``with`` blocks that are open inside a stepped call.

    They cannot see the suspension themselves, and hold nothing while it lasts.
    """
    block = enclosing_call(inner)
    while block is not None and block is not call:
        if block.site.hold is HOLD_STEPS and not block.closed:
            _mark(block)
        block = block.parent


def _unmirror(call: Call, inner: Scope | Call | None) -> None:
    """Take what the body attached off the OpenTelemetry context, where no span does that."""
    scopes = attribution.scopes_within(call, inner)
    if scopes:
        attribution.unmirror(scopes[-1], scopes[0])


def _mirror(call: Call, inner: Scope | Call | None) -> None:
    scopes = attribution.scopes_within(call, inner)
    if scopes:
        attribution.mirror(scopes[-1], scopes[0])


_CANCELLATIONS = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an exception means that nobody wants the result any more.

    By name, so that the exceptions of asyncio, concurrent.futures, anyio and
    trio count alike without importing them.
    """
    return any(kind.__name__ in _CANCELLATIONS for kind in type(error).__mro__)
