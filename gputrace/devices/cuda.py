"""Times calls on GPUs with CUDA events, through the interface that ``torch.cuda`` offers.

On the user's thread, at entry: ``timer()``, then ``mark()`` at the start and the
end of each step. Nothing there waits for a device. Later, on the settler's
thread: ``with relaxed_capture():`` ``device.read(event)`` of each event, then
``device.release()`` once both of a pair were read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gputrace.devices import cuda_capture, cuda_device, cuda_runtime
from gputrace.devices.base import Mark, Slot
from gputrace.devices.cuda_capture import background_polling, relaxed_capture, say_unreadable
from gputrace.devices.cuda_device import GRAPH_CAPTURE, CudaDevice, refusal, reset
from gputrace.devices.cuda_runtime import gpu_expected, host_clock, initialised, runtime

if TYPE_CHECKING:
    from gputrace.devices.base import Event
    from gputrace.devices.cuda_runtime import Runtime

__all__ = [
    "CudaDevice",
    "CudaTimer",
    "background_polling",
    "check",
    "gpu_expected",
    "host_clock",
    "initialised",
    "relaxed_capture",
    "reset",
    "runtime",
    "say_unreadable",
    "timer",
]

# More reasons why a call could not be timed, beside those of ``cuda_device.refusal``.
NO_CONTEXT = "no_context"
NO_SUCH_DEVICE = "no_such_device"
TOO_MANY_EVENTS = "too_many_events"


class CudaTimer:
    """Times one call on GPUs; see ``gputrace.devices.base.Timer``.

    Attributes:
        slots: The streams that were current at entry, then side streams. Empty where
            the call cannot be timed at all.
        estimated: Another stream was current at a later mark than at entry.
        host_ns: Host time of the last mark, ns.
        unmeasured: Why a mark could not be recorded, None where all could.
    """

    slots: tuple[Slot, ...] = ()
    estimated = False
    host_ns = 0
    unmeasured: str | None = None

    #: Whether the look that comes before each mark has been taken already.
    _looked = True
    #: How many of the slots were current at entry, and whether that meant the current device too.
    _main = 1
    _follows_device = True

    def __init__(self, found: Runtime) -> None:
        self._runtime = found
        self._clock = host_clock()

    def mark(self) -> Mark | None:
        """Record one event a slot, now.

        Returns:
            None where that was not possible; ``unmeasured`` says why. Where there is no
            slot, a mark without events.
        """
        if cuda_capture.poll_here is not None:
            cuda_capture.poll_here()
        self.host_ns = host_ns = self._clock()
        if not self.slots:
            return Mark(host_ns, ())
        try:
            if self._looked:
                self._looked = False
            elif self._capturing():
                self.unmeasured = GRAPH_CAPTURE
                return None
            events = self._record()
        except RuntimeError as error:
            self.unmeasured = refusal(error)
            return None
        return None if events is None else Mark(host_ns, events)

    def _record(self) -> tuple[Event, ...] | None:
        events: list[Event] = []
        try:
            for slot in self.slots:
                device: Any = slot.device
                event = device.pool.acquire()
                if event is None:
                    self.unmeasured = TOO_MANY_EVENTS
                    break
                events.append(event)
                event.record(slot.stream)
            else:
                return tuple(events)
        except RuntimeError:
            self._release(events)
            raise
        self._release(events)
        return None

    def _release(self, events: list[Event]) -> None:
        for slot, event in zip(self.slots, events, strict=False):
            slot.device.release(event)

    def enter_current(self) -> None:
        """Time the call on the stream that is current on the current device."""
        found = self._runtime
        index = found.current_device()
        device = cuda_device.known(index) or self._device(index)
        if device is None:
            return
        if found.is_current_stream_capturing():
            self.unmeasured = GRAPH_CAPTURE
            return
        self.slots = device.slots_on(found.current_stream(index))

    def enter(self, devices: Any, streams: Any) -> None:
        """Time the call on the current stream of each device, and on side streams."""
        found = self._runtime
        indices = [found.current_device() if index is None else index for index in _indices(devices)]
        main = [found.current_stream(index) for index in dict.fromkeys(indices) if self._device(index)]
        self._main, self._follows_device = len(main), devices is None
        side = [stream for stream in _several(streams) if stream not in main]
        placed = [(self._device(stream.device_index), stream) for stream in (*main, *side)]
        self.slots = tuple(Slot(device, stream) for device, stream in placed if device is not None)
        if self._capturing():
            self.unmeasured = GRAPH_CAPTURE
            self.slots = ()

    def _device(self, index: int) -> CudaDevice | None:
        device = cuda_device.known(index)
        if device is None:
            if not 0 <= index < self._runtime.device_count():
                self.unmeasured = NO_SUCH_DEVICE
            elif not cuda_runtime.has_context(index):
                self.unmeasured = NO_CONTEXT
            else:
                device = cuda_device.use(self._runtime, index)
        return device

    def _capturing(self) -> bool:
        """Tell whether a mark would fall into a capture; notice whether the current stream has changed."""
        found = self._runtime
        here = found.current_stream()
        if len(self.slots) == 1 and self.slots[0].stream == here:
            return found.is_current_stream_capturing()
        # Asking about a device that the call does not use could create a context there.
        used = any(slot.stream.device_index == here.device_index for slot in self.slots)
        capturing = used and found.is_current_stream_capturing()
        for position, slot in enumerate(self.slots):
            if slot.stream == here:
                continue
            with found.stream(slot.stream):
                capturing = capturing or found.is_current_stream_capturing()
            if position < self._main:
                index = slot.stream.device_index
                current = here if self._follows_device else found.current_stream(index)
                self.estimated = self.estimated or current != slot.stream
        return capturing


def timer(devices: Any = None, streams: Any = None) -> CudaTimer | None:
    """Return what times a call that enters now, on this thread.

    Args:
        devices: Devices given explicitly: ints, ``"cuda:1"``, ``torch.device``, one or
            several. None for the current one.
        streams: Side streams that the call uses besides the current ones.

    Returns:
        None while CUDA is not initialised in this process, which this never changes.
    """
    found = runtime()
    if found is None or not found.is_initialized():
        return None
    made = CudaTimer(found)
    try:
        if devices is None and streams is None:
            made.enter_current()
        else:
            made.enter(devices, streams)
    except ValueError:
        made.unmeasured = NO_SUCH_DEVICE
    except RuntimeError as error:
        made.unmeasured = refusal(error)
    return made


def check(devices: Any = None, streams: Any = None) -> None:
    """Refuse what ``timer`` could not use, when a function is decorated rather than when it is called.

    Raises:
        ValueError: Something in ``devices`` is no CUDA device.
        TypeError: Something in ``streams`` is no stream.
    """
    _indices(devices)
    for stream in _several(streams):
        if not isinstance(getattr(stream, "device_index", None), int):
            raise TypeError(f"streams= takes torch.cuda.Stream objects, not {stream!r}")


def _several(given: Any) -> Iterable[Any]:
    if given is None:
        return ()
    return given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _indices(devices: Any) -> list[int | None]:
    return [None] if devices is None else [_index(device) for device in _several(devices)]


def _index(device: Any) -> int | None:
    """Return the ordinal of a device, None for the current one."""
    if isinstance(device, int) and device >= 0:
        return device
    kind, _, number = str(device).partition(":")
    if kind == "cuda" and (not number or number.isdecimal()):
        return int(number) if number else None
    raise ValueError(
        f"devices= takes CUDA devices, such as 1, 'cuda:1' or torch.device('cuda', 1), not {device!r}"
    )
