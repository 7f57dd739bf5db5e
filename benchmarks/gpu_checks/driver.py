"""Which GPU is which for torch and for NVML, and the energy of readings against the driver's counter."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import gputrace
from gpu_checks.charging import recording, settled
from gpu_checks.workloads import FEATURE
from gputrace.devices import visible
from gputrace.devices.energy import REFRESH_NS, split_energy
from gputrace.devices.nvml import NvmlSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_checks.machine import Machine
    from gputrace.devices.readings import Reading

_NS_PER_S = 1_000_000_000
_SECONDS = 12
#: The sum of the readings may differ from the counter by this share, or by what is drawn in one renewal.
ALLOWED_SHARE = 0.02

#: Readings of the counter: (CLOCK_MONOTONIC in ns, mJ).
Samples = list[tuple[int, int]]


def counter_mj(samples: Samples, at_ns: int) -> float:
    """Return what the counter showed at a moment, between two samples of it.

    Raises:
        ValueError: The moment is not among them.
    """
    position = bisect_right([sample_ns for sample_ns, _ in samples], at_ns)
    if samples and at_ns == samples[-1][0]:
        return float(samples[-1][1])
    if not 0 < position < len(samples):
        raise ValueError(f"the counter was not read around {at_ns} ns")
    (before_ns, before), (after_ns, after) = samples[position - 1], samples[position]
    return before + (after - before) * (at_ns - before_ns) / (after_ns - before_ns)


def compare_energy(readings: Sequence[Reading], samples: Samples) -> dict[str, Any]:
    """Hold the energy of adjacent readings against the counter.

    Returns:
        ``readings`` that tell energy, their ``seconds`` and ``busy_share``, ``sum_j``,
        ``counter_j``, ``allowed_j`` and whether that is ``kept``; None where nothing can be said:
        no such reading, or a device without a counter.
    """
    told = [
        one
        for one in readings
        if one.energy_uj is not None
        and samples
        and samples[0][0] <= one.start_ns
        and one.end_ns <= samples[-1][0]
    ]
    wall_ns = sum(one.wall_ns for one in told)
    shown: dict[str, Any] = dict.fromkeys(("busy_share", "sum_j", "counter_j", "allowed_j", "kept"))
    shown |= {"readings": len(told), "source": None, "seconds": wall_ns / _NS_PER_S}
    if not told:
        return shown
    sum_j = sum(one.energy_uj or 0 for one in told) / 1_000_000
    counter_j = (
        sum(counter_mj(samples, one.end_ns) - counter_mj(samples, one.start_ns) for one in told) / 1_000
    )
    allowed_j = max(ALLOWED_SHARE * counter_j, counter_j * REFRESH_NS / wall_ns)
    busy = [one for one in told if one.busy_ns is not None]
    shown |= {"source": told[0].energy_source, "sum_j": sum_j, "counter_j": counter_j, "allowed_j": allowed_j}
    if busy:
        shown["busy_share"] = sum(one.busy_ns or 0 for one in busy) / sum(one.wall_ns for one in busy)
    if shown["source"] == "counter":
        shown["kept"] = abs(sum_j - counter_j) <= allowed_j
    return shown


def watch(
    sampler: NvmlSampler,
    counter: Callable[[], int | None],
    work: Callable[[], None],
    clock: Callable[[], int],
    seconds: float = _SECONDS,
) -> tuple[list[Reading], Samples]:
    """Work for some seconds; read the counter after each piece and the device once a second."""
    readings: list[Reading] = []
    samples: Samples = []
    began_ns = polled_ns = clock()
    sampler.sample_once()
    while clock() - began_ns < seconds * _NS_PER_S:
        work()
        at_ns, shown = clock(), counter()
        if shown is not None:
            samples.append((at_ns, shown))
        if at_ns - polled_ns >= _NS_PER_S:
            polled_ns = at_ns
            readings += sampler.sample_once()
    if (shown := counter()) is not None:
        samples.append((clock(), shown))
    return readings, samples


def mapping(sampler: NvmlSampler, torch_uuids: Sequence[str], torch_names: Sequence[str]) -> dict[str, Any]:
    """Compare which devices torch and NVML know at each ordinal.

    Args:
        sampler: Has been asked once.
        torch_uuids: What torch tells by ordinal.
        torch_names: Product names, likewise.

    Returns:
        ``devices`` that NVML shows; by torch's ordinals, whether NVML ``found`` each, under the
        same ``names``; whether the environment alone would have told the same
        (``by_environment``), where it claims to be ``certain``; ``kept``.
    """
    known = {device.uuid.lower(): device for device in sampler.devices()}
    asked = visible.visible(known.values(), os.environ, torch_uuids)
    alone = visible.visible(known.values(), os.environ)
    found = [uuid.lower() in known for uuid in asked.uuids]
    names = [
        uuid.lower() in known and known[uuid.lower()].name == name
        for uuid, name in zip(asked.uuids, torch_names, strict=True)
    ]
    certain = all(device.certain for device in alone.devices)
    return {
        "devices": len(known),
        "found": found,
        "names": names,
        "by_environment": alone.uuids == asked.uuids,
        "certain": certain,
        "kept": bool(found) and all(found) and (alone.uuids == asked.uuids or not certain),
    }


def check(
    machine: Machine,
    sampler: NvmlSampler | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
    seconds: float = _SECONDS,
) -> dict[str, Any]:
    """Map torch's devices to NVML's, then keep the current one busy and compare its energy.

    Args:
        machine: The GPU.
        sampler: Reads the devices, on the same clock; one of its own by default.
        clock: CLOCK_MONOTONIC, ns.
        seconds: How long to keep it busy.

    Returns:
        ``up``, ``trouble`` in words, ``mapping``, ``energy``, ``held_ns`` of the calls that were
        charged to the device under the UUID that NVML gives it, and whether the ``split`` of the
        energy among charged and idle sums to it.
    """
    sampler = NvmlSampler() if sampler is None else sampler
    shown: dict[str, Any] = dict.fromkeys(("trouble", "mapping", "energy", "split"))
    try:
        sampler.sample_once()
        state = sampler.state()
        if not (state.up and state.devices):
            shown["trouble"] = "it shows no device" if state.trouble is None else state.trouble.reason
            return {**shown, "up": False, "held_ns": 0}
        cuda = machine.cuda
        properties = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
        uuids = [str(one.uuid) for one in properties]
        shown["mapping"] = mapping(sampler, uuids, [one.name for one in properties])
        if not all(shown["mapping"]["found"]):
            return {**shown, "up": True, "held_ns": 0}
        own = visible.visible(sampler.devices(), os.environ, uuids).uuids[cuda.current_device()]
        readings, samples, held_ns = _under_load(machine, sampler, own, clock, seconds)
        shown |= {"energy": compare_energy(readings, samples), "split": _split(readings, held_ns)}
        return {**shown, "up": True, "held_ns": held_ns}
    finally:
        sampler.stop()


def _under_load(
    machine: Machine, sampler: NvmlSampler, uuid: str, clock: Callable[[], int], seconds: float
) -> tuple[list[Reading], Samples, int]:
    def work() -> None:
        with gputrace.span("energy", feature=FEATURE):
            for _ in range(8):
                machine.multiply()
        machine.synchronize()

    with recording(machine) as recorder:
        readings, samples = watch(sampler, counter_of(uuid), work, clock, seconds)
        # By the name under which the calls were charged: it must be NVML's.
        held_ns = sum(call.held_ns for call in settled(machine, recorder) if call.device_id == uuid)
    return [one for one in readings if one.device == uuid], samples, held_ns


def counter_of(uuid: str) -> Callable[[], int | None]:
    """Return what reads the energy counter of a device, mJ; None where it has none."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read() -> int | None:
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except pynvml.NVMLError:
            return None

    return read


def _split(readings: Sequence[Reading], held_ns: int) -> bool | None:
    """Tell whether the parts of the measured energy sum to it, None where there is none."""
    told = [one for one in readings if one.energy_uj]
    if not told:
        return None
    energy_uj, wall_ns = sum(one.energy_uj or 0 for one in told), sum(one.wall_ns for one in told)
    held_ns = min(held_ns, wall_ns)
    parts = split_energy(
        energy_uj, {FEATURE: held_ns}, held_ns=held_ns, untracked_ns=0, idle_ns=wall_ns - held_ns
    )
    split = sum(parts.charged_uj.values()) + parts.untracked_uj + parts.idle_uj + parts.unknown_uj
    return split == energy_uj
