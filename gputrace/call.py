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
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api

from gputrace import attribution, identity
from gputrace.attribution import UNNAMED, Attribution, current_scope, enclosing_call, mirror, scope_in_force
from gputrace.devices import selection
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from gputrace.attribution import Scope
    from gputrace.devices.base import Mark, Timer

HOLD_STEPS = "steps"
HOLD_CALL = "call"
HOLD_NONE = "none"
HOLDS = (HOLD_STEPS, HOLD_CALL, HOLD_NONE)

#: Calls that entered and were not drained yet: the queue of the settler in force.
queue: deque[Call] = deque()

#: Takes a mark on the host: nanoseconds on CLOCK_MONOTONIC.
clock: Callable[[], int] = monotonic_ns

_numbers = itertools.count(1)
_numbering = Lock()
_MERGED_LIMIT = 512


class Site:
    """What one ``track`` or ``span`` says about the calls made through it.

    Attributes:
        operation: Name of the work.
        overrides: Attribution fields given explicitly.
        hold: ``steps``, ``call`` or ``none``.
        devices: Devices given explicitly, None for the current one.
        streams: Side streams that are timed as well.
        weight: Weight of the call as an owner of a device.
        attributes: More attributes for the span, never for metrics.
        code_function: Qualified name of the decorated function.
    """

    __slots__ = (
        "attributes",
        "code_function",
        "devices",
        "hold",
        "merged",
        "operation",
        "overrides",
        "series",
        "streams",
        "weight",
    )

    def __init__(  # noqa: PLR0913 - the arguments of track(), in one place
        self,
        operation: str,
        overrides: Mapping[str, str],
        *,
        hold: str = HOLD_STEPS,
        devices: Any = None,
        streams: Any = None,
        weight: int = 1,
        attributes: Mapping[str, Any] | None = None,
        code_function: str | None = None,
    ) -> None:
        self.operation = operation
        self.overrides = dict(overrides)
        # The very constants, so that the hot path compares by identity, unpickled sites too.
        self.hold = HOLDS[HOLDS.index(hold)]
        self.devices = devices
        self.streams = streams
        self.weight = weight
        self.attributes = dict(attributes or {})
        self.code_function = code_function
        self.merged: dict[Attribution, Attribution] = {}
        #: Cache of the settler: metric attributes by (attribution, device).
        self.series: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what was given and leave the caches behind: they hold identities."""
        given = (
            self.operation,
            self.overrides,
            self.hold,
            self.devices,
            self.streams,
            self.weight,
            self.attributes,
            self.code_function,
        )
        return (_rebuild_site, given)

    def attribution_under(self, outer: Attribution) -> Attribution:
        """Return what a call made through this site inside ``outer`` is billed to."""
        merged = self.merged.get(outer)
        if merged is None:
            if len(self.merged) >= _MERGED_LIMIT:
                self.merged.clear()
            merged = self.merged[outer] = outer.merged(self.overrides)
        return merged


def _rebuild_site(*given: Any) -> Site:
    operation, overrides, hold, devices, streams, weight, attributes, code_function = given
    return Site(
        operation,
        overrides,
        hold=hold,
        devices=devices,
        streams=streams,
        weight=weight,
        attributes=attributes,
        code_function=code_function,
    )


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
        settled: What the settler keeps about it.
    """

    __slots__ = (
        "attribution",
        "closed",
        "context",
        "error_type",
        "inner",
        "marks",
        "number",
        "parent",
        "pending",
        "previous",
        "root",
        "settled",
        "site",
        "span",
        "status",
        "timer",
        "token",
    )

    marks: list[int | Mark | None]
    timer: Timer | selection.Untimed | None
    span: Span | None
    context: Context | None
    token: Token[Context] | None
    previous: Scope | Call | None
    inner: Scope | Call | None

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
            parent = outer if outer.__class__ is Call else outer.call  # type: ignore[assignment, union-attr]
            # Work that outlives the call it was started in is an owner of its own.
            if parent is not None and parent.closed:
                parent = None
        self.parent = parent
        self.root = None if parent is None else parent.root or parent
        merged = site.merged.get(billed)
        self.attribution = site.attribution_under(billed) if merged is None else merged

    @property
    def id(self) -> str:
        """Identity of the call: unique in its process and, with the instance, everywhere."""
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
    global _numbering, queue, settling  # noqa: PLW0603 - state of a process
    queue = deque()
    _numbering = Lock()
    settling = False


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

#: Whether ``ensure_settled`` ran in this process.
settling = False


def enter(site: Site) -> Call:
    """Open a call on this thread and make it the innermost scope."""
    if not settling:
        ensure_settled()
    scope = current_scope.get()
    call = Call(site, scope if scope is not None or not attribution.mirrored else scope_in_force())
    call.previous = scope
    if selection.gpu:
        call.timer = selection.timer_for(site.hold, site.devices, site.streams)
    # Before its first mark, so that the settler waits for a thread that stalls here.
    queue.append(call)
    if trace_api._TRACER_PROVIDER is not None:  # noqa: SLF001 - get_tracer_provider() builds a proxy each time
        spans.begin(call)
    timer = call.timer
    call.marks.append(clock() if timer is None else timer.mark())
    call.pending = False
    current_scope.set(call)
    return call


def leave(call: Call, error: BaseException | None = None) -> None:
    """Close a call, ended well or by ``error``."""
    if error is not None:
        call.error_type = type(error).__qualname__
        call.status = "cancelled" if is_cancellation(error) else "error"
    call.pending = True
    timer = call.timer
    call.marks.append(clock() if timer is None else timer.mark())
    call.closed = True
    call.pending = False
    # In a foreign context (closed by another task) there is nothing to restore.
    if current_scope.get() is call:
        current_scope.set(call.previous)
    if call.span is not None:
        spans.leave(call, error)


def suspend(call: Call) -> None:
    """End a step: the caller of a generator or coroutine goes on, and sees its own scope again."""
    inner = current_scope.get()
    if inner is call:
        call.inner = None
    else:
        call.inner = inner
        _mark_blocks(call)
        mirror(call.previous)
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
    if call.inner is None:
        current_scope.set(call)
    else:
        current_scope.set(call.inner)
        mirror(call.inner)
        _mark_blocks(call)


def _mark(call: Call) -> None:
    call.pending = True
    timer = call.timer
    call.marks.append(clock() if timer is None else timer.mark())
    call.pending = False


def _mark_blocks(call: Call) -> None:
    """Stop or restart the ``with`` blocks that are open inside a stepped call.

    They cannot see the suspension themselves, and hold nothing while it lasts.
    """
    block = enclosing_call(call.inner)
    while block is not None and block is not call:
        if block.site.hold is HOLD_STEPS and not block.closed:
            _mark(block)
        block = block.parent


_CANCELLATIONS = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})


def is_cancellation(error: BaseException) -> bool:
    """Tell whether an exception means that nobody wants the result any more.

    By name, so that the exceptions of asyncio, concurrent.futures, anyio and
    trio count alike without importing them.
    """
    return any(kind.__name__ in _CANCELLATIONS for kind in type(error).__mro__)
