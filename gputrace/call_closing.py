"""Closing a call before its block ends: a request is over when its response is, and the task goes on."""

from __future__ import annotations

from gputrace import call as calls
from gputrace.telemetry import spans


def close(
    call: calls.Call,
    error: BaseException | None = None,
    *,
    status: str | None = None,
    error_type: str | None = None,
) -> None:
    """Close a call that is still the scope in force somewhere: what is started there is no longer inside it.

    From any task or thread, since no context is touched: :func:`retire` does that.

    Args:
        call: An open call.
        error: What ended it.
        status: ``error`` or ``cancelled``; what ``error`` says by default.
        error_type: As ``error.type``, where there is no exception.
    """
    if error is not None:
        status = status or ("cancelled" if calls.is_cancellation(error) else "error")
        error_type = error_type or type(error).__qualname__
    call.status, call.error_type = status, error_type
    call.pending = True
    try:
        timer = call.timer
        call.marks.append(calls.clock() if timer is None else timer.mark())
    finally:
        call.closed = True
        call.pending = False
        if call.span is not None:
            spans.close(call, error)


def retire(call: calls.Call) -> None:
    """Take a call that was closed before off this context, if it is there."""
    if calls.current_scope.get() is call:
        calls.current_scope.set(call.previous)
    call.previous = None
    if call.span is not None:
        spans.retire(call)
