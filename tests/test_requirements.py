"""The rules of tests/conftest.py, tried on small files: a skip is a failure where everything is required."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")
TESTS = {
    "marked": '@pytest.mark.requires("promtool")\ndef test_it():\n    pass',
    "asked": 'def test_it(servers):\n    servers["prometheus"]',
    "skipped": 'def test_it():\n    pytest.skip("because")',
    "whole_file": 'pytest.importorskip("no_such_module")\ndef test_it():\n    pass',
    "misspelt": '@pytest.mark.requires("promtol")\ndef test_it():\n    pass',
    "other_python": '@pytest.mark.skipif(True, reason="for another Python")\ndef test_it():\n    pass',
    "on_a_gpu": "@pytest.mark.gpu\ndef test_it():\n    pass",
    "there": 'def test_it(servers):\n    assert servers["victoria-metrics"].endswith("bin/victoria-metrics")',
}


def outcomes(folder: Path, required: str) -> tuple[dict[str, str], str]:
    """Run TESTS in a folder of their own: outcome by name, and what was printed."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    requires(*names)\n    gpu\n")
    for name, code in TESTS.items():
        (folder / f"test_{name}.py").write_text(f"import pytest\n\n{code}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "victoria-metrics").touch(mode=0o755)
    # Nothing is on this PATH, so that only what the folder holds is found.
    clean = {
        **os.environ,
        "GPUTRACE_REQUIRE": required,
        "GPUTRACE_SERVERS": str(folder),
        "PATH": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-v", "-rsE", "-p", "no:cacheprovider"]
    command.append("--continue-on-collection-errors")
    printed = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    ).stdout
    by_test = dict(re.findall(r"test_(\w+)\.py::test_it ([A-Z]+)", printed))
    by_file = dict(re.findall(r"^(ERROR|SKIPPED).* test_(whole_file)\.py", printed, re.MULTILINE))
    return by_test | {name: found for found, name in by_file.items()}, printed


def test_missing_things_skip_and_are_named(tmp_path: Path) -> None:
    found, printed = outcomes(tmp_path, required="")
    assert {name for name, outcome in found.items() if outcome == "SKIPPED"} == {
        "marked",
        "asked",
        "skipped",
        "whole_file",
        "other_python",
        "on_a_gpu",
    }
    assert found["there"] == "PASSED"
    assert found["misspelt"] == "ERROR"
    assert "no promtool: `make servers`" in printed
    assert "unknown requirement 'promtol'" in printed


def test_a_skip_is_a_failure_where_everything_is_required(tmp_path: Path) -> None:
    found, printed = outcomes(tmp_path, required="all")
    assert found == {
        "marked": "ERROR",
        "asked": "FAILED",
        "skipped": "FAILED",
        "whole_file": "ERROR",
        "misspelt": "ERROR",
        "other_python": "SKIPPED",
        "on_a_gpu": "SKIPPED",
        "there": "PASSED",
    }, printed
