"""Versions of what takes part."""

from __future__ import annotations

import importlib.metadata
import platform
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gputrace.cli.doctor_findings import Section

if TYPE_CHECKING:
    from gputrace.cli.doctor_apart import Answer
    from gputrace.cli.doctor_nvml import Look
    from gputrace.cli.doctor_torch import Torch

_DISTRIBUTIONS = (
    "gputrace",
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
    "nvidia-ml-py",
    "duckdb",
    "fastapi",
    "ray",
)
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


def versions_section(nvml: Answer, torch: Torch) -> Section:
    """Say which versions there are.

    Args:
        nvml: A `Look`, or why there is none.
        torch: The torch of this environment.
    """
    section = Section("versions", "Versions")
    look: Look | None = nvml.value
    found = {"Python": platform.python_version(), **{name: _version(name) for name in _DISTRIBUTIONS}}
    found["torch"] = torch.version
    found["NVIDIA driver"] = None if look is None else look.driver
    with suppress(OSError):
        # Told by the kernel, even where the library of another version refuses to talk to it.
        found["NVIDIA kernel module"] = _KERNEL_MODULE.read_text(encoding="utf-8").splitlines()[0].strip()
    section.facts = {"versions": found}
    section.ok(", ".join(f"{name} {version}" for name, version in found.items() if version is not None))
    section.ok(f"on {platform.platform()}")
    if _version("pynvml") is not None:
        section.warn(
            "the deprecated distribution pynvml is installed as well, and brings the module of nvidia-ml-py",
            "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
        )
    return section


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
