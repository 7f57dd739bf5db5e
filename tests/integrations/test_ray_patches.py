"""All of Ray that gputrace wraps, or nothing of it."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from gputrace import faults
from gputrace.integrations import ray_patches
from gputrace.integrations.ray_patches import Patch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Thing:
    def method(self, args: Any, kwargs: Any = None) -> Any:
        return args, kwargs


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    made = types.ModuleType("framework")
    made.Thing = type("Thing", (Thing,), {"method": Thing.method})  # type: ignore[attr-defined]
    made.function = lambda args: args  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "framework", made)
    faults.reset()
    yield made
    faults.reset()


def doubling(original: Any) -> Any:
    def doubled(*args: Any) -> Any:
        return [original(*args)] * 2

    return doubled


METHOD = Patch("framework", "Thing.method", ("self", "args"), doubling)
FUNCTION = Patch("framework", "function", ("args",), doubling)


def test_wrapped_once_and_restored(module: Any) -> None:
    assert ray_patches.apply([METHOD, FUNCTION])
    assert ray_patches.apply([METHOD, FUNCTION])
    assert module.Thing().method(1) == [(1, None)] * 2
    assert module.Thing.method.__name__ == "method"
    assert module.function(1) == [1, 1]
    ray_patches.restore([METHOD, FUNCTION])
    assert module.Thing().method(1) == (1, None)
    assert module.function(1) == 1


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (FUNCTION._replace(parameters=("other",)), "it has the parameters (args)"),
        (FUNCTION._replace(parameters=("args", "kwargs")), "it has the parameters (args)"),
        (FUNCTION._replace(path="gone"), "has no attribute 'gone'"),
        (FUNCTION._replace(path="Gone.method"), "has no attribute 'Gone'"),
        (FUNCTION._replace(module="framework_gone"), "No module named 'framework_gone'"),
    ],
)
def test_another_version_is_left_as_it_is_and_said_so_once(
    module: Any, other: Patch, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert not ray_patches.apply([METHOD, other])
    assert module.Thing().method(1) == (1, None)
    (line,) = caplog.messages
    assert f"{other.module}.{other.path} is not as in Ray 2.60" in line
    assert why in line
