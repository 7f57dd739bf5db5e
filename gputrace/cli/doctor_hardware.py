"""Which GPUs the machine shows without any driver: so that a missing driver is told from a missing GPU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gputrace.devices import cuda_runtime

#: Where the kernel shows the PCI bus, in containers too.
BUS = Path("/sys/bus/pci/devices")

_NVIDIA = "0x10de"
#: VGA and 3D controllers.
_GPU_CLASSES = ("0x0300", "0x0302")
#: The namespace that the kernel starts with; its number is in the kernel's headers.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


class Hardware(NamedTuple):
    """GPUs that the machine shows.

    Attributes:
        device_files: NVIDIA's, such as `/dev/nvidia0`: what a process must be able to open.
        on_bus: GPUs of NVIDIA's on the PCI bus, whether this process may use them or not.
        amd: AMD's driver is there.
    """

    device_files: tuple[str, ...]
    on_bus: int
    amd: bool

    @property
    def has_nvidia(self) -> bool:
        """Whether there is any GPU of NVIDIA's."""
        return bool(self.device_files) or self.on_bus > 0


def find_hardware() -> Hardware:
    """Return which GPUs the machine shows."""
    devices = cuda_runtime.DEVICE_FILES
    files = tuple(sorted(str(path) for path in devices.glob("nvidia[0-9]*")))
    on_bus = sum(_is_gpu(entry) for entry in BUS.glob("*"))
    return Hardware(files, on_bus, (devices / "kfd").exists())


def _is_gpu(entry: Path) -> bool:
    with suppress(OSError):
        return (entry / "vendor").read_text().strip() == _NVIDIA and (entry / "class").read_text().startswith(
            _GPU_CLASSES
        )
    return False


def sees_all_processes(namespace: int) -> bool:
    """Tell whether a namespace of process ids is the machine's own, rather than a container's."""
    return namespace == _FIRST_PID_NAMESPACE
