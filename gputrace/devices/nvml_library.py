"""NVML itself: loaded when first needed, opened once a process, and what it answers instead of a value.

Nothing here creates a CUDA context. The binding is imported at the first call;
its absence, like that of the driver, is a state and no error.
"""

from __future__ import annotations

import importlib
import sys
import threading
from dataclasses import dataclass
from typing import Any

#: What the binding calls the codes; the numbers are NVIDIA's and stand for good.
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28
UNKNOWN = 999

#: Codes of our own, outside of NVIDIA's.
NO_BINDING = -1
HANGS = -2
JUNK = -3

#: The driver will never answer: it is not asked again.
PERMANENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED})
#: The library as a whole is gone, and must be opened again.
LIBRARY_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH})
#: The device as a whole is gone.
DEVICE_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})

#: Reason and remedy, for people.
_WORDS = {
    NO_BINDING: ("the Python package nvidia-ml-py cannot be imported", "pip install nvidia-ml-py"),
    HANGS: (
        "a call into the driver does not return",
        "look for Xid errors in `dmesg`; the GPU may have fallen off the bus",
    ),
    JUNK: ("the driver answers what cannot be true", "update the driver"),
    UNINITIALIZED: ("NVML is not initialised", "none needed: it is opened again"),
    NOT_SUPPORTED: ("this device does not offer it", "none: the hardware or its MIG or vGPU mode decides"),
    NO_PERMISSION: (
        "the driver refuses access",
        "run as a user who may open /dev/nvidia*, or in a container that was given the GPU",
    ),
    INSUFFICIENT_SIZE: (
        "there was more to tell than the driver had room for",
        "none needed: it is asked again",
    ),
    DRIVER_NOT_LOADED: ("the NVIDIA driver is not loaded", "load it (`modprobe nvidia`); see `nvidia-smi`"),
    TIMEOUT: ("the driver took too long", "none needed: it is asked again"),
    LIBRARY_NOT_FOUND: (
        "there is no libnvidia-ml.so.1",
        "install the driver; in a container, run it with the NVIDIA toolkit and the `utility` capability",
    ),
    FUNCTION_NOT_FOUND: ("the driver's library does not have this function", "update the driver"),
    GPU_IS_LOST: ("the GPU has fallen off the bus", "look for Xid 79 in `dmesg`; reboot the machine"),
    RESET_REQUIRED: ("the GPU needs a reset", "`nvidia-smi --gpu-reset` once nothing uses it"),
    OPERATING_SYSTEM: ("the operating system blocks the request", "look for a cgroup or security policy"),
    LIB_RM_VERSION_MISMATCH: (
        "the driver's library and its kernel module differ in version",
        "reboot, or reload the nvidia modules; in a container, restart it",
    ),
    NO_DATA: ("the driver has no data", "none needed: it is asked again"),
    ARGUMENT_VERSION_MISMATCH: (
        "the driver does not know this version of the call",
        "update the driver, or install an nvidia-ml-py that matches it",
    ),
    GPU_NOT_FOUND: ("the GPU is not there any more", "look for Xid errors in `dmesg`"),
    UNKNOWN: (
        "the driver answers Unknown Error",
        "in a container this follows `systemctl daemon-reload` on the host: restart the container",
    ),
}


class RefusedError(Exception):
    """NVML answered an error instead of a value.

    Attributes:
        code: NVML's code, or one of our own.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return explain(self.code).reason


@dataclass(frozen=True, slots=True)
class Explanation:
    """An error of NVML in words.

    Attributes:
        reason: What is the matter.
        remedy: What a person can do about it.
    """

    reason: str
    remedy: str


def explain(code: int) -> Explanation:
    """Return an error of NVML in words."""
    words = _WORDS.get(code, (f"the driver answers error {code}", "look it up in nvml.h; see `dmesg`"))
    return Explanation(*words)


def call(name: str, *arguments: object) -> Any:
    """Call a function of the binding.

    Args:
        name: Its name, such as ``nvmlDeviceGetUUID``.
        arguments: What it takes.

    Raises:
        RefusedError: The driver, the library or the binding does not answer.
    """
    try:
        # Typed as Any, since the binding has no types.
        binding: Any = importlib.import_module("pynvml")
        function = getattr(binding, name)
    except ImportError:
        raise RefusedError(NO_BINDING) from None
    except AttributeError:
        raise RefusedError(FUNCTION_NOT_FOUND) from None
    try:
        return function(*arguments)
    except binding.NVMLError as error:
        raise RefusedError(error.value) from None
    except getattr(binding, "NVMLLibraryMismatchError", ()):
        raise RefusedError(FUNCTION_NOT_FOUND) from None
    except (UnicodeDecodeError, MemoryError, OverflowError):
        # What a scrambled struct turns into: text that is none, a buffer of a billion samples.
        raise RefusedError(JUNK) from None


def text(name: str, handle: object) -> str:
    """Call a function that answers a text; some versions of the binding answer bytes.

    Raises:
        RefusedError: It does not answer, or no text.
    """
    answer = call(name, handle)
    if isinstance(answer, bytes):
        answer = answer.decode("utf-8", "replace")
    if not isinstance(answer, str) or not answer.strip():
        raise RefusedError(JUNK)
    return answer.strip()


def handle_of(uuid: str) -> Any:
    """Return the handle of a device.

    Raises:
        RefusedError: The device cannot be found.
    """
    try:
        return call("nvmlDeviceGetHandleByUUID", uuid)
    except TypeError:
        # Some versions of the binding take bytes alone (KeepGPU#187).
        return call("nvmlDeviceGetHandleByUUID", uuid.encode())


class Library:
    """The library as this process has opened it.

    The driver counts how often it was opened, so that other users of NVML in the process are not disturbed.
    A forked child needs one of its own.

    Attributes:
        opened: Whether it is open.
    """

    def __init__(self) -> None:
        self.opened = False
        self._references = 0

    def open(self, *, closing: bool = True) -> None:
        """Open it, again where it says that it is not open any more.

        Args:
            closing: Close it before. Not while another thread is in a call of its own:
                that could take the process down.

        Raises:
            RefusedError: It cannot be opened.
        """
        if closing:
            self.close()
        call("nvmlInitWithFlags", 0)
        self.opened = True
        self._references += 1

    def close(self) -> None:
        """Give back what ``open`` has taken."""
        self.opened = False
        while self._references:
            self._references -= 1
            try:
                call("nvmlShutdown")
            except RefusedError:
                # Gone already, which may be why it is closed.
                continue


def reset() -> None:
    """Make the binding usable in a forked child, whatever the parent's threads were doing in it."""
    binding: Any = sys.modules.get("pynvml")
    if binding is not None and hasattr(binding, "libLoadLock"):
        binding.libLoadLock = threading.Lock()
