"""LitServe: what a worker predicts at once is a batch of its requests, billed to whom each of them was for.

    from gputrace.integrations import litserve

    @litserve.instrument
    class Encoder(ls.LitAPI): ...

Requests come in one process and are served in another, which gets their JSON and nothing else. So whom each
is for is put into that, and taken out again before the user's code sees it.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, overload

import gputrace
from gputrace import faults
from gputrace.integrations import patching, ray_context
from gputrace.integrations.patching import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gputrace.batching import Member

    Function = Callable[..., Any]
    Weigh = Callable[[Any], float]

VERSION = patching.Version("LitServe", "0.2.19", "litserve")

_DONE = "_gputrace_instrumented"
_WAITING = "_gputrace_waiting"
_WHOM = ray_context.KEY

_CARRYING = faults.contained("tell a worker of LitServe whom a request is for")
_TAKING = faults.contained("see whom a request of LitServe is for")
_OPENING = faults.contained("split a batch of LitServe among its requests")
_WEIGHING = faults.tolerated("the weight of a LitServe request")


@overload
def instrument(kind: type[Any], /) -> type[Any]: ...


@overload
def instrument(
    *, model: str | None = None, variant: str | None = None, weight: Weigh | None = None
) -> Callable[[type[Any]], type[Any]]: ...


def instrument(
    kind: Any = None,
    /,
    *,
    model: str | None = None,
    variant: str | None = None,
    weight: Weigh | None = None,
) -> Any:
    """Decorate a ``LitAPI``, with or without arguments, where both processes import it.

    Args:
        kind: The class.
        model: Model that predicts; the name of the class by default.
        variant: Variant of the model.
        weight: Takes what ``decode_request`` returned and returns its share of a batch.

    Returns:
        The same class. Where this version of LitServe is not as expected, or its methods are
        coroutines, one line says so and it is left as it is.
    """
    if kind is None:
        return functools.partial(_decorate, model=model, variant=variant, weight=weight)
    return _decorate(kind, model=model, variant=variant, weight=weight)


def _decorate(kind: type[Any], *, model: str | None, variant: str | None, weight: Weigh | None) -> type[Any]:
    methods: list[Any] = [kind.decode_request, kind.predict]
    if hasattr(kind.predict, _DONE):
        return kind
    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in methods):
        faults.log_once(
            f"litserve:{kind.__qualname__}",
            "gputrace leaves %s as it is: its methods are coroutines, which may serve several requests in "
            "turn; decorate what computes with gputrace.track",
            kind.__qualname__,
        )
        return kind
    if not patching.apply(PATCHES, VERSION):
        return kind
    operation = f"predict {kind.__qualname__}"
    named = {"operation": operation, "model": model or kind.__name__, "variant": variant}
    kind.decode_request = _decoding(kind.decode_request, weight)
    kind.predict = _predicting(kind.predict, named)
    return kind


def _submitting(original: Function) -> Function:
    """Return ``BaseRequestHandler._submit_request``, in the process of the server."""

    async def submit_request(self: Any, payload: Any) -> Any:
        with _CARRYING:
            if isinstance(payload, dict) and hasattr(self.lit_api.predict, _DONE):
                # Whatever a client has put there goes.
                payload = {**payload, _WHOM: ray_context.outgoing()}
        return await original(self, payload)

    return submit_request


def _collecting(original: Function) -> Function:
    """Return ``DefaultLoop.get_batch_requests``, in a worker: what was left of the last batch is over."""

    def get_batch_requests(self: Any, lit_api: Any, *args: Any, **kwargs: Any) -> Any:
        _drop(lit_api)
        return original(self, lit_api, *args, **kwargs)

    return get_batch_requests


def _drop(api: Any) -> None:
    for member, _ in _taken(api):
        member.forget()


def _taken(api: Any) -> list[tuple[Member, float]]:
    """Return those that were decoded since the last batch, and forget that they wait."""
    waiting: list[tuple[Member, float]] = api.__dict__.get(_WAITING, [])
    api.__dict__[_WAITING] = []
    return waiting


def _decoding(original: Function, weigh: Weigh | None) -> Function:
    @functools.wraps(original)
    def decode_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        whom: Any = None
        with _TAKING:
            if isinstance(request, dict):
                whom = request.pop(_WHOM, None)
        decoded = original(self, request, *args, **kwargs)
        with _TAKING:
            with ray_context.Carried(whom):
                member = gputrace.member()
            self.__dict__.setdefault(_WAITING, []).append((member, _weight(decoded, weigh)))
        return decoded

    return decode_request


def _weight(decoded: Any, weigh: Weigh | None) -> float:
    with _WEIGHING:
        if weigh is not None:
            return weigh(decoded)
    return 1


def _predicting(original: Function, named: dict[str, Any]) -> Function:
    if inspect.isgeneratorfunction(original):
        # Held while it computes, not while what it has yielded is sent.
        tracked = gputrace.track(operation=named["operation"])(original)

        @functools.wraps(original)
        def predict(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with _block(self, named, hold="none"):
                yield from tracked(self, *args, **kwargs)
    else:

        @functools.wraps(original)
        def predict(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _block(self, named, hold="steps"):
                return original(self, *args, **kwargs)

    setattr(predict, _DONE, True)
    return predict


def _block(api: Any, named: dict[str, Any], *, hold: str) -> Any:
    with _OPENING:
        waiting = _taken(api)
        members, weights = [one for one, _ in waiting], [weight for _, weight in waiting]
        return gputrace.batch(members, weights or None, hold=hold, **named)
    return gputrace.span(named["operation"], hold=hold)


PATCHES = (
    Patch("litserve.server", "BaseRequestHandler._submit_request", ("self", "payload"), _submitting),
    Patch("litserve.loops.base", "DefaultLoop.get_batch_requests", ("self", "lit_api"), _collecting),
)
