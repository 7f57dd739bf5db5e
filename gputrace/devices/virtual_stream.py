"""What is enqueued on a virtual GPU, and where: streams, events, graphs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from gputrace.devices.virtual_driver import CAPTURING

if TYPE_CHECKING:
    from gputrace.devices.virtual import VirtualGpu
    from gputrace.devices.virtual_driver import VirtualDevice


class VirtualStream:
    """A queue of work on one device; in order in itself, concurrent with others."""

    def __init__(self, gpu: VirtualGpu, device_index: int, stream_id: int) -> None:
        self._gpu = gpu
        self.device_index = device_index
        self.stream_id = stream_id

    def __eq__(self, other: object) -> bool:
        # torch makes a new object each time it is asked: only equality tells streams apart.
        return isinstance(other, VirtualStream) and (self._gpu, self.device_index, self.stream_id) == (
            other._gpu,
            other.device_index,
            other.stream_id,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def __repr__(self) -> str:
        return f"<VirtualStream {self.stream_id} of cuda:{self.device_index}>"

    def wait_event(self, event: VirtualEvent) -> None:
        """Start what is enqueued from now on only after an event."""
        if event.at_ns is not None:
            self._gpu.driver.wait_until(self.device_index, self.stream_id, event.at_ns)

    def wait_stream(self, stream: VirtualStream) -> None:
        """Start what is enqueued from now on only after what is on another stream now."""
        tail_ns = self._gpu.driver.tail_ns(stream.device_index, stream.stream_id)
        self._gpu.driver.wait_until(self.device_index, self.stream_id, tail_ns)

    def synchronize(self) -> None:
        """Wait until the stream has run dry; counted."""
        self._gpu.wait(self._gpu.driver.tail_ns(self.device_index, self.stream_id))


class VirtualEvent:
    """A mark on a stream.

    Attributes:
        at_ns: True host time at which it happens, None before it is recorded; only here, not in torch.
    """

    def __init__(self, gpu: VirtualGpu, *, enable_timing: bool = False) -> None:
        self._gpu = gpu
        self._timing = enable_timing
        self._device: VirtualDevice | None = None
        self.at_ns: int | None = None

    def record(self, stream: VirtualStream | None = None) -> None:
        """Mark what is on a stream now, the current one by default.

        Raises:
            RuntimeError: The stream is on another device than the one that recorded it first, or
                it is being captured and the event is a timing event: that breaks the capture.
        """
        driver = self._gpu.driver
        stream = self._gpu.current_stream() if stream is None else stream
        device = driver.device(stream.device_index)
        if self._device is not None and self._device is not device:
            raise RuntimeError(
                f"Event device {self._device.index} does not match recording stream's device {device.index}."
            )
        self._device = device
        capture = driver.capture_on(stream.device_index, stream.stream_id)
        if capture is None:
            self.at_ns = driver.enqueue(stream.device_index, stream.stream_id, None).end_ns
        elif self._timing:
            capture.broken = True
            raise RuntimeError(CAPTURING)

    def query(self) -> bool:
        """Tell whether it has happened. True also where it was never recorded, as in torch."""
        if self._device is None or self.at_ns is None:
            return True
        driver = self._gpu.driver
        driver.device(self._device.index)
        driver.refuse_while_capturing()
        # The driver creates a context on this thread's device, whatever device the event is on.
        driver.device(driver.thread.device).has_context = True
        return driver.clock() >= self.at_ns

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Return the milliseconds until another event, as precisely as a float32 can tell.

        A reversed pair answers 0, as newer ROCm does; CUDA answers a negative number.

        Raises:
            ValueError: One of the two was not recorded, or cannot be timed.
            RuntimeError: One has not happened yet, or they are on different devices.
        """
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.at_ns is None or end_event.at_ns is None or self._device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if end_event._device is not self._device:
            raise RuntimeError("CUDA error: invalid resource handle: the events are on different devices")
        if not (self.query() and end_event.query()):
            raise RuntimeError("CUDA error: device not ready: both events must be completed")
        ns = self._device.clock_ns(end_event.at_ns) - self._device.clock_ns(self.at_ns)
        (milliseconds,) = struct.unpack("f", struct.pack("f", max(0, ns) / 1e6))
        return float(milliseconds)

    def synchronize(self) -> None:
        """Wait until it has happened; counted."""
        self._gpu.wait(self.at_ns or 0)


class VirtualGraph(NamedTuple):
    """Captured kernels, by length in ns."""

    gpu: VirtualGpu
    kernels_ns: list[int]

    def replay(self) -> None:
        """Enqueue the kernels on this thread's current stream."""
        for duration_ns in self.kernels_ns:
            self.gpu.launch(duration_ns)
