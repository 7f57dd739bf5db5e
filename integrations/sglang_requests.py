"""Requests of SGLang in a scheduler: what SGLang says of them, for their containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace.integrations import sglang_stamps
from gputrace.integrations.serving_requests import Containers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.batching import Member
    from gputrace.integrations.sglang_members import Progress

#: Reason under which requests are counted of which no front end of ours has said whose they are.
UNSTAMPED = "sglang_request_unstamped"

_GENERATING, _POOLING = "sglang generate", "sglang pooling"
_ABORTED = "abort"


class Requests:
    """The requests that a scheduler has run and that have not ended.

    Args:
        scheduler: SGLang's ``Scheduler``.
        counted: This is the rank that counts requests; the others only charge their devices.
    """

    def __init__(self, scheduler: Any, *, counted: bool) -> None:
        self._operation = _GENERATING if scheduler.is_generation else _POOLING
        self._worker = scheduler.tp_worker
        self._containers = Containers(counted=counted, unstamped=UNSTAMPED)

    def begin(self, req: Any) -> Member:
        """Return the member that a request is in its steps.

        Args:
            req: SGLang's ``Req``.
        """
        stamp = sglang_stamps.read(req.sampling_params)
        return self._containers.open(self._operation, req.rid, stamp, self._adapter(req.lora_id))

    def _adapter(self, lora_id: str | None) -> str | None:
        """Return the name of an adapter; where SGLang has forgotten it, its id."""
        if lora_id is None:
            return None
        found = self._worker.model_runner.lora_manager.lora_refs.get(lora_id)
        return str(lora_id if found is None else found.lora_name)

    def end(self, req: Any, progress: Progress[Member], how: Any) -> None:
        """Close a request.

        Args:
            req: SGLang's ``Req``.
            progress: How far it came.
            how: How it ended: SGLang's reason, what it tells the front end, or None for an abort without any.
        """
        attributes: dict[str, Any] = {
            "gen_ai.usage.input_tokens": progress.prompt,
            "gen_ai.usage.cache_read.input_tokens": progress.cached,
            "gen_ai.usage.output_tokens": len(req.output_ids_through_stop),
        }
        self._containers.close(req.rid, attributes, *status_of(how))


def status_of(how: Any) -> tuple[str | None, str | None]:
    """Return the status of a request that has ended, None for ok, and SGLang's own word for an error.

    An abort is a client that went, unless it comes with a status for the client.

    Args:
        how: SGLang's reason, what it tells the front end, or None for an abort without any.
    """
    told: Mapping[str, Any] = (
        {"type": _ABORTED} if how is None else how if isinstance(how, dict) else how.to_json()
    )
    if told.get("type") != _ABORTED:
        return None, None
    code = told.get("status_code")
    if code is None:
        return "cancelled", None
    return "error", str(told.get("err_type") or int(code))
