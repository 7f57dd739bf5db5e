"""The benchmarks of Ray, in short: nodes, workers that are killed, and every call accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.requires("ray")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def found(tmp_path: Path, ray_address: str) -> Callable[..., Any]:
    def run(script: str, *options: str) -> Any:
        command = [sys.executable, str(BENCHMARKS / script), *options, "--address", ray_address, "--json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_workers_of_two_nodes_are_killed_and_every_call_is_accounted_for(
    found: Callable[..., Any], ray_cluster: Any
) -> None:
    node = ray_cluster.add_node(num_cpus=2, num_gpus=1)
    ray_cluster.wait_for_nodes()
    try:
        came = found("ray_scale.py", "--actors", "4", "--calls", "400", "--kills", "1")
    finally:
        ray_cluster.remove_node(node)
    assert came["workers"] == 4
    assert came["killed"] == 1
    assert came["answered"] + came["failed"] == 400
    # What was called by those that were killed before they had begun was never accepted.
    assert came["begun"] <= 4 + 2 * 400
    assert 0 <= came["exported"] + came["lost"] - came["begun"] <= 1
    assert came["lost"] > 0
    assert set(came["features_s"]) >= {"search", "chat", "summary"}
    charged_s = sum(came["features_s"].values()) - came["overlap_s"]
    # The devices were charged also for what a killed worker did not live to export.
    assert 0 < charged_s <= came["charged_s"] + 0.5


def test_what_instrumentation_adds_is_measured_beside_plain_ray(found: Callable[..., Any]) -> None:
    came = found("ray_overhead.py", "--calls", "50", "--pairs", "1")
    assert set(came) == {"task", "actor call"}
    for of in came.values():
        assert of["ratio"] == pytest.approx(of["instrumented_us"] / of["plain_us"])
