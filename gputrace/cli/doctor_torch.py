"""The torch of this environment: read from its files, or imported where that is asked for."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_BUILT_FOR = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


class Torch(NamedTuple):
    """The torch that a program in this environment gets.

    Attributes:
        version: Its version; `None` where there is no torch.
        built_for: `cuda` or `hip` and the version of that; `None` for a build for processors alone.
        devices: How many devices it counts; `None` where it was not imported.
        problem: Why it cannot be imported.
    """

    version: str | None = None
    built_for: str | None = None
    devices: int | None = None
    problem: str | None = None


def read_torch() -> Torch:
    """Return which torch there is, without importing it: that takes seconds."""
    try:
        found = importlib.util.find_spec("torch")
    except ValueError:
        # It stands among the loaded modules and nobody knows from where.
        found = None
    if found is None or found.origin is None:
        return Torch()
    version = "of unknown version"
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("torch")
    text = ""
    with suppress(OSError):
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    built_for = _BUILT_FOR.search(text)
    return Torch(version, None if built_for is None else f"{built_for[1]} {built_for[2]}")


def import_torch() -> Torch:
    """Return what torch itself says. It counts devices without a context, in a process of its own."""
    # Else counting initialises CUDA.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    found = read_torch()
    try:
        torch: Any = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return found._replace(problem=f"it cannot be imported: {error}")
    version = torch.version
    built_for = next(
        (f"{kind} {one}" for kind in ("cuda", "hip") if (one := getattr(version, kind, None))), None
    )
    return Torch(str(torch.__version__), built_for, int(torch.cuda.device_count()))
