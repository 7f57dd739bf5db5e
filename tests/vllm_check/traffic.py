"""What clients send: three features of two tenants, several samples, streams, clients that go, nobodies."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

import gputrace

if TYPE_CHECKING:
    from collections.abc import Sequence

FEATURES = ("rag", "chat", "classify")
TENANTS = ("acme", "globex")
#: Prompt and output of a request, tokens.
SHAPES = {"rag": ((120, 300), (4, 16)), "chat": ((10, 40), (30, 90)), "classify": ((20, 60), (1, 3))}
_SHARED = 96
_AT_ONCE = 16


class Sent(NamedTuple):
    """One request of a client.

    Attributes:
        name: Becomes part of vLLM's id of it.
        feature: Whom it should be billed to, None for a nobody.
        tenant: Likewise.
        samples: ``n``.
        stream: Whether it is read as it comes.
        gone: Whether the client goes early.
        spoofs: Whether it claims another's feature in the body.
        prompt: Tokens.
        output: At most so many, each.
    """

    name: str
    feature: str | None
    tenant: str | None
    samples: int
    stream: bool
    gone: bool
    spoofs: bool
    prompt: tuple[int, ...]
    output: int


def plan(count: int, seed: int = 7) -> list[Sent]:
    """Return what is sent, the same each time.

    Args:
        count: Requests.
        seed: Of the lengths.
    """
    dice = random.Random(seed)
    shared = {one: [dice.randrange(10, 3_900) for _ in range(_SHARED)] for one in FEATURES}
    planned = []
    for number in range(count):
        feature = FEATURES[number % 3]
        prompts, outputs = SHAPES[feature]
        gone = number % 20 == 10
        length = dice.randint(*prompts)
        # Of retrieval the beginnings are alike, so that some of it is found in the prefix cache.
        head = shared[feature][: length - 8] if feature == "rag" else []
        rest = [dice.randrange(10, 3_900) for _ in range(length - len(head))]
        nobody = number % 7 == 3
        planned.append(
            Sent(
                f"r{number:04d}",
                None if nobody else feature,
                None if nobody else TENANTS[number // 3 % 2],
                2 if number % 15 == 4 else 1,
                gone or number % 4 == 1,
                gone,
                number % 9 == 2,
                tuple(head + rest),
                400 if gone else dice.randint(*outputs),
            )
        )
    return planned


async def send_all(url: str, planned: Sequence[Sent]) -> dict[str, int]:
    """Send everything, some at a time.

    Args:
        url: Of the server.
        planned: What is sent.

    Returns:
        How many tokens each request was given, by name; -1 where the client went.
    """
    limit = asyncio.Semaphore(_AT_ONCE)
    answered: dict[str, int] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:

        async def one(sent: Sent) -> None:
            async with limit:
                answered[sent.name] = await _send(session, url, sent)

        await asyncio.gather(*(one(sent) for sent in planned))
    return answered


async def _send(session: aiohttp.ClientSession, url: str, sent: Sent) -> int:
    body: dict[str, Any] = {
        "model": "tiny",
        "prompt": list(sent.prompt),
        "max_tokens": sent.output,
        "ignore_eos": True,
        "n": sent.samples,
        "temperature": 1.0,
        "stream": sent.stream,
    }
    if sent.stream:
        body["stream_options"] = {"include_usage": True}
    if sent.spoofs:
        body["vllm_xargs"] = {"gputrace": json.dumps({"feature": "stolen", "tenant": "victim"})}
    async with session.post(f"{url}/v1/completions", json=body, headers=_headers(sent)) as answer:
        answer.raise_for_status()
        if not sent.stream:
            return int((await answer.json())["usage"]["completion_tokens"])
        return await _read(answer, sent)


def _headers(sent: Sent) -> dict[str, str]:
    headers = {"X-Request-Id": sent.name}
    if sent.feature is not None:
        with gputrace.attribute_to(feature=sent.feature, tenant=sent.tenant):
            gputrace.inject(headers)
        headers["traceparent"] = f"00-{trace_id(sent):032x}-{1:016x}-01"
    return headers


def trace_id(sent: Sent) -> int:
    """Return the trace that a request is part of."""
    return 0x5EED_0000 + int(sent.name[1:])


async def _read(answer: aiohttp.ClientResponse, sent: Sent) -> int:
    tokens, lines = -1, 0
    async for line in answer.content:
        if sent.gone and lines > 8:
            answer.close()
            return -1
        text = line.decode().removeprefix("data: ").strip()
        lines += bool(text)
        if text and text != "[DONE]":
            with suppress(KeyError, TypeError):
                tokens = json.loads(text)["usage"]["completion_tokens"]
    return tokens
