"""Rows 24 and 25: wrappers survive cloudpickle, by value, into an interpreter that knows nothing of them.

The bugs of open-telemetry/opentelemetry-python-contrib 3467 and DiamondLightSource/blueapi 590: a lock, a
ContextVar or a tracer came along. Everything that travels here is local to a function, so nothing of it can
be imported on the other side.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

import gputrace

if TYPE_CHECKING:
    from collections.abc import Callable

READ = "import cloudpickle, sys; run, work = cloudpickle.load(sys.stdin.buffer); run(work)"
BILLED = {"feature": "search", "model": "minilm", "hold": "call", "weight": 2, "attributes": {"rows": 3}}


def workloads() -> dict[str, Any]:
    """One wrapper of each kind; called or begun, each gives 7."""
    import functools

    class Model:
        def __init__(self, size):
            self.size = size

        @gputrace.track(operation="method", **BILLED)
        def method(self):
            return self.size

        @gputrace.track(operation="static", **BILLED)
        @staticmethod
        def static():
            return 7

        @classmethod
        @gputrace.track(operation="class", **BILLED)
        async def class_coroutine(cls):
            return 7

    @gputrace.track(operation="instance", **BILLED)
    class Callable7:
        def __call__(self):
            yield 7

    def function(value=7):
        return value

    async def coroutine(value=7):
        return value

    def generator(value=7):
        yield value

    async def async_generator(value=7):
        yield value

    named = {
        "function": function,
        "coroutine": coroutine,
        "generator": generator,
        "async generator": async_generator,
        "partial": functools.partial(functools.partial(function), value=7),
        "partial of a coroutine": functools.partial(coroutine, value=7),
        "returns a coroutine": lambda: coroutine(),  # noqa: PLW0108 - the lambda is what is tested
        "returns a generator": lambda: generator(),  # noqa: PLW0108
    }
    tracked = {name: gputrace.track(operation=name, **BILLED)(made) for name, made in named.items()}
    tracked["twice"] = gputrace.track(operation="twice", **BILLED)(gputrace.track(function))
    tracked["method"] = Model(7).method
    tracked["static"] = Model.static
    tracked["class"] = Model(3).class_coroutine
    tracked["instance"] = Callable7()
    return tracked


def runner() -> Callable[[Any], None]:
    """What the other interpreter runs; local, so that it travels too."""

    def value_of(made: Any) -> Any:
        import asyncio
        import inspect

        async def first(stream: Any) -> Any:
            return await stream.__anext__()

        if inspect.iscoroutine(made):
            return asyncio.run(made)
        if inspect.isasyncgen(made):
            return asyncio.run(first(made))
        return next(made) if inspect.isgenerator(made) else made

    def run(work: dict[str, Any]) -> None:
        import gputrace
        from gputrace.testing import Recorder

        told = {}
        for name, tracked in work.items():
            again = gputrace.track(tenant="acme")(tracked)
            with Recorder() as recorder:
                values = [value_of(tracked()), value_of(again())]
                calls = recorder.settled()
            call = calls[-1]
            told[name] = {
                "values": values,
                "operations": [one.operation for one in calls],
                "billed": [call.feature, call.model, call.tenant],
                "site": [call.call.site.hold, call.call.site.weight, call.call.site.attributes],
            }
        sys.stdout.write(json.dumps(told))

    return run


def assert_travels(work: dict[str, Any]) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ],
        input=cloudpickle.dumps((runner(), work)),
        capture_output=True,
        check=False,
    )
    assert finished.stderr == b""
    told = json.loads(finished.stdout)
    assert told == {
        name: {
            "values": [7, 7],
            "operations": [name, name],
            "billed": ["search", "minilm", "acme"],
            "site": ["call", 2, {"rows": 3}],
        }
        for name in work
    }


def test_rows_24_25_every_kind_in_a_fresh_interpreter() -> None:
    assert_travels(workloads())


@pytest.mark.usefixtures("traced")
def test_rows_24_25_after_use_in_a_traced_process(rig) -> None:
    """With spans made, caches filled and calls settled, all that could come along is there."""
    work = workloads()
    with gputrace.attribute_to(tenant="umbrella"):
        used = [work[name]() for name in ("function", "twice", "method", "static", "partial")]
        used += [list(work["generator"]()), list(work["instance"]()), list(work["returns a generator"]())]
    assert len(rig.settled()) == len(used)
    assert_travels(work)


@gputrace.track(operation="importable")
def importable() -> int:
    return 7


def test_rows_24_25_what_can_be_imported_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(importable)) is importable  # noqa: S301 - ours
    assert len(pickle.dumps(importable)) < 200
