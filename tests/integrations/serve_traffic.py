"""Starts Ray Serve, deploys tests/integrations/serve_apps.py, sends requests of all kinds and stops it again.

    python serve_traffic.py FOLDER PORT

Leaves in the folder what gputrace exported (`data`), what ran (`truth`) and what was answered
(`answers.json`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import ray
import serve_apps
from ray import serve

import gputrace

FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])
TENANTS = {"a": "fa", "bbb": "fb", "cccc": "fb"}
FORGED = {"baggage": "gputrace.feature=forged,gputrace.tenant=forged,gputrace.stage=forged"}
LONGEST_WAIT_S = 60

answers: dict[str, list[Any]] = {}


async def send(client: httpx.AsyncClient, path: str, **headers: str) -> None:
    response = await client.get(path, headers=headers)
    answers.setdefault(path, []).append([response.status_code, response.text])


async def one_by_one(client: httpx.AsyncClient) -> None:
    for path in (
        "/plain?tenant=acme",
        "/plain?tenant=acme&fails=1",
        "/asked/answers/7?tenant=acme",
        "/asked/grpc/5",
        "/asked/stages",
        "/asked/stream?count=4",
        "/asked/inline",
        "/asked/fails",
        "/asked/cancels",
        "/tagged/tagged",
        "/framed",
    ):
        await send(client, path, **FORGED)
    for name in ("m1", "m2", "m1"):
        await send(client, "/multiplexed", serve_multiplexed_model_id=name)


async def together(client: httpx.AsyncClient) -> None:
    for way in ("alike", "weighed", "streamed", "handing_on", "failing"):
        queries = (f"feature={feature}&tenant={tenant}" for tenant, feature in TENANTS.items())
        await asyncio.gather(*(send(client, f"/batched?way={way}&{query}") for query in queries))


async def leave(client: httpx.AsyncClient, path: str, begun: str, times: int = 1) -> None:
    """Go away once it is noted that work for the path has begun."""
    # The model that one asks for is not that of the next.
    headers = {"serve_multiplexed_model_id": "m9"}
    waiting = asyncio.create_task(client.get(path, headers=headers))
    await serve_apps.noted(begun, times)
    waiting.cancel()
    await asyncio.wait([waiting])
    answers[path] = []


async def leaving(client: httpx.AsyncClient) -> None:
    """Clients that go before they are answered: of work that has begun, and of an item that waits."""
    await leave(client, "/plain?sleeps=1&tenant=gone", "plain sleeps")
    await leave(client, "/asked/sleeps", "leaf sleeps", 2)
    await leave(client, "/batched?way=left&feature=fa&tenant=gone", "gone waits")
    await serve_apps.noted("gone has left")
    await send(client, "/batched?way=left&feature=fa&tenant=a")


async def scaling(client: httpx.AsyncClient) -> None:
    """Until there are two replicas, and one again."""
    replicas: set[str] = set()
    began = time.monotonic()
    while len(replicas) < 2 and time.monotonic() - began < LONGEST_WAIT_S:
        await asyncio.gather(*(send(client, "/scaled") for _ in range(4)))
        replicas = {text for _, text in answers["/scaled"]}
    while time.monotonic() - began < 2 * LONGEST_WAIT_S:
        states = serve.status().applications["scaled"].deployments["Scaled"].replica_states
        if sum(states.values()) == 1:
            answers["scaled down"] = [len(replicas)]
            return
        await asyncio.sleep(0.1)


async def drive() -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=LONGEST_WAIT_S) as client:
        await one_by_one(client)
        await together(client)
        await leaving(client)
        await scaling(client)


def call_from_here() -> None:
    """A call of a program that is no deployment."""
    leaf = serve.get_deployment_handle("Leaf", "asked")
    with gputrace.attribute_to(feature="nightly", tenant="acme"):
        answers["from here"] = [leaf.compute.remote(2).result(), leaf.marked.remote().result()]


def main() -> None:
    settings: dict[str, Any] = {"data_dir": str(FOLDER / "data"), "metric_attributes": ("tenant",)}
    gputrace.configure(**settings)
    gputrace.instrument_ray(**settings)
    os.environ[serve_apps.TRUTH] = str(FOLDER / "truth")
    (FOLDER / "truth").mkdir(parents=True)
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
    )
    serve.start(http_options={"port": PORT})
    serve_apps.deploy()
    asyncio.run(drive())
    call_from_here()
    serve.shutdown()
    ray.shutdown()
    (FOLDER / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
