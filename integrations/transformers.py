"""Transformers: each ``generate`` is one call or one batch, each forward of a pipeline one call.

    from gputrace.integrations import transformers

    transformers.instrument()
    with transformers.serving(members):
        model.generate(**inputs)

What continuous batching does is in ``transformers_continuous``.
"""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults
from gputrace.integrations import patching, transformers_continuous
from gputrace.integrations.patching import Patch
from gputrace.integrations.transformers_shapes import Generation, devices_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Function = Callable[..., Any]

VERSION = patching.Version("Transformers", "5.24", "transformers")

_CARRY = "_gputrace_carry"

_READING = faults.contained("see what generate is given")
_COUNTING = faults.contained("count the tokens of generate")
_CARRYING = faults.contained("carry the context of a streamer")

#: Whose rows the next ``generate`` serves; None where they are all the caller's.
_members: ContextVar[Sequence[Any] | None] = ContextVar("gputrace_generate_members", default=None)
#: Assistants generate inside of ``generate``: their tokens are part of how it does its own.
_inside: ContextVar[bool] = ContextVar("gputrace_generate_inside", default=False)


def instrument() -> bool:
    """Track what Transformers generates, from here on, in this process.

    Returns:
        Whether it does: where this version of Transformers is not as expected, one line says so and
        everything is left as it is.
    """
    return patching.apply(PATCHES, VERSION)


def uninstrument() -> None:
    """Leave Transformers as it was before :func:`instrument`."""
    patching.restore(PATCHES)


@contextlib.contextmanager
def serving(members: Iterable[Any]) -> Iterator[None]:
    """Say whose rows the ``generate`` in this block serves; it is split among them by their real tokens.

    To know those before it begins it waits for the attention mask, where that lies on the device.

    Args:
        members: What ``gputrace.member()`` returned for each row of the input, in order.
    """
    token = _members.set(list(members))
    try:
        yield
    finally:
        _members.reset(token)


def _generate(original: Function) -> Function:
    def tracked(model: Any, *args: Any, **kwargs: Any) -> Any:
        members, nested = _members.get(), _inside.get()
        generation = block = None
        with _READING:
            generation = Generation(original, model, args, kwargs)
            block = _block(generation, None if nested else members)
        if generation is None or block is None:
            return original(model, *args, **kwargs)
        token = _inside.set(True)
        try:
            with block:
                result = original(model, *args, **kwargs)
        finally:
            _inside.reset(token)
        if not nested:
            with _COUNTING:
                _count(generation, members, result)
        return result

    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        carried = None
        with _CARRYING:
            carried = _carried_by(kwargs.get("streamer"))
        if carried is None:
            return tracked(self, *args, **kwargs)
        return carried(tracked, self, *args, **kwargs)

    return generate


def _block(generation: Generation, members: Sequence[Any] | None) -> Any:
    named: dict[str, Any] = {"model": _unless_named(generation.name), "devices": generation.devices}
    if members is None:
        return gputrace.span(generation.operation, **named)
    tokens = generation.real_tokens()
    if not any(tokens):
        # Sounds and images have none.
        tokens = [1] * len(tokens)
    if len(members) != len(tokens):
        faults.log_once(
            "transformers-members",
            "gputrace: transformers.serving() was given %d members for a generate of %d rows; they share it "
            "equally",
            len(members),
            len(tokens),
        )
        return gputrace.batch(members, operation=generation.operation, **named)
    return gputrace.batch(
        members, tokens, operation=generation.operation, padding=generation.padding(), **named
    )


def _unless_named(model: str | None) -> str | None:
    """Return the model's own name, unless the caller has one for it."""
    return None if gputrace.current().attribution.model is not None else model


def _count(generation: Generation, members: Sequence[Any] | None, result: Any) -> None:
    tokens, decoded = generation.real_tokens(), generation.decoded(result)
    width = generation.width
    if members is None or len(members) != len(tokens):
        gputrace.current().add_units(
            prefill=sum(tokens) * generation.prompt_width, decode=decoded * width * len(tokens)
        )
        return
    for member, prefill in zip(members, tokens, strict=True):
        transformers_continuous.count(
            member, prefill=prefill * generation.prompt_width, decode=decoded * width
        )


def _streamer(original: Function) -> Function:
    """Return ``TextStreamer.__init__``, which notes in whose context and thread it was made."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with _CARRYING:
            setattr(self, _CARRY, (threading.get_ident(), gputrace.carry(_call)))
        original(self, *args, **kwargs)

    return init


def _call(function: Function, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _carried_by(streamer: Any) -> Function | None:
    """Return what runs a function in the context of a streamer, where it was made in another thread.

    ``Thread(target=model.generate)`` is how its documentation has it, and begins without any context.
    """
    maker, carry = getattr(streamer, _CARRY, (None, None))
    if carry is None or maker == threading.get_ident():
        return None
    billed = gputrace.current().attribution
    fields = (billed.feature, billed.tenant, billed.model, billed.variant, billed.stage)
    return carry if all(field is None for field in fields) else None


def _forward(original: Function) -> Function:
    """Return ``Pipeline.forward``: what of a pipeline is on the device, the copy of the results included."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        block: Any = contextlib.nullcontext()
        with _READING:
            block = gputrace.span(
                f"pipeline {self.task or type(self).__name__}",
                model=_unless_named(name_of(self.model)),
                devices=devices_of(self.model, self.device),
            )
        with block:
            return original(self, *args, **kwargs)

    return forward


PATCHES = (
    Patch(
        "transformers.generation.utils",
        "GenerationMixin.generate",
        ("self", "inputs", "generation_config"),
        _generate,
    ),
    Patch("transformers.generation.streamers", "TextStreamer.__init__", ("self", "tokenizer"), _streamer),
    Patch("transformers.pipelines.base", "Pipeline.forward", ("self", "model_inputs"), _forward),
    *transformers_continuous.PATCHES,
)
