"""Spans of calls: begun and left on the user's thread, ended by the settler.

Only the OpenTelemetry API is used here. A span is made at entry where the
trace is sampled, so that the user's own spans and logs hang under it, and it
is ended with its true end time once the device time is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api, trace as trace_api
from opentelemetry.context import Context
from opentelemetry.trace import Link, Status, StatusCode

# Where the API keeps the current span: its own accessors take three times as long.
from opentelemetry.trace.propagation import _SPAN_KEY

from gputrace import catalogue, clocks, faults
from gputrace.attribution import ATTRIBUTE_OF_FIELD, FIELDS, enclosing_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.trace import Span, Tracer

    from gputrace.call import Call

_STARTING = faults.contained("start a span")
_LEAVING = faults.contained("record how a call ended")
_DESCRIBING = faults.contained("describe the exception that ended a call")
_ENDING = faults.contained("end a span")
_OUTCOME = faults.contained("record an outcome as a span")

#: Whether spans are made: nobody would end them when nothing settles calls.
enabled = True

#: Called when the first span is made with a tracer provider, on the user's thread.
on_provider: Callable[[], None] = lambda: None  # noqa: E731

#: The span last found to be unsampled: calls in one trace ask about the same one.
_seen_unsampled: Span | None = None

_tracer: Tracer | None = None
_tracer_of: object = None

#: Wall clock less CLOCK_MONOTONIC, ns. Spans take both ends from one clock, so
#: that a step of the wall clock never makes a span end before it starts.
wall_offset_ns = clocks.wall_ns() - clocks.monotonic_ns()

# More than clocks drift apart between two looks at them: the machine has slept, or was moved.
_STEP_NS = 100_000_000


def tracer() -> Tracer:
    """Return the tracer of the provider that is set now."""
    global _tracer, _tracer_of  # noqa: PLW0603 - a cache that follows the provider
    provider = trace_api._TRACER_PROVIDER  # noqa: SLF001 - see call.enter
    if _tracer is None or _tracer_of is not provider:
        _tracer = trace_api.get_tracer(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
        _tracer_of = provider
        on_provider()
    return _tracer


def begin(call: Call) -> None:
    """Start and attach the span of a call, where its trace is sampled.

    Inside an unsampled trace nothing is made. An unsampled root attaches the
    non-recording span, so that the work below does not start traces of its own.
    """
    global _seen_unsampled  # noqa: PLW0603 - a cache of one fact about one span
    if not enabled or not call.site.has_spans:
        return
    with _STARTING:
        context = context_api.get_current()
        links: list[Link] = []
        if call.site.is_batch:
            context, links = _among_members(call, context)
        if call.parent is None and call.previous is not None:
            context = _after_request(call, context, links)
        parent: Any = context.get(_SPAN_KEY)
        if parent is not None:
            if parent is _seen_unsampled:
                return
            span_context = parent.get_span_context()
            if span_context.is_valid and not span_context.trace_flags.sampled:
                _seen_unsampled = parent
                return
        span = _start(call, context, links, clocks.monotonic_ns())
        call.outside = context_api.get_current()
        call.context = Context({**call.outside, _SPAN_KEY: span})
        context_api.attach(call.context)
        call.span = span


def report(call: Call) -> None:
    """Start the span of a batch that is over already, in a trace of its own, linked to its members."""
    if not enabled:
        return
    with _STARTING:
        context, links = _among_members(call, Context())
        call.context = call.outside = None
        call.span = _start(call, context, links, call.marks[0])


def _start(call: Call, context: Context, links: list[Link], at_ns: Any) -> Span:
    return tracer().start_span(
        call.site.operation,
        context,
        links=links or None,
        start_time=at_ns + wall_offset_ns,
        record_exception=False,
        set_status_on_exception=False,
    )


def _among_members(call: Call, context: Context) -> tuple[Context, list[Link]]:
    """Return in which context the span of a batch begins, and its links to all members.

    Not under one of them: the thread or task of a batcher often was started by its first request.
    """
    contexts = [one.span_context for one in call.batch.members if one.span_context is not None]
    if not contexts:
        return context, []
    ambient = trace_api.get_current_span(context).get_span_context()
    if call.parent is None and any(one.trace_id == ambient.trace_id for one in contexts):
        context = Context({name: value for name, value in context.items() if name != _SPAN_KEY})
    return context, [Link(one) for one in contexts]


def _after_request(call: Call, context: Context, links: list[Link]) -> Context:
    """Return in which context an outermost call begins its span; link it to a request that it outlives."""
    outer = enclosing_call(call.previous)
    if outer is None or not outer.closed or outer.span is None:
        return context
    if not call.site.is_batch:
        links.append(Link(outer.span.get_span_context()))
    parent = context.get(_SPAN_KEY)
    if parent is not outer.span and not _has_ended(parent):
        return context
    # Not part of a trace that is told already.
    return Context({name: value for name, value in context.items() if name != _SPAN_KEY})


def _has_ended(span: Any) -> bool:
    """Tell whether a span of this process has ended: nothing should hang under it."""
    if span is None or span.is_recording():
        return False
    told = span.get_span_context()
    return told.trace_flags.sampled and not told.is_remote


def suspend(call: Call) -> None:
    """Take the span off this thread until the next step.

    What the body made current in the meantime is kept for that step.
    """
    if call.outside is not None:
        call.context = context_api.get_current()
        _restore(call.outside)
        call.outside = None


def resume(call: Call) -> None:
    """Make the span current again for one step."""
    if call.context is not None:
        call.outside = context_api.get_current()
        context_api.attach(call.context)


def _restore(context: Context) -> None:
    # Never with the token of the attach: only the task that made it could use that, and a block in a
    # generator may be left by another one.
    context_api.attach(context)


def leave(call: Call, error: BaseException | None, *, block: bool = False) -> None:
    """Record how the call ended and take its span off this thread.

    The settler ends the span once ``call.context`` is None, never before.
    """
    _describe(call, error)
    # A block of a plain generator that another task closes finds a foreign context: not ours to change.
    if call.outside is not None and (not block or context_api.get_current().get(_SPAN_KEY) is call.span):
        _restore(call.outside)
    call.outside = None
    call.context = None


def close(call: Call, error: BaseException | None) -> None:
    """Record how a call ended that stays on its thread for a while: see :func:`retire`."""
    _describe(call, error)
    call.context = None


def retire(call: Call) -> None:
    """Take the span of a call that was closed before off this thread, if it is there."""
    if call.outside is not None and context_api.get_current().get(_SPAN_KEY) is call.span:
        _restore(call.outside)
    call.outside = None


def _describe(call: Call, error: BaseException | None) -> None:
    span = call.span
    if span is None or (call.status is None and not call.site.attributes):
        return
    with _LEAVING:
        span.set_attributes(call.site.attributes)
        if error is not None:
            _record_error(span, error, cancelled=call.status == "cancelled")
        elif call.status == "error":
            span.set_attribute(catalogue.ERROR_TYPE, call.error_type or "")
            span.set_status(Status(StatusCode.ERROR))


def _record_error(span: Span, error: BaseException, *, cancelled: bool) -> None:
    kind = type(error)
    span.set_attribute(catalogue.ERROR_TYPE, kind.__qualname__)
    if cancelled:
        return
    # The user's exception may not even have a text; the span has an error all the same.
    span.set_status(Status(StatusCode.ERROR, kind.__name__))
    with _DESCRIBING:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{kind.__name__}: {error}"))


def finish(call: Call, end_ns: int, measured: Mapping[str, str | float]) -> None:
    """End the span of a settled call.

    Args:
        call: A call whose thread has left it.
        end_ns: Its end on CLOCK_MONOTONIC.
        measured: What the settler found, as span attributes.
    """
    span = call.span
    if span is None or not span.is_recording():
        return
    attributes: dict[str, str | float] = {
        catalogue.OPERATION: call.site.operation,
        catalogue.FEATURE: call.attribution.feature or catalogue.NO_FEATURE,
        catalogue.STATUS: call.status or "ok",
        catalogue.CALL_ID: call.label,
    }
    for name in FIELDS[1:]:
        value = getattr(call.attribution, name)
        if value is not None:
            attributes[ATTRIBUTE_OF_FIELD[name]] = value
    if call.site.code_function:
        attributes["code.function.name"] = call.site.code_function
    attributes.update(measured)
    with _ENDING:
        span.set_attributes(attributes)
        # Not before it began, where the wall clock was set back meanwhile.
        span.end(max(end_ns + wall_offset_ns, getattr(span, "start_time", None) or 0))
    _follow_wall_clock()


def record_outcome(at_ns: int, attributes: Mapping[str, str | float]) -> None:
    """Record an outcome as a span without length, in a trace of its own.

    Args:
        at_ns: When, Unix time in ns.
        attributes: What, and of which request.
    """
    if trace_api._TRACER_PROVIDER is None:  # noqa: SLF001 - see call.enter
        return
    with _OUTCOME:
        span = tracer().start_span(catalogue.OUTCOME_SPAN, Context(), start_time=at_ns, attributes=attributes)
        span.end(at_ns)


def _follow_wall_clock() -> None:
    global wall_offset_ns  # noqa: PLW0603 - one clock a process
    offset_ns = clocks.wall_ns() - clocks.monotonic_ns()
    if abs(offset_ns - wall_offset_ns) > _STEP_NS:
        wall_offset_ns = offset_ns
