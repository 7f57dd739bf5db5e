"""Ray: what every kind of call returns, and which trace and feature its work belongs to."""

from __future__ import annotations

import concurrent.futures
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.requires("ray"), pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("ray_program.py")
KINDS = (
    "task without arguments",
    "task",
    "task generator",
    "task that returns a generator",
    "creation",
    "method",
    "inherited method",
    "static method",
    "class method",
    "actor generator",
    "async method",
    "async generator",
    "sync method of an async actor",
    "pool",
    "threaded method",
    "retried task",
    "cancelled method",
    "cancelled task",
    "consumer",
)


class Runs(NamedTuple):
    with_gputrace: dict[str, Any]
    without: dict[str, Any]
    files: Any


@pytest.fixture(scope="module")
def runs(ray_address: str, program_in: Callable[[Path], Any], tmp_path_factory: Any, read_files: Any) -> Runs:
    source = PROGRAM.read_text()
    folders = [tmp_path_factory.mktemp(name) for name in ("with", "without")]
    variables: tuple[dict[str, str], ...] = ({}, {"PLAIN": "plain"})

    def run(folder: Path, others: dict[str, str]) -> dict[str, Any]:
        program = program_in(folder)
        # Some fifty workers are started, one after the other.
        program.hang_s = 240
        output = program(source, RAY_ADDRESS=ray_address, **others).stdout
        return json.loads(output.splitlines()[-1])

    with concurrent.futures.ThreadPoolExecutor() as pool:
        with_gputrace, without = pool.map(run, folders, variables)
    return Runs(with_gputrace, without, read_files(folders[0] / "gputrace-data"))


def spans(runs: Runs, name: str) -> list[dict[str, Any]]:
    return [span for span in runs.files.spans if span["name"] == name]


def parent(runs: Runs, span: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in runs.files.spans if one["spanId"] == span["parentSpanId"])


def test_results_signatures_and_errors_do_not_depend_on_gputrace(runs: Runs) -> None:
    assert runs.with_gputrace == runs.without
    assert runs.with_gputrace["task"] == [1, 2, [3], 4, {"d": 5}]


@pytest.mark.parametrize("kind", KINDS)
def test_work_belongs_to_the_trace_and_the_feature_of_its_caller(runs: Runs, kind: str) -> None:
    found = spans(runs, f"inside {kind}")
    assert found
    for span in found:
        assert span["attributes"]["gputrace.feature"] == kind
        assert span["attributes"]["gputrace.tenant"] == "acme"
        container = parent(runs, span)
        assert container["name"].startswith(("task ", "actor "))
        assert parent(runs, container)["name"] == f"calling {kind}"
        assert container["resource"]["service.instance.id"] == span["resource"]["service.instance.id"]


def test_a_nested_task_hangs_under_the_one_that_called_it(runs: Runs) -> None:
    (inner,) = spans(runs, "inside inner task")
    assert inner["attributes"]["gputrace.feature"] == "nested"
    container = parent(runs, inner)
    assert (container["name"], parent(runs, container)["name"]) == ("task inner", "inside outer task")


def test_work_outside_of_any_feature_stays_unnamed(runs: Runs) -> None:
    (failed,) = spans(runs, "task failing")
    assert failed["attributes"]["gputrace.feature"] == "__none__"
    assert "parentSpanId" not in failed


def statuses(runs: Runs, operation: str) -> dict[str, float]:
    known = ("ok", "error", "cancelled")
    counts = {one: runs.files.total("gputrace.calls", operation=operation, status=one) for one in known}
    return {status: count for status, count in counts.items() if count}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("task task", {"ok": 2}),
        ("task items", {"ok": 2, "error": 1}),
        ("task failing", {"error": 1}),
        ("actor Plain.__init__", {"ok": 1}),
        ("actor Plain.method", {"ok": 2}),
        ("actor Plain.failing", {"error": 1}),
        ("actor Async.method", {"ok": 3}),
        ("actor WithoutInit.twice", {"ok": 3}),
        ("actor WithoutInit.__init__", {}),
        ("actor Async.sleeping", {"cancelled": 1}),
        ("inside cancelled method", {"cancelled": 1}),
        ("task sleeping", {"cancelled": 1}),
        ("inside cancelled task", {"cancelled": 1}),
        # The first attempt took what it had counted along.
        ("task dying", {"ok": 1}),
    ],
)
def test_each_call_is_counted_once_with_its_status(
    runs: Runs, operation: str, expected: dict[str, float]
) -> None:
    assert statuses(runs, operation) == expected


def test_every_worker_is_a_process_of_its_own_and_says_which(runs: Runs) -> None:
    resources = [
        span["resource"] for span in runs.files.spans if span["name"].startswith(("task ", "actor "))
    ]
    assert len({one["service.instance.id"] for one in resources}) > 1
    assert all(len(one["service.instance.id"]) == len(one["ray.node.id"]) == 56 for one in resources)
    assert runs.files.broken == []
