"""Whether vLLM, where it is installed, will be instrumented, and what of it stays unseen."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gputrace.cli.doctor_findings import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGIN = "gputrace"

_GROUP = "vllm.general_plugins"
_OLDEST, _NEXT = (0, 12), (0, 34)
#: Before, the executor for Ray compiled a graph, whose steps go past what is wrapped; later only where asked.
_COMPILED_NO_MORE = (0, 26)
_NEWER_RAY = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"
_YES = frozenset({"1", "true"})
_VERSION = re.compile(r"__version__ = version = ['\"]([^'\"]+)['\"]")


class Vllm(NamedTuple):
    """The vLLM of this environment.

    Attributes:
        version: Its version, None where it does not say.
        plugged: gputrace is among its plugins.
        ray: Ray is installed too.
    """

    version: str | None
    plugged: bool
    ray: bool


def read_vllm() -> Vllm | None:
    """Return which vLLM there is, without importing it: that takes seconds. None where there is none."""
    found = None
    with suppress(ValueError):
        found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return None
    version = None
    with suppress(OSError):
        # Not from the metadata: builds for processors and other devices have names of their own.
        text = (Path(found.origin).parent / "_version.py").read_text(encoding="utf-8")
        told = _VERSION.search(text)
        version = None if told is None else told[1]
    plugins = importlib.metadata.entry_points(group=_GROUP)
    return Vllm(
        version,
        any(one.name == PLUGIN for one in plugins),
        importlib.util.find_spec("ray") is not None,
    )


def vllm_section(vllm: Vllm | None, environment: Mapping[str, str]) -> Section | None:
    """Say what of vLLM is measured.

    Args:
        vllm: What is installed; None where nothing is.
        environment: Variables that a server started here would have.

    Returns:
        The section, None where there is no vLLM.
    """
    if vllm is None:
        return None
    section = Section("vllm", "vLLM")
    section.facts = vllm._asdict()
    _say_version(section, vllm)
    _say_plugin(section, vllm, environment)
    if environment.get("VLLM_USE_RUST_FRONTEND", "").lower() in _YES:
        section.warn(
            "VLLM_USE_RUST_FRONTEND: its front end runs no plugin, so that steps are measured and all of "
            "them are billed to __none__",
            "serve with the Python front end where features matter",
        )
    newer = environment.get(_NEWER_RAY, "0" if _number(vllm) < _COMPILED_NO_MORE else "1")
    if vllm.ray and newer == "0":
        section.warn(
            "--distributed-executor-backend ray runs compiled graphs here, whose steps are not measured: "
            "they are counted in gputrace.sdk.unmeasured, and their time is untracked",
            f"{_NEWER_RAY}=1 where the version has it, or the backend mp",
        )
    section.note(
        "front ends on other machines need gputrace and the same GPUTRACE_BAGGAGE_KEY to bill features"
    )
    return section


def _number(vllm: Vllm) -> tuple[int, int]:
    told = re.match(r"(\d+)\.(\d+)", vllm.version or "")
    return (0, 0) if told is None else (int(told[1]), int(told[2]))


def _say_version(section: Section, vllm: Vllm) -> None:
    if vllm.version is None or _OLDEST <= _number(vllm) < _NEXT:
        section.ok(f"vLLM {vllm.version or 'of unknown version'}")
    else:
        section.warn(
            f"vLLM {vllm.version} is left as it is: 0.12 to 0.33 are known",
            "upgrade gputrace, or pin vllm",
        )


def _say_plugin(section: Section, vllm: Vllm, environment: Mapping[str, str]) -> None:
    allowed = environment.get("VLLM_PLUGINS")
    if not vllm.plugged:
        section.warn(
            "gputrace is not among vLLM's plugins: nothing of it is measured",
            "install gputrace into the environment of vLLM, with pip: a path alone has no entry points",
        )
    elif allowed is not None and PLUGIN not in allowed.split(","):
        section.warn(
            f"VLLM_PLUGINS={allowed} keeps gputrace out of all of vLLM's processes: nothing is measured, and "
            "nothing of it is counted as unmeasured either",
            f"add {PLUGIN} to VLLM_PLUGINS, or unset it",
        )
    else:
        section.ok("gputrace is loaded by each of its processes")
