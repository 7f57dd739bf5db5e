"""What the driver says of devices that this process holds, while another one of the node publishes them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from gputrace.hardware_published import NodeDevice, PublishedDevice

if TYPE_CHECKING:
    from gputrace.devices.readings import Reading
    from gputrace.hardware_features import FeatureReadings
    from gputrace.node import Node


class OwnDevices:
    """The devices of this process, read for the sake of its features alone.

    Args:
        node: Tells who else is on them.
        features: What is read goes there.
    """

    def __init__(self, node: Node, features: FeatureReadings) -> None:
        self._node = node
        self._features = features
        self._devices: dict[str, PublishedDevice] = {}
        self._frontiers: dict[str, int] = {}

    def frontier(self, device_id: str, at_ns: int) -> None:
        """Note that every hold of this process on a device up to an instant is known."""
        self._frontiers[device_id] = max(at_ns, self._frontiers.get(device_id, 0))

    def read(self, reading: Reading) -> None:
        """Keep a reading, if it is of a device that this process holds, until its period is final."""
        if reading.device not in self._frontiers:
            return
        device = self._devices.get(reading.device)
        if device is None:
            device = self._devices[reading.device] = PublishedDevice(
                NodeDevice(reading.device), reading.start_ns
            )
        device.read(reading)

    def tell(self) -> None:
        """Share what became known among the features."""
        others: frozenset[str] | None = None
        for device_id, device in self._devices.items():
            held_here = functools.partial(self._features.held_between, device_id)
            for told in device.tell(self._frontiers[device_id], held_here):
                if others is None:
                    others = self._held_by_others()
                self._features.told(device_id, told, alone=device_id not in others)

    def clear(self) -> None:
        """Forget what waits: this process publishes from here on, or did until now."""
        self._devices.clear()

    def _held_by_others(self) -> frozenset[str]:
        return frozenset(device for other in self._node.others() if other.lives for device in other.devices)
