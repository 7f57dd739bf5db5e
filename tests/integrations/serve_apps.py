"""Applications of Ray Serve whose models run on a virtual GPU in real time, one for each way to be called.

Each replica writes down which kernel ran for whom. Deployed by tests/integrations/test_ray_serve*.py.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator  # noqa: TC003 - FastAPI reads annotations
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from ray import serve

import gputrace
from gputrace.devices import selection
from gputrace.integrations.ray_serve import batch_weight
from gputrace.testing import VirtualGpu

TRUTH = "SERVE_APPS_TRUTH"
MS = 1_000_000
local = threading.local()
# They share two processors and are stopped at once when they have nothing to do.
deployment = functools.partial(
    serve.deployment, ray_actor_options={"num_cpus": 0.1}, graceful_shutdown_wait_loop_s=0.1
)


class LoggingGpu(VirtualGpu):
    """Writes down what each thread enqueues."""

    def install(self) -> VirtualGpu:
        enqueue = self.driver.enqueue

        def logged(device: int, stream: int, duration_ns: int | None) -> Any:
            entry = enqueue(device, stream, duration_ns)
            entries = getattr(local, "entries", None)
            if entries is not None and entry.kind == "event":
                entries.append(entry.start_ns)
            return entry

        self.driver.enqueue = logged  # type: ignore[method-assign]
        return super().install()


@functools.cache
def gpu() -> VirtualGpu:
    """The GPU of this replica, there from its first model on."""
    made = LoggingGpu(1, tied_to_real_time=True)
    made.install()
    made.init()
    # As importing torch would have done before this process was set up.
    selection.choose()
    return made


def model(name: str | None, milliseconds: float = 1.0, **known: Any) -> str:
    """Run a model, and write down for how long and whatever else is known of it; the name of this replica."""
    ready = gpu()
    local.entries = []
    with gputrace.span(f"run {name}", model=name) as tracked:
        ready.launch(round(milliseconds * MS))
    start, *_, end = local.entries
    local.entries = None
    line = {"model": name, "id": tracked.id, "ns": end - start, **known}
    with (Path(os.environ[TRUTH]) / f"{os.getpid()}.jsonl").open("a") as truth:
        truth.write(json.dumps(line) + "\n")
    return str(os.getpid())


def note(text: str) -> None:
    """Say to the other processes how far this one is."""
    with (Path(os.environ[TRUTH]) / f"{os.getpid()}.notes").open("a") as notes:
        notes.write(f"{text}\n")


def count_notes(text: str) -> int:
    notes = [path.read_text() for path in Path(os.environ[TRUTH]).glob("*.notes")]
    return "".join(notes).splitlines().count(text)


async def noted(text: str, times: int = 1) -> None:
    """Wait until some processes have noted that."""
    for _ in range(3_000):
        if count_notes(text) >= times:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(text)


async def billed() -> list[Any]:
    """What the work here is billed to, as the code sees it."""
    now = gputrace.current().attribution
    return [now.feature, now.tenant, now.stage, now.model]


INLINE = {
    "num_cpus": 0.1,
    # The user's code runs in the loop of the replica, and has a runtime environment of its own.
    "runtime_env": {"env_vars": {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}},
}


class Measured:
    """Its replica, which Serve ends without notice, leaves behind what coverage has measured in it."""

    def __del__(self) -> None:
        module = sys.modules.get("coverage")
        measured = None if module is None else module.Coverage.current()
        if measured is not None:
            measured.save()


@deployment()
class Plain(Measured):
    """Answers HTTP without an application."""

    async def __call__(self, request: Any) -> list[Any]:
        gputrace.current().set(tenant=request.query_params.get("tenant", "nobody"))
        model("plain")
        if "fails" in request.query_params:
            raise RuntimeError("as planned")
        if "sleeps" in request.query_params:
            note("plain sleeps")
            await asyncio.sleep(60)
        return await billed()


@deployment()
class Leaf(Measured):
    """The last of several hops."""

    def compute(self, milliseconds: float) -> list[Any]:
        now = gputrace.current().attribution
        model("leaf", milliseconds, feature=now.feature)
        return [now.feature, now.tenant, now.stage, now.model]

    async def compute_batch(self, members: dict[str, int]) -> list[Any]:
        model("below a batch", 8, members=members)
        return await billed()

    async def tokens(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            model("token", feature=gputrace.current().feature)
            yield number
            await asyncio.sleep(0.002)

    def plain_tokens(self, count: int) -> Iterator[int]:
        for number in range(count):
            model("token", feature=gputrace.current().feature)
            yield number

    async def fails(self) -> None:
        model("failing")
        raise ValueError("as planned")

    @gputrace.feature("its own")
    async def marked(self) -> list[Any]:
        return await billed()

    async def sleeps(self) -> None:
        model("sleeping")
        note("leaf sleeps")
        await asyncio.sleep(60)


@deployment()
class Middle(Measured):
    """Hands on, and names nothing itself."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    async def hand_on(self, milliseconds: float) -> list[Any]:
        return [await billed(), await self.leaf.compute.remote(milliseconds)]

    async def hand_on_batch(self, members: dict[str, int]) -> Any:
        return await self.leaf.compute_batch.remote(members)


asked = FastAPI()


@deployment()
@serve.ingress(asked)
class Asked(Measured):
    """A FastAPI application that nobody has instrumented."""

    def __init__(self, middle: Any, leaf: Any, beside: Any) -> None:
        self.middle = middle
        self.leaf = leaf
        self.beside = beside

    @asked.get("/answers/{number}")
    @gputrace.feature("answers")
    async def answers(self, number: int, tenant: str) -> list[Any]:
        gputrace.current().set(tenant=tenant)
        return [await billed(), *await self.middle.hand_on.remote(number)]

    @asked.get("/grpc/{number}")
    @gputrace.feature("answers")
    async def grpc(self, number: int) -> list[Any]:
        middle = self.middle.options(_by_reference=False)
        return [await billed(), *await middle.hand_on.remote(number)]

    @asked.get("/cancels")
    async def cancels(self) -> str:
        response = self.leaf.sleeps.remote()
        await noted("leaf sleeps")
        response.cancel()
        try:
            await response
        except (asyncio.CancelledError, serve.exceptions.RequestCancelledError):
            return "cancelled"
        return "finished"

    @asked.get("/stages")
    async def stages(self) -> list[Any]:
        with gputrace.attribute_to(stage="small"):
            small = await self.leaf.compute.remote(1)
        return [small, await self.leaf.compute.remote(1)]

    @asked.get("/stream")
    async def stream(self, count: int) -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            async for number in self.leaf.options(stream=True).tokens.remote(count):
                yield f"{number} "

        return StreamingResponse(parts())

    @asked.get("/inline")
    async def inline(self) -> list[Any]:
        streamed = self.beside.options(stream=True)
        return [
            await self.beside.compute.remote(1),
            [number async for number in streamed.tokens.remote(2)],
            [number async for number in streamed.plain_tokens.remote(2)],
        ]

    @asked.get("/fails")
    async def fails(self) -> None:
        await self.leaf.fails.remote()

    @asked.get("/sleeps")
    async def sleeps(self) -> None:
        await self.leaf.sleeps.remote()


tagged = FastAPI()
gputrace.instrument(tagged, tags={"search": "tagged"})


@deployment()
@serve.ingress(tagged)
class Tagged(Measured):
    """One that was instrumented with options of its own."""

    @tagged.get("/tagged", tags=["search"])
    async def tagged(self) -> list[Any]:
        return await billed()


class Bare:
    """An ASGI application without a framework."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        gputrace.current().set(feature="bare")
        answer = json.dumps(await billed()).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})


@deployment()
@serve.ingress(Bare())
class Framed(Measured):
    """It has no middleware stack that gputrace could go into."""


@deployment(max_ongoing_requests=20)
class Batched(Measured):
    """Three at a time, in three ways to weigh them."""

    async def __call__(self, request: Any) -> Any:
        query = request.query_params
        gputrace.current().set(feature=query["feature"], tenant=query["tenant"])
        if query["way"] == "streamed":
            return [part async for part in self.streamed(query["tenant"])]
        note(f"{query['tenant']} waits")
        try:
            return await getattr(self, query["way"])(query["tenant"])
        except asyncio.CancelledError:
            note(f"{query['tenant']} has left")
            raise

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=30)
    async def alike(self, tenants: list[str]) -> list[int]:
        model("alike", 6, members=dict.fromkeys(tenants, 1))
        return [len(tenants)] * len(tenants)

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=30)
    @batch_weight(len)
    async def weighed(self, tenants: list[str]) -> list[int]:
        model("weighed", 6, members={tenant: len(tenant) for tenant in tenants})
        await asyncio.sleep(0.01)
        return [len(tenants)] * len(tenants)

    @batch_weight(len)
    @serve.batch(max_batch_size=3, batch_wait_timeout_s=30)
    async def streamed(self, tenants: list[str]) -> AsyncIterator[list[int]]:
        for number in range(2):
            model("streamed", 3, members={tenant: len(tenant) for tenant in tenants})
            yield [number] * len(tenants)

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=30)
    @batch_weight(len)
    async def handing_on(self, tenants: list[str]) -> list[Any]:
        middle = serve.get_deployment_handle("Middle", "asked")
        known = {tenant: len(tenant) for tenant in tenants}
        return [await middle.hand_on_batch.remote(known)] * len(tenants)

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=30)
    async def failing(self, tenants: list[str]) -> list[int]:
        model("failing batch", 6, members=dict.fromkeys(tenants, 1))
        raise RuntimeError("as planned")

    @serve.batch(max_batch_size=2, batch_wait_timeout_s=60)
    async def left(self, tenants: list[str]) -> list[int]:
        model("left", 6, members=dict.fromkeys(tenants, 1))
        return [len(tenants)] * len(tenants)


@deployment()
class Multiplexed(Measured):
    """Several models in turn, by the id that comes with a request."""

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, name: str) -> str:
        return name

    async def __call__(self, request: Any) -> list[Any]:
        chosen = await self.load(serve.get_multiplexed_model_id())
        # Names no model: that is known by the id that came with the request.
        model(None, 2, chosen=chosen)
        leaf = serve.get_deployment_handle("Leaf", "asked")
        return [await billed(), await leaf.compute.remote(1)]


@deployment(
    max_ongoing_requests=4,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0,
        "downscale_delay_s": 0,
        "metrics_interval_s": 0.1,
        "look_back_period_s": 0.5,
    },
)
class Scaled(Measured):
    """Becomes two when there is much to do, and one again."""

    async def __call__(self, request: Any) -> str:
        replica = model("scaled", 2)
        await asyncio.sleep(0.3)
        return replica

    def __del__(self) -> None:
        # The last that a replica does before it is killed.
        model("farewell", feature="farewell")
        super().__del__()


def deploy() -> None:
    """Deploy all at once."""
    leaf = Leaf.bind()
    applications = {
        "plain": Plain.bind(),
        "asked": Asked.bind(
            Middle.bind(leaf), leaf, Leaf.options(name="Inline", ray_actor_options=INLINE).bind()
        ),
        "tagged": Tagged.bind(),
        "framed": Framed.bind(),
        "batched": Batched.bind(),
        "multiplexed": Multiplexed.bind(),
        "scaled": Scaled.bind(),
    }
    targets = [
        serve.RunTarget(application, name=name, route_prefix=f"/{name}")
        for name, application in applications.items()
    ]
    serve.run_many(targets)
