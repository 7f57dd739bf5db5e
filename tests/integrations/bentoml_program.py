"""A BentoML service whose methods take batches: one in a thread, one as a coroutine."""

import asyncio
import os
import time

import bentoml

import gputrace
from gputrace.integrations import bentoml as instrumentation
from gputrace.integrations.asgi import RequestMiddleware

instrumentation.instrument()


@bentoml.service(workers=1)
class Doubler:
    def __init__(self) -> None:
        gputrace.configure(service_name="doubler", data_dir=os.environ["DOUBLER_DATA"], export_interval=0.2)

    @bentoml.api(batchable=True, max_batch_size=6, max_latency_ms=20_000)
    def threaded(self, values: list[float]) -> list[float]:
        time.sleep(0.01)
        return [2 * value for value in values]

    @bentoml.api(batchable=True, max_batch_size=6, max_latency_ms=20_000)
    async def awaited(self, values: list[float]) -> list[float]:
        with gputrace.span("multiply"):
            time.sleep(0.01)  # noqa: ASYNC251 - what a GPU would be waited for
        await asyncio.sleep(0.05)
        return [2 * value for value in values]


Doubler.add_asgi_middleware(RequestMiddleware)
