"""A FastAPI service of many kinds of routes whose models run on a virtual GPU in real time.

It keeps a log of its own: every event and kernel of the GPU, with the call, the request and the feature that
the service knows it to be for. gputrace is asked for the id of a call, to join the two, and for nothing else.
Run by tests/integrations/test_truthful_service.py with uvicorn, gunicorn and opentelemetry-instrument.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator  # noqa: TC003 - FastAPI reads annotations
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.responses import StreamingResponse

import gputrace
from gputrace.testing import VirtualGpu

local = threading.local()
numbers = itertools.count(1)
truth: list[dict[str, Any]] = []


class LoggingGpu(VirtualGpu):
    """Writes down what each thread enqueues, and what for."""

    def install(self) -> VirtualGpu:
        enqueue = self.driver.enqueue

        def logged(device: int, stream: int, duration_ns: int | None) -> Any:
            entry = enqueue(device, stream, duration_ns)
            call = getattr(local, "call", None)
            if call is not None:
                call["entries"].append([entry.kind, entry.start_ns, entry.end_ns])
            return entry

        self.driver.enqueue = logged  # type: ignore[method-assign]
        return super().install()


gpu = LoggingGpu(1, tied_to_real_time=True)
gpu.install()
gpu.init()


def model(owner: int, feature: str, name: str, milliseconds: float = 1.0) -> None:
    """One call of a model for an owner: a request, or work of its own."""
    call = {"owner": owner, "feature": feature, "model": name, "entries": []}
    local.call = call
    with gputrace.span(f"run {name}", model=name) as tracked:
        gpu.launch(round(milliseconds * 1_000_000))
    local.call = None
    call["id"] = tracked.id
    truth.append(call)


def dump() -> None:
    Path(f"truth-{os.getpid()}.json").write_text(json.dumps(truth))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    task = asyncio.create_task(batcher())
    yield
    task.cancel()
    dump()


atexit.register(dump)
app = FastAPI(lifespan=lifespan)


@app.get("/sync/{number}")
@gputrace.feature("sync")
def sync(number: int) -> int:
    owner = next(numbers)
    model(owner, "sync", "small", 2)
    model(owner, "sync", "large", 4)
    return number


@app.get("/async/{number}")
async def asynchronous(number: int) -> int:
    owner = next(numbers)
    model(owner, "/async/{number}", "small")
    await asyncio.sleep(0.002)
    await asyncio.to_thread(model, owner, "/async/{number}", "large", 3)
    return number


@app.get("/tagged", tags=["search"])
async def tagged() -> None:
    model(next(numbers), "tagged", "small")


@app.get("/extra", openapi_extra={"x-gputrace-feature": "extra"})
def extra() -> None:
    model(next(numbers), "extra", "small")


def names_feature(product: str) -> None:
    gputrace.current().set(feature=product)


@app.get("/dependency")
def dependency(product: str, _: Annotated[None, Depends(names_feature)]) -> None:
    model(next(numbers), product, "small")


async def yields() -> AsyncIterator[int]:
    gputrace.current().set(feature="yielding")
    owner = next(numbers)
    model(owner, "yielding", "small")
    yield owner


@app.get("/yielding")
async def yielding(owner: Annotated[int, Depends(yields)]) -> None:
    model(owner, "yielding", "large")


@app.get("/stream")
@gputrace.feature("stream")
async def stream() -> StreamingResponse:
    owner = next(numbers)

    async def parts() -> AsyncIterator[str]:
        for _ in range(5):
            model(owner, "stream", "llm")
            yield "x" * 1_000
            await asyncio.sleep(0.002)

    return StreamingResponse(parts())


@app.get("/sync-stream")
def sync_stream() -> StreamingResponse:
    owner = next(numbers)

    def parts() -> Iterator[str]:
        for _ in range(3):
            model(owner, "/sync-stream", "llm")
            yield "x" * 1_000
            time.sleep(0.002)

    return StreamingResponse(parts())


@app.get("/background")
@gputrace.feature("background")
def background(tasks: BackgroundTasks) -> None:
    model(next(numbers), "background", "small")
    tasks.add_task(lambda: model(next(numbers), "background", "later", 2))


@app.get("/error")
def error() -> None:
    model(next(numbers), "/error", "small")
    raise RuntimeError("as planned")


below = FastAPI()


@below.get("/items/{item}")
def item(item: str) -> str:
    model(next(numbers), "/below/items/{item}", "small")
    return item


app.mount("/below", below)

waiting: asyncio.Queue[Any] = asyncio.Queue()


async def batcher() -> None:
    """A micro-batcher: at most four, or as many as came within five milliseconds."""
    while True:
        items = [await waiting.get()]
        await asyncio.sleep(0.005)
        while len(items) < 4 and not waiting.empty():
            items.append(waiting.get_nowait())
        call: dict[str, Any] = {
            "owner": next(numbers),
            "model": "batched",
            "entries": [],
            "members": [[product, tokens] for _, product, tokens, _ in items],
        }
        local.call = call
        with gputrace.batch(
            [member for member, *_ in items], weights=[tokens for _, _, tokens, _ in items], model="batched"
        ) as tracked:
            gpu.launch(3_000_000)
        local.call = None
        call["id"] = tracked.id
        truth.append(call)
        for *_, done in items:
            done.set_result(None)


@app.get("/batched")
async def batched(product: str, tokens: int) -> None:
    gputrace.current().set(feature=product)
    done = asyncio.get_running_loop().create_future()
    await waiting.put((gputrace.member(), product, tokens, done))
    await done


if os.environ.get("INSTRUMENTED", "code") == "code":
    gputrace.configure(data_dir="data", export_interval=0.5)
    gputrace.instrument(app, tags={"search": "tagged"})
