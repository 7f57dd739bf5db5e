"""A model server whose every step is known: what each member does in it, and how long it takes."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

from gputrace.steps_work import Work, covariates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gputrace.steps_work import Vector

FEATURES = ("rag", "chat", "classify")
#: Prompt, part of it that is cached, and output tokens of a request, each from and to.
_SHAPES = {
    "rag": ((1_500, 4_000), (0.0, 0.3), (60, 160)),
    "chat": ((150, 1_200), (0.3, 0.8), (100, 300)),
    "classify": ((300, 900), (0.0, 0.3), (1, 4)),
}
_ARRIVALS = ("rag", "rag", "chat", "chat", "chat", *("classify",) * 7)
_BUDGET = 1_024


class Sequence:
    """One request in the server."""

    __slots__ = ("cached", "computed", "end", "feature", "prompt")

    def __init__(self, chance: random.Random) -> None:
        self.feature = chance.choice(_ARRIVALS)
        prompt, cached, output = _SHAPES[self.feature]
        self.prompt = chance.randint(*prompt)
        self.cached = int(self.prompt * chance.uniform(*cached))
        self.computed = self.cached
        self.end = self.prompt + chance.randint(*output)

    def advance(self, budget: int) -> Work:
        """Return what it does in one step, with so many tokens left."""
        context, cached = self.computed, self.cached
        self.cached = 0
        if context >= self.prompt:
            self.computed += 1
            return Work(decode=1, context=context)
        prefill = min(budget, self.prompt - context)
        self.computed += prefill
        return Work(prefill=prefill, context=context, cached=cached)


class Step(NamedTuple):
    """What a step does.

    Attributes:
        features: Of each member.
        work: Of each member.
        vectors: What of it takes time.
        total: Their sum.
    """

    features: list[str]
    work: list[Work]
    vectors: list[Vector]
    total: Vector


def steps(seed: int, count: int) -> Iterator[Step]:
    """Yield the steps of a server that batches continuously, in chunks of the prompts.

    It serves 27 sequences in the mean, fewer and more with the time of day.
    """
    chance = random.Random(seed)
    running: list[Sequence] = []
    for number in range(count):
        members = 26 + 12 * math.sin(number / 300)
        if len(running) < members and chance.random() < 0.5:
            running += [Sequence(chance) for _ in range(chance.randint(1, 4))]
        if not running:
            running.append(Sequence(chance))
        budget, features, work = _BUDGET, [], []
        for one in sorted(running, key=lambda one: one.computed < one.prompt):
            if budget:
                done = one.advance(budget)
                budget -= done.prefill + done.decode
                features.append(one.feature)
                work.append(done)
        running = [one for one in running if one.computed < one.end]
        vectors = [covariates(one, len(work)) for one in work]
        yield Step(features, work, vectors, summed(vectors))


def summed(vectors: list[Vector]) -> Vector:
    """Return the sum of some vectors, zeros for none."""
    one, two, three, four, five = map(sum, zip(*vectors, strict=True)) if vectors else (0, 0, 0, 0, 0)
    return (one, two, three, four, five)


#: A model of 8 billion parameters on an H100: seconds a step, a prompt token, a decoded one, a token of
#: context, a thousand pairs.
ADDITIVE: Vector = (6.0e-3, 27e-6, 60e-6, 39e-9, 0.9e-6)


def additive(total: Vector) -> float:
    """Return how long a step takes whose costs add up, s."""
    return sum(a * b for a, b in zip(ADDITIVE, total, strict=True))


def roofline(total: Vector) -> float:
    """Return how long a step takes that is bound by arithmetic or by memory, whichever is slower, s."""
    somebody, prefill, decode, context, pairs = total
    arithmetic = 27e-6 * (prefill + decode) + 0.9e-6 * pairs
    memory = 4.8e-3 * (somebody > 0) + 39e-9 * context
    return 0.5e-3 * (somebody > 0) + max(arithmetic, memory)


def shapley(
    step: Step, cost: Callable[[Vector], float], chance: random.Random, orders: int
) -> dict[str, float]:
    """Return what each feature owes of a step: what each member adds, over orders in which they may come."""
    owed = dict.fromkeys(FEATURES, 0.0)
    places = list(range(len(step.work)))
    for _ in range(orders):
        chance.shuffle(places)
        total, before = (0.0, 0.0, 0.0, 0.0, 0.0), 0.0
        for at in places:
            one, two, three, four, five = (a + b for a, b in zip(total, step.vectors[at], strict=True))
            total = (one, two, three, four, five)
            # The fixed part is there once, whoever comes first.
            after = cost((1.0, two, three, four, five))
            owed[step.features[at]] += (after - before) / orders
            before = after
    return owed
