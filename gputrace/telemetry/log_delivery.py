"""Log events to the destinations of our own: exporters that know how much arrived, and what feeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)

from gputrace.telemetry.closing import Closer
from gputrace.telemetry.delivery import CountedExporter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk._logs import ReadableLogRecord, ReadWriteLogRecord
    from opentelemetry.sdk.resources import Resource

    from gputrace.telemetry.closing import Task

_QUEUE = 65_536
_DELAY_MS = 1_000


class CountedLogExporter(CountedExporter, LogRecordExporter):
    """Hands log records on and knows how many arrived."""

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Export a batch."""
        result: LogRecordExportResult = self._hand_on(batch, LogRecordExportResult.SUCCESS)
        return result


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
        on_lost: Told how many records the exporter refused.
    """

    def __init__(self, make: Callable[[], LogRecordExporter], on_lost: Callable[[int], None]) -> None:
        self.exporter = CountedLogExporter(make, on_lost)
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
        on_lost: Told how many records an exporter refused.

    Attributes:
        provider: The provider; never the global one, which others would log to.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], LogRecordExporter]],
        resource: Resource,
        on_lost: Callable[[int], None],
    ) -> None:
        self.outlets = {name: LogOutlet(make, on_lost) for name, make in makers.items()}
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
