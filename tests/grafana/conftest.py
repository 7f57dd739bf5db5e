"""Promtool, with the rules beside it."""

from __future__ import annotations

import json
import subprocess

import pytest

from gputrace.grafana import rules
from tests.grafana.promtool import GROUPS


@pytest.fixture
def promtool(servers, tmp_path):
    """Runs promtool in a folder with the rules; it must be content."""
    for name, text in rules.rule_files().items():
        (tmp_path / name).write_text(text)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [servers["promtool"], *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def evaluate(promtool, tmp_path):
    """Checks that expressions are true at their times, of series given as promtool writes them."""

    def check(
        files: list[str],
        series: dict[str, str],
        true: list[tuple[str, str]],
        interval: str = "1m",
        every: str = "",
    ) -> None:
        test = {
            "interval": interval,
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {"expr": f"({expr}) * 0 + 1", "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}
                for at, expr in true
            ],
        }
        path = tmp_path / "test.json"
        path.write_text(
            json.dumps(
                {
                    "rule_files": files,
                    "evaluation_interval": every or interval,
                    "group_eval_order": [GROUPS[name] for name in files if name in GROUPS],
                    "tests": [test],
                }
            )
        )
        promtool("test", "rules", str(path))

    return check
