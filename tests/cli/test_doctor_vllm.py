"""`gputrace doctor` on vLLM: whether it is instrumented, and what of it stays unseen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from gputrace.cli.doctor_findings import Level, Section
from gputrace.cli.doctor_vllm import Vllm, read_vllm, vllm_section

if TYPE_CHECKING:
    from pathlib import Path

WELL = Vllm("0.33.0", plugged=True, ray=False)


def said(vllm: Vllm, **environment: str) -> Section:
    section = vllm_section(vllm, environment)
    assert section is not None
    return section


def warnings(section: Section) -> list[str]:
    return [one.text for one in section.findings if one.level is Level.WARNING]


def test_without_vllm_nothing_is_said() -> None:
    assert vllm_section(None, {}) is None


def test_all_is_well() -> None:
    section = said(WELL)
    assert warnings(section) == []
    assert section.facts == {"version": "0.33.0", "plugged": True, "ray": False}
    assert "gputrace is loaded by each of its processes" in [one.text for one in section.findings]


@pytest.mark.parametrize(
    ("vllm", "environment", "told"),
    [
        (WELL._replace(version="0.34.1"), {}, "vLLM 0.34.1 is left as it is"),
        (WELL._replace(version="0.11.2"), {}, "vLLM 0.11.2 is left as it is"),
        (WELL._replace(plugged=False), {}, "gputrace is not among vLLM's plugins"),
        (WELL, {"VLLM_PLUGINS": "lora"}, "VLLM_PLUGINS=lora keeps gputrace out"),
        (WELL, {"VLLM_PLUGINS": ""}, "VLLM_PLUGINS= keeps gputrace out"),
        (WELL, {"VLLM_USE_RUST_FRONTEND": "1"}, "VLLM_USE_RUST_FRONTEND"),
        (WELL._replace(version="0.20.0", ray=True), {}, "compiled graphs"),
        (WELL._replace(ray=True), {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0"}, "compiled graphs"),
    ],
)
def test_what_is_lost_is_said(vllm: Vllm, environment: dict[str, str], told: str) -> None:
    (line,) = warnings(said(vllm, **environment))
    assert told in line


@pytest.mark.parametrize(
    ("vllm", "environment"),
    [
        (WELL, {"VLLM_PLUGINS": "lora,gputrace"}),
        (WELL, {"VLLM_USE_RUST_FRONTEND": "0"}),
        (WELL._replace(version="0.12.0"), {}),
        (WELL._replace(version=None), {}),
        (WELL._replace(ray=True), {}),
        (WELL._replace(version="0.20.0", ray=True), {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"}),
    ],
)
def test_what_is_not_lost_is_not_said(vllm: Vllm, environment: dict[str, str]) -> None:
    assert warnings(said(vllm, **environment)) == []


def test_it_is_read_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "vllm"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (folder / "_version.py").write_text("__version__ = version = '0.31.4'\n")
    plugin = tmp_path / "some-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[vllm.general_plugins]\ngputrace = gputrace:it\n")
    found: Any = read_vllm()
    assert (found.version, found.plugged) == ("0.31.4", True)


def test_the_command_says_it(machine: Any, tmp_path: Path) -> None:
    assert "vllm" not in machine.doctor().json["sections"]
    folder = tmp_path / "with-vllm" / "vllm"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    report = machine.doctor(PYTHONPATH=f"{folder.parent}:{machine.variables.get('PYTHONPATH', '')}")
    assert report.json["sections"]["vllm"]["version"] is None
