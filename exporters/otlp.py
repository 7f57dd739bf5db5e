"""OTLP over HTTP, to a collector or a server that takes it."""

from __future__ import annotations

import os

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter


def span_exporter(endpoint: str | None) -> OTLPSpanExporter:
    """Return an exporter of spans.

    Args:
        endpoint: Base URL, such as ``http://localhost:4318``; the standard
            ``OTEL_EXPORTER_OTLP_*`` variables when None.
    """
    return OTLPSpanExporter(endpoint=None if endpoint is None else _signal_url(endpoint, "traces"))


def metric_exporter(endpoint: str | None) -> OTLPMetricExporter:
    """Return an exporter of metrics; see :func:`span_exporter`."""
    return OTLPMetricExporter(endpoint=None if endpoint is None else _signal_url(endpoint, "metrics"))


def name_of(endpoint: str | None) -> str:
    """Return what a user calls the receiver, for messages."""
    return endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "the OTLP endpoint"


def _signal_url(endpoint: str, signal: str) -> str:
    return f"{endpoint.rstrip('/')}/v1/{signal}"
