"""The script and its target: without a GPU, and the tables that the documentation shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gpu_check
import pytest
from gpu_checks import result, table

ROOT = Path(gpu_check.ROOT)
DOCS = ROOT / "docs" / "gpu-check.md"
HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()
NO_GPU = re.compile(r"gpu-check: no GPU: .+; nothing was measured\n")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_script_fails_without_a_gpu_in_one_line() -> None:
    done = run(sys.executable, "benchmarks/gpu_check.py", CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert NO_GPU.fullmatch(done.stderr), done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU: the target would measure it")
def test_the_target_fails_without_a_gpu_before_it_installs_anything(tmp_path: Path) -> None:
    done = run("make", "--no-print-directory", "gpu-check", f"VENV={tmp_path / 'venv'}", MAKEFLAGS="")
    assert done.returncode != 0
    assert done.stdout == ""
    first, *_ = done.stderr.splitlines(keepends=True)
    assert NO_GPU.fullmatch(first), done.stderr
    assert not (tmp_path / "venv").exists()


def test_the_benchmarks_run_without_it() -> None:
    """`make bench` runs every script; this one would fail it where there is no GPU."""
    shown = run("make", "--no-print-directory", "--dry-run", "bench", MAKEFLAGS="").stdout
    assert "benchmarks/overhead.py" in shown
    assert "gpu_check.py" not in shown


def test_the_documentation_shows_what_was_measured() -> None:
    document = DOCS.read_text()
    measured = result.read(ROOT / "benchmarks" / "results")
    assert document == table.replaced(document, table.section(measured)), (
        "gpu_check.py --tables writes it anew"
    )


def test_the_tables_are_written_anew_from_files(tmp_path: Path) -> None:
    docs = tmp_path / "gpu-check.md"
    docs.write_text(f"# Title\n\n{table.BEGIN}\n\nold\n\n{table.END}\n\nend\n")
    arguments = ["--tables", "--results", str(tmp_path), "--docs", str(docs)]
    assert gpu_check.main(arguments) == 0
    assert table.NOTHING in docs.read_text()
    parts = dict.fromkeys(("charges", "capture", "cost", "driver"))
    found = {
        "schema": 1,
        "gpu": "A GPU",
        "made": "2026-01-01",
        "versions": {},
        "seconds": 1,
        "complaints": [],
    }
    (tmp_path / "gpu-a-gpu.json").write_text(json.dumps({**found, **parts}))
    assert gpu_check.main(arguments) == 0
    assert "### A GPU" in docs.read_text()
    assert docs.read_text().endswith("\n\nend\n")


def test_names_of_gpus_make_names_of_files() -> None:
    assert result.file_name("NVIDIA A100-SXM4-80GB") == "gpu-nvidia-a100-sxm4-80gb.json"
