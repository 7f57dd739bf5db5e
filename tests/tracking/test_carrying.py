"""`carry`: threads and executors that would begin with nobody's name."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import baggage, context as context_api, trace

import gputrace


def feature():
    return gputrace.current().feature


def test_the_scope_is_lost_without_it():
    with ThreadPoolExecutor(1) as pool, gputrace.attribute_to(feature="search"):
        assert pool.submit(feature).result() == "__none__"


def test_it_goes_into_a_thread_pool():
    with ThreadPoolExecutor(2) as pool:
        with gputrace.attribute_to(feature="search"):
            carried = gputrace.carry(feature)
            first = pool.submit(carried)
        # What is in force where it is carried counts, not where it is submitted.
        with gputrace.attribute_to(feature="other"):
            second = pool.submit(carried)
        assert (first.result(), second.result()) == ("search", "search")
        assert pool.submit(feature).result() == "__none__"


async def test_it_goes_into_an_executor_of_asyncio():
    loop = asyncio.get_running_loop()
    with gputrace.attribute_to(feature="search"):
        assert await loop.run_in_executor(None, gputrace.carry(feature)) == "search"
        assert await loop.run_in_executor(None, feature) == "__none__"


def test_it_goes_into_a_thread():
    found = []
    with gputrace.attribute_to(feature="search"):
        thread = threading.Thread(target=gputrace.carry(lambda: found.append(feature())))
        thread.start()
        thread.join()
    assert found == ["search"]


def test_work_in_there_belongs_to_the_call(rig):
    @gputrace.track(operation="inner")
    def inner():
        rig.work(5)

    with ThreadPoolExecutor(1) as pool, gputrace.span("outer", feature="search", tenant="acme"):
        pool.submit(gputrace.carry(inner)).result()
    calls = {call.operation: call for call in rig.settled()}
    assert calls["inner"].feature == "search"
    assert calls["inner"].tenant == "acme"
    assert calls["inner"].call.parent is calls["outer"].call


def test_span_and_baggage_go_with_it(traced):
    def seen():
        return trace.get_current_span().get_span_context().span_id, baggage.get_baggage("user")

    token = context_api.attach(baggage.set_baggage("user", "7"))
    with traced.tracer.start_as_current_span("request") as span, ThreadPoolExecutor(1) as pool:
        found = pool.submit(gputrace.carry(seen)).result()
    context_api.detach(token)
    assert found == (span.get_span_context().span_id, "7")


def test_calls_at_once_see_nothing_of_each_other():
    everybody = threading.Barrier(8, timeout=10)

    def work(number):
        with gputrace.attribute_to(tenant=str(number)):
            everybody.wait()
            return gputrace.current().tenant, feature()

    with ThreadPoolExecutor(8) as pool, gputrace.attribute_to(feature="search"):
        found = list(pool.map(gputrace.carry(work), range(8)))
    assert found == [(str(number), "search") for number in range(8)]


def test_what_it_changes_stays_in_its_copy():
    with gputrace.attribute_to(feature="search"):
        carried = gputrace.carry(lambda: gputrace.attribute_to(feature="left open").__enter__())
        carried()
        assert feature() == "search"
        assert gputrace.carry(feature)() == "search"


def test_it_looks_and_behaves_like_the_function():
    def add(a: int, b: int = 2, *, c: int = 3) -> int:
        """Adds."""
        return a + b + c

    carried = gputrace.carry(add)
    assert inspect.signature(carried) == inspect.signature(add)
    assert (carried.__name__, carried.__doc__) == ("add", "Adds.")
    assert carried(1, c=4) == 7
    assert gputrace.carry(functools.partial(add, 1))(b=5) == 9
    assert gputrace.carry("a b".split)() == ["a", "b"]
    with pytest.raises(ZeroDivisionError):
        gputrace.carry(lambda: 1 // 0)()


async def coroutine():
    pass


def generator():
    yield


async def async_generator():
    yield


class Asynchronous:
    async def __call__(self):
        pass


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        generator,
        async_generator,
        functools.partial(coroutine),
        Asynchronous(),
        gputrace.track(coroutine),
        gputrace.track(generator),
    ],
)
def test_what_runs_after_its_call_is_refused(function):
    with pytest.raises(TypeError, match="its body does not run when it is called"):
        gputrace.carry(function)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"^gputrace.carry\(3\): it must be callable"):
        gputrace.carry(3)
