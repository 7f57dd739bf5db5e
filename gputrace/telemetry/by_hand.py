"""Providers that collect and export when they are told to, in the time that they are told.

A simulation runs in a time of its own, which the SDK's readers and their threads know nothing of.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

from gputrace import catalogue
from gputrace.telemetry import events
from gputrace.telemetry.collecting import MeterByHand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from gputrace.telemetry.collecting import Collected
    from gputrace.telemetry.delivery import Destination

_LINE = 512
_VERSION = "1.0"
_ENVIRONMENT = "deployment.environment.name"


class NotDeliveredError(RuntimeError):
    """A destination refused what it was sent."""


class _SeededIds(IdGenerator):
    """Ids of spans and traces that are the same each time."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - names, no secrets

    def generate_span_id(self) -> int:
        return self._dice.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._dice.getrandbits(128) or 1


class _Gathered(SpanProcessor):
    """Exports spans some hundreds at a time, on the thread that ends them."""

    def __init__(self, export: Callable[[Sequence[ReadableSpan]], object]) -> None:
        self._export = export
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._spans.append(span)
            if len(self._spans) >= _LINE:
                self.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the interface's
        spans, self._spans = self._spans, []
        if spans:
            self._export(spans)
        return True


class ProvidersByHand:
    """Tracer, meter and logger provider of one simulated process.

    Args:
        service_name: ``service.name``.
        instance_id: ``service.instance.id``.
        destinations: Where telemetry goes; metrics only as :meth:`send` is called.
        seed: Of the ids of spans.
        traced: Share of the traces that are sampled, 0 to 1.
        start_ns: When the process began, Unix time.

    Attributes:
        tracer_provider: To be the global one while the process runs; None where nothing takes spans.
        logger_provider: Takes log events; None where nothing does.
        meter: Makes the instruments, and collects what they show.
        resource: Whose telemetry it is.
    """

    def __init__(  # noqa: PLR0913 - what providers are made of
        self,
        service_name: str,
        instance_id: str,
        destinations: Sequence[Destination],
        *,
        seed: str,
        traced: float,
        start_ns: int,
    ) -> None:
        self.resource = Resource.create(
            {
                SERVICE_NAME: service_name,
                SERVICE_INSTANCE_ID: instance_id,
                SERVICE_VERSION: _VERSION,
                _ENVIRONMENT: catalogue.SIMULATION,
                catalogue.SIMULATED: True,
            }
        )
        self._start_ns = start_ns
        self._exporters = {
            one.name: one.metric_exporter() for one in destinations if one.metric_exporter is not None
        }
        self.meter = MeterByHand()
        self.tracer_provider = self._tracers(destinations, seed, traced)
        self.logger_provider = self._loggers(destinations)

    def _tracers(
        self, destinations: Sequence[Destination], seed: str, traced: float
    ) -> TracerProvider | None:
        exporters = [one.span_exporter() for one in destinations if one.span_exporter is not None]
        if not exporters or traced <= 0:
            return None
        provider = TracerProvider(
            ParentBased(TraceIdRatioBased(min(1.0, traced)), remote_parent_not_sampled=ALWAYS_OFF),
            self.resource,
            shutdown_on_exit=False,
            id_generator=_SeededIds(seed),
        )
        for exporter in exporters:
            provider.add_span_processor(_Gathered(exporter.export))
        return provider

    def _loggers(self, destinations: Sequence[Destination]) -> LoggerProvider | None:
        exporters = [one.log_exporter() for one in destinations if one.log_exporter is not None]
        if not exporters:
            return None
        provider = LoggerProvider(self.resource, shutdown_on_exit=False)
        for exporter in exporters:
            provider.add_log_record_processor(_GatheredLogs(exporter))
        return provider

    def send(self, collected: Collected, at_ns: int, destination: str) -> None:
        """Export a collection.

        Args:
            collected: What :attr:`meter` collected.
            at_ns: When that was, Unix time.
            destination: Name of one of the destinations.

        Raises:
            NotDeliveredError: It was refused.
        """
        data = collected.data(self.resource, self._start_ns, at_ns)
        if self._exporters[destination].export(data) is not MetricExportResult.SUCCESS:
            raise NotDeliveredError(f"{destination} did not take metrics; the log says why")

    def flush(self) -> None:
        """Export the spans and log events that wait."""
        if self.tracer_provider is not None:
            self.tracer_provider.force_flush()
        if self.logger_provider is not None:
            self.logger_provider.force_flush()

    def shutdown(self) -> None:
        """Export what waits, and close the exporters."""
        self.flush()
        for exporter in self._exporters.values():
            exporter.shutdown()
        if self.tracer_provider is not None:
            self.tracer_provider.shutdown()
        if self.logger_provider is not None:
            self.logger_provider.shutdown()


class _GatheredLogs(SimpleLogRecordProcessor):
    """Exports log records some hundreds at a time, on the thread that emits them."""

    def __init__(self, exporter: Any) -> None:
        super().__init__(exporter)
        self._to = exporter
        self._records: list[ReadableLogRecord] = []

    def on_emit(self, log_record: Any) -> None:
        self._records.append(
            ReadableLogRecord(
                log_record=log_record.log_record,
                resource=log_record.resource,
                instrumentation_scope=log_record.instrumentation_scope,
                limits=log_record.limits,
            )
        )
        if len(self._records) >= _LINE:
            self.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the interface's
        records, self._records = self._records, []
        if records:
            self._to.export(records)
        return True


def use(providers: ProvidersByHand | None) -> None:
    """Let spans and log events of this process go to these providers.

    Args:
        providers: Where; None for nowhere.
    """
    trace_api._TRACER_PROVIDER = None if providers is None else providers.tracer_provider  # noqa: SLF001 - the API takes one only once
    events.use(None if providers is None else providers.logger_provider)
