"""Whether other processes on the devices can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gputrace.cli.doctor_devices import device_label
from gputrace.cli.doctor_findings import Section
from gputrace.cli.doctor_hardware import sees_all_processes
from gputrace.node_folder import pid_namespace

if TYPE_CHECKING:
    from gputrace.cli.doctor_apart import Answer
    from gputrace.cli.doctor_nvml import Look, Seen

#: The driver itself takes some hundred MB of a device that nobody uses.
_USED_BY_SOMEBODY_BYTES = 2 << 30


def processes_section(nvml: Answer) -> Section | None:
    """Say which processes the driver shows on each device; `None` where there is no device.

    Args:
        nvml: A `Look`, or why there is none.
    """
    look: Look | None = nvml.value
    if look is None or not look.state.devices:
        return None
    section = Section("processes", "Other processes on the devices")
    section.facts["processes"] = {uuid: list(seen.pids) for uuid, seen in look.processes.items()}
    if not look.processes:
        section.warn("not asked for: no device answers, or a call into the driver hangs")
    for state in look.state.devices:
        if state.device is not None and not state.device.sliced and state.device.uuid in look.processes:
            measured = look.measured.get(state.device.uuid)
            used = 0 if measured is None else measured.memory_used_bytes or 0
            _say(section, device_label(state), look.processes[state.device.uuid], used)
    if not sees_all_processes(pid_namespace()):
        section.note(
            "this is a container with process ids of its own: the driver's ids are those of the host, "
            "and processes of other containers may be invisible",
            "where it matters, run `gputrace doctor` on the host too (`hostPID: true` in Kubernetes)",
        )
    return section


def _say(section: Section, label: str, seen: Seen, used_bytes: int) -> None:
    if seen.refusal is not None:
        section.warn(f"{label}: no list of processes: {seen.refusal.reason}", seen.refusal.remedy)
    elif seen.pids:
        shown = ", ".join(f"{pid} ({_name(pid)})" for pid in seen.pids)
        section.ok(f"{label}: the driver shows {len(seen.pids)} process(es): {shown}")
    elif used_bytes > _USED_BY_SOMEBODY_BYTES:
        section.warn(
            f"{label}: the driver shows no process, though {used_bytes / 2**30:.1f} GiB of it are in use: "
            "whoever uses it is invisible here; their time is untracked",
        )
    else:
        section.ok(f"{label}: no process uses it")
    if seen.activity_refusal is not None:
        section.note(
            f"{label}: which process keeps it busy is not told: {seen.activity_refusal.reason}",
            seen.activity_refusal.remedy,
        )


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "not visible from here"
