"""Providers of our own, for programs that have set none."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.environment_variables import OTEL_METRICS_EXEMPLAR_FILTER
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics._internal.metric_reader_storage import MetricReaderStorage
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider

from gputrace import catalogue, faults, identity
from gputrace.telemetry import events
from gputrace.telemetry.closing import Closer, Task, milliseconds_until
from gputrace.telemetry.histograms import HistogramTable
from gputrace.telemetry.ids import OwnIds
from gputrace.telemetry.outlets import MetricOutlet, SpanOutlet
from gputrace.telemetry.settling import SettlingProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputrace.telemetry.delivery import Destination
    from gputrace.telemetry.log_delivery import OwnLogs


class OwnProviders:
    """Providers that ``configure`` made, with their exporters.

    Args:
        destinations: Where telemetry goes.
        service_name: ``service.name``; None leaves it to the environment.
        spans: Whether a tracer provider is missing.
        metrics: Whether a meter provider is missing.
        export_interval_s: Time between two exports of metrics, s.
        settle: Settles what has ended, within a number of seconds.
        on_lost: Told how many spans or log events an exporter refused.

    Attributes:
        tracer_provider: None where the program has one.
        meter_provider: None where the program has one.
        histograms: Where those of gputrace are counted; None where the SDK has to.
        logs: Takes log events; None until somebody has any.
    """

    def __init__(  # noqa: PLR0913 - what a pair of providers is made of
        self,
        destinations: Sequence[Destination],
        *,
        service_name: str | None,
        spans: bool,
        metrics: bool,
        export_interval_s: float,
        settle: Callable[[float], None],
        on_lost: Callable[[int], None],
    ) -> None:
        self._settling = SettlingProcessor(settle)
        self._on_lost = on_lost
        self._span_outlets: dict[str, SpanOutlet] = {}
        self._metric_outlets: dict[str, MetricOutlet] = {}
        self._patience_s = {destination.name: destination.patience_s for destination in destinations}
        # For what the user adds to these providers, and for their threads.
        self._closer = Closer("gputrace-closer")
        self._begun = False
        self.tracer_provider: TracerProvider | None = None
        self.meter_provider: MeterProvider | None = None
        self.histograms: HistogramTable | None = None
        self.logs: OwnLogs | None = None
        self._log_makers = {
            destination.name: destination.log_exporter
            for destination in destinations
            if destination.log_exporter is not None
        }
        resource = self._resource = _resource_of(service_name)
        if spans:
            self.tracer_provider = TracerProvider(
                resource=resource, shutdown_on_exit=False, id_generator=OwnIds()
            )
            self.tracer_provider.add_span_processor(self._settling)
            for destination in destinations:
                if destination.span_exporter is not None:
                    outlet = SpanOutlet(destination.span_exporter, on_lost)
                    self._span_outlets[destination.name] = outlet
                    self.tracer_provider.add_span_processor(outlet.processor)
        if metrics:
            for destination in destinations:
                if destination.metric_exporter is not None:
                    self._metric_outlets[destination.name] = MetricOutlet(
                        destination.metric_exporter, export_interval_s
                    )
            self._count_histograms()
            self.meter_provider = MeterProvider(
                [metric_outlet.reader for metric_outlet in self._metric_outlets.values()],
                resource=resource,
                shutdown_on_exit=False,
            )

    def _count_histograms(self) -> None:
        """Count histograms ourselves, unless somebody wants of them what only the SDK can do."""
        exporters = [outlet.exporter for outlet in self._metric_outlets.values()]
        if not os.environ.get(OTEL_METRICS_EXEMPLAR_FILTER) and all(
            exporter.wants_plain_histograms for exporter in exporters
        ):
            self.histograms = HistogramTable((catalogue.CALL_DURATION, catalogue.CALL_DEVICE_TIME_HISTOGRAM))
            for exporter in exporters:
                exporter.histograms = self.histograms

    def begin(self, owes_to: Callable[[object], bool], exported: Callable[[], None]) -> None:
        """Export where counting begins, once in a process.

        Args:
            owes_to: Tells whether a metric reader has seen a 0 in place of a value.
            exported: Called whenever metrics have arrived somewhere.
        """
        if self._begun:
            return
        self._begun = True
        for outlet in self._metric_outlets.values():
            outlet.begin(owes_to, exported)

    def take_logs(self) -> None:
        """Take log events from here on; few programs have any, and each destination costs two threads."""
        if self.logs is None and self._log_makers:
            from gputrace.telemetry.log_delivery import OwnLogs

            # This may be a forked child by now.
            own = Resource({SERVICE_INSTANCE_ID: identity.instance_id()})
            self.logs = OwnLogs(self._log_makers, self._resource.merge(own), self._on_lost)
            events.use(self.logs.provider)

    def flush(self, deadline: float, owes: Callable[[], bool]) -> bool:
        """Export what was recorded.

        Args:
            deadline: ``time.monotonic()`` value, s; what hangs is left to its thread.
            owes: Tells whether a metric reader has seen a 0 in place of a value.

        Returns:
            Whether all of it arrived in time.
        """
        tasks = [*self._flush_spans().values(), *self._flush_metrics(owes).values()]
        tasks += self._flush_logs().values()
        tasks.append(self._closer.submit(lambda: self._flush_others(deadline)))
        return all([task.succeeded(deadline) for task in tasks])  # noqa: C419 - each gets its chance

    def _flush_spans(self) -> dict[str, Task]:
        return {name: outlet.closer.submit(outlet.flush) for name, outlet in self._span_outlets.items()}

    def _flush_logs(self) -> dict[str, Task]:
        return {} if self.logs is None else self.logs.flush()

    def _flush_metrics(self, owes: Callable[[], bool]) -> dict[str, Task]:
        return {
            name: outlet.closer.submit(partial(outlet.flush, owes))
            for name, outlet in self._metric_outlets.items()
        }

    def _flush_others(self, deadline: float) -> None:
        """Flush the processors that the user has added to this provider."""
        if self.tracer_provider is not None:
            self.tracer_provider.force_flush(milliseconds_until(deadline))

    def shutdown(self, deadline: float, owes: Callable[[], bool]) -> list[str]:
        """Export what is left and stop, until ``deadline``; whatever hangs is left behind.

        Returns:
            What was lost, in words, one entry a destination.
        """
        metrics, spans, logs = self._flush_metrics(owes), self._flush_spans(), self._flush_logs()
        until = {name: deadline + patience_s for name, patience_s in self._patience_s.items()}
        for name, task in (*spans.items(), *logs.items()):
            task.succeeded(until[name])
        silent = {name for name, task in metrics.items() if not task.succeeded(until[name])}
        self._closer.submit(lambda: self._close(deadline)).succeeded(deadline)
        return self._lost(silent)

    def _close(self, deadline: float) -> None:
        if self.tracer_provider is not None:
            self.tracer_provider.shutdown()
        if self.meter_provider is not None:
            self.meter_provider.shutdown(milliseconds_until(deadline))
        if self.logs is not None:
            events.use(None)
            self.logs.provider.shutdown()

    def _lost(self, silent: set[str]) -> list[str]:
        """Return what was lost, in words.

        Args:
            silent: Destinations whose last metrics were not seen to arrive.
        """
        lost: dict[str, list[str]] = {}
        for name, outlet in self._span_outlets.items():
            missing = self._settling.ended - outlet.exporter.delivered
            if missing > 0:
                lost[name] = [_counted(missing, "span")]
        for name, log_outlet in () if self.logs is None else self.logs.outlets.items():
            if log_outlet.missing > 0:
                lost.setdefault(name, []).append(_counted(log_outlet.missing, "log event"))
        for name in silent:
            # A collection that hangs has no points yet.
            missing = self._metric_outlets[name].exporter.undelivered
            what = _counted(missing, "metric point") if missing else "metric points"
            lost.setdefault(name, []).append(f"the last {what}")
        return [f"{' and '.join(what)} to {name}" for name, what in lost.items()]

    def after_fork(self) -> None:
        """Begin anew in a forked child, with the same providers, which the user's tracers belong to.

        The SDK itself renews span processors and resources. Of metrics it keeps the
        parent's counts, and locks that a thread of the parent's may have held.
        """
        self._begun = False
        self._settling.reset()
        self._closer.start()
        if self.histograms is not None:
            self.histograms.reset()
        for spans in self._span_outlets.values():
            spans.reset()
        if self.logs is not None:
            self.logs.after_fork()
        for metrics in self._metric_outlets.values():
            # Until that has worked: rather nothing than the parent's numbers once more.
            metrics.exporter.muted = True
            metrics.reset()
        if self.meter_provider is not None:
            with faults.contained("separate the metrics of a forked child from its parent's"):
                _renew(self.meter_provider)
                for metrics in self._metric_outlets.values():
                    metrics.exporter.muted = False


def _renew(provider: MeterProvider) -> None:
    consumer = provider._measurement_consumer  # noqa: SLF001 - the SDK has no public way to begin anew
    consumer._lock = threading.Lock()  # noqa: SLF001
    readers: list[MetricReader] = list(consumer._reader_storages)  # noqa: SLF001
    consumer._reader_storages = {reader: _storage(consumer, reader) for reader in readers}  # noqa: SLF001
    for reader in readers:
        if isinstance(reader, PeriodicExportingMetricReader):
            reader._export_lock = threading.Lock()  # noqa: SLF001
            reader._shutdown_event = threading.Event()  # noqa: SLF001


def _storage(consumer: Any, reader: MetricReader) -> Any:
    storage: Any = MetricReaderStorage
    settings = [
        consumer._sdk_config,  # noqa: SLF001
        reader._instrument_class_temporality,  # noqa: SLF001
        reader._instrument_class_aggregation,  # noqa: SLF001
    ]
    # Since OpenTelemetry 1.45.2.
    limits = getattr(reader, "_instrument_class_cardinality_limit", None)
    return storage(*settings) if limits is None else storage(*settings, limits)


def _resource_of(service_name: str | None) -> Resource:
    """Return the resource of this process: the environment's, with our identity.

    Args:
        service_name: ``service.name``; None leaves it to the environment.
    """
    given = {}
    instance = identity.settled()
    if instance is not None:
        given[SERVICE_INSTANCE_ID] = instance
    if service_name is not None:
        given[SERVICE_NAME] = service_name
    resource = Resource.create(given)
    if not resource.attributes.get(SERVICE_INSTANCE_ID):
        resource = resource.merge(Resource({SERVICE_INSTANCE_ID: identity.instance_id()}))
    return resource


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
