"""Log events to the destinations of our own: exporters that know how much arrived, and what feeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)

from gputrace.telemetry.closing import Closer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk._logs import ReadableLogRecord, ReadWriteLogRecord
    from opentelemetry.sdk.resources import Resource

    from gputrace.telemetry.closing import Task

_QUEUE = 65_536
_DELAY_MS = 1_000


class CountedLogExporter(LogRecordExporter):
    """Hands log records on and knows how many arrived.

    Args:
        make: Makes the exporter proper; anew in a forked child.

    Attributes:
        delivered: Records that the exporter took.
        refused: Records that it did not.
    """

    def __init__(self, make: Callable[[], LogRecordExporter]) -> None:
        self._make = make
        # Its base class has no types.
        self._inner: Any = make()
        self.delivered = self.refused = 0

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self._inner = None
        self.delivered = self.refused = 0

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Export a batch."""
        if self._inner is None:
            self._inner = self._make()
        result: LogRecordExportResult = LogRecordExportResult.FAILURE
        try:
            result = self._inner.export(batch)
        finally:
            if result is LogRecordExportResult.SUCCESS:
                self.delivered += len(batch)
            else:
                self.refused += len(batch)
        return result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._inner is None or bool(self._inner.force_flush(timeout_millis))

    def shutdown(self) -> None:
        """Shut the exporter down."""
        if self._inner is not None:
            self._inner.shutdown()


class _CountedProcessor(BatchLogRecordProcessor):
    """Counts what it was given.

    Attributes:
        taken: Records so far.
    """

    taken = 0

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        self.taken += 1
        super().on_emit(log_record)


class LogOutlet:
    """Log records to one destination.

    Args:
        make: Makes the exporter proper.
    """

    def __init__(self, make: Callable[[], LogRecordExporter]) -> None:
        self.exporter = CountedLogExporter(make)
        self.processor = _CountedProcessor(
            self.exporter, max_queue_size=_QUEUE, schedule_delay_millis=_DELAY_MS
        )
        self.closer = Closer("gputrace-logs-closer")

    @property
    def missing(self) -> int:
        """Records that were given and did not arrive, so far."""
        return self.processor.taken - self.exporter.delivered

    def reset(self) -> None:
        """Begin anew in a forked child."""
        self.exporter.reset()
        self.processor.taken = 0
        self.closer.start()

    def flush(self) -> bool:
        """Export what was given; returns whether all of it arrived."""
        refused = self.exporter.refused
        return self.processor.force_flush() and self.exporter.refused == refused


class OwnLogs:
    """A logger provider of our own, with an outlet for each destination.

    Args:
        makers: Make the exporters, by the name of their destination.
        resource: Whose records these are.

    Attributes:
        provider: The provider; never the global one, which others would log to.
    """

    def __init__(self, makers: Mapping[str, Callable[[], LogRecordExporter]], resource: Resource) -> None:
        self.outlets = {name: LogOutlet(make) for name, make in makers.items()}
        self.provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        for outlet in self.outlets.values():
            self.provider.add_log_record_processor(outlet.processor)

    def flush(self) -> dict[str, Task]:
        """Begin to export what was recorded; returns a task for each destination."""
        return {name: outlet.closer.submit(outlet.flush) for name, outlet in self.outlets.items()}

    def after_fork(self) -> None:
        """Begin anew in a forked child."""
        for outlet in self.outlets.values():
            outlet.reset()
