"""`gputrace doctor`: what this machine can measure, what it cannot, and why."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.cli.doctor_apart import Answer, Job
    from gputrace.cli.doctor_findings import Section
    from gputrace.cli.doctor_hardware import Hardware
    from gputrace.cli.doctor_nvml import Look
    from gputrace.cli.doctor_prices import Priced
    from gputrace.cli.doctor_torch import Torch
    from gputrace.settings import Settings

_PATIENCE_S = 5.0
#: Of what asks many things one after another.
_MANY = 4
#: Of the file system, and of a long read.
_LONG_S = 20.0
_TORCH_S = 120.0
_SOMETHING_AMISS = 1


def add_parser(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "doctor",
        help="what this machine can measure, what it cannot, and why",
        description="Asks the drivers, the price book, the receivers and the node what gputrace can measure "
        "here, and says why it cannot measure the rest. It makes no CUDA context and ends within seconds, "
        "whatever hangs. The exit status is 0 when the essentials work, else 1: the GPUs can be "
        "read and calls timed, or there is no GPU; prices can be read; telemetry arrives somewhere.",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="folder or file of earlier runs (default: GPUTRACE_DATA_DIR)",
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="as given to configure(): base URL of an OTLP/HTTP receiver"
    )
    parser.add_argument("--prices", type=Path, metavar="FILE", help="as given to configure(): the price book")
    parser.add_argument("--torch", action="store_true", help="import torch too, which takes seconds")
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=_PATIENCE_S,
        metavar="S",
        help="how long a driver or a receiver may take to answer, seconds (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; 1 where an essential does not work."""
    from gputrace.cli.doctor_findings import as_json, as_text, failures

    sections = _examine(arguments)
    if arguments.json:
        print(json.dumps(as_json(sections), indent=2, allow_nan=False))
    else:
        print(as_text(sections))
    return _SOMETHING_AMISS if failures(sections) else 0


def _examine(arguments: argparse.Namespace) -> list[Section]:
    from gputrace import settings
    from gputrace.cli.doctor_apart import run_apart
    from gputrace.cli.doctor_findings import Section

    chosen: Settings | None = None
    wrong = Section("settings", "Settings")
    try:
        chosen = settings.read(endpoint=arguments.endpoint)
    except settings.SettingError as error:
        wrong.fail(str(error))
    data = _data_folder(arguments.data, chosen)
    answers = run_apart(_jobs(arguments, chosen, data))
    sections = [*_device_sections(answers, arguments), *_other_sections(answers, chosen, data)]
    if chosen is None:
        sections.insert(0, wrong)
    _raise_faults(answers)
    return sections


def _data_folder(given: Path | None, chosen: Settings | None) -> Path | None:
    """Return where earlier runs may have left files, `None` where there are none."""
    if given is not None:
        return given
    if chosen is None or chosen.data_directory is None or not Path(chosen.data_directory).exists():
        return None
    return Path(chosen.data_directory)


def _jobs(arguments: argparse.Namespace, chosen: Settings | None, data: Path | None) -> list[Job]:
    from gputrace.cli import (
        doctor_busy,
        doctor_cuda,
        doctor_exporters,
        doctor_node,
        doctor_nvml,
        doctor_torch,
    )
    from gputrace.cli.doctor_apart import Job
    from gputrace.exporters.probe import METRICS, SPANS

    patience_s: float = arguments.patience
    # What asks in one go has a little longer than its own patience, and so says itself what hangs.
    jobs = [
        Job("nvml", partial(doctor_nvml.look, patience_s), _MANY * patience_s + _LONG_S / 2),
        Job("cuda", doctor_cuda.take_census, 2 * patience_s),
        Job("node", doctor_node.look_around, patience_s),
    ]
    if arguments.torch:
        jobs.append(Job("torch", doctor_torch.import_torch, _TORCH_S))
    if data is not None:
        jobs.append(Job("busy", partial(doctor_busy.read_alones, data), _LONG_S))
    if chosen is None or chosen.disabled:
        return jobs
    if chosen.data_directory is not None:
        folder = Path(chosen.data_directory).absolute()
        jobs.append(Job("folder", partial(doctor_exporters.try_folder, folder), patience_s))
    for signal, is_sent in ((SPANS, chosen.sends_spans), (METRICS, chosen.sends_metrics)):
        if is_sent:
            ask = partial(doctor_exporters.try_receiver, signal, chosen.endpoint, patience_s)
            jobs.append(Job(signal, ask, 2 * patience_s + 1))
    return jobs


def _device_sections(answers: dict[str, Answer], arguments: argparse.Namespace) -> list[Section]:
    from gputrace.cli.doctor_apart import Job, run_apart
    from gputrace.cli.doctor_devices import devices_section
    from gputrace.cli.doctor_hardware import find_hardware
    from gputrace.cli.doctor_prices import prices_section
    from gputrace.cli.doctor_processes import processes_section
    from gputrace.cli.doctor_timing import timing_section
    from gputrace.cli.doctor_torch import read_torch
    from gputrace.cli.doctor_versions import versions_section

    hardware = find_hardware()
    torch = read_torch()
    if "torch" in answers:
        found: Torch | None = answers["torch"].value
        torch = found or torch._replace(problem=answers["torch"].problem)
    nvml = answers["nvml"]
    ask = partial(prices_section, arguments.prices, _priced(nvml.value, hardware))
    prices = run_apart([Job("prices", ask, arguments.patience)])["prices"]
    answers["prices"] = prices
    sections = [
        versions_section(nvml, torch),
        devices_section(nvml, hardware),
        timing_section(nvml, answers["cuda"], torch, hardware),
        processes_section(nvml),
        prices.value or _unanswered("prices", "Prices", prices),
    ]
    return [section for section in sections if section is not None]


def _other_sections(answers: dict[str, Answer], chosen: Settings | None, data: Path | None) -> list[Section]:
    from gputrace.cli.doctor_apart import Answer
    from gputrace.cli.doctor_busy import busy_section
    from gputrace.cli.doctor_exporters import exporters_section
    from gputrace.cli.doctor_node import node_section
    from gputrace.cli.doctor_sglang import read_sglang, sglang_section
    from gputrace.cli.doctor_vllm import read_vllm, vllm_section

    sections = [] if chosen is None else [exporters_section(chosen, answers)]
    sections += [node_section(answers["node"]), busy_section(data, answers.get("busy", Answer()))]
    servers = (vllm_section(read_vllm(), os.environ), sglang_section(read_sglang(), os.environ))
    return [*sections, *(one for one in servers if one is not None)]


def _priced(look: Look | None, hardware: Hardware) -> Sequence[Priced]:
    """Return what is charged here: the GPUs, the slices of one that is cut, or the process itself."""
    from gputrace.cli.doctor_devices import device_label
    from gputrace.cli.doctor_prices import Priced
    from gputrace.cli.doctor_timing import is_hidden
    from gputrace.devices.host import HostDevice

    found = [
        Priced(device_label(state), state.device.uuid, state.device.name, "gpu")
        for state in (() if look is None else look.state.devices)
        if state.device is not None and not state.device.sliced
    ]
    if not is_hidden() and (found or hardware.has_nvidia or hardware.amd):
        return found
    host = HostDevice()
    return [Priced("the process on the host", host.id, host.name, host.type)]


def _unanswered(name: str, title: str, answer: Answer) -> Section:
    from gputrace.cli.doctor_findings import Section

    section = Section(name, title)
    section.fail(f"{answer.problem}")
    return section


def _raise_faults(answers: dict[str, Answer]) -> None:
    """Log what went wrong in doctor itself; in gputrace's own tests, fail."""
    from gputrace import faults
    from gputrace.cli.doctor_apart import CheckFailedError

    for name, answer in answers.items():
        with faults.contained(f"check {name}"):
            if answer.fault is not None:
                raise CheckFailedError(answer.fault)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value
