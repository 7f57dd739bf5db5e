"""Continuous batching of Transformers: each step is a batch of the requests that have tokens in it.

Its loop runs in a thread of its own, so that who asks is noted where a request is added.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import gputrace
from gputrace import faults
from gputrace.integrations.patching import Patch
from gputrace.integrations.transformers_shapes import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputrace.batching import Member

    Function = Callable[..., Any]

_WHOSE = "_gputrace_whose"
_MODULE = "transformers.generation.continuous_batching"

_ADDING = faults.contained("note whose request is added")
_STEPPING = faults.contained("see whom a step serves")
_COUNTING = faults.contained("count the tokens of a step")

#: Whether this thread is in ``add_request``: other states are made of those that were added.
_asking: ContextVar[bool] = ContextVar("gputrace_adds_request", default=False)


class Whose:
    """Lies on the state of a request: who asked, and how far it has been computed.

    Attributes:
        member: Billed for it; None in another process of a tensor-parallel group.
        computed: Tokens so far, the farthest that it came.
    """

    def __init__(self, member: Member | None = None, computed: int = 0) -> None:
        self.member = member
        self.computed = computed

    def __deepcopy__(self, _: Any) -> Whose:
        # Several answers to one prompt part from the first once that is computed.
        return Whose(self.member, self.computed)

    def __reduce__(self) -> Any:
        # States are sent to the other processes of a group; who asks is counted where it was added.
        return (Whose, ())

    def __del__(self) -> None:
        if self.member is not None:
            # One that was cancelled before any step is waited for no longer.
            self.member.forget()


class Part(NamedTuple):
    """What a request has in one step.

    Attributes:
        member: Billed for it.
        prefill: Tokens of its prompt, those that are computed again included.
        decode: Tokens of its answer.
        context: Tokens before them.
        cached: Tokens of the prompt that another request has computed, where this is its first step.
        recomputed: Tokens of these that it had computed before, and lost.
    """

    member: Member | None
    prefill: int
    decode: int
    context: int
    cached: int
    recomputed: int


def count(member: Member | None, **amounts: float) -> None:
    """Count units of work for a member, outside of any batch.

    Args:
        member: Who is billed; None for nobody.
        **amounts: How many, by name; none of a unit where it is 0.
    """
    amounts = {name: amount for name, amount in amounts.items() if amount}
    billed = None if member is None else member.attribution
    fields = {} if billed is None else {"feature": billed.feature, "tenant": billed.tenant}
    with gputrace.attribute_to(**{name: value for name, value in fields.items() if value is not None}):
        gputrace.current().add_units(**amounts)


def _add_request(original: Function) -> Function:
    def add_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _asking.set(True)
        try:
            return original(self, *args, **kwargs)
        finally:
            _asking.reset(token)

    return add_request


def _initialise(original: Function) -> Function:
    """Return ``RequestState.__post_init__``: before the state can reach the thread of the loop."""

    def post_init(self: Any) -> None:
        original(self)
        if _asking.get():
            with _ADDING:
                setattr(self, _WHOSE, Whose(gputrace.member()))

    return post_init


def _start_over(original: Function) -> Function:
    """Return ``create_equivalent_initial_request``: a request that lost its cache is still whose it was."""

    def create_equivalent_initial_request(self: Any) -> Any:
        made = original(self)
        with _ADDING:
            if hasattr(self, _WHOSE):
                setattr(made, _WHOSE, getattr(self, _WHOSE))
        return made

    return create_equivalent_initial_request


def _step(original: Function) -> Function:
    """Return ``ContinuousBatchProcessor._generation_step``, which runs the model once."""

    def generation_step(self: Any, model: Any) -> Any:
        block: Any = contextlib.nullcontext()
        parts: list[Part] = []
        with _STEPPING:
            ios = self.inputs_and_outputs
            parts = [_part(one) for one in _host_side(ios).requests_in_batch]
            block = _block(parts, model, ios.compute_stream)
        with block:
            result = original(self, model)
        with _COUNTING:
            for part in parts:
                count(
                    part.member,
                    prefill=part.prefill,
                    decode=part.decode,
                    cached=part.cached,
                    recomputed=part.recomputed,
                )
        return result

    return generation_step


def _host_side(ios: Any) -> Any:
    """Return what holds the requests of the step: where batches overlap, there are two pairs in turn."""
    pairs = getattr(ios, "io_pairs", None)
    return ios if pairs is None else pairs[ios.current_pair].host_io


def _part(future: Any) -> Part:
    state, tokens = future.state, future.query_length
    whose: Whose | None = getattr(state, _WHOSE, None)
    if whose is None:
        # Added before it was instrumented, or in another process.
        whose = Whose()
        setattr(state, _WHOSE, whose)
    # It was moved on already, when the step was prepared.
    context = state.position_offset - tokens
    prefill = max(0, min(tokens, len(state.initial_tokens) - context))
    part = Part(
        whose.member,
        prefill,
        tokens - prefill,
        context,
        cached=context if whose.computed == 0 else 0,
        recomputed=max(0, min(tokens, whose.computed - context)),
    )
    whose.computed = max(whose.computed, context + tokens)
    return part


def _block(parts: Sequence[Part], model: Any, stream: Any) -> Any:
    """Return the batch that a step is: its work is on a stream of its own, where there are streams."""
    return gputrace.batch(
        [part.member for part in parts],
        [part.prefill + part.decode for part in parts],
        operation=f"step {type(model).__name__}",
        model=name_of(model),
        streams=None if stream is None else [stream],
    )


PATCHES = (
    Patch(
        f"{_MODULE}.continuous_api",
        "ContinuousBatchingManager.add_request",
        ("self", "input_ids", "request_id"),
        _add_request,
    ),
    Patch(f"{_MODULE}.requests", "RequestState.__post_init__", ("self",), _initialise),
    Patch(f"{_MODULE}.requests", "RequestState.create_equivalent_initial_request", ("self",), _start_over),
    Patch(
        f"{_MODULE}.continuous_api",
        "ContinuousBatchProcessor._generation_step",
        ("self", "model"),
        _step,
    ),
)
