"""Where whom a request is billed to travels in SGLang, from its front end to its scheduler.

In ``custom_params`` of its sampling parameters, the only place that a request of any kind has for what is not
SGLang's. It is no part of what the prefix cache goes by. A client can write there as well.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gputrace import faults
from gputrace.integrations import serving_stamps

if TYPE_CHECKING:
    from collections.abc import Callable

_STAMPING = faults.contained("write whom a request of SGLang is billed to")
_READING = faults.contained("read whom a request of SGLang is billed to")


def sending_one(
    original: Callable[..., Any], self: Any, tokenized_obj: Any, *args: Any, **kwargs: Any
) -> Any:
    """Stand around ``TokenizerManager._send_one_request``."""
    # Where the caller's context is in force: what is awaited later may run in another.
    with _STAMPING:
        _stamp(tokenized_obj)
    return original(self, tokenized_obj, *args, **kwargs)


def sending_many(
    original: Callable[..., Any], self: Any, tokenized_objs: Any, *args: Any, **kwargs: Any
) -> Any:
    """Stand around ``TokenizerManager._send_batch_request``."""
    with _STAMPING:
        for one in tokenized_objs:
            _stamp(one)
    return original(self, tokenized_objs, *args, **kwargs)


def _stamp(request: Any) -> None:
    """Write what the current work is billed to, whatever was there.

    Args:
        request: SGLang's request as it goes to the scheduler. Several may share their parameters.
    """
    given = request.sampling_params.custom_params
    # Anything else than a dict has no key of ours either.
    if given is None or isinstance(given, dict):
        params = copy.copy(request.sampling_params)
        params.custom_params = {**(given or {}), serving_stamps.KEY: serving_stamps.outgoing()}
        request.sampling_params = params


def read(params: Any) -> serving_stamps.Stamp | None:
    """Return what the front end wrote, None where none of ours did.

    Args:
        params: SGLang's ``SamplingParams`` as they reached the scheduler.
    """
    with _READING:
        given = params.custom_params
        return serving_stamps.believed(given.get(serving_stamps.KEY)) if isinstance(given, dict) else None
    return None
