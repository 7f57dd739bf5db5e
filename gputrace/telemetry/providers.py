"""The OpenTelemetry SDK: providers of our own, and the seam to those of the user."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gputrace import faults, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

_SPAN_QUEUE = 65_536
_SPAN_DELAY_MS = 1_000


class CountedSpanExporter(SpanExporter):
    """Hands spans on and knows how many arrived.

    Attributes:
        delivered: Spans that the exporter took.
    """

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.delivered = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch."""
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.delivered += len(spans)
        return result

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._inner.force_flush(timeout_millis)


class ProcessBoundMetricExporter(MetricExporter):
    """Exports only in the process that made it.

    A forked child inherits the reader with the parent's counts; what that one
    would export there are the parent's numbers once more.
    """

    def __init__(self, inner: MetricExporter) -> None:
        # The reader looks for these two attributes.
        super().__init__(inner._preferred_temporality, inner._preferred_aggregation)  # noqa: SLF001
        self._inner = inner
        self._pid = os.getpid()
        self.failing = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> MetricExportResult:
        """Export one collection."""
        if os.getpid() != self._pid:
            return MetricExportResult.SUCCESS
        # Until it is done: one that hangs when the process ends has not arrived.
        self.failing = True
        result = self._inner.export(metrics_data, timeout_millis=timeout_millis)
        self.failing = result is not MetricExportResult.SUCCESS
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the exporter."""
        return self._inner.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Shut the exporter down."""
        self._inner.shutdown(timeout_millis=timeout_millis)


class SettlingProcessor(SpanProcessor):
    """Ends the spans that wait for their device time before a provider flushes or shuts down.

    Counts the spans of gputrace that ended, to tell how many were lost.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self.ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Count a sampled span."""
        if span.context is not None and span.context.trace_flags.sampled:
            self.ended += 1

    def shutdown(self) -> None:
        """Settle what is open, while the processors behind this one still take spans."""
        with faults.contained("settle before a provider shuts down"):
            self._settle()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the interface
        """Settle what was left."""
        with faults.contained("settle before a provider flushes"):
            self._settle()
        return True


def put_first(provider: Any, processor: SettlingProcessor) -> None:
    """Add a processor to a user's tracer provider, before those that export.

    Providers without processors, such as no-op ones, are left alone.
    """
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        return
    add(processor)
    multi = getattr(provider, "_active_span_processor", None)
    processors = getattr(multi, "_span_processors", None)
    if isinstance(processors, tuple) and processors and processors[-1] is processor:
        # No public way to be called first; without it, spans that wait when the
        # user shuts the provider down by hand would be lost.
        multi._span_processors = (processor, *processors[:-1])  # noqa: SLF001


def resource_of(service_name: str | None) -> Resource:
    """Return the resource of this process: the environment's, with our identity.

    Args:
        service_name: ``service.name``; None leaves it to the environment.
    """
    given = {SERVICE_INSTANCE_ID: identity.instance_id()}
    if service_name is not None:
        given[SERVICE_NAME] = service_name
    return Resource.create(given)


class OwnProviders:
    """Providers that ``configure`` made, with their exporters.

    Args:
        resource: The identity of this process.
        span_exporters: Where spans go.
        metric_exporters: Where metrics go; each has a reader of its own, so that
            one that hangs does not hold up the others.
        export_interval_s: Time between two exports of metrics, s.
        settle: Settles what is open.
    """

    def __init__(
        self,
        resource: Resource,
        span_exporters: Sequence[SpanExporter],
        metric_exporters: Sequence[MetricExporter],
        export_interval_s: float,
        settle: Callable[[], None],
    ) -> None:
        self.processor = SettlingProcessor(settle)
        self._spans_closer = _Closer("gputrace-spans-closer")
        self._metrics_closer = _Closer("gputrace-metrics-closer")
        self._span_exporters = [CountedSpanExporter(exporter) for exporter in span_exporters]
        self.tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(self.processor)
        for exporter in self._span_exporters:
            self.tracer_provider.add_span_processor(
                BatchSpanProcessor(
                    exporter, max_queue_size=_SPAN_QUEUE, schedule_delay_millis=_SPAN_DELAY_MS
                )
            )
        self._metric_exporters = [ProcessBoundMetricExporter(exporter) for exporter in metric_exporters]
        self.meter_provider = MeterProvider(
            [
                PeriodicExportingMetricReader(exporter, export_interval_millis=export_interval_s * 1000)
                for exporter in self._metric_exporters
            ],
            resource=resource,
            shutdown_on_exit=False,
        )

    def flush(self, deadline: float) -> bool:
        """Export what was recorded, until ``deadline`` (``time.monotonic()``, s)."""
        return _all_within(
            deadline,
            self._spans_closer.submit(lambda: self.tracer_provider.force_flush(_left_ms(deadline))),
            self._metrics_closer.submit(lambda: self.meter_provider.force_flush(_left_ms(deadline))),
        )

    def shutdown(self, deadline: float) -> int:
        """Export what is left and stop, until ``deadline``; whatever hangs is left behind.

        Returns:
            How many records were lost: spans, and one for each metric exporter
            that did not take the last export.
        """
        _all_within(
            deadline,
            self._spans_closer.submit(self.tracer_provider.shutdown),
            self._metrics_closer.submit(lambda: self.meter_provider.shutdown(_left_ms(deadline))),
        )
        undelivered = [self.processor.ended - exporter.delivered for exporter in self._span_exporters]
        return max(undelivered, default=0) + sum(exporter.failing for exporter in self._metric_exporters)


def _left_ms(deadline: float) -> int:
    return max(1, int((deadline - monotonic()) * 1000))


class _Closer:
    """A thread that flushes and shuts one provider down, and may be left behind.

    Started beforehand: at exit an interpreter refuses new threads.
    """

    def __init__(self, name: str) -> None:
        self._actions: SimpleQueue[tuple[Callable[[], object], threading.Event]] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            action, done = self._actions.get()
            with faults.contained("flush or shut down a provider"):
                action()
            done.set()

    def submit(self, action: Callable[[], object]) -> threading.Event:
        """Run an action after those before it; the event is set when it is done."""
        done = threading.Event()
        self._actions.put((action, done))
        return done


def _all_within(deadline: float, *submitted: threading.Event) -> bool:
    return all([done.wait(max(0.0, deadline - monotonic())) for done in submitted])
