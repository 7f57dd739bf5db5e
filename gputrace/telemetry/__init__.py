"""Spans and instruments; beside ``exporters`` the only place that knows the OpenTelemetry SDK."""
