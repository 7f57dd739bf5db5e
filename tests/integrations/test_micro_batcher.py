"""The example of a micro-batcher: three tenants, each charged for its tokens."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from gputrace import catalogue
from gputrace.testing import Recorder

pytestmark = pytest.mark.requires("fastapi", "httpx")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "micro_batcher.py"
TOKENS = {"acme": 100, "globex": 50, "initech": 25}


def load() -> Any:
    spec = importlib.util.spec_from_file_location("micro_batcher", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_three_tenants_are_charged_by_their_tokens() -> None:
    import httpx

    example = load()
    with Recorder(metric_attributes=("tenant",)) as recorder:
        transport = httpx.ASGITransport(example.app)
        async with (
            example.app.router.lifespan_context(example.app),
            httpx.AsyncClient(transport=transport, base_url="http://app") as client,
        ):
            for _ in range(5):
                answers = await asyncio.gather(
                    *(
                        client.get("/embed", params={"tenant": tenant, "text": "word " * tokens})
                        for tenant, tokens in TOKENS.items()
                    )
                )
                assert [answer.status_code for answer in answers] == [200, 200, 200]
        spent = recorder.time_by(catalogue.TENANT)
        batches = [call for call in recorder.settled() if call.operation == "batch"]
    # By tokens, whichever batches they met in: never all to the first.
    expected = dict.fromkeys(TOKENS, 0.0)
    for call in batches:
        tenants = [member.attribution.tenant for member in call.call.batch.members]
        tokens = sum(TOKENS[tenant] for tenant in tenants)
        for tenant in tenants:
            expected[tenant] += call.charged_ns / 1e9 * TOKENS[tenant] / tokens
    assert spent == pytest.approx(expected, abs=1e-6)
    assert all(spent.values())
