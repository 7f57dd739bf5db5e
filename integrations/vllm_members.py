"""Whom a step of vLLM serves, and what each of them does in it: from the scheduler's output alone.

Right for chunked prefill, for speculative decoding, and for requests that were preempted and begin again,
whichever of vLLM's two model runners sends them: the older among the known requests, the newer as new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gputrace import Work

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_made = tuple.__new__


class Progress(Generic[T]):
    """How far a request has come.

    Attributes:
        served: Whom it is done for; None where nobody saw it begin.
        prompt: Tokens of its prompt.
        target: Tokens before which all is prefill: the prompt, and after a preemption what it had been given.
        reach: Where its last step ended.
        computed: Tokens below this were computed before its last preemption.
        cached: Tokens of the prompt that came from the prefix cache.
        recomputed: Tokens computed once more so far.
    """

    __slots__ = ("cached", "computed", "prompt", "reach", "recomputed", "served", "target")

    def __init__(self, served: T, prompt: int) -> None:
        self.served = served
        self.prompt = self.target = prompt
        self.reach = self.computed = self.cached = self.recomputed = 0

    def resume(self, target: int, *, drafts: bool) -> None:
        """Begin again after a preemption.

        Args:
            target: Tokens that it has by now.
            drafts: Its last step may have reached beyond those that were accepted.
        """
        self.target = target
        self.computed = max(self.computed, min(self.reach, target - drafts))


class Members(Generic[T]):
    """The requests that a worker knows.

    Args:
        begin: Called with vLLM's record of a request that is scheduled for the first time.

    Attributes:
        known: By their ids.
        strangers: Requests that were scheduled and that nobody saw begin.
    """

    def __init__(self, begin: Callable[[Any], T]) -> None:
        self._begin = begin
        self._drafts = False
        self.known: dict[str, Progress[T]] = {}
        self.strangers = 0

    def left(self, output: Any) -> dict[str, Progress[T]]:
        """Forget the requests that have ended by now, and return them by their ids."""
        known = self.known
        return {one: known.pop(one) for one in output.finished_req_ids if one in known}

    def of(self, output: Any) -> tuple[list[T], list[Work]]:
        """Return whom a step serves and what each does in it.

        Args:
            output: vLLM's ``SchedulerOutput``.
        """
        served: list[T] = []
        work: list[Work] = []
        scheduled = output.num_scheduled_tokens
        if output.scheduled_spec_decode_tokens:
            self._drafts = True
        for new in output.scheduled_new_reqs:
            progress, cached = self._new(new)
            served.append(progress.served)
            work.append(_work(progress, new.num_computed_tokens, scheduled[new.req_id], cached))
        cached_reqs = output.scheduled_cached_reqs
        resumed = cached_reqs.resumed_req_ids
        known = self.known
        add, put = served.append, work.append
        for name, context, outputs in zip(
            cached_reqs.req_ids, cached_reqs.num_computed_tokens, cached_reqs.num_output_tokens, strict=True
        ):
            one = known.get(name)
            count = scheduled[name]
            if one is None:
                one = self._stranger(name, context, 0 if outputs else count)
            elif name in resumed:
                one.resume(one.prompt + outputs, drafts=self._drafts)
            add(one.served)
            if context >= one.target:
                # Nearly all there is, and on the thread that launches the work of the device.
                one.reach = context + count
                put(_made(Work, (0, count, context, 0, 0)))
            else:
                put(_work(one, context, count, 0))
        return served, work

    def _new(self, new: Any) -> tuple[Progress[T], int]:
        """Return a request that is sent as a new one, and what of it was found in the prefix cache."""
        target = len(new.prefill_token_ids or ()) if hasattr(new, "prefill_token_ids") else 0
        progress = self.known.get(new.req_id)
        if progress is not None:
            progress.resume(target or _prompt(new), drafts=self._drafts)
            return progress, 0
        progress = self.known[new.req_id] = Progress(self._begin(new), _prompt(new))
        progress.target = target or progress.prompt
        progress.cached = new.num_computed_tokens
        return progress, progress.cached

    def _stranger(self, name: str, context: int, rest: int) -> Progress[Any]:
        self.strangers += 1
        progress: Progress[Any] = Progress(None, context + rest)
        self.known[name] = progress
        return progress


def _prompt(new: Any) -> int:
    if new.prompt_token_ids is not None:
        return len(new.prompt_token_ids)
    return 0 if new.prompt_embeds is None else len(new.prompt_embeds)


def _work(one: Progress[Any], context: int, count: int, cached: int) -> Work:
    prefill = max(0, min(count, one.target - context))
    again = max(0, min(context + prefill, one.computed) - context)
    one.recomputed += again
    one.reach = context + count
    return Work(prefill, count - prefill, context, cached, again)
