"""A GPU that is not there: for tests, where there is no GPU, of code that is timed with CUDA events.

It offers the part of ``torch.cuda`` that gputrace uses, and keeps time itself::

    with VirtualGpu(devices=2) as gpu:          # found in the place of torch from here on
        gpu.init()                              # what torch does when it first uses CUDA
        gpu.launch(5_000_000)                   # 5 ms on this thread's current stream
        gpu.advance(10_000_000)                 # time passes when told to

With ``tied_to_real_time=True`` kernels take the time that they say. What torch
or the driver refuses is refused, and what they answer wrongly is answered
wrongly: code that works here has met the traps. ``log`` is the truth.
"""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from gputrace.devices import cuda_device, cuda_runtime
from gputrace.devices.virtual_driver import CAPTURE_MODES, LogEntry, VirtualClock, VirtualDriver
from gputrace.devices.virtual_stream import VirtualEvent, VirtualGraph, VirtualStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from gputrace.devices.virtual_driver import VirtualDevice

__all__ = ["LogEntry", "VirtualClock", "VirtualEvent", "VirtualGpu", "VirtualGraph", "VirtualStream"]


class DeviceGuard:
    """Chooses a thread's device within a block; can be entered again, as torch's."""

    def __init__(self, driver: VirtualDriver, device: int) -> None:
        self._driver = driver
        self._device = device
        self._before = device

    def __enter__(self) -> None:
        self._before, self._driver.thread.device = self._driver.thread.device, self._device

    def __exit__(self, *_: object) -> None:
        self._driver.thread.device = self._before


class VirtualGpu:
    """Stands in for ``torch.cuda`` and its devices.

    Args:
        devices: How many devices.
        clock: The host's clock, to share one or to begin at some time.
        tied_to_real_time: Use the host's real clock.
        latency_ns: From enqueuing to starting on an idle stream.
        exchangeable: Whether threads can exchange their capture mode, which needs the driver's library.

    Attributes:
        devices: The devices; give them ``skew_ppm`` or ``offset_ns`` before use.
        log: All kernels and marks, in the order of enqueuing.
        synchronizations: How often somebody waited for a device.
        tied_to_real_time: Whether kernels take the time that they say.
    """

    def __init__(
        self,
        devices: int = 2,
        clock: VirtualClock | None = None,
        *,
        tied_to_real_time: bool = False,
        latency_ns: int = 0,
        exchangeable: bool = True,
    ) -> None:
        if clock is None:
            clock = VirtualClock()
        self.driver = VirtualDriver(devices, time.monotonic_ns if tied_to_real_time else clock, latency_ns)
        self.devices = self.driver.devices
        self.log = self.driver.log
        self.synchronizations = 0
        self.tied_to_real_time = tied_to_real_time
        self.Event = functools.partial(VirtualEvent, self)
        self._exchangeable = exchangeable

    # --- for tests -----------------------------------------------------------

    def install(self) -> VirtualGpu:
        """Let gputrace find this GPU in the place of torch's."""
        cuda_runtime.install(self)
        cuda_device.reset()
        return self

    def uninstall(self) -> None:
        """Let gputrace look for torch again."""
        cuda_runtime.install(None)
        cuda_device.reset()

    def __enter__(self) -> VirtualGpu:  # noqa: PYI034 - Self needs Python 3.11
        return self.install()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.uninstall()

    def advance(self, ns: int) -> None:
        """Let time pass.

        Raises:
            RuntimeError: The GPU is tied to real time, which nobody can advance.
        """
        clock = self.driver.clock
        if clock is time.monotonic_ns:
            raise RuntimeError("this GPU is tied to real time: wait, or leave tied_to_real_time out")
        cast("VirtualClock", clock).advance(ns)

    def launch(self, duration_ns: int, stream: VirtualStream | None = None) -> LogEntry | None:
        """Enqueue a kernel, on this thread's current stream by default.

        Returns:
            When it runs; None where it went into a graph.
        """
        stream = self.current_stream() if stream is None else stream
        capture = self.driver.capture_on(stream.device_index, stream.stream_id)
        if capture is not None:
            capture.kernels_ns.append(duration_ns)
            return None
        return self.driver.enqueue(stream.device_index, stream.stream_id, duration_ns)

    @contextmanager
    def capture(self, mode: str = "global") -> Iterator[VirtualGraph]:
        """Capture a graph on a stream of its own, as ``torch.cuda.graph`` does.

        Args:
            mode: ``global``, ``thread_local`` or ``relaxed``.

        Raises:
            RuntimeError: Something broke the capture.
        """
        with self.stream(self.Stream()) as stream:
            capture = self.driver.begin_capture(stream.device_index, stream.stream_id, CAPTURE_MODES[mode])
            try:
                yield VirtualGraph(self, capture.kernels_ns)
            finally:
                self.driver.end_capture(capture)
            if capture.broken:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def lose(self, device: int) -> None:
        """Let a device fall off the bus: every call on it raises from now on."""
        self.devices[device].lost = True

    def wait(self, at_ns: int) -> None:
        """Wait for a device; counted."""
        self.driver.refuse_while_capturing()
        self.synchronizations += 1
        self.driver.wait_for(at_ns)

    # --- what torch.cuda offers ----------------------------------------------

    def init(self) -> None:
        """Initialise CUDA, with a context on this thread's device."""
        self.driver.device(self.driver.thread.device).has_context = True

    def is_initialized(self) -> bool:
        """Tell whether CUDA is initialised here; never in a forked child."""
        return self.driver.usable()

    def device_count(self) -> int:
        """Return how many devices there are."""
        return len(self.devices)

    def get_device_properties(self, device: int) -> VirtualDevice:
        """Return an object with ``name`` and ``uuid``."""
        return self.driver.device(device)

    def current_device(self) -> int:
        """Return the ordinal of this thread's device."""
        return self.driver.device(self.driver.thread.device).index

    def set_device(self, device: int) -> None:
        """Choose this thread's device."""
        self.driver.thread.device = self.driver.device(device).index

    def device(self, device: int) -> DeviceGuard:
        """Choose this thread's device within a block."""
        return DeviceGuard(self.driver, device)

    def Stream(self, device: int | None = None, priority: int = 0) -> VirtualStream:  # noqa: ARG002, N802 - as in torch
        """Return a new stream of a device."""
        index = self.current_device() if device is None else device
        return VirtualStream(self, index, self.driver.new_stream(index))

    def current_stream(self, device: int | None = None) -> VirtualStream:
        """Return this thread's current stream of a device, as a new object each time."""
        index = self.current_device() if device is None else self.driver.device(device).index
        return VirtualStream(self, index, self.driver.thread.streams.get(index, 0))

    @contextmanager
    def stream(self, stream: VirtualStream) -> Iterator[VirtualStream]:
        """Make a stream and its device current on this thread within a block."""
        streams = self.driver.thread.streams
        with self.device(stream.device_index):
            before = streams.get(stream.device_index, 0)
            streams[stream.device_index] = stream.stream_id
            try:
                yield stream
            finally:
                streams[stream.device_index] = before

    def is_current_stream_capturing(self) -> bool:
        """Tell whether a graph is being captured from this thread's stream; asking creates a context."""
        stream = self.current_stream()
        self.driver.device(stream.device_index).has_context = True
        return self.driver.capture_on(stream.device_index, stream.stream_id) is not None

    def synchronize(self, device: int | None = None) -> None:
        """Wait for all streams of a device; counted."""
        index = self.current_device() if device is None else device
        self.wait(self.driver.tail_ns(index))

    # --- what the driver offers ----------------------------------------------

    def host_ns(self) -> int:
        """Return the time on the host's clock, ns."""
        return self.driver.clock()

    def exchange_capture_mode(self, mode: int) -> int | None:
        """Set the capture mode of this thread and return the one before."""
        if not self._exchangeable:
            return None
        before, self.driver.thread.capture_mode = self.driver.thread.capture_mode, mode
        return before

    def has_context(self, device: int) -> bool:
        """Tell whether the process has a context on a device."""
        return self.devices[device].has_context
