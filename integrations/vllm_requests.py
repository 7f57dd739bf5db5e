"""Requests of vLLM in a worker: what vLLM says of them, for their containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace.integrations import vllm_stamps
from gputrace.integrations.serving_requests import Containers

if TYPE_CHECKING:
    from gputrace.batching import Member
    from gputrace.integrations.vllm_members import Progress
    from gputrace.integrations.vllm_scheduler import Ended

#: Reason under which requests are counted of which no front end of ours has said whose they are.
UNSTAMPED = "vllm_request_unstamped"

_GENERATING, _POOLING = "vllm generate", "vllm pooling"


class Requests:
    """The requests that are open in a worker.

    Args:
        counted: This is the rank that counts requests; the others only charge their devices.
    """

    def __init__(self, *, counted: bool) -> None:
        self._containers = Containers(counted=counted, unstamped=UNSTAMPED)

    def begin(self, new: Any) -> Member:
        """Return the member that a request is in its steps.

        Args:
            new: vLLM's ``NewRequestData``.
        """
        stamp = vllm_stamps.read(new.sampling_params or new.pooling_params)
        operation = _POOLING if new.sampling_params is None else _GENERATING
        lora = new.lora_request
        return self._containers.open(operation, new.req_id, stamp, None if lora is None else lora.lora_name)

    def end(self, name: str, progress: Progress[Member] | None, how: Ended | None) -> None:
        """Close a request.

        Args:
            name: Its id.
            progress: How far it came, None where nobody saw it begin.
            how: How it ended, None where the scheduler has not said.
        """
        attributes: dict[str, Any] = {}
        if progress is not None:
            attributes["gen_ai.usage.input_tokens"] = progress.prompt
            attributes["gen_ai.usage.cache_read.input_tokens"] = progress.cached
        if how is None:
            self._containers.close(name, attributes)
        else:
            attributes["gen_ai.usage.output_tokens"] = how.output
            self._containers.close(name, attributes, how.status, how.reason)
