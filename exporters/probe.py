"""Asks an OTLP receiver whether it takes what is sent: an empty request, through the real exporter.

So URL, headers, certificates, proxies and compression are those of a running
program; only that it tries again and again is left out.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import requests
from opentelemetry.sdk.metrics.export import MetricsData

from gputrace.exporters import otlp

SPANS = "spans"
METRICS = "metrics"
SIGNALS = (SPANS, METRICS)

_CREDENTIALS = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER"
_INFIXES = {SPANS: "TRACES_", METRICS: "METRICS_"}


class Reply(NamedTuple):
    """What a receiver answered to an empty request.

    Attributes:
        url: Where it was sent.
        status: HTTP status; ``None`` where there was no answer.
        reason: The status in words, or what went wrong instead.
        is_page: What came is a web page, which no receiver answers.
    """

    url: str
    status: int | None
    reason: str
    is_page: bool = False


class _OnceError(Exception):
    """Nothing went wrong, but the exporter must not try again."""


class _Recording(requests.Session):
    """Sends one request, and keeps what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.reply: Reply | None = None

    def request(self, method: Any, url: Any, *arguments: Any, **named: Any) -> requests.Response:
        try:
            response = super().request(method, url, *arguments, **named)
        except (requests.RequestException, OSError, ValueError) as error:
            self.reply = Reply(str(url), None, innermost(error))
        else:
            is_page = "text/html" in response.headers.get("Content-Type", "")
            self.reply = Reply(str(url), response.status_code, response.reason or "", is_page)
            if response.ok:
                return response
        raise _OnceError


def send_nothing(signal: str, endpoint: str | None, patience_s: float) -> Reply | None:
    """Send an empty request.

    Args:
        signal: ``spans`` or ``metrics``.
        endpoint: Base URL of the receiver; the standard ``OTEL_EXPORTER_OTLP_*`` variables when None.
        patience_s: How long to wait for an answer, s.

    Returns:
        What came of it, None where the exporter sent nothing.
    """
    with _Recording() as session:
        if signal == SPANS:
            otlp.span_exporter(endpoint, session, patience_s).export([])
        else:
            otlp.metric_exporter(endpoint, session, patience_s).export(MetricsData(resource_metrics=[]))
        return session.reply


def credential_provider(signal: str) -> str | None:
    """Return what logs in to the receiver of a signal for the program, None where nothing does."""
    names = (_CREDENTIALS.format(""), _CREDENTIALS.format(_INFIXES[signal]))
    return next((value for name in names if (value := os.environ.get(name))), None)


def innermost(error: BaseException) -> str:
    """Return what went wrong at the bottom, such as ``[Errno 111] Connection refused``."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = (getattr(error, "reason", None), *error.args[:1], error.__cause__, error.__context__)
        error = next((one for one in inner if isinstance(one, BaseException) and id(one) not in seen), error)
    return str(error) or type(error).__name__
