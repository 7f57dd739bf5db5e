"""The GPUs of one process: where work runs, and what the driver says of them."""

from __future__ import annotations

import uuid
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gputrace.devices.nvml import DeviceState, Gauges, State
from gputrace.devices.nvml_devices import NvmlDevice
from gputrace.devices.nvml_library import Explanation
from gputrace.devices.readings import Reading
from gputrace.devices.virtual import VirtualGpu
from gputrace.simulate.plan import NS_PER_S
from gputrace.simulate.scheduler import Signal
from gputrace.simulate.truth import Launched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.devices.virtual import VirtualStream
    from gputrace.devices.virtual_driver import VirtualClock
    from gputrace.simulate.plan import Plan

#: A device serves so many requests at once, each on a stream of its own.
LANES = 2
#: Of the time that a call holds a device, its kernels run for so many percent.
BUSY_PERCENT = 82
#: What somebody computes whom nothing tracks, of the periods in which they do.
_NOTEBOOK_PERCENT = 65
_IDLE_W, _BUSY_W = 72, 430
_MEMORY_BYTES = 80 * 1024**3
_LOADED_BYTES = 46 * 1024**3
_ROOM_C, _BUSY_C = 34.0, 41.0
_NAMESPACE = uuid.UUID("6b1f0c2e-5d0f-4a52-9a5b-0c7a6e1d4b58")
_LOST = Explanation("gpu_lost", "the simulation has let it fall off the bus")
#: Mostly at night, when nothing else runs.
_NOTEBOOK_HOURS = (0.2, 0.26)


class Lane(NamedTuple):
    """One stream of one device.

    Attributes:
        device: Ordinal of the device in its process.
        stream: The stream.
    """

    device: int
    stream: VirtualStream


class _Waiting(Signal):
    """Somebody who waits for a lane.

    Attributes:
        lane: What they got.
    """

    lane: Lane | None = None


class Fleet:
    """The devices of one process.

    Args:
        plan: What is simulated.
        process: Number of the process.
        clock: The time.

    Attributes:
        gpu: Stands in for ``torch.cuda``.
        ids: ``hw.id`` of each device.
        launched: What ran on each, all of it.
        lost: Devices that fell off the bus.
    """

    def __init__(self, plan: Plan, process: int, clock: VirtualClock) -> None:
        number = plan.gpus // plan.processes
        self.clock = clock
        self.gpu = VirtualGpu(number, clock)
        self._first = process == 0
        self._plan = plan
        for device in self.gpu.devices:
            device.name = plan.gpu_name
            device.uuid = uuid.uuid5(_NAMESPACE, f"{plan.seed}/{process}/{device.index}")
        self.ids = [f"GPU-{device.uuid}" for device in self.gpu.devices]
        self.launched: list[list[Launched]] = [[] for _ in self.ids]
        self._recent: list[list[Launched]] = [[] for _ in self.ids]
        self._lanes: set[Lane] = set()
        self._free: deque[Lane] = deque()
        self._queue: deque[_Waiting] = deque()
        self.lost: set[int] = set()

    def open(self) -> None:
        """Make the streams; once gputrace finds the GPU."""
        self.gpu.init()
        for _ in range(LANES):
            for device in range(len(self.ids)):
                self._free.append(Lane(device, self.gpu.Stream(device=device)))
        self._lanes.update(self._free)

    # --- work ----------------------------------------------------------------

    async def take(self) -> Lane | None:
        """Wait for a lane, and take it; None where every device is lost."""
        if not self._free and self._has_any():
            waiting = _Waiting()
            self._queue.append(waiting)
            await waiting
            return waiting.lane
        return self._free.popleft() if self._has_any() else None

    def give_back(self, lane: Lane) -> None:
        """Let the next one have a lane."""
        if lane.device in self.lost:
            self._lanes.remove(lane)
            if not self._has_any():
                self._hand_out(None)
        elif self._queue:
            self._hand_to(self._queue.popleft(), lane)
        else:
            self._free.append(lane)

    def _has_any(self) -> bool:
        return any(lane.device not in self.lost for lane in self._lanes)

    def _hand_out(self, lane: None) -> None:
        while self._queue:
            self._hand_to(self._queue.popleft(), lane)

    @staticmethod
    def _hand_to(waiting: _Waiting, lane: Lane | None) -> None:
        waiting.lane = lane
        waiting.give()

    def launch(
        self,
        lane: Lane,
        seconds: float,
        owners: tuple[tuple[str, int], ...],
        stage: str | None = None,
        phases: tuple[str, ...] = (),
    ) -> int:
        """Compute on a lane, behind what is on it already.

        Args:
            lane: Where.
            seconds: For how long.
            owners: Whom that is charged to, by weight.
            stage: Of which stage of a cascade it is.
            phases: Where it is a step of a model server, what each owner is charged for.

        Returns:
            When it is done, Unix time in ns.
        """
        entry = self.gpu.launch(max(1, round(seconds * NS_PER_S)), lane.stream)
        # The driver's own log would grow for ever.
        self.gpu.log.clear()
        if entry is None:
            return self.clock()
        one = Launched(entry.start_ns, entry.end_ns, owners, stage, phases)
        self.launched[lane.device].append(one)
        self._recent[lane.device].append(one)
        return entry.end_ns

    def is_lost(self, lane: Lane) -> bool:
        """Tell whether the device of a lane is lost."""
        return lane.device in self.lost

    def lose_last(self) -> None:
        """Let the last device fall off the bus now, whatever runs on it."""
        device, now_ns = len(self.ids) - 1, self.clock()
        self.lost.add(device)
        self.gpu.lose(device)
        for of_device in (self.launched, self._recent):
            of_device[device] = [
                one._replace(end_ns=min(one.end_ns, now_ns))
                for one in of_device[device]
                if one.start_ns < now_ns
            ]
        for lane in [lane for lane in self._free if lane.device == device]:
            self._free.remove(lane)
            self._lanes.remove(lane)
        if not self._has_any():
            self._hand_out(None)

    # --- what the driver says ---------------------------------------------------

    def busy(self, device: int, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return for how long calls held a device in a period, and for how long kernels ran on it, ns.

        Periods come in order.
        """
        recent = self._recent[device]
        held_ns = united_ns(recent, start_ns, end_ns)
        self._recent[device] = [one for one in recent if one.end_ns > end_ns]
        busy_ns = held_ns * BUSY_PERCENT // 100
        if self._is_notebook_open(device, start_ns):
            busy_ns = max(busy_ns, (end_ns - start_ns) * _NOTEBOOK_PERCENT // 100)
        return held_ns, busy_ns

    def _is_notebook_open(self, device: int, at_ns: int) -> bool:
        begin, end = _NOTEBOOK_HOURS
        return (
            self._first
            and device == 0
            and "notebook" in self._plan.incidents
            and begin <= self._plan.time_of_day(at_ns) < end
        )

    def reading(self, device: int, start_ns: int, end_ns: int, busy_ns: int) -> Reading:
        """Return what the driver says of a period."""
        wall_ns = end_ns - start_ns
        share = busy_ns / wall_ns
        return Reading(
            device=self.ids[device],
            start_ns=start_ns,
            end_ns=end_ns,
            busy_ns=busy_ns,
            busy_source="samples",
            # W × ns / 1000 = µJ
            energy_uj=(_IDLE_W * wall_ns + (_BUSY_W - _IDLE_W) * busy_ns) // 1_000,
            energy_source="counter",
            power_w=_IDLE_W + (_BUSY_W - _IDLE_W) * share,
            memory_used_bytes=_LOADED_BYTES + round(share * (_MEMORY_BYTES - _LOADED_BYTES) / 2),
            memory_limit_bytes=_MEMORY_BYTES,
            temperature_c=_ROOM_C + _BUSY_C * share,
        )


def united_ns(launched: Iterable[Launched], start_ns: int, end_ns: int) -> int:
    """Return how much of a period something ran."""
    total_ns, until_ns = 0, start_ns
    for one in sorted(launched):
        begin_ns, over_ns = max(one.start_ns, until_ns), min(one.end_ns, end_ns)
        if over_ns > begin_ns:
            total_ns += over_ns - begin_ns
            until_ns = over_ns
    return total_ns


class Driver:
    """Stands in the place of the sampler that reads NVML, for ``Hardware``; it is told what to say.

    Args:
        fleet: The devices.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._latest: dict[str, Gauges] = {}
        self._devices = [
            NvmlDevice(device_id, index, fleet.gpu.devices[index].name)
            for index, device_id in enumerate(fleet.ids)
        ]

    def tell(self, reading: Reading) -> None:
        """Show what was read last."""
        self._latest[reading.device] = Gauges(
            reading.end_ns,
            reading.power_w,
            reading.memory_used_bytes,
            reading.memory_limit_bytes,
            reading.temperature_c,
        )

    def state(self) -> State:
        """Return what can be read."""
        devices = tuple(
            DeviceState(one.index, one, _LOST if self._fleet.gpu.devices[one.index].lost else None)
            for one in self._devices
        )
        return State(up=True, trouble=None, devices=devices)

    def latest(self, device_id: str) -> Gauges | None:
        """Return what a device showed last, None for one that is lost."""
        lost = any(one.uuid == device_id and self._fleet.gpu.devices[one.index].lost for one in self._devices)
        return None if lost else self._latest.get(device_id)

    def start(self) -> None:
        """Do nothing: it is told."""

    def stop(self) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""
