"""What the members of a step do in it, and what of that takes time on the device."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence


class Work(NamedTuple):
    """What one member does in one step of a model server, in tokens.

    Attributes:
        prefill: Tokens of the prompt that are computed, recomputed ones included.
        decode: Tokens computed beyond the prompt, rejected drafts included.
        context: Tokens in the KV cache that the member's queries read.
        cached: Tokens of the prompt taken from the prefix cache: they cost nothing, and are shown.
        recomputed: Of ``prefill``, those computed once more after a preemption.
    """

    prefill: int = 0
    decode: int = 0
    context: int = 0
    cached: int = 0
    recomputed: int = 0


#: What a step's time is made of, in the order of every vector below: the fixed part of a step, of which
#: each member bears an equal share; a prompt token; a token beyond the prompt; a token of context that such a
#: token reads; a thousand pairs of a prompt token and what it attends to.
COEFFICIENTS = catalogue.STEP_COEFFICIENTS

Vector = tuple[float, float, float, float, float]

_PAIRS = 1_000.0


def covariates(work: Work, members: int) -> Vector:
    """Return what of a member's work takes time.

    Args:
        work: What it does.
        members: How many the step serves.

    Returns:
        In the order of ``COEFFICIENTS``. The context that decoded tokens read is read once for
        all of a member's tokens in the step; each prompt token attends to the context and to
        the prompt tokens before it, itself included.
    """
    prefill, decode, context, _, _ = work
    pairs = prefill * context + prefill * (prefill + 1) / 2
    return (1.0 / members, float(prefill), float(decode), float(context if decode else 0), pairs / _PAIRS)


#: More tokens than any context has; products of them must remain finite.
_MOST = 1 << 40


class WorkError(ValueError):
    """Work that nobody can have done.

    Args:
        kind: What is wrong, in a word: each is told once.
        message: What is wrong, and where.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def checked(work: Sequence[object], members: int) -> list[Work]:
    """Return the work of each member.

    Args:
        work: What was given.
        members: How many the step serves.

    Raises:
        WorkError: It is none that could be done.
    """
    if len(work) != members:
        raise WorkError("number", f"there are {members} members and work for {len(work)}")
    return [_read(one, at) for at, one in enumerate(work)]


def _read(one: object, at: int) -> Work:
    if not isinstance(one, Work):
        raise WorkError("type", f"work[{at}] is a {type(one).__name__}, not a gputrace.Work")
    read = one
    if not _INTEGERS.issuperset(map(type, one)):
        try:
            # What counts tokens elsewhere may be a number of NumPy's.
            read = Work(*map(operator.index, one))
        except TypeError:
            raise WorkError("integers", f"work[{at}] is {one}: tokens are whole numbers") from None
    if min(read) < 0 or max(read) >= _MOST:
        raise WorkError("range", f"work[{at}] is {one}: tokens are not negative, and less than 2**40")
    if read.recomputed > read.prefill:
        raise WorkError("recomputed", f"work[{at}] is {one}: recomputed tokens are a part of prefill")
    return read


_INTEGERS = frozenset({int})


def summed(vectors: Sequence[Vector]) -> Vector:
    """Return the sum of some vectors."""
    if not vectors:
        return _NOTHING
    one, two, three, four, five = map(sum, zip(*vectors, strict=True))
    return (one, two, three, four, five)


_NOTHING: Vector = (0.0, 0.0, 0.0, 0.0, 0.0)


def weight(theta: Vector, x: Vector) -> float:
    """Return how long work takes, in the unit of ``theta``."""
    return theta[0] * x[0] + theta[1] * x[1] + theta[2] * x[2] + theta[3] * x[3] + theta[4] * x[4]


#: The precision of weights: the largest of a step is this.
_WHOLE = 1 << 40


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Return weights as whole numbers in the same proportion: equal ones where there is none above 0."""
    largest = max(weights, default=0.0)
    if not largest > 0:
        return [1] * len(weights)
    return [round(one / largest * _WHOLE) for one in weights]
