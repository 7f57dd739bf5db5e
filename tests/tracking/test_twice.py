"""Row 34: decorating twice counts once, and merges what was said."""

from __future__ import annotations

import functools

import pytest

import gputrace
from gputrace.testing import VirtualGpu


def test_row_34_twice_is_one_call_and_the_inner_words_win(rig, traced) -> None:
    @gputrace.track(
        feature="outer", tenant="outer", model="outer", weight=3, attributes={"a": "outer", "b": 1}
    )
    @gputrace.track(feature="inner", stage="inner", weight=2, attributes={"a": "inner"})
    def embed():
        rig.work(5)
        return 1

    assert embed() == 1
    call = rig.one()
    assert (call.feature, call.tenant, call.model, call.stage) == ("inner", "outer", "outer", "inner")
    assert (call.held_ns, call.call.site.weight) == (5, 3)
    span = traced.one(embed.__qualname__)
    assert (span.attributes["a"], span.attributes["b"]) == ("inner", 1)


def test_row_34_of_every_kind(rig) -> None:
    @gputrace.track
    @gputrace.track
    @gputrace.track
    async def coroutine(): ...

    @gputrace.track
    @gputrace.track
    def generator():
        yield

    @gputrace.track
    @gputrace.track
    async def async_generator():
        yield

    def run(made) -> None:
        with pytest.raises((StopIteration, StopAsyncIteration)):
            made.send(None)

    run(coroutine())
    list(generator())
    made = async_generator()
    run(made.__anext__())
    run(made.__anext__())
    assert len(rig.settled()) == 3


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [("named", None, "named"), (None, "named", "named"), ("outer", "inner", "inner"), (None, None, "embed")],
)
def test_row_34_an_explicit_operation_wins(rig, outer, inner, expected) -> None:
    def embed(): ...

    embed.__qualname__ = "embed"
    gputrace.track(operation=outer)(gputrace.track(operation=inner)(embed))()
    gputrace.track(gputrace.track(operation=outer)(gputrace.track(operation=inner)(embed)))()
    assert [call.operation for call in rig.settled()] == [expected] * 2


def test_row_34_a_name_that_is_the_qualified_name_is_explicit_too(rig) -> None:
    def embed(): ...

    embed.__qualname__ = "embed"
    gputrace.track(operation="other")(gputrace.track(operation="embed")(embed))()
    assert rig.one().operation == "embed"


@pytest.mark.parametrize(
    ("outer", "inner", "held"),
    [
        ("none", "steps", 0),
        ("steps", "none", 0),
        ("call", "none", 0),
        ("none", "call", 5),
        ("steps", "steps", 5),
    ],
)
def test_row_34_hold(rig, outer, inner, held) -> None:
    """Given as strings that were put together at run time, as settings are."""

    @gputrace.track(hold="".join(outer))
    @gputrace.track(hold="".join(list(inner)))
    def embed():
        rig.work(5)

    embed()
    assert rig.one().held_ns == held


def test_row_34_devices_and_streams() -> None:
    with VirtualGpu(devices=2) as gpu:
        gpu.init()
        stream = gpu.Stream()

        def site_of(outer, inner):
            return gputrace.track(**outer)(gputrace.track(**inner)(lambda: None)).__gputrace__.site

        assert site_of({"devices": 1}, {"devices": 0}).devices == 0
        assert site_of({"devices": 1}, {}).devices == 1
        assert site_of({}, {"devices": 0}).devices == 0
        assert site_of({"streams": [stream]}, {"streams": []}).streams == []
        assert site_of({"streams": [stream]}, {}).streams == [stream]


class Model:
    @gputrace.track(operation="run", feature="inner")
    def run(self, x):
        return self, x


def test_row_34_a_bound_method_of_a_tracked_function(rig) -> None:
    model = Model()
    assert gputrace.track(feature="outer", tenant="acme")(model.run)(3) == (model, 3)
    assert (rig.one().feature, rig.one().tenant) == ("inner", "acme")


def test_row_34_a_partial_of_a_tracked_function(rig) -> None:
    model = Model()
    again = gputrace.track(tenant="acme")(functools.partial(functools.partial(model.run), x=3))
    assert again() == (model, 3)
    assert rig.one().tenant == "acme"


def test_row_34_a_class_and_its_instances(rig) -> None:
    @gputrace.track(operation="outer")
    @gputrace.track(feature="search")
    class Embed:
        def __call__(self, x):
            return x

    assert Embed()(1) == 1
    assert gputrace.track(tenant="acme")(Embed())(2) == 2
    assert [(call.operation, call.feature, call.tenant) for call in rig.settled()] == [
        ("outer", "search", None),
        ("outer", "search", "acme"),
    ]


def test_row_34_an_instance_whose_class_is_not_tracked(rig) -> None:
    class Embed:
        def __call__(self, x):
            return x

    tracked = gputrace.track(feature="inner")(Embed())
    assert gputrace.track(tenant="acme")(tracked)(1) == 1
    assert (rig.one().feature, rig.one().tenant) == ("inner", "acme")


def test_row_34_a_decorator_in_between_still_runs(rig) -> None:
    """Which copied the attributes of what it wraps, as functools.wraps does."""

    def doubled(function):
        @functools.wraps(function)
        def wrapper(*args):
            return 2 * function(*args)

        return wrapper

    @gputrace.track(operation="outer")
    @doubled
    @gputrace.track(operation="inner")
    def embed(x):
        return x

    assert embed(3) == 6
    assert [call.operation for call in rig.settled()] == ["outer", "inner"]


def test_row_34_the_inner_decorator_stays_as_it_was(rig) -> None:
    inner = gputrace.track(operation="inner")(lambda: None)
    gputrace.track(feature="search")(inner)
    inner()
    assert rig.one().feature == "__none__"
