"""What NVML answers on this machine, tried out for a few seconds as a running program would ask."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputrace.devices import nvml_library, nvml_processes
from gputrace.devices.nvml import NvmlSampler
from gputrace.devices.nvml_library import HANGS, RefusedError
from gputrace.devices.nvml_worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.devices.nvml import DeviceState, State
    from gputrace.devices.nvml_library import Explanation
    from gputrace.devices.readings import Reading

_INTERVAL_S = 0.5
#: Enough for a source that refuses three times to give way to another, and for that one's first figure.
_MOST_POLLS = 7
#: Long enough for any process that uses the device to show.
_ACTIVITY_US = 10_000_000
_BUSY = frozenset({"utilisation samples", "utilisation rate"})
_ENERGY = frozenset({"energy counter", "power"})


@dataclass(slots=True)
class Measured:
    """What was read of one device; `None` is what was not.

    Attributes:
        wall_ns: Time of which it is known how busy the device was.
        busy_ns: How much of it the device was busy.
        busy_source: Where that is from: `samples` or `rates`.
        energy_source: Where its energy is from: `counter` or `power`.
        power_w: Power.
        memory_used_bytes: Memory in use.
        memory_limit_bytes: Memory that there is.
        temperature_c: Temperature.
    """

    wall_ns: int = 0
    busy_ns: int = 0
    busy_source: str | None = None
    energy_source: str | None = None
    power_w: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    temperature_c: float | None = None

    def add(self, reading: Reading) -> None:
        """Take a reading into account."""
        if reading.busy_ns is not None:
            self.wall_ns += reading.wall_ns
            self.busy_ns += reading.busy_ns
            self.busy_source = reading.busy_source
        self.energy_source = reading.energy_source or self.energy_source


@dataclass(frozen=True, slots=True)
class Seen:
    """Which processes the driver shows on a device.

    Attributes:
        pids: Their ids on the host; empty where it shows none.
        refusal: Why it shows none.
        activity_refusal: Why it does not tell which of them keeps the device busy.
    """

    pids: tuple[int, ...] = ()
    refusal: Explanation | None = None
    activity_refusal: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What NVML answered.

    Attributes:
        state: What can be read and what not.
        measured: What was read, by UUID.
        processes: Which processes it shows, by UUID; empty where a call hangs, since more would.
        driver: Version of the driver.
    """

    state: State
    measured: dict[str, Measured] = field(default_factory=dict)
    processes: dict[str, Seen] = field(default_factory=dict)
    driver: str | None = None


def look(patience_s: float) -> Look:
    """Ask NVML for everything that gputrace reads.

    Args:
        patience_s: How long one call may take, s.
    """
    sampler = NvmlSampler(_INTERVAL_S, worker=lambda: Worker(patience_s))
    sampler.sample_once()
    if not sampler.state().up:
        return Look(sampler.state())
    measured: dict[str, Measured] = {device.uuid: Measured() for device in sampler.devices()}
    for _ in range(_MOST_POLLS):
        time.sleep(_INTERVAL_S)
        for reading in sampler.sample_once():
            measured.setdefault(reading.device, Measured()).add(reading)
        if all(_is_settled(state, measured) for state in sampler.state().devices):
            break
    _take_gauges(sampler, measured)
    state = sampler.state()
    hangs = nvml_library.explain(HANGS)
    if state.trouble == hangs or any(one.trouble == hangs for one in state.devices):
        return Look(state, measured)
    worker = Worker(patience_s)
    answering = [one.device.uuid for one in state.devices if one.device is not None and one.trouble is None]
    return Look(state, measured, {uuid: _seen(worker, uuid) for uuid in answering}, _driver(worker))


def _is_settled(state: DeviceState, measured: dict[str, Measured]) -> bool:
    """Tell whether waiting longer would show more of a device."""
    if state.device is None or state.trouble is not None:
        return True
    shown = measured.get(state.device.uuid) or Measured()
    missing = state.missing.keys()
    return (shown.busy_source is not None or missing >= _BUSY) and (
        shown.energy_source is not None or missing >= _ENERGY
    )


def _take_gauges(sampler: NvmlSampler, measured: dict[str, Measured]) -> None:
    for uuid, one in measured.items():
        gauges = sampler.latest(uuid)
        if gauges is not None:
            one.power_w = gauges.power_w
            one.memory_used_bytes = gauges.memory_used_bytes
            one.memory_limit_bytes = gauges.memory_limit_bytes
            one.temperature_c = gauges.temperature_c


def _seen(worker: Worker, uuid: str) -> Seen:
    pids, refusal = _ask(worker, uuid, lambda: nvml_processes.running(nvml_library.handle_of(uuid)))
    now_us = time.time_ns() // 1_000

    def active() -> Any:
        return nvml_processes.activity(nvml_library.handle_of(uuid), now_us - _ACTIVITY_US, now_us)

    _, activity_refusal = _ask(worker, uuid, active)
    return Seen(tuple(sorted(set(pids or ()))), refusal, activity_refusal)


def _driver(worker: Worker) -> str | None:
    version, _ = _ask(worker, "driver", lambda: nvml_library.call("nvmlSystemGetDriverVersion"))
    return version.decode(errors="replace") if isinstance(version, bytes) else version


def _ask(worker: Worker, key: str, job: Callable[[], Any]) -> tuple[Any, Explanation | None]:
    try:
        return worker.run(key, job), None
    except RefusedError as error:
        return None, nvml_library.explain(error.code)
