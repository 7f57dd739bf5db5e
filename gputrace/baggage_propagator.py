"""The propagator ``gputrace``: instrumented clients and servers carry attribution without code.

``OTEL_PROPAGATORS=tracecontext,gputrace`` puts it in the place of ``baggage``,
all of which it does too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.baggage import get_all, remove_baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.textmap import default_getter, default_setter

from gputrace import attribution, baggage, baggage_header, faults

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import CarrierT, Getter, Setter

_READING = faults.contained("extract baggage")
_WRITING = faults.contained("inject baggage")


class BaggagePropagator(W3CBaggagePropagator):
    """W3C baggage whose entries of gputrace are signed when they go out, and believed only if they are.

    A predicate on requests (``trust=``) is asked by the ASGI middleware alone:
    a propagator does not see who sent what it reads.
    """

    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        """Return the context with the baggage of others, billed to what signed entries of ours say."""
        context = super().extract(carrier, context, getter)
        # Else they would land in telemetry, and go out again, with this service's name on them.
        for name in list(get_all(context)):
            if name.startswith(baggage_header.PREFIX):
                context = remove_baggage(name, context)
        with _READING:
            fields = baggage.signed(getter.get(carrier, baggage.NAME) or ())
            if fields:
                return attribution.billed_in(context, fields)
        return context

    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        """Write the baggage of others, and what the current work is billed to."""
        others: dict[str, str] = {}
        super().inject(others, context)
        text = ""
        with _WRITING:
            text = baggage.outgoing(others.get(baggage.NAME, ""), attribution.scope_in(context))
        if text:
            setter.set(carrier, baggage.NAME, text)
