"""Which CUDA runtime this process has: torch's, a virtual GPU's, or none.

Nothing here imports torch, initialises CUDA or creates a context on a device.
A runtime is whatever offers the interface of ``torch.cuda``. ROCm builds of
torch offer it too, under the same names; what differs there:

* the capture mode is exchanged through ``libamdhip64`` instead of ``libcuda``, even where that is loaded too;
* ``elapsed_time`` of reversed events may answer 0 rather than a negative number;
* whether a device has a context is not asked, since it costs next to nothing;
* ``uuid`` holds the ASCII digits of AMD's unique id, so ``hw.id`` spells those in hexadecimal.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

#: Where the machine shows its devices.
DEVICE_FILES = Path("/dev")

_CUDA_LIBRARIES = ("libcuda.so.1",)
_ROCM_LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
_VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_NONE_VISIBLE = frozenset({"", "-1", "NoDevFiles"})


class Runtime(Protocol):
    """The part of ``torch.cuda`` that is used. Classes are typed as Any, as torch's are."""

    @property
    def Event(self) -> Any:  # noqa: N802 - torch's name
        """Class of an event: ``Event(enable_timing=True)``."""
        ...

    @property
    def Stream(self) -> Any:  # noqa: N802 - torch's name
        """Class of a stream: ``Stream(device=0, priority=-1)``."""
        ...

    @property
    def device(self) -> Any:
        """``device(0)``: chooses this thread's device within a block; can be entered again."""
        ...

    @property
    def stream(self) -> Any:
        """``stream(s)``: makes a stream and its device current on this thread within a block."""
        ...

    def is_initialized(self) -> bool:
        """Tell whether this process uses CUDA, and may: False in a forked child."""
        ...

    def current_device(self) -> int:
        """Return the ordinal of this thread's device."""
        ...

    def current_stream(self, device: int | None = None) -> Any:
        """Return this thread's stream on a device; a new object each time, equal to the last."""
        ...

    def is_current_stream_capturing(self) -> bool:
        """Tell whether a graph is being captured from this thread's stream."""
        ...

    def get_device_properties(self, device: int) -> Any:
        """Return an object with ``name`` and ``uuid``."""
        ...

    def device_count(self) -> int:
        """Return how many devices are visible."""
        ...


class VirtualRuntime(Runtime, Protocol):
    """What stands in for the driver as well, where a virtual GPU is installed.

    Attributes:
        tied_to_real_time: Whether its host's clock is the real one.
    """

    tied_to_real_time: bool

    def host_ns(self) -> int:
        """Return the time on the host's clock, ns."""
        ...

    def exchange_capture_mode(self, mode: int) -> int | None:
        """Set the capture mode of this thread and return the one before, None where it stays."""
        ...

    def has_context(self, device: int) -> bool:
        """Tell whether the process has a context on a device."""
        ...


_virtual: VirtualRuntime | None = None


def install(virtual: VirtualRuntime | None) -> None:
    """Put a virtual GPU in the place of torch's runtime, or take it away with None."""
    global _virtual  # noqa: PLW0603 - one runtime a process
    _virtual = virtual


def virtual_runtime() -> VirtualRuntime | None:
    """Return the virtual GPU in use, None where there is none."""
    return _virtual


def runtime() -> Runtime | None:
    """Return the virtual GPU where one is installed, else ``torch.cuda`` where torch is loaded, else None."""
    if _virtual is not None:
        return _virtual
    torch = sys.modules.get("torch")
    # While torch is being imported on another thread, the module is there and the attribute is not.
    return None if torch is None else cast("Runtime | None", getattr(torch, "cuda", None))


def initialised() -> bool:
    """Tell whether CUDA is initialised in this process, without initialising it."""
    found = runtime()
    return found is not None and found.is_initialized()


def rocm_version() -> str | None:
    """Return the version of ROCm that torch is built for; None for a CUDA or CPU build, or without torch."""
    version = getattr(sys.modules.get("torch"), "version", None)
    built_for = getattr(version, "hip", None)
    return None if built_for is None else str(built_for)


def host_clock() -> Callable[[], int]:
    """Return the clock of the host in ns: CLOCK_MONOTONIC, or the virtual GPU's."""
    return time.monotonic_ns if _virtual is None else _virtual.host_ns


def in_real_time() -> bool:
    """Tell whether GPUs run in real time, as all do but virtual ones with a clock of their own."""
    return _virtual is None or _virtual.tied_to_real_time


@functools.cache
def _machine_offers_gpu() -> bool:
    for variable in _VISIBLE_VARIABLES:
        visible = os.environ.get(variable)
        # The driver stops reading at the first invalid entry.
        if visible is not None and visible.split(",")[0].strip() in _NONE_VISIBLE:
            return False
    # /dev/nvidiactl alone is no GPU: containers get it without one.
    return (DEVICE_FILES / "kfd").exists() or any(DEVICE_FILES.glob("nvidia[0-9]*"))


def gpu_expected() -> bool:
    """Tell whether there is a GPU for this process, without touching the driver.

    True as well while a virtual GPU is installed. The answer for the machine is
    kept until ``reset()``.
    """
    return _virtual is not None or _machine_offers_gpu()


@functools.cache
def driver_function(name: str, *, rocm: bool = False) -> Callable[..., int] | None:
    """Return a function of the driver library that this process has loaded already, else None.

    Args:
        name: Symbol in the library.
        rocm: Look in ROCm's library rather than in CUDA's.
    """
    no_load = getattr(os, "RTLD_NOLOAD", None)
    if no_load is None:
        return None
    for library in _ROCM_LIBRARIES if rocm else _CUDA_LIBRARIES:
        try:
            function = getattr(ctypes.CDLL(library, mode=no_load | os.RTLD_LAZY), name)
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_int
        return cast("Callable[..., int]", function)
    return None


def has_context(device: int) -> bool:
    """Tell whether this process has a context on a device; True where that cannot be asked.

    A stream of a device without one must not be asked for anything: the question
    itself would create the context, which takes hundreds of MB on the device.
    """
    if _virtual is not None:
        return _virtual.has_context(device)
    get_state = driver_function("cuDevicePrimaryCtxGetState")
    if get_state is None or rocm_version() is not None:
        return True
    flags, active = ctypes.c_uint(), ctypes.c_int()
    failed = get_state(device, ctypes.byref(flags), ctypes.byref(active))
    return bool(failed) or bool(active.value)


def reset() -> None:
    """Forget what was found out about this machine and the loaded libraries."""
    _machine_offers_gpu.cache_clear()
    driver_function.cache_clear()
