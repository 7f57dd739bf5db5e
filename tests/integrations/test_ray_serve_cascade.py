"""The example of a cascade on Ray Serve: one command starts it, and its report shows both stages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.requires("ray", "fastapi"),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ray_serve_cascade"
REQUESTS = 40


def command() -> list[str]:
    """The command that the example's README shows."""
    (block,) = re.findall(r"```bash\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    program, script, *_ = block.split()
    assert program == "python"
    return [sys.executable, str(ROOT / script), "--requests", str(REQUESTS)]


def report(folder: Path, by: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "gputrace", "report", str(folder / "gputrace-data"), "--by", by, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def test_one_command_starts_it_and_reports_both_stages(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    done = subprocess.run(
        [*command(), "--port", str(unused_tcp_port_factory())],
        cwd=tmp_path,
        env={**os.environ, "GPUTRACE_NODE_DIR": str(tmp_path / "node")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{REQUESTS} questions, {REQUESTS // 5} of them handed over" in done.stdout
    assert "The ledger balances" in done.stdout
    stages = {row["stage"]: row for row in report(tmp_path, "feature,stage") if row["charged_s"]}
    assert set(stages) == {"Light", "Heavy"}
    assert {row["feature"] for row in stages.values()} == {"support-answer"}
    # A token costs ten times as much there. Each by itself: on the host, five questions wait as well.
    each = {stage: row["charged_s"] / row["calls"] for stage, row in stages.items()}
    assert each["Heavy"] > each["Light"]
    tenants = {row["tenant"] for row in report(tmp_path, "tenant") if row["charged_s"]}
    assert tenants == {"acme", "globex"}
