"""Which processes use a device, as far as the driver can be believed. For ``doctor``: it takes milliseconds.

The driver names processes by their ids on the host; in a container these mean
nothing, or somebody else. It fills arrays with junk on some versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputrace.devices import nvml_library
from gputrace.devices.nvml_library import (
    ARGUMENT_VERSION_MISMATCH,
    INSUFFICIENT_SIZE,
    JUNK,
    NOT_FOUND,
    RefusedError,
)
from gputrace.devices.nvml_samples import AHEAD_US

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The kernel's PID_MAX_LIMIT.
_LARGEST_PID = 1 << 22
_WHOLE = 100
#: The driver is asked for the size first: processes that began in between may not fit (go-nvml#11).
_TRIES = 3
#: The kernel's PROC_PID_INIT_INO: the namespace of processes that the whole machine begins with.
_HOST_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """What a process did on a device.

    Attributes:
        pid: Its id on the host.
        since_us: Begin of the time that the figure is about, µs on the wall clock: that of the last look,
            since each process has instants of its own.
        until_us: End of that time.
        percent: How much of that time it kept the device busy.
    """

    pid: int
    since_us: int
    until_us: int
    percent: int


def activity(handle: Any, last_seen_us: int, now_us: int) -> list[ProcessActivity]:
    """Return which processes were active since a moment.

    Args:
        handle: NVML's handle of the device.
        last_seen_us: That moment, µs on the wall clock.
        now_us: The present.

    Returns:
        Empty where none was.

    Raises:
        RefusedError: It cannot be told: on slices, without permission, or since all that came was junk.
    """
    try:
        samples = _call("nvmlDeviceGetProcessUtilization", handle, last_seen_us)
    except RefusedError as error:
        if error.code == NOT_FOUND:
            return []
        raise
    latest: dict[int, ProcessActivity] = {}
    for sample in sorted(samples, key=lambda sample: sample.timeStamp):
        pid, at_us, percent = int(sample.pid), int(sample.timeStamp), int(sample.smUtil)
        plausible = 0 < pid <= _LARGEST_PID and percent <= _WHOLE
        if plausible and last_seen_us < at_us <= now_us + AHEAD_US:
            latest[pid] = ProcessActivity(pid, last_seen_us, at_us, percent)
    if samples and not latest:
        raise RefusedError(JUNK)
    return sorted(latest.values(), key=lambda one: one.pid)


def running(handle: Any) -> list[int]:
    """Return the ids, on the host, of the processes that have a context on the device.

    Raises:
        RefusedError: It cannot be told, or what came is scrambled.
    """
    found = _call("nvmlDeviceGetComputeRunningProcesses", handle)
    if len(found) > 1 and hasattr(found[0], "usedGpuCcProtectedMemory"):
        # The struct of driver 535.43 alone, which nvidia-ml-py 12.535 gives to every driver: beyond the first
        # process it reads beside the mark, and some of what it reads there looks like an id.
        raise RefusedError(ARGUMENT_VERSION_MISMATCH)
    pids = [int(one.pid) for one in found]
    if any(not 0 < pid <= _LARGEST_PID for pid in pids):
        # An array of another version of the struct: not one of them can be believed (nvitop#75).
        raise RefusedError(JUNK)
    return pids


def _call(name: str, *arguments: object) -> Any:
    """Call a function that answers a list, again where the list has grown since its size was asked for."""
    for _ in range(_TRIES - 1):
        try:
            return nvml_library.call(name, *arguments)
        except RefusedError as error:
            if error.code != INSUFFICIENT_SIZE:
                raise
    return nvml_library.call(name, *arguments)


def host_pid(status: str | None = None, namespace: str | None = None) -> int | None:
    """Return the id of this process on the host, None where that cannot be known.

    Args:
        status: What stands in ``/proc/self/status``.
        namespace: Where ``/proc/self/ns/pid`` leads.

    Returns:
        The id in the outermost namespace that is visible. In a container only the inner one
        is: that id means nothing to the driver, or some other process.
    """
    try:
        if status is None:
            status = Path("/proc/self/status").read_text(encoding="utf-8")
        if namespace is None:
            namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        if name == "NSpid":
            ids = [int(one) for one in rest.split()]
            return ids[0] if ids and (len(ids) > 1 or namespace == _HOST_NAMESPACE) else None
    return None


def own_activity(seen: Iterable[ProcessActivity], pid: int | None) -> int | None:
    """Return the percent that this process kept a device busy; None, never 0, where it is not among them."""
    return next((one.percent for one in seen if one.pid == pid), None)
