"""OTLP over HTTP, to a collector or a server that takes it."""

from __future__ import annotations

# requests does so with its first request, which a thread of ours makes: see ``gputrace.telemetry.metrics``.
import netrc  # noqa: F401
import os
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

if TYPE_CHECKING:
    import requests


def span_exporter(
    endpoint: str | None, session: requests.Session | None = None, timeout_s: float | None = None
) -> OTLPSpanExporter:
    """Return an exporter of spans.

    Args:
        endpoint: Base URL, such as ``http://localhost:4318``; the standard
            ``OTEL_EXPORTER_OTLP_*`` variables when None.
        session: Sends the requests, in the place of one that the exporter makes.
        timeout_s: How long one export may take, s; what those variables say when None.
    """
    url = None if endpoint is None else _signal_url(endpoint, "traces")
    return OTLPSpanExporter(endpoint=url, session=session, timeout=timeout_s)


def metric_exporter(
    endpoint: str | None, session: requests.Session | None = None, timeout_s: float | None = None
) -> OTLPMetricExporter:
    """Return an exporter of metrics; see :func:`span_exporter`."""
    url = None if endpoint is None else _signal_url(endpoint, "metrics")
    return OTLPMetricExporter(endpoint=url, session=session, timeout=timeout_s)


def log_exporter(
    endpoint: str | None, session: requests.Session | None = None, timeout_s: float | None = None
) -> OTLPLogExporter:
    """Return an exporter of log events; see :func:`span_exporter`."""
    url = None if endpoint is None else _signal_url(endpoint, "logs")
    return OTLPLogExporter(endpoint=url, session=session, timeout=timeout_s)


def name_of(endpoint: str | None) -> str:
    """Return what a user calls the receiver, for messages."""
    return endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "the OTLP endpoint"


def _signal_url(endpoint: str, signal: str) -> str:
    return f"{endpoint.rstrip('/')}/v1/{signal}"
