"""The simulated model server: what its steps compute, by continuous batching, and how long that truly takes.

A step of the simulation stands for many of a real one: it writes some tokens of each answer at once, and
takes as much longer as everything else that is simulated.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from gputrace import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The truth, which the SDK is never told: how long a step takes, a prompt token, a token beyond, a token of
#: context that such a token reads, and a thousand pairs of a prompt token and what it attends to, s. Of
#: a model of 15 billion parameters in 8 bits; they add up.
FIXED_S, PREFILL_S, DECODE_S, CONTEXT_S, PAIRS_S = 7.4e-3, 50e-6, 70e-6, 60e-9, 2.0e-6
#: What else there is adds up to so much of a step, as a standard deviation.
NOISE = 0.03

#: Tokens that a step computes at most, prompts and answers together.
_BUDGET = 1_024
#: Tokens of an answer that a step writes.
_WRITTEN = 8
#: Sequences that are served at once.
_MOST_SEQUENCES = 16
#: Tokens that fit into the memory of the server; whoever came last makes room.
_ROOM = 10_000
#: No request is longer than this; the rest is cut off.
_LONGEST_PROMPT, _LONGEST_ANSWER = 6_000, 600

Owner = TypeVar("Owner")


class Taken(NamedTuple):
    """What a member truly takes of a step, s.

    Attributes:
        prefill: For its prompt.
        decode: For what comes after.
    """

    prefill: float
    decode: float


class Served(Generic[Owner]):
    """One request in the server.

    Args:
        owner: Whose it is.
        prompt: Its tokens.
        cached: Of these, what the prefix cache has.
        answer: Tokens of the answer.

    Attributes:
        owner: Whose it is.
        held: Tokens of it in the memory.
    """

    __slots__ = ("_cached", "_end", "_hit", "_lost", "_prompt", "held", "owner")

    def __init__(self, owner: Owner, prompt: int, cached: int, answer: int) -> None:
        self.owner = owner
        self._prompt = max(1, min(prompt, _LONGEST_PROMPT))
        # The last token of a prompt is computed in any case, and the last of an answer never.
        self._cached = min(cached, self._prompt - 1)
        self._end = self._prompt + max(1, min(answer, _LONGEST_ANSWER)) - 1
        self._lost = 0
        self.held = self._hit = self._cached

    @property
    def done(self) -> bool:
        """Whether all of its answer is there."""
        return self.held >= self._end

    @property
    def wants(self) -> int:
        """Tokens of it that will be in the memory before it writes anything."""
        return max(self.held, self._prompt)

    @property
    def reads(self) -> bool:
        """Whether its prompt is still being computed."""
        return self.held < self._prompt

    def advance(self, budget: int) -> Work:
        """Compute what fits into a step.

        Args:
            budget: Tokens that it may compute.
        """
        context = self.held
        if not self.reads:
            written = min(budget, _WRITTEN, self._end - context)
            self.held += written
            return Work(decode=written, context=context)
        computed = min(budget, self._prompt - context)
        again = min(computed, self._lost)
        self._lost -= again
        self.held += computed
        hit, self._hit = self._hit, 0
        return Work(prefill=computed, context=context, cached=hit, recomputed=again)

    def preempt(self) -> None:
        """Make room: all but what the prefix cache has is computed once more, as if it were a prompt."""
        self._prompt = max(self._prompt, self.held)
        self._lost += self.held - self._cached
        self.held = self._hit = self._cached


class Batcher(Generic[Owner]):
    """Chooses what each step computes.

    Attributes:
        waiting: Who waits to be served, in order.
        running: Who is served, in the order in which they were let in.
    """

    def __init__(self) -> None:
        self.waiting: deque[Served[Owner]] = deque()
        self.running: list[Served[Owner]] = []

    @property
    def busy(self) -> bool:
        """Whether there is anybody."""
        return bool(self.waiting or self.running)

    def step(self) -> list[tuple[Served[Owner], Work]]:
        """Return who takes part in the next step, and what each does in it."""
        while self.waiting and len(self.running) < _MOST_SEQUENCES and self._fits(self.waiting[0]):
            self.running.append(self.waiting.popleft())
        while self._held() > _ROOM and len(self.running) > 1:
            last = self.running.pop()
            last.preempt()
            self.waiting.appendleft(last)
        budget, found = _BUDGET, []
        # Answers go on first; prompts have what is left.
        for one in sorted(self.running, key=lambda one: one.reads):
            if budget:
                work = one.advance(budget)
                budget -= work.prefill + work.decode
                found.append((one, work))
        return found

    def leave(self) -> list[Served[Owner]]:
        """Let those go whose answer is there, and return them."""
        gone = [one for one in self.running if one.done]
        self.running = [one for one in self.running if not one.done]
        return gone

    def _fits(self, one: Served[Owner]) -> bool:
        return sum(other.wants for other in self.running) + one.wants <= _ROOM

    def _held(self) -> int:
        return sum(one.held for one in self.running)


def taken(work: Sequence[Work]) -> list[Taken]:
    """Return what each member of a step truly takes of it; the step takes their sum.

    The fixed part is borne in equal parts, a member's by its tokens.
    """
    found = []
    for prefill, decode, context, _, _ in work:
        pairs = prefill * context + prefill * (prefill + 1) / 2
        fixed_s = FIXED_S / len(work)
        of_prompt = prefill / (prefill + decode)
        prompt_s = PREFILL_S * prefill + PAIRS_S * pairs / 1_000
        beyond_s = DECODE_S * decode + (CONTEXT_S * context if decode else 0.0)
        found.append(Taken(fixed_s * of_prompt + prompt_s, fixed_s * (1 - of_prompt) + beyond_s))
    return found


def alone_s(prompt: int, cached: int, answer: int, *, fixed: float = 1.0) -> float:
    """Return what a request takes that is served alone, s.

    Args:
        prompt: Its tokens.
        cached: Of these, what the cache has.
        answer: Tokens of the answer.
        fixed: How much of the fixed part of each step it bears.
    """
    one = Served(None, prompt, cached, answer)
    whole_s = 0.0
    while not one.done:
        whole_s += seconds(taken([one.advance(_BUDGET)])) - (1 - fixed) * FIXED_S
    return whole_s


def seconds(parts: Iterable[Taken]) -> float:
    """Return how long a step takes, s."""
    return sum(one.prefill + one.decode for one in parts)
