"""Log events: what is worth a record of its own, such as a decision and what it cost.

Only the OpenTelemetry API is used here. A logger provider of the program's own
takes them; else one that ``configure`` made, where it made any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace as trace_api
from opentelemetry._logs import SeverityNumber, _internal as logs_internal
from opentelemetry.context import Context

from gputrace import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.trace import SpanContext

_EMITTING = faults.contained("emit a log event")

#: Called on the user's thread before there is any event: at exit no thread could be started.
prepare: Callable[[], None] = lambda: None  # noqa: E731

_own: LoggerProvider | None = None


class Event(NamedTuple):
    """One log event.

    Attributes:
        name: What it is.
        at_ns: When, Unix time in ns.
        attributes: Facts, one a name.
        body: Facts that need more room.
        span: The span that it belongs to.
    """

    name: str
    at_ns: int
    attributes: Mapping[str, Any]
    body: Mapping[str, Any] | None = None
    span: SpanContext | None = None


def users_provider() -> LoggerProvider | None:
    """Return the global logger provider, None while nobody has set one."""
    return logs_internal._LOGGER_PROVIDER  # noqa: SLF001 - get_logger_provider() would make and set one


def use(provider: LoggerProvider | None) -> None:
    """Emit to a provider where the program has none.

    Args:
        provider: Ours; None for nowhere.
    """
    global _own  # noqa: PLW0603 - one a process
    _own = provider


def _logger() -> Logger | None:
    provider = users_provider() or _own
    # Providers keep their loggers.
    return (
        None
        if provider is None
        else provider.get_logger(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
    )


def emit(event: Event) -> None:
    """Hand an event to whoever takes log events; not on the user's thread."""
    with _EMITTING:
        logger = _logger()
        if logger is None:
            return
        span = trace_api.INVALID_SPAN if event.span is None else trace_api.NonRecordingSpan(event.span)
        logger.emit(
            timestamp=event.at_ns,
            # Not what happens to be current where this runs.
            context=trace_api.set_span_in_context(span, Context()),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            body=None if event.body is None else dict(event.body),
            attributes=dict(event.attributes),
            event_name=event.name,
        )
