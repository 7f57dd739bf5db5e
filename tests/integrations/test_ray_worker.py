"""Ray's workers: set up beside the user's hook, on the GPUs that Ray gives them, and however they end."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.integrations.ray_cluster import STORE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.requires("ray")

#: How often calls were made that were not made once.
MADE = {"last": 2}
#: Calls that two workers had begun when they were killed: three and the one around them, one and its own.
OF_THE_DEAD = 6
PROGRAM = Path(__file__).with_name("ray_worker_program.py")


class Run(NamedTuple):
    results: dict[str, Any]
    files: Any


def wait_until(condition: Callable[[], bool], process: Any) -> None:
    # For what hangs: nothing here is judged by time.
    end = monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert monotonic() < end, process.kill()
        sleep(0.05)


def accounted(files: Any) -> float:
    """How many of the dead's calls were exported, or are known to be lost."""
    exported = files.total("gputrace.calls", operation="killed") + files.total(
        "gputrace.calls", operation="tried"
    )
    # The second attempt is no dead worker's.
    return files.total("gputrace.sdk.lost", reason="process_died") + max(0, exported - 1)


@pytest.fixture(scope="module")
def run(ray_cluster: Any, program_in: Callable[[Path], Any], tmp_path_factory: Any, read_files: Any) -> Run:
    folder = tmp_path_factory.mktemp("worker")
    spare = ray_cluster.add_node(num_cpus=1, resources={"spare": 1}, object_store_memory=STORE_BYTES)
    process = program_in(folder).start(PROGRAM.read_text(), RAY_ADDRESS=ray_cluster.address)
    files = folder / "gputrace-data"
    wait_until((folder / "at the end").exists, process)
    wait_until(lambda: read_files(files).total("gputrace.calls", operation="spare") == 1, process)
    wait_until(lambda: accounted(read_files(files)) >= OF_THE_DEAD, process)
    ray_cluster.remove_node(spare, allow_graceful=True)
    (folder / "removed").touch()
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return Run(json.loads(output.splitlines()[-1]), read_files(files))


def test_the_users_hook_and_variables_are_kept(run: Run) -> None:
    for seen in (*run.results["quarters"], run.results["whole"]):
        assert seen["variable"] == "kept"
        # Nothing of gputrace runs before the first call.
        assert "MainThread" in seen["hook"]
        assert "gputrace" not in seen["hook"]


def test_a_worker_knows_its_node_and_no_child_of_it_takes_its_identity(run: Run) -> None:
    seen = run.results["whole"]
    assert seen["node"]
    assert "service.instance.id" not in (seen["resource"] or "")
    assert seen["worker"] in run.files.processes()


def test_ray_shows_each_worker_its_gpus(run: Run) -> None:
    quarters = [seen["visible"] for seen in run.results["quarters"]]
    assert len(set(quarters)) == 1
    assert run.results["whole"]["visible"] != quarters[0]
    for seen in (*run.results["quarters"], run.results["whole"]):
        assert seen["ids"] == [seen["visible"]]


def test_shares_of_one_gpu_never_come_to_more_than_its_time(run: Run) -> None:
    files = run.files
    feature_s = files.total("gputrace.feature.time", type="gpu")
    overlap_s = files.total("gputrace.device.overlap.time")
    assert overlap_s > 0
    charged_s = files.total("gputrace.device.time", state="charged")
    wall_s = files.total("gputrace.device.time")
    assert charged_s <= wall_s
    # What the last calls held was charged after the publisher had spoken for the last time.
    assert feature_s - overlap_s == pytest.approx(charged_s, abs=0.2)


@pytest.mark.parametrize("name", ["ended", "ended async", "last", "once", "quiet", "spare"])
def test_what_ended_is_exported_whichever_way_its_worker_ends(run: Run, name: str) -> None:
    spans = [span for span in run.files.spans if span["name"] == name]
    assert len(spans) == run.files.total("gputrace.calls", operation=name, status="ok") == MADE.get(name, 1)


def test_the_end_of_the_job_takes_nothing_along(run: Run) -> None:
    assert run.files.total("gputrace.calls", operation="last", feature="last") == 1


def test_a_worker_that_goes_with_its_node_had_exported(run: Run) -> None:
    assert run.results["removed"]
    nodes = {span["resource"]["ray.node.id"] for span in run.files.spans if span["name"] in {"spare", "last"}}
    assert len(nodes) == 2


def test_what_killed_workers_had_is_counted_as_lost(run: Run) -> None:
    assert accounted(run.files) == OF_THE_DEAD
    # The calls that were open, at least.
    assert run.files.total("gputrace.sdk.lost", reason="process_died") >= 2
    assert run.files.broken == []


def test_a_task_that_is_tried_again_is_another_call(run: Run) -> None:
    assert run.files.total("gputrace.calls", operation="task retried", status="ok") == 1
    assert run.files.total("gputrace.calls", operation="task retried") == 1
