"""Whether SGLang, where it is installed, will be instrumented, and what of it stays unseen."""

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

_GROUP = "sglang.srt.plugins"
_OLDEST, _NEXT = (0, 5, 20), (0, 5, 24)
_YES = frozenset({"1", "true", "yes", "y"})
_VERSION = re.compile(r"__version__ = version = ['\"]([^'\"]+)['\"]")


class Sglang(NamedTuple):
    """The SGLang of this environment.

    Attributes:
        version: Its version, None where it does not say.
        plugged: gputrace is among its plugins.
    """

    version: str | None
    plugged: bool


def read_sglang() -> Sglang | None:
    """Return which SGLang there is, without importing it. None where there is none."""
    found = None
    with suppress(ValueError):
        found = importlib.util.find_spec("sglang")
    if found is None or found.origin is None:
        return None
    version = None
    with suppress(OSError):
        text = (Path(found.origin).parent / "_version.py").read_text(encoding="utf-8")
        told = _VERSION.search(text)
        version = None if told is None else told[1]
    plugins = importlib.metadata.entry_points(group=_GROUP)
    return Sglang(version, any(one.name == PLUGIN for one in plugins))


def sglang_section(sglang: Sglang | None, environment: Mapping[str, str]) -> Section | None:
    """Say what of SGLang is measured.

    Args:
        sglang: What is installed; None where nothing is.
        environment: Variables that a server started here would have.

    Returns:
        The section, None where there is no SGLang.
    """
    if sglang is None:
        return None
    section = Section("sglang", "SGLang")
    section.facts = sglang._asdict()
    _say_version(section, sglang)
    _say_plugin(section, sglang, environment)
    if environment.get("SGLANG_RUST_SERVER", "").lower() in _YES:
        section.warn(
            "SGLANG_RUST_SERVER: its front end runs no plugin, so that steps are measured and all of them "
            "are billed to __none__",
            "serve with the Python front end where features matter",
        )
    section.note(
        "workers of --tokenizer-worker-num above 1 load no plugin: their requests are billed to __none__"
    )
    section.note("several nodes need the same GPUTRACE_BAGGAGE_KEY on each to bill features")
    return section


def _say_version(section: Section, sglang: Sglang) -> None:
    told = re.match(r"(\d+)\.(\d+)\.(\d+)", sglang.version or "")
    if told is not None and _OLDEST <= (int(told[1]), int(told[2]), int(told[3])) < _NEXT:
        section.ok(f"SGLang {sglang.version}")
    else:
        section.warn(
            f"SGLang {sglang.version or 'of unknown version'} is left as it is: 0.5.20 to 0.5.23 are known",
            "upgrade gputrace, or pin sglang",
        )


def _say_plugin(section: Section, sglang: Sglang, environment: Mapping[str, str]) -> None:
    # An empty list allows all.
    allowed = [name.strip() for name in environment.get("SGLANG_PLUGINS", "").split(",") if name.strip()]
    if not sglang.plugged:
        section.warn(
            "gputrace is not among SGLang's plugins: nothing of it is measured",
            "install gputrace into the environment of SGLang, with pip: a path alone has no entry points",
        )
    elif allowed and PLUGIN not in allowed:
        section.warn(
            f"SGLANG_PLUGINS={environment['SGLANG_PLUGINS']} keeps gputrace out of all of SGLang's processes"
            ": nothing is measured, and nothing of it is counted as unmeasured either",
            f"add {PLUGIN} to SGLANG_PLUGINS, or unset it",
        )
    else:
        section.ok("gputrace is loaded by each of its processes")
