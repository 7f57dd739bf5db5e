"""A light and a heavy model behind FastAPI on Ray Serve: what each costs, and how often it is needed.

    python examples/ray_serve_cascade/serve_cascade.py

Starts Ray Serve on this machine, sends questions of two tenants, stops it again and prints the report. Both
models are batched, and each question is charged for its tokens. Nothing here needs a GPU: without one, the
processes stand in as devices.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import ray
from fastapi import FastAPI
from ray import serve

import gputrace
from gputrace.integrations.ray_serve import batch_weight

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

ROUTE = "/cascade"
SURE_ENOUGH = 0.8
LIGHT_S_PER_TOKEN = 0.000_2
HEAVY_S_PER_TOKEN = 0.002

api = FastAPI()


class Answer(NamedTuple):
    """What a model says, and how sure it is of it."""

    text: str
    confidence: float


def tokens(question: str) -> int:
    """Return how many tokens a question has."""
    return len(question.split())


def run_model(questions: list[str], s_per_token: float) -> None:
    """Stand in for a model: so long for each token."""
    time.sleep(s_per_token * sum(map(tokens, questions)))


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, graceful_shutdown_wait_loop_s=0.1)
class Heavy:
    """Knows the answer."""

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.02)
    @batch_weight(tokens)
    async def __call__(self, questions: list[str]) -> list[str]:
        """Answer questions, several at a time."""
        run_model(questions, HEAVY_S_PER_TOKEN)
        return [f"heavy: {question}" for question in questions]


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, graceful_shutdown_wait_loop_s=0.1)
class Light:
    """Answers what it is sure of, and hands over the rest.

    Args:
        heavy: Whom it hands over to.
    """

    def __init__(self, heavy: DeploymentHandle) -> None:
        self._heavy = heavy

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.02)
    @batch_weight(tokens)
    async def _answered(self, questions: list[str]) -> list[Answer]:
        run_model(questions, LIGHT_S_PER_TOKEN)
        # It knows nothing of what is hard.
        return [
            Answer(f"light: {question}", 0.5 if question.startswith("why") else 0.9) for question in questions
        ]

    async def __call__(self, question: str) -> str:
        """Answer a question, or let the heavy model do so."""
        answer = await self._answered(question)
        if answer.confidence >= SURE_ENOUGH:
            return answer.text
        return str(await self._heavy.remote(question))


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, graceful_shutdown_wait_loop_s=0.1)
@serve.ingress(api)
class Support:
    """The service: its requests are billed to the feature that the route names.

    Args:
        light: Whom it asks first.
    """

    def __init__(self, light: DeploymentHandle) -> None:
        self._light = light

    @api.get("/answers")
    @gputrace.feature("support-answer")
    async def answer(self, question: str, tenant: str) -> str:
        """Answer a question of a tenant."""
        gputrace.current().set(tenant=tenant)
        return str(await self._light.remote(question))


def ask(port: int, count: int) -> list[str]:
    """Ask questions, one in five of them hard, and return the answers.

    Args:
        port: Where the service listens.
        count: How many.
    """
    dice = random.Random(0)

    def one(number: int) -> str:
        words = ["why" if number % 5 == 0 else "what", *["word"] * dice.randint(5, 20)]
        query = urllib.parse.urlencode(
            {"question": " ".join(words), "tenant": ("acme", "globex")[number % 2]}
        )
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{ROUTE}/answers?{query}", timeout=60
        ) as response:
            return str(json.load(response))

    with ThreadPoolExecutor(16) as clients:
        return list(clients.map(one, range(count)))


def main() -> None:
    """Start, ask, stop, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8000, help="where the service listens (default: 8000)")
    parser.add_argument("--requests", type=int, default=120, help="how many questions (default: 120)")
    parser.add_argument(
        "--data-dir", default="gputrace-data", help="where the files go (default: gputrace-data)"
    )
    given = parser.parse_args()
    gputrace.instrument_ray(data_dir=given.data_dir, metric_attributes=("tenant",))
    ray.init("local", include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"port": given.port})
    serve.run(Support.bind(Light.bind(Heavy.bind())), name="cascade", route_prefix=ROUTE)
    answers = ask(given.port, given.requests)
    # Replicas export what they know as they stop.
    serve.shutdown()
    ray.shutdown()
    handed_over = sum(answer.startswith("heavy") for answer in answers)
    print(f"{len(answers)} questions, {handed_over} of them handed over to the heavy model\n", flush=True)
    report = [sys.executable, "-m", "gputrace", "report", given.data_dir]
    for by in ("feature,stage", "tenant"):
        subprocess.run([*report, "--by", by, "--no-percentiles"], check=True)


if __name__ == "__main__":
    main()
