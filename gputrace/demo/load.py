"""The clients of the demo's service, in a process of their own.

In the service's process their CPU time would count as untracked work of that process.
Run as ``python -m gputrace.demo.load``: examples come in on standard input, results go
out on standard output, the progress bar is drawn on standard error. SIGTERM ends the
load early, with the results so far.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLIENTS = 4
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send, and the answer that would be right."""

    feature: str
    pixels: Sequence[int]
    label: int


@dataclass(slots=True)
class Tally:
    """What became of the requests to one feature."""

    answered: int = 0
    correct: int = 0
    escalated: int = 0
    failed: int = 0


@dataclass(slots=True)
class Load:
    """A fixed list of requests, sent by a few clients at a time.

    Attributes:
        tallies: The results so far, by feature.
        stopped: No further request is sent.
    """

    url: str
    requests: Iterator[Request]
    tallies: dict[str, Tally] = field(default_factory=dict)
    stopped: bool = False

    async def run(self, progress: Progress, total: int) -> None:
        """Send all requests and wait for the answers."""
        task = progress.add_task("requests", total=total)
        async with httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT_S, trust_env=False) as client:
            clients = (self._send_in_turn(client, progress, task) for _ in range(CLIENTS))
            await asyncio.gather(*clients)

    async def _send_in_turn(self, client: httpx.AsyncClient, progress: Progress, task: TaskID) -> None:
        for request in self.requests:
            if self.stopped:
                return
            await self._send(client, request)
            progress.advance(task)

    async def _send(self, client: httpx.AsyncClient, request: Request) -> None:
        tally = self.tallies.setdefault(request.feature, Tally())
        try:
            response = await client.post(f"/{request.feature}", json={"pixels": request.pixels})
            answer = response.raise_for_status().json()
        except httpx.HTTPStatusError:
            tally.failed += 1
        except httpx.TransportError:
            # The service is gone: further requests would only fail one by one.
            tally.failed += 1
            self.stopped = True
        else:
            tally.answered += 1
            tally.correct += answer["digit"] == request.label
            tally.escalated += answer["escalated"]


def plan(
    features: Sequence[str], examples: Sequence[tuple[Sequence[int], int]], total: int, seed: int
) -> list[Request]:
    """Mix requests such that every feature gets the same images, in a random order.

    Args:
        features: Shares of equal size, to one request.
        examples: Pixels and label; taken in turn, again from the start when they run out.
        total: Number of requests.
        seed: Decides the order.
    """
    requests = []
    sent: Counter[str] = Counter()
    for number in range(total):
        feature = features[number % len(features)]
        pixels, label = examples[sent[feature] % len(examples)]
        sent[feature] += 1
        requests.append(Request(feature, pixels, label))
    random.Random(seed).shuffle(requests)  # noqa: S311 - reproducible, not secret
    return requests


def main() -> int:
    """Read the examples, send the load, print the tallies as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--feature", action="append", required=True, dest="features")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    examples = json.load(sys.stdin)
    requests = plan(arguments.features, examples, arguments.requests, arguments.seed)
    load = Load(arguments.url, iter(requests))
    signal.signal(signal.SIGTERM, lambda _number, _frame: setattr(load, "stopped", True))
    with _progress() as progress:
        asyncio.run(load.run(progress, len(requests)))
    tallies = {
        feature: {
            "answered": tally.answered,
            "correct": tally.correct,
            "escalated": tally.escalated,
            "failed": tally.failed,
        }
        for feature, tally in load.tallies.items()
    }
    json.dump(tallies, sys.stdout)
    return 0


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    raise SystemExit(main())
