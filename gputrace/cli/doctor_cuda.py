"""What CUDA itself shows: asked of the driver, which makes no context on any device."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any, NamedTuple

from gputrace.devices.nvml_library import Explanation

_LIBRARY = "libcuda.so.1"

#: Reason and remedy, by CUDA's code. The numbers stand for good.
_WORDS = {
    34: (
        "libcuda.so.1 is the stub that programs are linked with",
        "take the toolkit's `stubs` folder out of LD_LIBRARY_PATH",
    ),
    46: ("the device is taken", "see its compute mode in `nvidia-smi -q`, and who uses it"),
    100: ("CUDA shows no device", "see CUDA_VISIBLE_DEVICES; in a container, give it the GPU"),
    101: ("CUDA does not accept a device", "see CUDA_VISIBLE_DEVICES"),
    802: (
        "the GPUs are not ready",
        "on machines with NVSwitch start the fabric manager: `systemctl start nvidia-fabricmanager`",
    ),
    803: (
        "the driver's library and its kernel module differ in version",
        "reboot, or reload the nvidia modules; in a container, restart it",
    ),
    804: (
        "the compatibility library of this container does not suit this GPU",
        "take the `compat` folder out of LD_LIBRARY_PATH, or update the driver of the host",
    ),
    999: (
        "CUDA answers Unknown Error",
        "see whether the module nvidia_uvm is loaded (`modprobe nvidia_uvm`); in a container, restart it",
    ),
}


class Census(NamedTuple):
    """What CUDA shows this process.

    Attributes:
        uuids: By ordinal, without a prefix; `None` where CUDA does not work.
        trouble: Why it does not.
    """

    uuids: tuple[str, ...] | None
    trouble: Explanation | None = None


class _CudaError(Exception):
    """The driver answered an error."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def take_census() -> Census:
    """Ask the driver which devices there are, in CUDA's order. May hang: for a process of its own."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        remedy = (
            "install the driver; in a container, run it with the NVIDIA toolkit and the `compute` capability"
        )
        return Census(None, Explanation(f"{_LIBRARY} cannot be loaded ({error})", remedy))
    try:
        return Census(tuple(_uuids(library)))
    except _CudaError as error:
        return Census(None, _explain(error.code))
    except AttributeError as error:
        return Census(None, Explanation(f"{_LIBRARY} is too old ({error})", "update the driver"))


def _uuids(library: Any) -> list[str]:
    def call(name: str, *arguments: Any) -> None:
        code = getattr(library, name)(*arguments)
        if code:
            raise _CudaError(code)

    call("cuInit", 0)
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    # The second version tells a slice from its GPU.
    ask = "cuDeviceGetUuid_v2" if hasattr(library, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    found = []
    for ordinal in range(count.value):
        device, answer = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        call("cuDeviceGet", ctypes.byref(device), ordinal)
        call(ask, ctypes.byref(answer), device)
        found.append(str(uuid.UUID(bytes=bytes(answer))))
    return found


def _explain(code: int) -> Explanation:
    words = _WORDS.get(code, (f"CUDA answers error {code}", "look it up in cuda.h; see `dmesg`"))
    return Explanation(*words)
