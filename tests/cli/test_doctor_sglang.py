"""`gputrace doctor` on SGLang: whether it is instrumented, and what of it stays unseen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from gputrace.cli.doctor_findings import Level, Section
from gputrace.cli.doctor_sglang import Sglang, read_sglang, sglang_section

if TYPE_CHECKING:
    from pathlib import Path

WELL = Sglang("0.5.23", plugged=True)


def said(sglang: Sglang, **environment: str) -> Section:
    section = sglang_section(sglang, environment)
    assert section is not None
    return section


def warnings(section: Section) -> list[str]:
    return [one.text for one in section.findings if one.level is Level.WARNING]


def test_without_sglang_nothing_is_said() -> None:
    assert sglang_section(None, {}) is None


def test_all_is_well() -> None:
    section = said(WELL)
    assert warnings(section) == []
    assert section.facts == {"version": "0.5.23", "plugged": True}
    assert "gputrace is loaded by each of its processes" in [one.text for one in section.findings]


@pytest.mark.parametrize(
    ("sglang", "environment", "told"),
    [
        (WELL._replace(version="0.5.24"), {}, "SGLang 0.5.24 is left as it is"),
        (WELL._replace(version="0.5.19"), {}, "SGLang 0.5.19 is left as it is"),
        (WELL._replace(version=None), {}, "SGLang of unknown version is left as it is"),
        (WELL._replace(plugged=False), {}, "gputrace is not among SGLang's plugins"),
        (WELL, {"SGLANG_PLUGINS": "other, another"}, "SGLANG_PLUGINS=other, another keeps gputrace out"),
        (WELL, {"SGLANG_RUST_SERVER": "1"}, "SGLANG_RUST_SERVER"),
    ],
)
def test_what_is_lost_is_said(sglang: Sglang, environment: dict[str, str], told: str) -> None:
    (line,) = warnings(said(sglang, **environment))
    assert told in line


@pytest.mark.parametrize(
    "environment",
    [{"SGLANG_PLUGINS": "other, gputrace"}, {"SGLANG_PLUGINS": ""}, {"SGLANG_RUST_SERVER": "0"}],
)
def test_what_is_not_lost_is_not_said(environment: dict[str, str]) -> None:
    assert warnings(said(WELL, **environment)) == []


def test_it_is_read_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sglang", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "sglang"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (folder / "_version.py").write_text("__version__ = version = '0.5.21'\n")
    plugin = tmp_path / "some-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[sglang.srt.plugins]\ngputrace = gputrace:it\n")
    found: Any = read_sglang()
    assert (found.version, found.plugged) == ("0.5.21", True)


def test_the_command_says_it(machine: Any, tmp_path: Path) -> None:
    folder = tmp_path / "with-sglang" / "sglang"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    report = machine.doctor(PYTHONPATH=f"{folder.parent}:{machine.variables.get('PYTHONPATH', '')}")
    assert report.json["sections"]["sglang"]["version"] is None
