"""Follows one device through its failures: asked ever less often, with a new handle once it is back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputrace.devices import nvml_library
from gputrace.devices.nvml_library import Explanation, RefusedError
from gputrace.devices.nvml_quantity import Backoff

if TYPE_CHECKING:
    from typing import Any

    from gputrace.devices.nvml_devices import NvmlDevice
    from gputrace.devices.nvml_poller import Poller
    from gputrace.devices.nvml_worker import Worker
    from gputrace.devices.readings import Reading


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What can be read of one device.

    Attributes:
        index: NVML's index.
        device: The device; None where the GPU at that index does not tell who it is.
        trouble: Why nothing can be read, None where something can.
        missing: Why a quantity cannot be read, by its name.
    """

    index: int
    device: NvmlDevice | None
    trouble: Explanation | None
    missing: dict[str, Explanation] = field(default_factory=dict)


class Follower:
    """One device, or one index of NVML's at which no device tells its name.

    Attributes:
        index: NVML's index.
        poller: Reads the device, None while nobody knows which it is.
        code: Why it failed the last time, None where it did not.

    Args:
        index: NVML's index.
        poller: Reads the device.
        interval_ns: Time between two polls.
    """

    def __init__(self, index: int, poller: Poller | None, interval_ns: int) -> None:
        self.index = index
        self.poller = poller
        self.code: int | None = None
        self._backoff = Backoff(interval_ns)

    def due(self, now_ns: int) -> bool:
        """Tell whether it is time to ask."""
        return self._backoff.due(now_ns)

    def failed(self, code: int, now_ns: int) -> None:
        """Ask less often."""
        self.code = code
        self._backoff.failed(now_ns)

    def poll(self, worker: Worker, now_ns: int) -> list[Reading] | None:
        """Read the device.

        Returns:
            None where it failed.
        """
        poller = self.poller
        if poller is None:
            return None
        try:
            readings = worker.run(
                poller.device.uuid, self._poll_anew if self.code is not None else poller.poll
            )
        except RefusedError as error:
            self.failed(error.code, now_ns)
            return None
        self.code = None
        self._backoff.succeeded()
        return readings

    def _poll_anew(self) -> list[Reading]:
        poller: Any = self.poller
        poller.resume(nvml_library.handle_of(poller.device.uuid))
        return list(poller.poll())

    def resume(self, index: int, device: NvmlDevice, handle: object) -> None:
        """Go on after the library was opened anew, where the device may have another index."""
        self.index = index
        self.code = None
        self._backoff.succeeded()
        if self.poller is not None:
            self.poller.device = device
            self.poller.resume(handle)

    @property
    def state(self) -> DeviceState:
        """What can be read of it."""
        trouble = None if self.code is None else nvml_library.explain(self.code)
        if self.poller is None:
            return DeviceState(self.index, None, trouble)
        missing = {
            quantity.name: nvml_library.explain(quantity.refusal)
            for quantity in self.poller.quantities
            if quantity.refusal is not None
        }
        return DeviceState(self.index, self.poller.device, trouble, missing)
