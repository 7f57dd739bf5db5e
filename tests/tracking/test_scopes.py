"""Scopes across threads, tasks and libraries: nothing is lost, nothing leaks, nothing grows."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import threading

import pytest
from opentelemetry import context as context_api

import gputrace
from gputrace import attribution, catalogue


def on_a_thread(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def test_tasks_and_to_thread_keep_the_scope(rig) -> None:
    @gputrace.track(operation="work")
    def work():
        rig.work(1)

    @gputrace.track(operation="request", feature="search")
    async def request():
        work()
        await asyncio.create_task(asyncio.to_thread(work))
        await asyncio.gather(asyncio.to_thread(work))

    await request()
    calls = rig.settled()
    assert {call.feature for call in calls} == {"search"}
    request_call = next(call.call for call in calls if call.operation == "request")
    assert [call.call.parent for call in calls if call.operation == "work"] == [request_call] * 3


def test_a_pool_that_copies_nothing_begins_outside_of_any_scope(rig) -> None:
    work = gputrace.track(operation="work")(lambda: None)
    with gputrace.span("request", feature="search"), concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
        pool.submit(contextvars.copy_context().run, work).result()
    bare, copied = (call for call in rig.settled() if call.operation == "work")
    assert (bare.feature, bare.call.parent) == (catalogue.NO_FEATURE, None)
    assert (copied.feature, copied.call.parent.site.operation) == ("search", "request")


def test_a_thread_that_is_handed_the_opentelemetry_context_alone(rig) -> None:
    """As OpenTelemetry's instrumentation of threads does."""
    seen = []

    @gputrace.track(operation="stream")
    def stream():
        with gputrace.attribute_to(model="minilm"):
            yield gputrace.current().feature
            yield gputrace.current().feature

    def work() -> None:
        context_api.attach(carried)
        gputrace.track(operation="work")(lambda: None)()
        seen.extend((feature, gputrace.current().feature) for feature in stream())
        seen.append(gputrace.current().feature)

    with gputrace.attribute_to("search"):
        carried = context_api.get_current()
        on_a_thread(work)
    assert seen == [("search", "search"), ("search", "search"), "search"]
    assert {call.feature for call in rig.settled()} == {"search"}


def test_a_scope_is_in_force_where_the_opentelemetry_context_was_lost(rig) -> None:
    """As FastAPI loses what a dependency attached, before it calls the endpoint."""
    with gputrace.attribute_to("search"):
        token = context_api.attach(context_api.Context())
        with gputrace.attribute_to(tenant="acme"):
            gputrace.track(operation="work")(lambda: None)()
        gputrace.track(operation="work")(lambda: None)()
        context_api.detach(token)
    assert [(call.feature, call.tenant) for call in rig.settled()] == [("search", "acme"), ("search", None)]


def test_a_block_leaves_the_opentelemetry_context_as_it_found_it() -> None:
    before = context_api.get_current()
    with gputrace.attribute_to("outer"), gputrace.attribute_to("inner"), gputrace.span("block"):
        assert context_api.get_current() is not before
    assert context_api.get_current() is before


def test_what_others_attach_within_a_block_is_not_undone() -> None:
    key = context_api.create_key("user")
    with gputrace.attribute_to("outer"):
        context_api.attach(context_api.set_value(key, "kept"))
    assert context_api.get_value(key) == "kept"
    assert attribution.scope_in_force() is None
    context_api.attach(context_api.Context())


async def test_contrib_5081_one_block_object_in_many_tasks_at_once() -> None:
    """State of one request on a shared object leaked into another's."""
    search, chat = gputrace.attribute_to("search"), gputrace.attribute_to("chat")
    waiting = [asyncio.Event() for _ in range(40)]

    async def request(number: int) -> tuple[str, str]:
        with search if number % 2 else chat:
            await waiting[number].wait()
            inside = gputrace.current().feature
        return inside, gputrace.current().feature

    tasks = [asyncio.create_task(request(number)) for number in range(40)]
    for number in sorted(range(40), key=lambda number: number * 7 % 40):
        await asyncio.sleep(0)
        waiting[number].set()
    seen = await asyncio.gather(*tasks)
    assert seen == [("chat" if number % 2 == 0 else "search", catalogue.NO_FEATURE) for number in range(40)]


async def test_one_span_object_in_many_tasks_at_once(rig) -> None:
    block = gputrace.span("block")
    ends = [asyncio.Event() for _ in range(4)]

    async def request(number: int) -> str | None:
        with block as call:
            await ends[number].wait()
            assert gputrace.current().call_id == call.id
            rig.work(1)
        return gputrace.current().call_id

    tasks = [asyncio.create_task(request(number)) for number in range(4)]
    await asyncio.sleep(0)
    for number in (2, 0, 3, 1):
        ends[number].set()
        await tasks[number]
    assert [await task for task in tasks] == [None] * 4
    assert sorted(call.duration_ns for call in rig.settled()) == [1, 2, 3, 4]
    assert rig.open_calls() == 0


def test_a_block_may_be_used_again_and_in_itself(rig) -> None:
    block, billed = gputrace.span("block"), gputrace.attribute_to("search")
    with block, billed, block, billed:
        assert gputrace.current().feature == "search"
    with block:
        assert gputrace.current().feature == catalogue.NO_FEATURE
    assert len(rig.settled()) == 3


async def test_what_a_body_leaves_open_ends_with_it(rig) -> None:
    """An async generator that is dropped leaves its blocks in another task, if at all."""

    async def leaky():
        with gputrace.attribute_to("leaked"), gputrace.span("leaked"):
            yield 1
            yield 2

    @gputrace.track(operation="request")
    async def request():
        async for _ in leaky():
            break

    with gputrace.attribute_to("outer"):
        await request()
        assert gputrace.current().feature == "outer"
        assert gputrace.current().call_id is None
    assert attribution.scope_in_force() is None
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.open_calls() == 0


async def test_contrib_4251_work_that_outlives_its_call_is_an_owner_of_its_own(rig) -> None:
    """Background work: counted for the feature, not under a call that has ended."""
    going = asyncio.Event()

    @gputrace.track(operation="background")
    async def background():
        rig.work(7)

    async def later() -> None:
        await going.wait()
        await background()

    @gputrace.track(operation="request", feature="search")
    async def request():
        return asyncio.create_task(later())

    task = await request()
    rig.settle()
    going.set()
    await task
    call = next(call for call in rig.settled() if call.operation == "background")
    assert (call.feature, call.charged_ns) == ("search", 7)
    assert (call.call.parent, call.call.root) == (None, None)


async def test_contrib_3586_what_a_sync_part_sets_is_seen_by_what_comes_later(rig) -> None:
    """A thread pool runs it in a copy of the context: the scope is one object, changed in place."""
    seen = []

    with gputrace.attribute_to("request"):
        await asyncio.to_thread(lambda: gputrace.current().set("search", tenant="acme"))
        seen.append((gputrace.current().feature, gputrace.current().tenant))
        await asyncio.create_task(asyncio.to_thread(gputrace.track(lambda: None)))
    assert seen == [("search", "acme")]
    assert rig.one().tenant == "acme"


async def test_what_runs_on_after_its_call_does_not_rename_it(rig) -> None:
    going = asyncio.Event()

    async def later() -> str:
        await going.wait()
        gputrace.current().set("later")
        gputrace.track(operation="background")(lambda: None)()
        return gputrace.current().feature

    @gputrace.track(operation="request", feature="search")
    async def request():
        return asyncio.create_task(later())

    task = await request()
    going.set()
    assert await task == "later"
    assert {call.operation: call.feature for call in rig.settled()} == {
        "request": "search",
        "background": "later",
    }


def living_scopes() -> int:
    return sum(type(one) is attribution.Scope for one in gc.get_objects())


async def test_tasks_that_start_their_successors_keep_nothing_of_their_predecessors(rig) -> None:
    """A job that goes on for ever must not hold on to all that it has ever been."""
    latest: list[asyncio.Task] = []
    alive: list[int] = []
    done = asyncio.Event()

    @gputrace.track(operation="job")
    async def job(left: int) -> None:
        with gputrace.attribute_to("job"):
            if left:
                latest[:] = [asyncio.create_task(job(left - 1))]
                return
        gc.collect()
        alive.append(living_scopes())
        done.set()

    gc.collect()
    before = living_scopes()
    await job(100)
    await done.wait()
    assert alive[0] - before < 10
    assert {call.call.previous for call in rig.settled()} == {None}


def test_a_block_leaves_no_ring_of_objects(rig) -> None:
    """Which would stay until the collector runs, for every request."""
    gc.collect()
    before = living_scopes()
    gc.disable()
    try:
        with gputrace.attribute_to("search"), gputrace.span("block"), gputrace.attribute_to("chat"):
            pass
        assert living_scopes() == before
    finally:
        gc.enable()
    assert len(rig.settled()) == 1


def test_an_async_generator_read_by_a_task_of_its_own(rig) -> None:
    """Its scope is then its own predecessor: whoever follows the links must not go round for ever."""

    async def main() -> None:
        tasks = []

        @gputrace.track(operation="stream")
        async def stream():
            async def read_on() -> None:
                with gputrace.attribute_to("reader"):
                    await running.__anext__()

            with gputrace.attribute_to("inside"):
                tasks.append(asyncio.create_task(read_on()))
                yield 1
                assert gputrace.current().feature == "inside"
                yield 2

        running = stream()
        await running.__anext__()
        await tasks[0]
        await running.aclose()

    asyncio.run(main())
    assert rig.one().status == "ok"


@pytest.mark.parametrize("kind", ["function", "block"])
def test_calls_on_many_threads_are_all_settled(rig, kind) -> None:
    @gputrace.track(operation="work")
    def function():
        with gputrace.span("block"):
            pass

    def block() -> None:
        with gputrace.span("work"), gputrace.span("block"):
            pass

    def work() -> None:
        for _ in range(200):
            (function if kind == "function" else block)()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = rig.settled()
    assert len(calls) == 8 * 200 * 2
    assert rig.open_calls() == 0
    assert all(call.call.parent.site.operation == "work" for call in calls if call.operation == "block")


def test_a_thread_that_a_generator_starts_in_a_scope(rig) -> None:
    """The scope is back in the OpenTelemetry context too when the generator goes on."""

    @gputrace.track(operation="stream")
    def stream():
        with gputrace.attribute_to("inside"):
            yield
            carried = context_api.get_current()

        def work() -> None:
            context_api.attach(carried)
            gputrace.track(operation="work")(lambda: None)()

        on_a_thread(work)

    list(stream())
    assert [call.feature for call in rig.settled() if call.operation == "work"] == ["inside"]
