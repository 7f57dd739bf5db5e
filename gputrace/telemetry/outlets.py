"""One destination of our own providers for one signal: exporter, what feeds it, and a thread to flush it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from gputrace.telemetry.closing import ANOTHER_MOMENT_S, Closer
from gputrace.telemetry.delivery import CountedMetricExporter, CountedSpanExporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

_SPAN_QUEUE = 65_536
_SPAN_DELAY_MS = 1_000
# A new series is exported with its value this long after its 0, whatever the interval, s.
_AFTER_ZERO_S = 0.05


class SpanOutlet:
    """Spans to one destination.

    Args:
        make: Makes the exporter proper.
        on_lost: Told how many spans the exporter refused.
    """

    def __init__(self, make: Callable[[], SpanExporter], on_lost: Callable[[int], None]) -> None:
        self.exporter = CountedSpanExporter(make, on_lost)
        self.processor = BatchSpanProcessor(
            self.exporter, max_queue_size=_SPAN_QUEUE, schedule_delay_millis=_SPAN_DELAY_MS
        )
        self.closer = Closer("gputrace-spans-closer")

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self.exporter.reset()
        self.closer.start()

    def flush(self) -> bool:
        """Export what has ended; returns whether all of it arrived."""
        refused = self.exporter.refused
        return self.processor.force_flush() and self.exporter.refused == refused


class _OrderedReader(PeriodicExportingMetricReader):
    """A reader that exports what it collects before it collects again.

    The SDK's lets a collection of its own thread and one of a flush overtake each other
    on the way to the exporter: the older one then stands last.
    """

    def __init__(self, exporter: MetricExporter, interval_s: float) -> None:
        self.ordering = threading.Lock()
        super().__init__(exporter, export_interval_millis=interval_s * 1000)

    def collect(self, timeout_millis: float = 10_000) -> None:  # type: ignore[misc] # final, for lack of a seam
        """Collect and export."""
        with self.ordering:
            super().collect(timeout_millis)


class MetricOutlet:
    """Metrics to one destination, by a reader of its own: one that hangs does not hold up the others.

    Args:
        make: Makes the exporter proper.
        interval_s: Time between two exports, s.
    """

    def __init__(self, make: Callable[[], MetricExporter], interval_s: float) -> None:
        self.exporter = CountedMetricExporter(make)
        self.reader = _OrderedReader(self.exporter, interval_s)
        self.closer = Closer("gputrace-metrics-closer")

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self.exporter.reset()
        self.reader.ordering = threading.Lock()
        self.closer.start()

    def begin(self, owes_to: Callable[[object], bool], exported: Callable[[], None]) -> None:
        """Export where counting begins, and from then on the value soon after each first 0.

        Without that, a process that is killed has exported nothing, or zeros.

        Args:
            owes_to: Tells whether a metric reader has seen a 0 in place of a value.
            exported: Called whenever metrics have arrived.
        """

        def again() -> None:
            time.sleep(_AFTER_ZERO_S)
            self.reader.collect()

        def on_exported() -> None:
            if owes_to(self.reader):
                self.closer.submit(again)
            else:
                exported()

        self.exporter.on_exported = on_exported
        self.closer.submit(self.reader.collect)

    def flush(self, owes: Callable[[], bool]) -> bool:
        """Export what is counted; returns whether all of it arrived.

        Args:
            owes: Tells whether a metric reader has seen a 0 in place of a value.
        """
        self.reader.force_flush()
        if owes():
            time.sleep(ANOTHER_MOMENT_S)
            self.reader.force_flush()
        return not self.exporter.undelivered
