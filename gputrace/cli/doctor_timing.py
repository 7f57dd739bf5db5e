"""Which devices CUDA shows a program here, which of NVML's they are, and whether calls can be timed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputrace.cli.doctor_devices import device_label
from gputrace.cli.doctor_findings import Section
from gputrace.devices import cuda_runtime
from gputrace.devices.host import processor_name
from gputrace.devices.visible import VISIBLE_VARIABLE, Visible, read, visible

if TYPE_CHECKING:
    from gputrace.cli.doctor_apart import Answer
    from gputrace.cli.doctor_cuda import Census
    from gputrace.cli.doctor_hardware import Hardware
    from gputrace.cli.doctor_nvml import Look
    from gputrace.cli.doctor_torch import Torch
    from gputrace.devices.nvml import DeviceState

_HIDDEN = frozenset({"", "-1", "NoDevFiles"})
_TORCH = 'pip install "gputrace[torch]", or run doctor in the environment of your program'


def timing_section(nvml: Answer, cuda: Answer, torch: Torch, hardware: Hardware) -> Section:
    """Say how calls are timed here.

    Args:
        nvml: A `Look`, or why there is none.
        cuda: A `Census`, or why there is none.
        torch: The torch of this environment.
        hardware: The GPUs that the machine shows.
    """
    section = Section("timing", "Timing, on the devices that CUDA shows a program here")
    look: Look | None = nvml.value
    states = () if look is None else look.state.devices
    section.facts = {"timed_on": None, "cuda": [], "visible_devices": os.environ.get(VISIBLE_VARIABLE)}
    if is_hidden():
        section.warn(
            f"{VISIBLE_VARIABLE}={os.environ[VISIBLE_VARIABLE]} hides every GPU: "
            f"calls are charged by wall time of the host ({processor_name()})",
            f"unset {VISIBLE_VARIABLE} where the program uses a GPU",
        )
        section.facts["timed_on"] = "host"
    elif states or hardware.has_nvidia or hardware.amd:
        _say_gpu(section, states, cuda, torch, hardware)
    else:
        section.ok(
            f"the process stands in as the device: calls are charged by wall time on {processor_name()}"
        )
        section.facts["timed_on"] = "host"
    return section


def is_hidden() -> bool:
    """Tell whether the environment takes every GPU away from this process."""
    given = os.environ.get(VISIBLE_VARIABLE)
    return given is not None and given.split(",")[0].strip() in _HIDDEN


def _say_gpu(
    section: Section, states: tuple[DeviceState, ...], cuda: Answer, torch: Torch, hardware: Hardware
) -> None:
    works = _say_torch(section, torch)
    if not hardware.amd:
        works = _say_cuda(section, cuda) and works
        works = _say_map(section, states, cuda.value) and works
    if states and not cuda_runtime.gpu_expected():
        section.fail(
            f"there is no {cuda_runtime.DEVICE_FILES / 'nvidia0'} or the like, so that gputrace takes this "
            "for a machine without a GPU, and charges calls by wall time of the host",
            "give this process or container the GPU's device files",
        )
        section.facts["timed_on"] = "host"
    elif works:
        section.facts["timed_on"] = "gpu"
        section.ok("calls are timed with CUDA events on torch's streams")


def _say_torch(section: Section, torch: Torch) -> bool:
    if torch.version is None:
        section.fail("there is no torch here, whose CUDA events time calls on a GPU", _TORCH)
    elif torch.problem is not None:
        section.fail(f"torch {torch.version}: {torch.problem}", _TORCH)
    elif torch.built_for is None:
        section.fail(f"torch {torch.version} is built for processors alone: it uses no GPU", _TORCH)
    elif torch.devices == 0:
        section.fail(
            f"torch {torch.version} ({torch.built_for}) counts no device", "see below, and `nvidia-smi`"
        )
    else:
        counts = "" if torch.devices is None else f", counts {torch.devices} device(s)"
        section.ok(f"torch {torch.version}, built for {torch.built_for}{counts}")
        return True
    return False


def _say_cuda(section: Section, cuda: Answer) -> bool:
    census: Census | None = cuda.value
    if census is None:
        section.fail(f"CUDA: {cuda.problem}", "look for Xid errors in `dmesg`; see `nvidia-smi`")
        return False
    if census.trouble is not None:
        section.fail(f"CUDA does not work: {census.trouble.reason}", census.trouble.remedy)
        return False
    return True


def _say_map(section: Section, states: tuple[DeviceState, ...], census: Census | None) -> bool:
    """Say which ordinal is which device, and return whether calls can be timed on any."""
    known = {state.device.uuid: state for state in states if state.device is not None}
    devices = [state.device for state in known.values() if state.device is not None]
    uuids = None if census is None else census.uuids
    found: Visible = read(devices) if uuids is None else visible(devices, os.environ, uuids)
    if uuids is not None and not devices:
        # Nothing to compare with: NVML shows none, and its own section says why.
        found = Visible(found.devices)
    for one in found.devices:
        state = known.get(one.uuid)
        label = "" if state is None else f"{device_label(state)}, "
        guess = "" if one.certain else ", as far as can be told without CUDA"
        section.ok(f"cuda:{one.ordinal} is {label}{one.uuid}{guess}")
    for note in found.notes:
        section.warn(note)
    # What CUDA left out is told by the list alone.
    named = () if uuids is None else visible(devices, os.environ).notes
    for note in named if devices else ():
        if note.startswith(VISIBLE_VARIABLE):
            section.warn(note)
    section.facts["cuda"] = [
        {"ordinal": one.ordinal, "uuid": one.uuid, "certain": one.certain} for one in found.devices
    ]
    _say_unseen(section, states, found)
    lost = [one for one in found.devices if one.uuid in known and known[one.uuid].trouble is not None]
    if not found.devices:
        section.fail("CUDA shows this process no GPU", f"see {VISIBLE_VARIABLE}, and `nvidia-smi -L`")
    elif len(lost) == len(found.devices):
        section.fail("none of the GPUs that CUDA shows can be read", "see the devices above")
    return len(lost) < len(found.devices)


def _say_unseen(section: Section, states: tuple[DeviceState, ...], found: Visible) -> None:
    parents = {state.device.parent for state in states if state.device is not None}
    for state in states:
        device = state.device
        if device is None:
            section.note(
                f"which ordinal {device_label(state)} has is not known, since it does not tell who it is"
            )
        elif device.uuid not in found.uuids and device.uuid not in parents and not device.sliced:
            section.note(f"{device_label(state)} is not among those that CUDA shows this process")
