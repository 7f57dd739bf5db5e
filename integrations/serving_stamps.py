"""What travels with a request of a model server to its workers: whom it is billed to, and its trace.

In whatever field of the request's parameters reaches a worker. A client can write there as well: its value is
always taken away, and where no front end of ours was in between a worker believes only what bears the mark of
this server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import Any, NamedTuple

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import settings

#: Under which it stands among the parameters.
KEY = "gputrace"

#: Hands the mark of this server down to the processes that it starts.
MARK_VARIABLE = "GPUTRACE_SERVER_MARK"

_MARK = "mark"
_REQUEST = "request"
_FIELDS = ("feature", "tenant")

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
    return hmac.new(keys[0], b"gputrace-server", hashlib.sha256).hexdigest() if keys else None


def outgoing() -> dict[str, str]:
    """Return what the current work is billed to, with the mark of this server."""
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


def believed(given: Any) -> Stamp | None:
    """Return what the front end wrote, None where none of ours did.

    Args:
        given: What stands under ``KEY`` where it reached the worker.
    """
    if not (isinstance(given, dict) and _is_ours(given.get(_MARK))):
        return None
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    return Stamp(
        {name: texts[name] for name in _FIELDS if name in texts},
        texts.get(_REQUEST),
        {name: texts[name] for name in _propagator.fields if name in texts},
    )


def _is_ours(mark: Any) -> bool:
    expected = os.environ.get(MARK_VARIABLE, "")
    return bool(expected) and isinstance(mark, str) and hmac.compare_digest(mark, expected)
