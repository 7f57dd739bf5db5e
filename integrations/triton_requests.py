"""One request of a Triton batch: what is believed of it, its container and its weight."""

from __future__ import annotations

import json
from contextvars import Context
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import baggage, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputrace.requests import Request

_READING = faults.contained("read the parameters of a Triton request")
_WEIGHING = faults.tolerated("the weight of a Triton request")

#: Headers are forwarded as parameters of these names, in whatever case; a client may give them itself.
_CARRIED = ("baggage", "traceparent", "tracestate")

_propagator = TraceContextTextMapPropagator()


class Arrived:
    """A request, whose container is open in a context of its own: several are served at once.

    Args:
        model: Name of the model.
        given: The request, as the Python backend has it.

    Attributes:
        request: Its container.
    """

    def __init__(self, model: str, given: Any) -> None:
        # Whoever has loaded the model is not whom it serves.
        self._context = Context()
        self.request, self._block = self._context.run(_opened, model, given)

    def end(self, response: Any, error: BaseException | None) -> None:
        """Close it.

        Args:
            response: What it was answered, None where that is not known.
            error: What ended the whole batch.
        """
        if error is None and response is not None and response.has_error():
            self.request.close(status="error", error_type="TritonError")
        self._context.run(self._block.__exit__, None if error is None else type(error), error, None)


def _opened(model: str, given: Any) -> tuple[Request, gputrace.request]:
    fields: dict[str, str] = {}
    with _READING:
        carried = _carried(given)
        context_api.attach(_propagator.extract(carried, context=context_api.Context()))
        if "baggage" in carried:
            headers = [(b"baggage", carried["baggage"].encode("utf-8", "replace"))]
            fields = baggage.incoming(headers, {"type": "triton", "model": model, "headers": headers})
    block = gputrace.request(f"infer {model}", route=model)
    request = block.__enter__()
    request.set(**fields)
    return request, block


def _carried(given: Any) -> dict[str, str]:
    """Return what arrived under the names of headers."""
    text = given.parameters()
    named: Mapping[str, Any] = json.loads(text) if text else {}
    found: dict[str, str] = {}
    for name, value in named.items():
        key = name.lower()
        if key in _CARRIED and isinstance(value, str):
            # Entries of gputrace's that are there twice are refused where they are read.
            found[key] = f"{found[key]},{value}" if key in found else value
    return found


def weight_of(given: Any, weigh: Callable[[Any], float] | None, *, has_rows: bool) -> float:
    """Return the share of a request in its batch: what the user says, else its rows, else 1.

    Args:
        given: The request.
        weigh: The user's function.
        has_rows: Whether the first dimension of inputs is rows.
    """
    with _WEIGHING:
        if weigh is not None:
            return weigh(given)
        if has_rows:
            return float(given.inputs()[0].shape()[0])
    return 1
