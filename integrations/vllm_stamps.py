"""What travels with a request of vLLM from its front end to its workers: whom it is billed to, and its trace.

In ``extra_args`` of its sampling parameters (``extra_kwargs`` of pooling ones), which are the only thing that
reaches a worker. A client can write there as well (``vllm_xargs``): its value is always taken away, and where
no front end of ours was in between a worker believes only what bears the mark of this server.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import faults, settings

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "gputrace"

#: Hands the mark of this server down to the processes that it starts.
MARK_VARIABLE = "GPUTRACE_VLLM_MARK"

_MARK = "mark"
_REQUEST = "request"
_FIELDS = ("feature", "tenant")
_CARRIERS = ("extra_args", "extra_kwargs")

_STAMPING = faults.contained("write whom a request of vLLM is billed to")
_READING = faults.contained("read whom a request of vLLM is billed to")

_propagator = TraceContextTextMapPropagator()


class Stamp(NamedTuple):
    """What a worker knows of whoever made a request.

    Attributes:
        fields: feature and tenant, as far as anybody named them.
        request: Identity of the call that made it, None where there was none.
        trace: ``traceparent`` and ``tracestate``, as in headers.
    """

    fields: dict[str, str]
    request: str | None
    trace: dict[str, str]


def prepare() -> None:
    """Choose the mark of this server, before it starts any process.

    One that is derived from the key of baggage is the same on every machine that has the key.
    """
    if not os.environ.get(MARK_VARIABLE):
        os.environ[MARK_VARIABLE] = _of_key() or secrets.token_hex(16)


def _of_key() -> str | None:
    try:
        keys = settings.read().baggage_keys
    except settings.SettingError:
        # Told by whatever reads the settings next, and uses them.
        return None
    return hmac.new(keys[0], b"gputrace-vllm", hashlib.sha256).hexdigest() if keys else None


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
    setattr(made, carrier, {**(getattr(params, carrier) or {}), KEY: _outgoing()})
    return made


def _outgoing() -> dict[str, str]:
    current = gputrace.current()
    stamp: dict[str, str] = {}
    for name in _FIELDS:
        value = getattr(current.attribution, name)
        if value is not None and not value.startswith("__"):
            stamp[name] = value
    call_id = current.call_id
    if call_id is not None:
        stamp[_REQUEST] = call_id
    _propagator.inject(stamp)
    stamp[_MARK] = os.environ.get(MARK_VARIABLE, "")
    return stamp


def read(params: Any) -> Stamp | None:
    """Return what the front end wrote, None where none of ours did.

    Args:
        params: As they reached the worker; None counts as no stamp.
    """
    with _READING:
        for carrier in _CARRIERS:
            given = (getattr(params, carrier, None) or {}).get(KEY)
            if isinstance(given, dict) and _is_ours(given.get(_MARK)):
                texts = {name: value for name, value in given.items() if isinstance(value, str)}
                return Stamp(
                    {name: texts[name] for name in _FIELDS if name in texts},
                    texts.get(_REQUEST),
                    {name: texts[name] for name in _propagator.fields if name in texts},
                )
    return None


def _is_ours(mark: Any) -> bool:
    expected = os.environ.get(MARK_VARIABLE, "")
    return bool(expected) and isinstance(mark, str) and hmac.compare_digest(mark, expected)
