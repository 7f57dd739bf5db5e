"""Which GPU is which: what CUDA's ordinals in this process mean, by UUID.

CUDA numbers the devices that ``CUDA_VISIBLE_DEVICES`` leaves, by default with
the fastest first; NVML numbers all of them, in PCI order. Only the UUID means
the same to both. Where the order cannot be known without asking CUDA, that is
said; once torch has initialised CUDA, it is asked.

A process sees one slice (MIG) at most, whatever it is given.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace.devices import cuda_runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.devices.nvml_devices import NvmlDevice

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
PCI_ORDER = "PCI_BUS_ID"

#: ``MIG-GPU-<uuid>/<GPU instance>/<compute instance>``, as drivers before 470 wrote it.
_OLD_SLICE = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)")
#: As strtol reads it: what follows the digits is not looked at.
_LEADING_NUMBER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True)
class VisibleDevice:
    """A device that CUDA shows this process.

    Attributes:
        ordinal: CUDA's, as in ``cuda:0``.
        uuid: ``hw.id``.
        certain: Whether CUDA is known to give this device this ordinal.
    """

    ordinal: int
    uuid: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Visible:
    """What CUDA shows this process.

    Attributes:
        devices: By ordinal.
        notes: What is odd, or cannot be known, in words.
    """

    devices: tuple[VisibleDevice, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        """``hw.id`` by ordinal."""
        return tuple(device.uuid for device in self.devices)


class _InvalidError(Exception):
    """An entry that CUDA does not accept: it and all after it are not there."""


def visible(
    devices: Iterable[NvmlDevice],
    environment: Mapping[str, str],
    torch_uuids: Sequence[str] | None = None,
) -> Visible:
    """Return which devices CUDA shows a process, in CUDA's order.

    Args:
        devices: All that NVML shows, in its order.
        environment: The process's, as it was when it initialised CUDA.
        torch_uuids: ``get_device_properties(i).uuid`` of each ordinal, where torch can tell: it wins.
    """
    known = list(devices)
    if torch_uuids is not None:
        return _as_torch_says(known, torch_uuids)
    gpus = [device for device in known if device.parent is None]
    variable = environment.get(VISIBLE_VARIABLE)
    ordered = environment.get(ORDER_VARIABLE) == PCI_ORDER or len({gpu.name for gpu in gpus}) <= 1
    notes: list[str] = []
    if variable is None:
        chosen, by_ordinal = list(gpus), True
    else:
        chosen, by_ordinal = _chosen(variable, gpus, known, notes)
    certain = ordered or not by_ordinal
    if not certain and chosen:
        notes.append(
            f"the GPUs differ and {ORDER_VARIABLE} is not {PCI_ORDER}: CUDA puts the fastest first, "
            "and which that is it tells only once it is initialised"
        )
    chosen, slices_certain = _one_slice(chosen, known, notes)
    certain = certain and slices_certain
    return Visible(
        tuple(VisibleDevice(ordinal, device.uuid, certain) for ordinal, device in enumerate(chosen)),
        tuple(notes),
    )


def _chosen(
    variable: str, gpus: list[NvmlDevice], known: list[NvmlDevice], notes: list[str]
) -> tuple[list[NvmlDevice], bool]:
    """Return the devices that a list names, and whether it names them by ordinal."""
    chosen: list[NvmlDevice] = []
    kind = None
    for entry in variable.split(",") if variable.strip() else ():
        name = entry.strip()
        try:
            this_kind, device = _named(name, gpus, known)
        except _InvalidError as error:
            notes.append(f"{VISIBLE_VARIABLE}: {name!r} {error}; CUDA ignores it and all that follow")
            break
        if kind not in {None, this_kind}:
            notes.append(f"{VISIBLE_VARIABLE}: {name!r} is of another kind than the first; CUDA stops there")
            break
        kind = this_kind
        if device in chosen:
            notes.append(f"{VISIBLE_VARIABLE}: {name!r} names a device again; CUDA then shows none at all")
            return [], False
        chosen.append(device)
    return chosen, kind == "number"


def _named(name: str, gpus: list[NvmlDevice], known: list[NvmlDevice]) -> tuple[str, NvmlDevice]:
    """Return the kind of an entry and the device that it names."""
    if name.startswith("MIG-"):
        return "slice", _slice_named(name, [device for device in known if device.parent is not None])
    if name.startswith("GPU-"):
        return "uuid", _starting_with(name, gpus)
    number = _LEADING_NUMBER.match(name)
    if number is None:
        raise _InvalidError("is neither a number nor a UUID")
    ordinal = int(number.group())
    if not 0 <= ordinal < len(gpus):
        raise _InvalidError(f"is no device: there are {len(gpus)}")
    return "number", gpus[ordinal]


def _slice_named(name: str, slices: list[NvmlDevice]) -> NvmlDevice:
    old = _OLD_SLICE.fullmatch(name)
    if old is None:
        return _starting_with(name, slices)
    gpu, gpu_instance, compute_instance = old.group(1), int(old.group(2)), int(old.group(3))
    for device in slices:
        instances = (device.gpu_instance, device.compute_instance)
        if _same(device.parent or "", gpu) and instances == (gpu_instance, compute_instance):
            return device
    raise _InvalidError("is no slice of this machine")


def _starting_with(name: str, devices: list[NvmlDevice]) -> NvmlDevice:
    """Any prefix of a UUID will do that fits one device alone."""
    fitting = [device for device in devices if device.uuid.startswith(name)]
    if not fitting:
        raise _InvalidError("is no device of this machine")
    if len(fitting) > 1:
        raise _InvalidError(f"fits {len(fitting)} devices")
    return fitting[0]


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _one_slice(
    chosen: list[NvmlDevice], known: list[NvmlDevice], notes: list[str]
) -> tuple[list[NvmlDevice], bool]:
    """Put slices in the place of sliced GPUs, and keep what one process can see of them."""
    if not any(device.sliced or device.parent is not None for device in chosen):
        return chosen, True
    whole = [device for device in chosen if not device.sliced and device.parent is None]
    slices: list[NvmlDevice] = []
    for device in chosen:
        if device.parent is not None:
            slices.append(device)
        elif device.sliced:
            slices += [one for one in known if one.parent is not None and _same(one.parent, device.uuid)]
    if whole:
        notes.append("whole GPUs and slices together: what CUDA shows of them it alone can tell")
        return whole, False
    if len(slices) > 1:
        notes.append(f"{len(slices)} slices: a process sees one, the first")
    by_name = all(device.parent is not None for device in chosen)
    return slices[:1], len(slices) <= 1 or by_name


def _as_torch_says(known: list[NvmlDevice], torch_uuids: Sequence[str]) -> Visible:
    notes, found = [], []
    for ordinal, given in enumerate(torch_uuids):
        # torch leaves the prefix out.
        bare = re.sub(r"^(GPU|MIG)-", "", str(given))
        uuid = next((one.uuid for one in known if _same(one.uuid[4:], bare)), None)
        if uuid is None:
            notes.append(f"cuda:{ordinal} ({bare}) is not among the devices that NVML shows")
        found.append(VisibleDevice(ordinal, uuid or f"GPU-{bare}"))
    return Visible(tuple(found), tuple(notes))


def torch_uuids() -> list[str] | None:
    """Return the UUIDs by ordinal as torch tells them, None while CUDA is not initialised."""
    runtime = cuda_runtime.runtime()
    if runtime is None or not runtime.is_initialized():
        return None
    try:
        properties = [runtime.get_device_properties(index) for index in range(runtime.device_count())]
    except RuntimeError:
        return None
    uuids = [getattr(one, "uuid", None) for one in properties]
    # torch before 2.4 has none.
    return None if None in uuids else [str(uuid) for uuid in uuids]


def read(devices: Iterable[NvmlDevice]) -> Visible:
    """Return which devices CUDA shows this process.

    Args:
        devices: All that NVML shows, in its order.
    """
    return visible(devices, os.environ, torch_uuids())
