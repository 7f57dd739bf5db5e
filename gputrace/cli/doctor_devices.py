"""What can be read of each device, what cannot, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gputrace.cli.doctor_findings import Finding, Level, Section
from gputrace.cli.doctor_nvml import Measured
from gputrace.devices import nvml_library

if TYPE_CHECKING:
    from gputrace.cli.doctor_apart import Answer
    from gputrace.cli.doctor_hardware import Hardware
    from gputrace.cli.doctor_nvml import Look
    from gputrace.devices.nvml import DeviceState
    from gputrace.devices.nvml_library import Explanation

#: What each of the driver's answers serves, and what is amiss without it.
_SERVES = {
    "utilisation samples": "busy",
    "utilisation rate": "busy",
    "energy counter": "energy",
    "power at this instant": "power",
    "power": "power",
    "memory": "memory",
    "temperature": "temperature",
}
_AMISS = {"busy": "; its untracked and idle time stay unknown", "energy": "; it has no energy"}
_UNSUPPORTED = nvml_library.explain(nvml_library.NOT_SUPPORTED)


def devices_section(answer: Answer, hardware: Hardware) -> Section:
    """Say what NVML answers.

    Args:
        answer: A `Look`, or why there is none.
        hardware: The GPUs that the machine shows.
    """
    section = Section("devices", "Devices, as the driver's management library (NVML) shows them")
    look: Look | None = answer.value
    states = () if look is None else look.state.devices
    section.facts = {
        "nvml_up": look is not None and look.state.up,
        "devices": [_facts(state, look) for state in states],
        "hardware": hardware._asdict(),
    }
    if look is None:
        section.fail(f"NVML: {answer.problem}", "look for Xid errors in `dmesg`")
    elif look.state.trouble is not None:
        _say_trouble(section, look.state.trouble, hardware)
    elif not states:
        _say_none(section, hardware)
    for state in states:
        _say_device(section, state, look)
    if states and not any(state.trouble is None for state in states):
        section.fail("no device can be read", "see above, and `nvidia-smi`")
    return section


def device_label(state: DeviceState) -> str:
    """Return what people call a device."""
    device = state.device
    if device is None or device.parent is None:
        return f"GPU {state.index}"
    return f"GPU {state.index}, slice {device.gpu_instance}/{device.compute_instance}"


def _say_trouble(section: Section, trouble: Explanation, hardware: Hardware) -> None:
    absent = [
        nvml_library.explain(code)
        for code in (
            nvml_library.NO_BINDING,
            nvml_library.LIBRARY_NOT_FOUND,
            nvml_library.DRIVER_NOT_LOADED,
        )
    ]
    text = f"NVML does not answer: {trouble.reason}"
    if trouble not in absent or hardware.device_files:
        section.fail(f"{text}; untracked and idle time stay unknown", trouble.remedy)
    elif hardware.on_bus:
        section.fail(f"{text}, though {hardware.on_bus} of NVIDIA's GPUs are in this machine", trouble.remedy)
    elif hardware.amd:
        section.warn(
            f"{text}: the GPUs are AMD's, of which untracked and idle time stay unknown; calls are timed"
        )
    else:
        section.ok(f"there is no GPU on this machine ({trouble.reason})")


def _say_none(section: Section, hardware: Hardware) -> None:
    if hardware.has_nvidia:
        section.fail(
            "NVML answers and shows no device, though there are GPUs in this machine",
            "in a container, give it the GPU (NVIDIA_VISIBLE_DEVICES, `--gpus`)",
        )
    else:
        section.ok("there is no GPU on this machine (NVML answers and shows none)")


def _say_device(section: Section, state: DeviceState, look: Look | None) -> None:
    label = device_label(state)
    if state.device is None:
        reason = "" if state.trouble is None else f": {state.trouble.reason}"
        section.warn(
            f"{label} does not tell who it is{reason}",
            None if state.trouble is None else state.trouble.remedy,
        )
        return
    name = f"{label}: {state.device.name or 'no name'}, {state.device.uuid}"
    if state.trouble is not None:
        section.warn(f"{name}: cannot be read: {state.trouble.reason}", state.trouble.remedy)
        return
    measured = _measured(state, look)
    sources = _sources(measured)
    kind = ", cut into slices" if state.device.sliced else ""
    section.ok(f"{name}{kind}; reads {', '.join(sources.values()) or 'nothing'}")
    _say_missing(section, state, sources)
    if "busy" not in sources and not state.missing.keys() & {"utilisation samples", "utilisation rate"}:
        section.warn(f"{label}: the driver told nothing of how busy it was while doctor looked on")


def _say_missing(section: Section, state: DeviceState, sources: dict[str, str]) -> None:
    """Say what cannot be read, in one line for all that have the same reason and consequence."""
    alike: dict[tuple[Explanation, Level, str], list[str]] = {}
    for quantity, why in state.missing.items():
        alike.setdefault((why, *_consequence(state, quantity, why, sources)), []).append(quantity)
    for (why, level, consequence), quantities in alike.items():
        text = f"{device_label(state)}: no {', no '.join(quantities)}: {why.reason}{consequence}"
        section.findings.append(Finding(level, text, why.remedy))


def _consequence(
    state: DeviceState, quantity: str, why: Explanation, sources: dict[str, str]
) -> tuple[Level, str]:
    """Return how bad it is that a quantity is missing, and what follows."""
    serves = _SERVES.get(quantity)
    if serves is None:
        return Level.NOTE, ""
    if serves in sources:
        return Level.NOTE, f"; {sources[serves]} serves instead"
    if state.device is not None and state.device.sliced:
        return Level.NOTE, "; its slices are what is used"
    # Of what the hardware does not offer, only this takes a column out of every report.
    expected = why == _UNSUPPORTED and serves != "busy"
    return Level.NOTE if expected else Level.WARNING, _AMISS.get(serves, "")


def _measured(state: DeviceState, look: Look | None) -> Measured:
    if look is None or state.device is None:
        return Measured()
    return look.measured.get(state.device.uuid) or Measured()


def _sources(measured: Measured) -> dict[str, str]:
    """Return what was read, in words, by what it serves."""
    found: dict[str, str] = {}
    if measured.busy_source is not None:
        how = "from samples" if measured.busy_source == "samples" else "from the coarser rate"
        found["busy"] = f"busy time ({how})"
    if measured.energy_source is not None:
        how = "from the counter" if measured.energy_source == "counter" else "from power"
        found["energy"] = f"energy ({how})"
    if measured.power_w is not None:
        found["power"] = f"power ({measured.power_w:.0f} W)"
    if measured.memory_used_bytes is not None:
        found["memory"] = f"memory ({measured.memory_used_bytes / 2**30:.1f} GiB in use)"
    if measured.temperature_c is not None:
        found["temperature"] = f"temperature ({measured.temperature_c:.0f} °C)"
    return found


def _facts(state: DeviceState, look: Look | None) -> dict[str, Any]:
    identity = {} if state.device is None else asdict(state.device)
    return {
        "index": state.index,
        "uuid": None,
        **identity,
        "trouble": None if state.trouble is None else asdict(state.trouble),
        "missing": {name: asdict(why) for name, why in state.missing.items()},
        "measured": asdict(_measured(state, look)),
    }
