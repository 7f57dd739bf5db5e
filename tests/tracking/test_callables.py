"""Everything that can be called: rows 19 to 23 and 28 to 30 of the behaviour matrix."""

from __future__ import annotations

import abc
import asyncio
import functools
import inspect
import typing

import pytest

import gputrace


class Model:
    """Each kind of method, decorated in either order."""

    scale = 10

    @gputrace.track(operation="method")
    def method(self, x: int) -> int:
        return self.scale * x

    @gputrace.track(operation="static, above")
    @staticmethod
    def static_above(x: int) -> int:
        return x

    @staticmethod
    @gputrace.track(operation="static, below")
    def static_below(x: int) -> int:
        return x

    @gputrace.track(operation="class, above")
    @classmethod
    def class_above(cls, x: int) -> int:
        return cls.scale * x

    @classmethod
    @gputrace.track(operation="class, below")
    def class_below(cls, x: int) -> int:
        return cls.scale * x

    @gputrace.track(operation="async static")
    @staticmethod
    async def async_static(x: int) -> int:
        return x

    @gputrace.track(operation="class generator")
    @classmethod
    def class_generator(cls, x: int):
        yield cls.scale * x

    @property
    @gputrace.track(operation="property")
    def answer(self) -> int:
        return 42


class Larger(Model):
    scale = 100


def test_row_19_keyboard_interrupt_ends_the_call(rig, traced) -> None:
    @gputrace.track(operation="embed", feature="inside")
    def embed():
        rig.work(5)
        raise KeyboardInterrupt

    with traced.tracer.start_as_current_span("caller"), pytest.raises(KeyboardInterrupt):
        embed()
    assert (rig.one().status, rig.one().held_ns) == ("error", 5)
    assert traced.one("embed").end_time is not None


def test_row_20_methods(rig) -> None:
    assert Model().method(1) == 10
    assert Larger().method(x=2) == 200
    assert Model.method(Larger(), 3) == 300
    assert Model().answer == 42
    assert [call.operation for call in rig.settled()] == ["method"] * 3 + ["property"]


@pytest.mark.parametrize("name", ["static_above", "static_below"])
@pytest.mark.parametrize("on", [Model, Model(), Larger, Larger()])
def test_sentry_python_2525_rows_21_22_static_methods_in_either_order(rig, name, on) -> None:
    """The bug of getsentry/sentry-python 2525: one argument too many."""
    assert getattr(on, name)(7) == 7
    assert rig.one().operation == name.replace("_", ", ")
    assert isinstance(vars(Model)[name], staticmethod)


@pytest.mark.parametrize("name", ["class_above", "class_below"])
@pytest.mark.parametrize("on", [Model, Model(), Larger, Larger()])
def test_rows_21_22_class_methods_in_either_order(rig, name, on) -> None:
    assert getattr(on, name)(7) == 7 * on.scale
    assert rig.one().operation == name.replace("_", ", ")
    assert isinstance(vars(Model)[name], classmethod)


def test_rows_21_22_of_other_kinds(rig) -> None:
    assert inspect.iscoroutinefunction(Model.async_static)
    assert asyncio.run(Model().async_static(3)) == 3
    assert inspect.isgeneratorfunction(Larger.class_generator)
    assert list(Larger.class_generator(3)) == [300]
    assert [call.operation for call in rig.settled()] == ["async static", "class generator"]


def test_row_23_signature_annotations_and_names_are_kept() -> None:
    def embed(text: str, /, *batch: bytes, size: int = 3, **options: float) -> list[float]:
        """Embeds."""

    tracked = gputrace.track(feature="search")(embed)
    assert inspect.signature(tracked) == inspect.signature(embed)
    assert typing.get_type_hints(tracked) == typing.get_type_hints(embed)
    assert tracked.__wrapped__ is embed
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(tracked, name) == getattr(embed, name)


def test_row_23_ray_46252_nothing_is_added_to_what_the_user_gets() -> None:
    """Tools that inject an argument break functions without room for one."""
    seen = []

    @gputrace.track
    def embed(**options):
        seen.append(options)

    embed(a=1)
    assert seen == [{"a": 1}]
    with pytest.raises(TypeError, match="unexpected keyword"):
        gputrace.track(lambda: None)(other=1)


def test_row_23_abstract_stays_abstract() -> None:
    class Base(abc.ABC):
        @gputrace.track
        @abc.abstractmethod
        def run(self): ...

    with pytest.raises(TypeError, match="abstract"):
        Base()


def test_the_operation_is_the_qualified_name_by_default(rig) -> None:
    def embed(): ...

    gputrace.track(embed)()
    gputrace.track(functools.partial(embed))()
    gputrace.track(Answer(1))()
    gputrace.track(Model().static_below.__call__)(1)
    names = [call.operation for call in rig.settled()]
    here = "test_the_operation_is_the_qualified_name_by_default.<locals>.embed"
    assert names[:3] == [here, here, "Answer"]


class Answer:
    """A callable object whose attributes are its own business."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self, more: int = 0) -> object:
        return self.value, more


class AsyncAnswer(Answer):
    async def __call__(self, more: int = 0) -> object:
        await asyncio.sleep(0)
        return self.value, more


class Stream(Answer):
    def __call__(self, more: int = 0):
        yield self.value, more


class AsyncStream(Answer):
    async def __call__(self, more: int = 0):
        yield self.value, more


def test_row_28_partials_of_every_kind(rig) -> None:
    def function(a, b):
        return a, b

    async def coroutine(a, b):
        return a, b

    def generator(a, b):
        yield a, b

    async def async_generator(a, b):
        yield a, b

    def partial(function):
        return gputrace.track(functools.partial(functools.partial(function, 1), b=2))

    async def main() -> None:
        assert await partial(coroutine)() == (1, 2)
        assert [item async for item in partial(async_generator)()] == [(1, 2)]

    assert partial(function)() == (1, 2)
    assert list(partial(generator)()) == [(1, 2)]
    asyncio.run(main())
    assert inspect.iscoroutinefunction(partial(coroutine))
    assert inspect.isgeneratorfunction(partial(generator))
    assert inspect.isasyncgenfunction(partial(async_generator))
    assert inspect.signature(partial(function)) == inspect.signature(functools.partial(function, 1, b=2))
    assert len(rig.settled()) == 4


def test_row_28_bound_methods(rig) -> None:
    class Plain:
        async def run(self, x):
            return self, x

    plain = Plain()
    tracked = gputrace.track(plain.run)
    assert inspect.iscoroutinefunction(tracked)
    assert asyncio.run(tracked(3)) == (plain, 3)
    assert rig.one().operation.endswith("Plain.run")


def test_row_29_callable_objects_of_every_kind(rig) -> None:
    assert gputrace.track(Answer("a"))(1) == ("a", 1)
    assert list(gputrace.track(Stream("a"))(1)) == [("a", 1)]
    tracked = gputrace.track(AsyncAnswer("a"))
    assert inspect.iscoroutinefunction(tracked)
    assert asyncio.run(tracked(1)) == ("a", 1)
    assert inspect.isgeneratorfunction(gputrace.track(Stream("a")))
    assert inspect.isasyncgenfunction(gputrace.track(AsyncStream("a")))
    assert [call.operation for call in rig.settled()] == ["Answer", "Stream", "AsyncAnswer"]


@pytest.mark.parametrize("kind", [Answer, AsyncAnswer, Stream, AsyncStream])
def test_row_30_a_class_stays_a_class(rig, kind) -> None:
    class Tracked(kind):
        __call__ = kind.__call__

    decorated = gputrace.track(feature="search")(Tracked)
    assert decorated is Tracked
    assert isinstance(Tracked(1), kind)
    made = Tracked("a")(1)
    if inspect.isasyncgen(made):
        assert asyncio.run(made.__anext__()) == ("a", 1)
    elif inspect.iscoroutine(made):
        assert asyncio.run(made) == ("a", 1)
    else:
        assert (next(made) if inspect.isgenerator(made) else made) == ("a", 1)
    del made
    call = rig.one()
    assert (call.operation, call.feature) == (Tracked.__qualname__, "search")
    # The class beneath is untouched.
    kind("b")
    assert len(rig.settled()) == 1


def test_row_30_a_class_whose_call_is_static(rig) -> None:
    @gputrace.track
    class Tracked:
        @staticmethod
        def __call__(x):
            return x

    assert Tracked()(3) == 3
    assert rig.one().operation == Tracked.__qualname__


class Silent: ...


@pytest.mark.parametrize("thing", [Silent, 3, "name", property(), functools.partialmethod(print)])
def test_what_cannot_be_called_is_refused_at_once(thing) -> None:
    with pytest.raises(TypeError, match=r"^track: "):
        gputrace.track(thing)


@pytest.mark.parametrize(
    "options",
    [
        {"hold": "steps "},
        {"weight": 0},
        {"weight": -1},
        {"weight": True},
        {"weight": 1.0},
        {"devices": "tpu:0"},
        {"operation": "__other__"},
    ],
)
def test_options_that_cannot_be_used_are_refused_by_name(options) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        gputrace.track(**options)


@pytest.mark.parametrize(
    "options", [{"hold": "none "}, {"weight": 0}, {"weight": True}, {"devices": "tpu:0"}]
)
def test_so_are_those_of_a_span(options) -> None:
    gputrace.span("rerank")
    (name,) = options
    with pytest.raises(ValueError, match=name):
        gputrace.span("rerank", **options)
