"""A micro-batcher under FastAPI: requests of several tenants wait for each other, and each pays for its part.

    uvicorn --app-dir examples micro_batcher:app

A batch goes out when it is full, or when its first request has waited for long enough. Whose request comes
first pays no more than its share: the batch is split by tokens among all its members.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from fastapi import FastAPI

import gputrace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gputrace.batching import Member

MOST_IN_A_BATCH = 8
LONGEST_WAIT_S = 0.01


class Item(NamedTuple):
    """What waits in the queue: the work, who is billed for it, and where its answer goes."""

    text: str
    member: Member
    answer: asyncio.Future[int]


def model(texts: list[str]) -> list[int]:
    """Stand in for a model: twenty microseconds a token."""
    time.sleep(0.000_02 * sum(len(text.split()) for text in texts))
    return [len(text) for text in texts]


class MicroBatcher:
    """Collects items until there are enough, or the first has waited for long enough, and runs them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Item] = asyncio.Queue()

    async def ask(self, text: str) -> int:
        """Put a text into the next batch and wait for its answer."""
        item = Item(text, gputrace.member(), asyncio.get_running_loop().create_future())
        await self._queue.put(item)
        return await item.answer

    async def run(self) -> None:
        """Serve batches for ever."""
        while True:
            items = [await self._queue.get()]
            deadline = time.monotonic() + LONGEST_WAIT_S
            while len(items) < MOST_IN_A_BATCH:
                try:
                    left_s = deadline - time.monotonic()
                    items.append(await asyncio.wait_for(self._queue.get(), max(0.0, left_s)))
                except asyncio.TimeoutError:
                    break
            self._serve(items)

    @staticmethod
    def _serve(items: list[Item]) -> None:
        tokens = [len(item.text.split()) for item in items]
        with gputrace.batch([item.member for item in items], weights=tokens, model="embedder"):
            answers = model([item.text for item in items])
        for item, answer in zip(items, answers, strict=True):
            if not item.answer.cancelled():
                item.answer.set_result(answer)


batcher = MicroBatcher()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Run the batcher for as long as the service."""
    task = asyncio.create_task(batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.get("/embed")
@gputrace.feature("embedding")
async def embed(text: str, tenant: str) -> int:
    """Embed a text for a tenant, in whichever batch comes next."""
    gputrace.current().set(tenant=tenant)
    return await batcher.ask(text)


gputrace.instrument(app)
