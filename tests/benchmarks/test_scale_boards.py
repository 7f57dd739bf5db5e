"""The benchmark of boards, over a fleet so small that it takes seconds."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from gputrace.grafana import recorded, rules, spend_overview
from tests.benchmarks.conftest import ROOT

pytest.importorskip("numpy")
from scale import history

TINY = ("--gpus=2", "--features=2", "--days=1", "--raw-gpus=1", "--processes=1", "--runs=1", "--wait=0")


def test_the_history_has_all_that_rules_record(tmp_path):
    for name, text in rules.rule_files().items():
        (tmp_path / name).write_text(text)
    found = history.rules_in(sorted(tmp_path.iterdir()))
    assert set(found) == {one.name for one in recorded.RECORDED}
    labels = {one.name: {label.replace(".", "_") for label in one.labels} for one in recorded.RECORDED}
    assert {name: set(kept) for name, kept in found.items()} == labels


@pytest.mark.requires("prometheus")
def test_it_prints_how_long_every_panel_takes(servers: Any, tmp_path: Any) -> None:
    script = [sys.executable, "benchmarks/scale_boards.py", f"--folder={tmp_path}"]
    done = subprocess.run(
        [*script, f"--prometheus={servers['prometheus']}", *TINY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    titles = re.findall(r'"title": "([^"]+?)(?: \(\$currency\))?"', spend_overview.board().to_json())
    timed = re.findall(r"^\| ([^|]+) \| \d+ \| \d+ ms", done.stdout, re.MULTILINE)
    assert len(timed) > 10
    assert set(timed) <= set(titles)
    assert re.search(r"^\| rates \(\d+\) \| 60 s \| ", done.stdout, re.MULTILINE)
