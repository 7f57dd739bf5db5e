"""What lies beneath a virtual GPU: time, devices, streams' queues, and the rules of graph capture."""

from __future__ import annotations

import os
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: Numbers of the driver's CU_STREAM_CAPTURE_MODE_*.
CAPTURE_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2

CAPTURING = "CUDA error: operation not permitted when stream is capturing"


class VirtualClock:
    """A clock that stands until a test advances it.

    Args:
        start_ns: The first time that it shows.
        step_ns: How far each reading advances it, so that looking takes time.
    """

    def __init__(self, start_ns: int = 1_000_000_000_000, step_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._step_ns = step_ns
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return the time, ns."""
        with self._lock:
            self._now_ns += self._step_ns
            return self._now_ns

    def advance(self, ns: int) -> None:
        """Let ``ns`` nanoseconds pass.

        Raises:
            ValueError: ``ns`` is negative.
        """
        if ns < 0:
            raise ValueError(f"a clock cannot be advanced by {ns} ns: time does not go back")
        with self._lock:
            self._now_ns += ns


@dataclass
class VirtualDevice:
    """One device, with a clock of its own.

    Attributes:
        uuid: Its text has no ``GPU-`` in front, as in torch.
        skew_ppm: How much faster than the host's its clock runs.
        offset_ns: How far ahead of the host's its clock is.
        lost: It no longer answers.
        has_context: The process has a context on it.
    """

    index: int
    name: str
    uuid: uuid.UUID
    skew_ppm: float = 0.0
    offset_ns: int = 0
    lost: bool = False
    has_context: bool = False

    def clock_ns(self, host_ns: int) -> int:
        """Return what the device's clock shows at a host time, ns."""
        return host_ns + self.offset_ns + host_ns * round(self.skew_ppm * 1_000_000) // 10**12


class LogEntry(NamedTuple):
    """What happened on a stream, in true host time; a mark has no length.

    Attributes:
        kind: ``kernel`` or ``event``.
        device: Ordinal of the device.
        stream: Id of the stream on it.
        start_ns: Host time, ns.
        end_ns: Host time, ns.
    """

    kind: Literal["kernel", "event"]
    device: int
    stream: int
    start_ns: int
    end_ns: int


@dataclass
class Capture:
    """A graph capture in progress."""

    device: int
    stream: int
    mode: int
    thread: int
    kernels_ns: list[int] = field(default_factory=list)
    broken: bool = False


class ThreadState(threading.local):
    """What CUDA keeps for each thread."""

    device = 0
    capture_mode = GLOBAL

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}


class VirtualDriver:
    """Devices and the queues of their streams. Thread safe.

    When something runs is known as soon as it is enqueued, so time needs no thread.

    Args:
        devices: How many.
        clock: The host's clock, ns.
        latency_ns: From enqueuing to starting on an idle stream.
    """

    def __init__(self, devices: int, clock: Callable[[], int], latency_ns: int) -> None:
        self.clock = clock
        self.latency_ns = latency_ns
        self.thread = ThreadState()
        self.devices = [
            VirtualDevice(index, "Virtual GPU", uuid.UUID(int=0x6770_7574_7261_6365 << 64 | index))
            for index in range(devices)
        ]
        self.log: list[LogEntry] = []
        self.initialised = False
        self.lock = threading.RLock()
        self._tails_ns: dict[tuple[int, int], int] = {}
        self._captures: list[Capture] = []
        self._streams = 0
        self._process = os.getpid()

    def usable(self) -> bool:
        """Tell whether CUDA is initialised and works in this process."""
        return self.initialised and os.getpid() == self._process

    def device(self, index: int) -> VirtualDevice:
        """Return a device that answers, initialising CUDA.

        Raises:
            RuntimeError: The device is lost or does not exist, or this is a forked child.
        """
        if os.getpid() != self._process:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        self.initialised = True
        if not 0 <= index < len(self.devices):
            raise RuntimeError(f"CUDA error: invalid device ordinal {index}, there are {len(self.devices)}")
        if self.devices[index].lost:
            raise RuntimeError(f"CUDA error: device {index} is lost; it has fallen off the bus")
        return self.devices[index]

    def new_stream(self, device: int) -> int:
        """Return the id of a new stream; 0 is the default stream of every device."""
        self.device(device).has_context = True
        with self.lock:
            self._streams += 1
            return self._streams

    def enqueue(self, device: int, stream: int, duration_ns: int | None) -> LogEntry:
        """Enqueue a kernel, or with a duration of None an event, and return when it runs."""
        self.device(device).has_context = True
        with self.lock:
            tail_ns = self._tails_ns.get((device, stream), 0)
            start_ns = max(self.clock() + self.latency_ns, tail_ns)
            end_ns = start_ns + (duration_ns or 0)
            kind: Literal["kernel", "event"] = "event" if duration_ns is None else "kernel"
            entry = LogEntry(kind, device, stream, start_ns, end_ns)
            self._tails_ns[device, stream] = end_ns
            self.log.append(entry)
        return entry

    def wait_until(self, device: int, stream: int, at_ns: int) -> None:
        """Let what is enqueued on a stream from now on start no earlier than ``at_ns``."""
        with self.lock:
            self._tails_ns[device, stream] = max(self._tails_ns.get((device, stream), 0), at_ns)

    def tail_ns(self, device: int, stream: int | None = None) -> int:
        """Return when a stream, or all streams of a device, will have run dry."""
        with self.lock:
            tails = [
                tail_ns
                for (on, number), tail_ns in self._tails_ns.items()
                if on == device and stream in {None, number}
            ]
        return max(tails, default=0)

    def capture_on(self, device: int, stream: int) -> Capture | None:
        """Return the capture in progress on a stream."""
        with self.lock:
            return next((one for one in self._captures if (one.device, one.stream) == (device, stream)), None)

    def begin_capture(self, device: int, stream: int, mode: int) -> Capture:
        """Begin a capture on a stream, from this thread."""
        self.device(device)
        capture = Capture(device, stream, mode, threading.get_ident())
        with self.lock:
            self._captures.append(capture)
        return capture

    def end_capture(self, capture: Capture) -> None:
        """End a capture, whatever became of it."""
        with self.lock:
            self._captures.remove(capture)

    def refuse_while_capturing(self) -> None:
        """Refuse a call that a capture in progress forbids to this thread.

        Raises:
            RuntimeError: It is forbidden; the captures that forbade it are broken.
        """
        mode, thread = self.thread.capture_mode, threading.get_ident()
        with self.lock:
            spoiled = [
                capture
                for capture in self._captures
                if mode != RELAXED
                and (
                    (capture.thread == thread and capture.mode != RELAXED)
                    or (capture.thread != thread and mode == GLOBAL and capture.mode == GLOBAL)
                )
            ]
            for capture in spoiled:
                capture.broken = True
        if spoiled:
            raise RuntimeError(CAPTURING)

    def wait_for(self, at_ns: int) -> None:
        """Let time pass until ``at_ns``: by sleeping, or by advancing a virtual clock."""
        while (left_ns := at_ns - self.clock()) > 0:
            if isinstance(self.clock, VirtualClock):
                self.clock.advance(left_ns)
            else:
                time.sleep(left_ns / 1e9)
