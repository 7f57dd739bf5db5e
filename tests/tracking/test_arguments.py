"""Rows 31 and 32: arguments, items and results are handed on, never looked at and never kept."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

import gputrace


def refuse(*_):
    raise AssertionError("looked at")


class Untouchable:
    """Whatever Python could ask of an object fails; row 31's 400 000 elements would only be slow."""

    __str__ = __repr__ = __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __getitem__ = refuse
    __format__ = __contains__ = __getattr__ = __reduce_ex__ = __lt__ = __index__ = __next__ = refuse


class Tensor:
    """Something large that has to go when its last user drops it."""


@pytest.fixture
def nothing_collected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("traced")
def test_rows_31_32_functions(rig) -> None:
    one, two, result = Untouchable(), Untouchable(), Untouchable()

    @gputrace.track
    def embed(*args, **kwargs):
        assert args[0] is one
        assert kwargs["two"] is two
        return result

    assert embed(one, two=two) is result
    assert rig.one().status == "ok"


@pytest.mark.usefixtures("traced")
def test_rows_31_32_an_error_does_not_make_it_look(rig) -> None:
    @gputrace.track
    def embed(_):
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        embed(Untouchable())
    assert rig.one().status == "error"


def test_rows_31_32_methods() -> None:
    class Model(Untouchable):
        @gputrace.track
        def run(self):
            return self

    model = Model()
    assert model.run() is model


@pytest.mark.usefixtures("traced")
def test_rows_31_32_coroutines() -> None:
    one, result = Untouchable(), Untouchable()

    @gputrace.track
    async def embed(given):
        assert given is one
        await asyncio.sleep(0)
        return result

    async def main() -> bool:
        return await embed(one) is result

    assert asyncio.run(main())


@pytest.mark.usefixtures("traced")
def test_rows_31_32_generators() -> None:
    one, item, sent, result = (Untouchable() for _ in range(4))

    @gputrace.track
    def stream(given):
        assert given is one
        got = yield item
        assert got is sent
        return result

    running = stream(one)
    assert next(running) is item
    with pytest.raises(StopIteration) as stop:
        running.send(sent)
    assert stop.value.value is result


@pytest.mark.usefixtures("traced")
def test_rows_31_32_async_generators() -> None:
    one, item, sent = Untouchable(), Untouchable(), Untouchable()

    @gputrace.track
    async def stream(given):
        assert given is one
        got = yield item
        assert got is sent
        yield item

    async def main() -> None:
        running = stream(one)
        assert await running.__anext__() is item
        assert await running.asend(sent) is item
        await running.aclose()

    asyncio.run(main())


async def drops_its_argument(tensor):
    reference = weakref.ref(tensor)
    del tensor
    await asyncio.sleep(0)
    return reference() is not None


def drops_its_argument_and_streams(tensor):
    reference = weakref.ref(tensor)
    del tensor
    yield reference() is not None


async def drops_its_argument_and_streams_async(tensor):
    reference = weakref.ref(tensor)
    del tensor
    yield reference() is not None


@pytest.mark.usefixtures("nothing_collected")
def test_an_argument_that_the_body_drops_is_freed() -> None:
    """Wrappers that keep ``args`` keep a batch on the GPU until the stream ends."""

    async def main() -> list[bool]:
        alive = [await gputrace.track(drops_its_argument)(Tensor())]
        alive += list(gputrace.track(drops_its_argument_and_streams)(tensor=Tensor()))
        stream = gputrace.track(drops_its_argument_and_streams_async)(Tensor())
        return alive + [item async for item in stream]

    assert asyncio.run(main()) == [False] * 3


def drops_its_items():
    last = []
    for _ in range(3):
        alive = any(one() is not None for one in last)
        box = [(Tensor(), alive)]
        last[:] = [weakref.ref(box[0][0])]
        yield box.pop()


async def drops_its_items_async():
    last = []
    for _ in range(3):
        alive = any(one() is not None for one in last)
        box = [(Tensor(), alive)]
        last[:] = [weakref.ref(box[0][0])]
        yield box.pop()


@pytest.mark.usefixtures("nothing_collected")
def test_an_item_that_the_consumer_drops_is_freed_before_the_next_is_made() -> None:
    def read(made):
        for _ in range(3):
            item = next(made)
            alive = item[1]
            del item
            yield alive

    assert list(read(drops_its_items())) == [False] * 3
    assert list(read(gputrace.track(drops_its_items)())) == [False] * 3


@pytest.mark.usefixtures("nothing_collected")
def test_an_item_of_an_async_generator_is_freed_too() -> None:
    async def read(made) -> list[bool]:
        seen = []
        for _ in range(3):
            item = await made.__anext__()
            seen.append(item[1])
            del item
        await made.aclose()
        return seen

    assert asyncio.run(read(drops_its_items_async())) == [False] * 3
    assert asyncio.run(read(gputrace.track(drops_its_items_async)())) == [False] * 3


class OutOfMemoryError(Exception): ...


def raising():
    raise OutOfMemoryError


async def raising_later():
    await asyncio.sleep(0)
    raise OutOfMemoryError


def stream():
    yield


async def async_stream():
    yield


async def call_function():
    gputrace.track(raising)()


async def call_coroutine():
    await gputrace.track(raising_later)()


async def throw_into_generator():
    running = gputrace.track(stream)()
    next(running)
    running.throw(OutOfMemoryError())


async def throw_into_async_generator():
    running = gputrace.track(async_stream)()
    await running.__anext__()
    await running.athrow(OutOfMemoryError())


@pytest.mark.usefixtures("traced", "nothing_collected")
@pytest.mark.parametrize(
    "work", [call_function, call_coroutine, throw_into_generator, throw_into_async_generator]
)
def test_an_error_does_not_keep_itself_alive(work) -> None:
    """Nor, with it, the frames and the tensors in them, when memory is what was short."""

    async def main() -> weakref.ref:
        try:
            await work()
        except OutOfMemoryError as error:
            return weakref.ref(error)
        raise AssertionError

    assert asyncio.run(main())() is None
