"""How Ray Serve is patched and left alone: nothing here starts it."""

from __future__ import annotations

import inspect
import itertools
import logging
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import faults
from gputrace.integrations import ray_serve, ray_serve_batch
from gputrace.integrations.ray_serve import batch_weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Program

# Ray imports with what pydantic calls deprecated.
pytestmark = [pytest.mark.requires("ray"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def functions() -> list[Any]:
    import importlib

    found = []
    for patch in ray_serve.PATCHES:
        owner: Any = importlib.import_module(patch.module)
        for part in patch.path.split("."):
            owner = getattr(owner, part)
        found.append(owner)
    return found


@pytest.fixture
def restored() -> Iterator[None]:
    ray_serve.uninstrument()
    yield
    ray_serve.uninstrument()


@pytest.mark.usefixtures("restored")
def test_every_function_is_patched_once_and_given_back_and_keeps_its_signature() -> None:
    import ray.serve  # noqa: F401

    before = functions()
    ray_serve.instrument()
    patched = functions()
    ray_serve.instrument()
    assert functions() == patched
    assert not set(patched) & set(before)
    assert list(map(inspect.signature, patched)) == list(map(inspect.signature, before))
    ray_serve.uninstrument()
    assert functions() == before


@pytest.mark.usefixtures("restored")
def test_a_version_that_differs_is_left_alone_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray.serve import batching

    def put(self: Any, item: Any) -> None: ...

    monkeypatch.setattr(batching._BatchQueue, "put", put)
    before = functions()
    faults.reset()
    with caplog.at_level(logging.WARNING, "gputrace"):
        ray_serve.instrument()
    assert functions() == before
    (said,) = [one.getMessage() for one in caplog.records if one.name == "gputrace"]
    assert "_BatchQueue.put" in said


@pytest.mark.usefixtures("restored")
def test_a_version_whose_records_differ_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray.serve import batching

    monkeypatch.delitem(batching._SingleRequest.__dataclass_fields__, "future")
    before = functions()
    faults.reset()
    with caplog.at_level(logging.WARNING, "gputrace"):
        ray_serve.instrument()
    assert functions() == before
    assert "has no _SingleRequest.future" in caplog.text


def test_nothing_of_ray_is_imported_before_the_program_does(run_python: Program) -> None:
    run_python(
        """
import sys
from gputrace.integrations import ray_serve
ray_serve.instrument()
assert not [name for name in sys.modules if name == "ray" or name.startswith("ray.")]
import ray.serve.batching
assert hasattr(ray.serve.batching._BatchQueue.put, "__wrapped__")
"""
    )


@pytest.mark.parametrize("order", list(itertools.permutations(("weight", "batch", "track"))))
def test_a_weight_is_found_in_any_order_of_decorators(order: tuple[str, ...]) -> None:
    from ray import serve

    batched = []

    def batch(function: Any) -> Any:
        # What the queue calls, and what a caller does.
        batched.append(function)
        return serve.batch(function)

    async def function(items: list[str]) -> list[str]:
        return items

    decorators = {"weight": batch_weight(len), "batch": batch, "track": gputrace.track}
    made: Any = function
    for name in order:
        made = decorators[name](made)
    assert [ray_serve_batch.weigher_of(one) for one in batched] == [len]
    assert inspect.iscoroutinefunction(made)


def test_a_weight_that_cannot_be_asked_is_refused() -> None:
    with pytest.raises(TypeError, match=r"batch_weight\(3\): give a function"):
        batch_weight(3)  # type: ignore[arg-type]
