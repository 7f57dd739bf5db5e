"""Keeps our polling from breaking a CUDA graph capture that is in progress on another thread.

While any thread captures in the default (global) mode, a query of an event by
another thread is refused and spoils that capture, unless the querying thread
has exchanged its own capture mode. torch does not expose that exchange, so the
driver library that torch has loaded is called directly.

A function that the driver library did not load yet is looked for once: before
CUDA is initialised nothing is polled, and nothing is looked for.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gputrace import faults
from gputrace.devices import cuda_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: CU_STREAM_CAPTURE_MODE_RELAXED, the same number in CUDA and ROCm.
RELAXED = 2

_CUDA_EXCHANGE = "cuThreadExchangeStreamCaptureMode"
_ROCM_EXCHANGE = "hipThreadExchangeStreamCaptureMode"


#: Reads events where no thread of ours may: users' threads call it as they begin and end calls.
poll_here: Callable[[], None] | None = None


class _Thread(threading.local):
    forbidden = False


_thread = _Thread()


def _exchange(mode: int) -> int | None:
    """Set this thread's capture mode and return the one before, None where that is impossible."""
    virtual = cuda_runtime.virtual_runtime()
    if virtual is not None:
        return virtual.exchange_capture_mode(mode)
    # By torch's build: the other library may be loaded too, and its mode protects nothing.
    if cuda_runtime.rocm_version() is None:
        function = cuda_runtime.driver_function(_CUDA_EXCHANGE)
    else:
        function = cuda_runtime.driver_function(_ROCM_EXCHANGE, rocm=True)
    exchanged = ctypes.c_int(mode)
    if function is None or function(ctypes.byref(exchanged)) != 0:
        return None
    return exchanged.value


@contextmanager
def relaxed_capture(*, users_thread: bool = False) -> Iterator[bool]:
    """Make it safe to read events on this thread, for the length of a ``with`` block.

    Where it cannot be made safe, ``read`` of every device answers None inside the
    block: the events wait for a thread that may read them.

    Args:
        users_thread: This is a thread of the user's. Where the mode cannot be
            exchanged it may poll all the same, unless it is capturing itself.

    Yields:
        Whether events can be read in this block.
    """
    runtime = cuda_runtime.runtime()
    if runtime is None or not runtime.is_initialized():
        yield True
        return
    previous = _exchange(RELAXED)
    outer, _thread.forbidden = _thread.forbidden, False
    if previous is None:
        _thread.forbidden = not users_thread or runtime.is_current_stream_capturing()
    try:
        yield not _thread.forbidden
    finally:
        _thread.forbidden = outer
        if previous is not None:
            _exchange(previous)


def polling_forbidden() -> bool:
    """Tell whether this thread must not query events at the moment."""
    return _thread.forbidden


def say_unreadable() -> None:
    """Log once why no thread of ours reads events here, and who does."""
    rocm = cuda_runtime.rocm_version()
    named = f"torch for ROCm {rocm}" if rocm else "torch's CUDA runtime"
    function = _ROCM_EXCHANGE if rocm else _CUDA_EXCHANGE
    faults.log_once(
        "capture-mode",
        "gputrace reads no GPU events in the background, since that could break a graph capture: %s does not"
        " let a thread exchange its capture mode (%s); calls on the GPU are settled by the threads that make"
        " them, by gputrace.flush() and at exit",
        named,
        function,
    )


def background_polling() -> bool:
    """Tell whether a thread of ours can read events.

    False only where a GPU runtime is in use whose capture mode cannot be
    exchanged: then users' threads poll, as they begin and end calls.
    """
    with relaxed_capture() as safe:
        return safe
