"""What a deployment sends along with a call of another one, and how it is entered over there.

On Serve's own ``RequestMetadata``, which is pickled on either transport. A client reaches the first
deployment through a proxy, which takes nothing of this from it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.trace import NonRecordingSpan, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import faults
from gputrace.integrations import ray_context, ray_execution

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gputrace.batching import Member

#: The attribute of ``RequestMetadata`` under which what is sent travels.
ATTRIBUTE = "gputrace_context"

_SENDING = faults.contained("hand the context to a deployment")
_ENTERING = faults.contained("enter the context of a caller")

_propagator = TraceContextTextMapPropagator()


class Share(NamedTuple):
    """One of those whom the current work is done for, where it is a batch."""

    member: Member
    weight: float


class Served(NamedTuple):
    """What a replica knows of the call or batch that runs in it.

    Attributes:
        outside: The context around it, as it would be without gputrace.
        fields: What the replica itself says of its work, where nobody has: such does not travel on.
        shares: Of a batch, whom it is split among.
    """

    outside: Context
    fields: Mapping[str, str]
    shares: tuple[Share, ...] = ()


class Sent(NamedTuple):
    """What travels: of one caller, or of a batch with a weight for each of its members."""

    carrier: Mapping[str, str]
    members: tuple[tuple[Mapping[str, str], float], ...] = ()


_served: ContextVar[Served | None] = ContextVar("gputrace_ray_serve", default=None)


def outside() -> Context:
    """Return the context around the call that is served here: nothing of this one call is in it."""
    served = _served.get()
    return (copy_context() if served is None else served.outside).copy()


def serve(fields: Mapping[str, str], shares: Iterable[Share] = ()) -> None:
    """Take note of what runs here from now on.

    Args:
        fields: What the replica itself says of it.
        shares: Of a batch, whom it is split among.
    """
    _served.set(Served(copy_context(), fields, tuple(shares)))


def send(metadata: Any) -> None:
    """Put into the metadata of a call what the current work is billed to.

    Args:
        metadata: Serve's ``RequestMetadata``.
    """
    with _SENDING:
        if metadata.is_http_request or metadata.is_grpc_request:
            # From a proxy, which knows nothing.
            return
        served = _served.get()
        own = {} if served is None else served.fields
        # A stage or model that stands for the deployment stays with it; one that was named goes on.
        carrier = {name: value for name, value in ray_context.outgoing().items() if own.get(name) != value}
        shares = () if served is None else served.shares
        members = tuple((_carrier_of(one.member), one.weight) for one in shares)
        setattr(metadata, ATTRIBUTE, Sent(carrier, members))


def _carrier_of(member: Member) -> dict[str, str]:
    billed = {"feature": member.attribution.feature, "tenant": member.attribution.tenant}
    carrier = {name: value for name, value in billed.items() if value is not None}
    if member.span_context is not None:
        _propagator.inject(carrier, set_span_in_context(NonRecordingSpan(member.span_context)))
    return carrier


@contextmanager
def received(replica: Any, metadata: Any = None) -> Iterator[tuple[Share, ...]]:
    """Enter the context of the caller, with this deployment as the stage unless the caller named one.

    Args:
        replica: Serve's ``UserCallableWrapper``.
        metadata: Serve's ``RequestMetadata``, None for a call that comes from outside.

    Returns:
        Whom the call is for, where it was made by a batch.
    """
    ray_execution.before()
    with ExitStack() as stack:
        stack.callback(_ended)
        shares: tuple[Share, ...] = ()
        with _ENTERING:
            own = own_fields(replica._deployment_id.name, request_context())  # noqa: SLF001
            sent = getattr(metadata, ATTRIBUTE, None) or Sent({})
            shares = tuple(Share(_member_of(carrier), weight) for carrier, weight in sent.members)
            serve(own, shares)
            stack.enter_context(ray_context.Carried(sent.carrier))
            # The model is chosen by the id that came with the very call, the stage by whoever named one.
            named = {"stage": sent.carrier.get("stage", own["stage"])}
            stack.enter_context(gputrace.attribute_to(**{**own, **named}))
        yield shares


def own_fields(deployment: str, request: Any) -> dict[str, str]:
    """Return what a replica says of its work by itself: its deployment, and the model that was asked for.

    Args:
        deployment: Its name.
        request: What Serve knows of the request.
    """
    model = request.multiplexed_model_id
    return {"stage": deployment, "model": model} if model else {"stage": deployment}


def _member_of(carrier: Mapping[str, str]) -> Member:
    with ray_context.Carried(carrier):
        return gputrace.member()


def _ended() -> None:
    # Looked up late: the worker puts its own there.
    ray_execution.after()


def request_context() -> Any:
    """Return what Serve itself knows of the request."""
    from ray.serve import context

    return context._get_serve_request_context()  # noqa: SLF001
