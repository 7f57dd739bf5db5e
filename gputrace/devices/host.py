"""The host stand-in: without a GPU the process itself is the device.

Its time is charged while tracked code runs; it is untracked while the process
used its CPU beyond that, and idle for the rest. Never mixed with GPU time.
"""

from __future__ import annotations

import platform
from pathlib import Path
from time import process_time_ns

from gputrace import identity


class HostDevice:
    """This process as a device of type ``cpu``.

    Attributes:
        id: ``<host>/<service.instance.id>``: each process is a device of its own.
        type: ``cpu``.
        name: Model of the processor.
        source: ``host``.
    """

    def __init__(self) -> None:
        self.id = f"{identity.host_name()}/{identity.instance_id()}"
        self.type = "cpu"
        self.name: str | None = processor_name()
        self.source = "host"

    def cpu_time_ns(self) -> int:
        """Return the CPU time of all threads of this process so far, ns."""
        return process_time_ns()


def processor_name() -> str | None:
    """Return the model name of the processor, None where it is not told."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None
