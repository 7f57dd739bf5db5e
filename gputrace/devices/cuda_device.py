"""One GPU as this process sees it: its identity, its event pool and its clock."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from typing import TYPE_CHECKING, Any

from gputrace import identity
from gputrace.devices import cuda_capture, cuda_runtime
from gputrace.devices.base import DeviceLostError, NotReadableError, Slot
from gputrace.devices.cuda_clock import UNKNOWN_NS, DeviceClock
from gputrace.devices.cuda_events import EventPool

if TYPE_CHECKING:
    from gputrace.devices.base import Event
    from gputrace.devices.cuda_runtime import Runtime

GRAPH_CAPTURE = "graph_capture"
OUT_OF_MEMORY = "out_of_memory"
DEVICE_LOST = "device_lost"

#: torch has some dozens; external ones come and go.
_MOST_STREAMS = 1_024


class CudaDevice:
    """One GPU; see ``gputrace.devices.base.EventDevice``.

    The first reference event is recorded when the first mark is read, on the
    settler's thread, so that a user's thread never waits for it.

    Attributes:
        index: Ordinal in this process, after ``CUDA_VISIBLE_DEVICES``.
        pool: Timing events of this device.
    """

    def __init__(self, found: Runtime, index: int) -> None:
        properties = found.get_device_properties(index)
        self.index = index
        self.id = _hardware_id(properties, index)
        self.type = "gpu"
        self.name: str | None = properties.name
        self.source = "cuda_event"
        self.mapping_error_ns = UNKNOWN_NS
        self.pool = EventPool(functools.partial(found.Event, enable_timing=True))
        self._runtime = found
        self._guard = found.device(index)
        self._stream: Any = None
        self._clock = DeviceClock(self.pool, self._record_reference, cuda_runtime.host_clock())
        self._lock = threading.RLock()
        self._slots: dict[int, tuple[Slot]] = {}

    def slots_on(self, stream: Any) -> tuple[Slot]:
        """Return the slots of a call on one stream; made once a stream, since each call asks."""
        slots = self._slots.get(stream.stream_id)
        if slots is None:
            if len(self._slots) >= _MOST_STREAMS:
                self._slots.clear()
            slots = self._slots[stream.stream_id] = (Slot(self, stream),)
        return slots

    def read(self, event: Event) -> int | None:
        """Return when an event happened, None while it has not.

        None too in a block of ``relaxed_capture`` that has said that nothing can be read in it.

        Args:
            event: Recorded by a mark of ours. An event that nobody recorded would
                claim to have happened.

        Returns:
            Host time in ns; the true one lies in ``[value, value + mapping_error_ns]``.

        Raises:
            DeviceLostError: The driver refuses, and goes on refusing.
            NotReadableError: It refuses for now, or our reference event is late on a busy GPU.
        """
        if cuda_capture.polling_forbidden():
            return None
        try:
            # The guard: a query from a thread that never chose a device creates a context on device 0.
            with self._lock, self._guard:
                if not event.query():
                    return None
                at_ns = self._clock.read(event)
                self.mapping_error_ns = self._clock.mapping.error_ns
                return at_ns
        except NotReadableError:
            raise
        except RuntimeError as error:
            if refusal(error) != DEVICE_LOST:
                raise NotReadableError(
                    f"{self.id} (cuda:{self.index}) cannot be read now: {error}; try again at the next tick"
                ) from error
            raise DeviceLostError(
                f"{self.id} (cuda:{self.index}) no longer answers: {error}; "
                "calls that were on it count as unmeasured until the process is restarted"
            ) from error

    def answers(self, event: Event) -> bool:
        """Tell whether the device still answers when it is asked for an event of a call that is under way.

        Args:
            event: Recorded by a mark of ours.

        Returns:
            False where the driver refuses, and goes on refusing; True where it cannot be asked now.
        """
        if cuda_capture.polling_forbidden():
            return True
        try:
            with self._lock, self._guard:
                event.query()
        except RuntimeError as error:
            return refusal(error) != DEVICE_LOST
        return True

    def release(self, *events: Event) -> None:
        """Give events back to the pool, once both of a pair were read or nobody will read them."""
        self.pool.release(*events)

    def _record_reference(self, event: Event) -> None:
        if self._stream is None:
            # torch hands its pooled streams out in turn; among the urgent ones a user's work is rarest.
            self._stream = self._runtime.Stream(device=self.index, priority=-1)
        event.record(self._stream)


_devices: dict[int, CudaDevice] = {}
_making = threading.RLock()
_process = os.getpid()


def known(index: int) -> CudaDevice | None:
    """Return a device that was used before, None for another."""
    return _devices.get(index)


def use(found: Runtime, index: int) -> CudaDevice:
    """Return a device that has a context, made when it is first used."""
    with _making:
        if index not in _devices:
            _devices[index] = CudaDevice(found, index)
        return _devices[index]


def _hardware_id(properties: Any, index: int) -> str:
    # torch's uuid has no prefix, NVML's does; before torch 2.4 there was none.
    uuid = getattr(properties, "uuid", None)
    if uuid is None:
        return f"{identity.host_name()}/cuda:{index}"
    # The name of a slice ends in its profile, as in "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
    return f"MIG-{uuid}" if " MIG " in str(properties.name) else f"GPU-{uuid}"


def refusal(error: RuntimeError) -> str:
    """Return why the driver refused: a capture or full memory pass by, whatever else is lost for good."""
    message = str(error).lower()
    if "captur" in message:
        return GRAPH_CAPTURE
    return OUT_OF_MEMORY if "out of memory" in message else DEVICE_LOST


def reset() -> None:
    """Forget all devices: in a forked child, and where the runtime is exchanged."""
    global _devices, _making, _process  # noqa: PLW0603 - one set of devices a process
    if os.getpid() != _process:
        # A parent's events cannot be destroyed in a forked child: the driver does not work there.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_devices))
        _process = os.getpid()
    _devices = {}
    _making = threading.RLock()
    cuda_capture.poll_here = None
    cuda_runtime.reset()
