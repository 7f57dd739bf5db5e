"""``hw.*``: what the driver shows of each device, under the names of the semantic conventions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.devices.nvml import NvmlSampler, State
    from gputrace.hardware_published import PublishedDevice

    Rows = list[tuple[dict[str, str], float]]

_UJ_PER_J = 1_000_000
#: What was read longer ago than this is not shown as the present.
_STALE_NS = 3_000_000_000


class Errors:
    """How often each device stopped answering, by reason."""

    def __init__(self) -> None:
        self._troubled: dict[str, str] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def count(self, state: State) -> None:
        """Count the devices that have failed since the last time."""
        troubled = {
            device.device.uuid: device.trouble.reason
            for device in state.devices
            if device.device is not None and device.trouble is not None
        }
        for uuid, reason in troubled.items():
            if self._troubled.get(uuid) != reason:
                self.counts[uuid, reason] += 1
        self._troubled = troubled

    def silent(self, uuid: str) -> bool:
        """Tell whether a device did not answer when it was last asked."""
        return uuid in self._troubled


def gauges(devices: Iterable[PublishedDevice], sampler: NvmlSampler, errors: Errors) -> dict[str, Rows]:
    """Return the rows of the ``hw.*`` metrics by name. What was not read is absent.

    Args:
        devices: What is published.
        sampler: Reads the driver.
        errors: What it refused.
    """
    shown: dict[str, Rows] = {}

    def show(metric: catalogue.Metric, attributes: dict[str, str], value: float | None) -> None:
        if value is not None:
            shown.setdefault(metric.name, []).append((attributes, value))

    for published in devices:
        attributes = published.attributes("")
        del attributes[catalogue.PUBLISHER]
        latest = sampler.latest(published.device.id)
        if latest is not None:
            show(catalogue.HW_POWER, attributes, latest.power_w)
            show(catalogue.HW_TEMPERATURE, attributes, latest.temperature_c)
            show(catalogue.HW_GPU_MEMORY_USAGE, attributes, latest.memory_used_bytes)
            show(catalogue.HW_GPU_MEMORY_LIMIT, attributes, latest.memory_limit_bytes)
            busy = published.utilisation
            if busy is not None and latest.at_ns - busy[0] <= _STALE_NS:
                show(catalogue.HW_GPU_UTILIZATION, attributes, busy[1])
        for source, drawn_uj in published.drawn_uj.items():
            show(catalogue.HW_ENERGY, {**attributes, catalogue.ENERGY_SOURCE: source}, drawn_uj / _UJ_PER_J)
        for (uuid, reason), times in errors.counts.items():
            if uuid == published.device.id:
                show(catalogue.HW_ERRORS, {**attributes, catalogue.ERROR_TYPE: reason}, times)
    return shown
