"""What Ray executes in the place of the user's functions; needs no Ray."""

from __future__ import annotations

import asyncio
import gc
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context as context_api

import gputrace
from gputrace.integrations import ray_execution
from gputrace.integrations.ray_context import KEY
from gputrace.integrations.ray_execution import executed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

CARRIER = {"feature": "search", "baggage": "colour=blue"}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was called before and after."""
    seen: list[str] = []
    monkeypatch.setattr(ray_execution, "before", lambda: seen.append("before"))
    monkeypatch.setattr(ray_execution, "after", lambda: seen.append("after"))
    return seen


def feature() -> str:
    """What the current work is billed to; wherever that was carried, so is the baggage."""
    billed = gputrace.current().feature
    assert baggage.get_baggage("colour") == ("blue" if billed == "search" else None)
    return billed


def outside() -> None:
    """Nothing of the caller is in force between two steps, or after the last."""
    assert feature() == "__none__"
    assert context_api.get_current() == {}


def statuses(bench: Any) -> list[tuple[str, str, str]]:
    return [(one.operation, one.feature, one.status) for one in bench.settled()]


def test_a_function_gets_its_arguments_alone(bench: Any, calls: list[str]) -> None:
    def work(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs, feature()

    assert executed(work, "task work")(1, a=2, **{KEY: CARRIER}) == ((1,), {"a": 2}, "search")
    outside()
    assert executed(work, "task work")() == ((), {}, "__none__")
    assert executed(work, None)(**{KEY: CARRIER}) == ((), {}, "search")
    assert statuses(bench) == [("task work", "search", "ok"), ("task work", "__none__", "ok")]
    assert calls == ["before", "after"] * 3


def test_what_it_raises_passes(bench: Any, calls: list[str]) -> None:
    def work() -> None:
        raise KeyError(feature())

    with pytest.raises(KeyError, match="search"):
        executed(work, "task work")(**{KEY: CARRIER})
    outside()
    assert statuses(bench) == [("task work", "search", "error")]
    assert calls == ["before", "after"]


def items() -> Generator[Any, Any, Any]:
    received: list[Any] = []
    try:
        while len(received) < 2:
            try:
                received.append((yield feature()))
            except ValueError:
                received.append("thrown")
    finally:
        received.append(feature())
    return received


def test_a_generator_runs_in_the_callers_context_step_by_step(bench: Any, calls: list[str]) -> None:
    generator = executed(items, "task items")(**{KEY: CARRIER})
    assert inspect.isgenerator(generator)
    assert next(generator) == "search"
    outside()
    assert generator.throw(ValueError()) == "search"
    outside()
    assert calls == ["before"]
    with pytest.raises(StopIteration) as stop:
        generator.send("sent")
    outside()
    assert stop.value.value == ["thrown", "sent", "search"]
    assert statuses(bench) == [("task items", "search", "ok")]
    assert calls == ["before", "after"]


@pytest.mark.parametrize("abandoned", [False, True])
def test_a_generator_that_is_closed_early_is_no_error(bench: Any, calls: list[str], abandoned: bool) -> None:
    generator = executed(items, "task items")(**{KEY: CARRIER})
    next(generator)
    if not abandoned:
        generator.close()
    del generator
    gc.collect()
    outside()
    assert statuses(bench) == [("task items", "search", "ok")]
    assert calls == ["before", "after"]


async def test_a_coroutine_keeps_the_callers_context_while_it_waits(bench: Any, calls: list[str]) -> None:
    async def work(name: str) -> Any:
        await asyncio.sleep(0)
        return name, feature()

    def method(actor: object, *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    within = executed(method, "actor A.work")
    tasks = [
        asyncio.ensure_future(within(None, name, **{KEY: {"feature": name}})) for name in ("first", "second")
    ]
    assert await asyncio.gather(*tasks) == [("first", "first"), ("second", "second")]
    outside()
    assert statuses(bench) == [("actor A.work", "first", "ok"), ("actor A.work", "second", "ok")]
    assert sorted(calls) == ["after"] * 2 + ["before"] * 2


async def test_a_cancelled_coroutine_is_cancelled(bench: Any, calls: list[str]) -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    task = asyncio.ensure_future(executed(work, "actor A.work")(**{KEY: CARRIER}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert statuses(bench) == [("actor A.work", "search", "cancelled")]
    assert calls == ["before", "after"]


async def test_an_async_generator_runs_in_the_callers_context_step_by_step(
    bench: Any, calls: list[str]
) -> None:
    async def numbers() -> AsyncGenerator[Any, Any]:
        received = yield feature()
        try:
            yield received, feature()
        except ValueError:
            await asyncio.sleep(0)
            yield "thrown", feature()

    generator = executed(numbers, "actor A.numbers")(**{KEY: CARRIER})
    assert inspect.isasyncgen(generator)
    assert await generator.asend(None) == "search"
    outside()
    assert await generator.asend("sent") == ("sent", "search")
    assert await generator.athrow(ValueError()) == ("thrown", "search")
    outside()
    assert calls == ["before"]
    with pytest.raises(StopAsyncIteration):
        await generator.asend(None)
    assert statuses(bench) == [("actor A.numbers", "search", "ok")]
    assert calls == ["before", "after"]


async def test_an_async_generator_that_is_closed_early_is_no_error(bench: Any, calls: list[str]) -> None:
    closed = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(feature())

    generator = executed(numbers, "actor A.numbers")(**{KEY: CARRIER})
    assert await generator.asend(None) == 1
    await generator.aclose()
    assert closed == ["search"]
    assert statuses(bench) == [("actor A.numbers", "search", "ok")]
    assert calls == ["before", "after"]


def test_the_event_loop_closes_what_is_left(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    closed = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append("numbers")

    async def begin() -> Any:
        generator = executed(numbers, "actor A.numbers")(**{KEY: CARRIER})
        await generator.asend(None)
        return generator

    generator = asyncio.run(begin())
    assert closed == ["numbers"]
    del generator
    assert caplog.messages == []
    assert statuses(bench) == [("actor A.numbers", "search", "ok")]


@pytest.mark.parametrize(
    ("name", "module", "operation"),
    [
        ("work", "theirs", "actor A.work"),
        ("__init__", "theirs", "actor A.__init__"),
        # What a class without __init__ gets.
        ("__init__", "ray.actor", None),
        ("__ray_ready__", "ray.actor", "unwrapped"),
    ],
)
def test_methods_of_actors(bench: Any, name: str, module: str, operation: str | None) -> None:
    class Info(SimpleNamespace):
        def _replace(self, function: Any) -> Info:
            return Info(function=function)

    def method(actor: object) -> str:
        return feature()

    def executor(actor: object) -> str:
        return method(actor)

    method.__module__ = module
    executor.name, executor.method = name, method  # type: ignore[attr-defined]
    descriptor = SimpleNamespace(class_name="test.<locals>.A", function_name=name)
    within = ray_execution._wrapped(Info(function=executor), descriptor).function
    if operation == "unwrapped":
        assert within is executor
        return
    # Ray asks these whether it is async.
    assert (within.name, within.method) == (name, method)
    assert within(None, **{KEY: CARRIER}) == "search"
    assert statuses(bench) == ([] if operation is None else [(operation, "search", "ok")])


@pytest.mark.parametrize(
    ("module", "seen"),
    [
        ("theirs", []),
        ("ray.data._internal.execution", ["before"]),
        ("ray.serve._private.replica", ["before"]),
        ("ray.serve._private.controller", []),
        ("ray.util.queue", []),
    ],
)
def test_rays_own_are_left_as_they_are_and_may_run_what_is_tracked(
    calls: list[str], module: str, seen: list[str]
) -> None:
    class Info(SimpleNamespace):
        def _replace(self, function: Any) -> Info:
            return Info(function=function)

    info = Info(function=feature)
    descriptor = SimpleNamespace(module_name=module, class_name="", function_name="feature")
    lookup = ray_execution._around_lookup(lambda *_: info)
    found = lookup(None, None, descriptor)
    assert (found is info) is (module != "theirs")
    assert calls == seen
