"""Whom a batch of SGLang serves, and what each of them does in it: from the scheduler's own batch alone.

Right for chunked prefill, for batches that mix prefill and decode, for speculative decoding and beams, and
for requests that were retracted and begin again. What is known of a request is kept on SGLang's own object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gputrace import Work

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: The attribute of ``Req`` under which it is kept.
ATTRIBUTE = "_gputrace_progress"

_made = tuple.__new__


class Progress(Generic[T]):
    """How far a request has come.

    Attributes:
        served: Whom it is done for.
        members: Those that it belongs to.
        prompt: Tokens of its prompt.
        reach: Tokens below this were computed before.
        cached: Tokens that came from the prefix cache.
        recomputed: Tokens computed once more so far.
        ended: It was told that it has ended.
    """

    __slots__ = ("cached", "ended", "members", "prompt", "reach", "recomputed", "served")

    def __init__(self, members: Members[T], served: T, prompt: int) -> None:
        self.members = members
        self.served = served
        self.prompt = prompt
        self.reach = self.cached = self.recomputed = 0
        self.ended = False


class Members(Generic[T]):
    """The requests that a scheduler has run.

    Args:
        begin: Called with SGLang's ``Req`` when it is in a batch for the first time.
        end: Called with a ``Req``, how far it came and how it ended, once.
        drafts: Tokens of a request that one step of speculative decoding computes, 0 without.
    """

    def __init__(
        self,
        begin: Callable[[Any], T],
        end: Callable[[Any, Progress[T], Any], None],
        drafts: int = 0,
    ) -> None:
        self._begin = begin
        self._end = end
        self._drafts = drafts

    def of(self, batch: Any) -> tuple[list[T], list[Work]]:
        """Return whom a batch serves and what each does in it.

        Args:
            batch: SGLang's ``ScheduleBatch``.
        """
        return self._decoding(batch) if batch.forward_mode.is_decode() else self._extending(batch)

    def _decoding(self, batch: Any) -> tuple[list[T], list[Work]]:
        served: list[T] = []
        work: list[Work] = []
        rows = _rows(batch)
        drafts = 0 if batch.spec_algorithm.is_none() else self._drafts
        # With drafts the scheduler does not know yet how many of the last ones were accepted.
        ends = (
            [req.seqlen for req in batch.reqs]
            if drafts or batch.seq_lens_cpu is None
            else batch.seq_lens_cpu.tolist()
        )
        # Beams have rows beyond those of the requests.
        for index, (req, end) in enumerate(zip(batch.reqs, ends, strict=False)):
            one = self._known(req)
            one.reach = end - 1 + (drafts or 1)
            served.append(one.served)
            work.append(_made(Work, (0, drafts or rows.get(index, 1), end - 1, 0, 0)))
        return served, work

    def _extending(self, batch: Any) -> tuple[list[T], list[Work]]:
        served: list[T] = []
        work: list[Work] = []
        # Those that decode stand at the end.
        prompts = len(batch.reqs) - len(batch.decoding_reqs or ())
        lengths = zip(batch.reqs, batch.prefix_lens or (), batch.extend_lens or (), strict=True)
        for index, (req, context, count) in enumerate(lengths):
            one = self._known(req)
            served.append(one.served)
            if index < prompts:
                work.append(_prefill(one, context, count, self._valid(req)))
            else:
                one.reach = context + count
                work.append(Work(0, count, context, 0, 0))
        return served, work

    def _valid(self, req: Any) -> int:
        """Return below which token all was right that was computed: the last drafts may have been refused."""
        return len(req.origin_input_ids) + len(req.output_ids) - (1 if self._drafts else 0)

    def _known(self, req: Any) -> Progress[T]:
        one: Progress[T] | None = getattr(req, ATTRIBUTE, None)
        if one is None or one.members is not self:
            one = Progress(self, self._begin(req), len(req.origin_input_ids))
            setattr(req, ATTRIBUTE, one)
        return one

    def left(self, req: Any, one: Progress[T], how: Any) -> None:
        """Take note that a request has ended; only the first time counts.

        Args:
            req: SGLang's ``Req``.
            one: How far it came.
            how: How it ended: SGLang's reason, or what it tells the front end; None where it says nothing.
        """
        if not one.ended:
            one.ended = True
            self._end(req, one, how)


def ended(req: Any, how: Any) -> None:
    """Take note that a request has ended; one that was in no batch is left.

    Args:
        req: SGLang's ``Req``, or anything else.
        how: How it ended.
    """
    one = getattr(req, ATTRIBUTE, None)
    if one is not None:
        one.members.left(req, one, how)


def _rows(batch: Any) -> dict[int, int]:
    """Return how many rows those have that have more than one: the leaders of beams."""
    tail = batch.beam_tail
    return {} if tail is None else {one.leader_idx: 1 + one.end - one.start for one in tail.entries}


def _prefill(one: Progress[Any], context: int, count: int, valid: int) -> Work:
    end = context + count
    # Found in the cache, and not because it was computed for this very request.
    cached = max(0, context - one.reach)
    again = max(0, min(end, one.reach, valid) - context)
    one.cached += cached
    one.recomputed += again
    one.reach = max(one.reach, end)
    return Work(count, 0, context, cached, again)
