"""Which devices NVML has: GPUs and their MIG slices, known by UUID."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputrace.devices import nvml_library
from gputrace.devices.nvml_library import LIBRARY_GONE, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: More than any GPU is cut into; a count beyond it is junk.
_MOST_SLICES = 64


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    """A GPU, or a slice of one, as NVML names it.

    Attributes:
        uuid: ``GPU-…`` or ``MIG-…``: ``hw.id``. The only name that survives a reboot.
        index: NVML's index of the GPU, in PCI order; a slice has that of its GPU.
        name: Product name, None where it is not told.
        parent: UUID of the GPU that a slice is cut from, None for a GPU.
        gpu_instance: Number of a slice's GPU instance.
        compute_instance: Number of a slice's compute instance.
        sliced: MIG is on: the slices are what is used, and the GPU itself only draws power.
    """

    uuid: str
    index: int
    name: str | None = None
    parent: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sliced: bool = False


def found_at(index: int) -> list[tuple[NvmlDevice, Any]]:
    """Return the GPU at one of NVML's indices, then its slices, each with its handle.

    Raises:
        RefusedError: The GPU does not tell who it is.
    """
    handle = nvml_library.call("nvmlDeviceGetHandleByIndex", index)
    uuid = nvml_library.text("nvmlDeviceGetUUID", handle)
    sliced = _is_sliced(handle)
    gpu = NvmlDevice(uuid, index, _name(handle), sliced=sliced)
    slices = _slices(handle, gpu) if sliced else ()
    return [(gpu, handle), *slices]


def _name(handle: Any) -> str | None:
    try:
        return nvml_library.text("nvmlDeviceGetName", handle)
    except RefusedError as error:
        if error.code in LIBRARY_GONE:
            raise
        return None


def _is_sliced(handle: Any) -> bool:
    try:
        return bool(nvml_library.call("nvmlDeviceGetMigMode", handle)[0])
    except RefusedError as error:
        if error.code in LIBRARY_GONE:
            raise
        # Most GPUs answer that they do not know MIG.
        return False


def _slices(handle: Any, gpu: NvmlDevice) -> Iterator[tuple[NvmlDevice, Any]]:
    try:
        count = min(nvml_library.call("nvmlDeviceGetMaxMigDeviceCount", handle), _MOST_SLICES)
    except RefusedError as error:
        if error.code in LIBRARY_GONE:
            raise
        return
    for position in range(count):
        try:
            found = nvml_library.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
            uuid = nvml_library.text("nvmlDeviceGetUUID", found)
        except RefusedError as error:
            if error.code in LIBRARY_GONE:
                raise
            # Places stay empty where fewer slices were cut, and one lost slice is not all.
            continue
        yield (
            NvmlDevice(
                uuid,
                gpu.index,
                _name(found),
                parent=gpu.uuid,
                gpu_instance=_number("nvmlDeviceGetGpuInstanceId", found),
                compute_instance=_number("nvmlDeviceGetComputeInstanceId", found),
            ),
            found,
        )


def _number(name: str, handle: Any) -> int | None:
    try:
        return int(nvml_library.call(name, handle))
    except RefusedError as error:
        if error.code in LIBRARY_GONE:
            raise
        return None
