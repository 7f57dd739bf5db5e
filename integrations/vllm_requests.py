"""Requests of vLLM in a worker: each is a member of its steps, and on one rank a container of its own.

Its span hangs under the trace that the request came with, and its totals are those of all its steps.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry.trace import INVALID_SPAN, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import faults
from gputrace.integrations import vllm_stamps

if TYPE_CHECKING:
    from gputrace.batching import Member
    from gputrace.integrations.vllm_members import Progress
    from gputrace.integrations.vllm_scheduler import Ended
    from gputrace.integrations.vllm_stamps import Stamp
    from gputrace.requests import Request

#: Reason under which requests are counted of which no front end of ours has said whose they are.
UNSTAMPED = "vllm_request_unstamped"

_GENERATING, _POOLING = "vllm generate", "vllm pooling"

_propagator = TraceContextTextMapPropagator()
_NOTHING = vllm_stamps.Stamp({}, None, {})


class Requests:
    """The requests that are open in a worker.

    Args:
        counted: This is the rank that counts requests; the others only charge their devices.
    """

    def __init__(self, *, counted: bool) -> None:
        self._counted = counted
        self._open: dict[str, Request] = {}

    def begin(self, new: Any) -> Member:
        """Return the member that a request is in its steps.

        Args:
            new: vLLM's ``NewRequestData``.
        """
        stamp = vllm_stamps.read(new.sampling_params or new.pooling_params)
        if stamp is None:
            if self._counted:
                faults.unmeasured(UNSTAMPED)
            stamp = _NOTHING
        # In a context of its own: it stays open while the worker's thread goes on to other things.
        return copy_context().run(self._begin, new, stamp)

    def _begin(self, new: Any, stamp: Stamp) -> Member:
        lora = new.lora_request
        variant = None if lora is None else lora.lora_name
        if not self._counted:
            with gputrace.attribute_to(**stamp.fields):
                return _member(variant)
        if stamp.trace:
            context_api.attach(_propagator.extract(stamp.trace, context_api.get_current()))
        attributes: dict[str, Any] = {"gen_ai.response.id": new.req_id}
        if stamp.request is not None:
            attributes["gputrace.request.id"] = stamp.request
        operation = _POOLING if new.sampling_params is None else _GENERATING
        block = gputrace.request(operation, attributes=attributes, **stamp.fields)
        self._open[new.req_id] = block.__enter__()
        return _member(variant)

    def end(self, name: str, progress: Progress[Member] | None, how: Ended | None) -> None:
        """Close a request.

        Args:
            name: Its id.
            progress: How far it came, None where nobody saw it begin.
            how: How it ended, None where the scheduler has not said.
        """
        request = self._open.pop(name, None)
        if request is None:
            return
        attributes: dict[str, Any] = {}
        if progress is not None:
            attributes["gen_ai.usage.input_tokens"] = progress.prompt
            attributes["gen_ai.usage.cache_read.input_tokens"] = progress.cached
        if how is not None:
            attributes["gen_ai.usage.output_tokens"] = how.output
        request.describe(attributes=attributes)
        if how is None or how.status is None:
            request.close()
        else:
            request.close(status=how.status, error_type=how.reason if how.status == "error" else None)


def _member(variant: str | None) -> Member:
    # Without a span: the steps of a server would each link to all that they serve.
    context_api.attach(set_span_in_context(INVALID_SPAN))
    return gputrace.member(variant=variant)
