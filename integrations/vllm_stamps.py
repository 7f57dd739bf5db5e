"""Where whom a request is billed to travels in vLLM, from its front end to its workers.

In ``extra_args`` of its sampling parameters (``extra_kwargs`` of pooling ones), which are the only thing that
reaches a worker. A client can write there as well (``vllm_xargs``).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gputrace import faults
from gputrace.integrations import serving_stamps

if TYPE_CHECKING:
    from collections.abc import Callable

_CARRIERS = ("extra_args", "extra_kwargs")

_STAMPING = faults.contained("write whom a request of vLLM is billed to")
_READING = faults.contained("read whom a request of vLLM is billed to")


def adding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``add_request`` of an engine, asynchronous or not."""

    def add_request(self: Any, request_id: Any, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        # On the caller's thread and in its context: what follows may run in a pool.
        with _STAMPING:
            params = stamped(params)
            if hasattr(prompt, "sampling_params") and hasattr(prompt, "pooling_params"):
                # A request that was prepared outside has parameters of its own, which are the ones used.
                prompt.sampling_params = stamped(prompt.sampling_params)
                prompt.pooling_params = stamped(prompt.pooling_params)
        return original(self, request_id, prompt, params, *args, **kwargs)

    return add_request


def stamped(params: Any) -> Any:
    """Return a copy of parameters with what the current work is billed to, whatever was there."""
    if params is None:
        return None
    carrier = next(name for name in _CARRIERS if hasattr(params, name))
    made = copy.copy(params)
    given = getattr(params, carrier) or {}
    setattr(made, carrier, {**given, serving_stamps.KEY: serving_stamps.outgoing()})
    return made


def read(params: Any) -> serving_stamps.Stamp | None:
    """Return what the front end wrote, None where none of ours did.

    Args:
        params: As they reached the worker; None counts as no stamp.
    """
    with _READING:
        for carrier in _CARRIERS:
            stamp = serving_stamps.believed((getattr(params, carrier, None) or {}).get(serving_stamps.KEY))
            if stamp is not None:
                return stamp
    return None
