"""OTLP/JSON lines in files: the embedded default, read by ``gputrace report``.

The encoding is the OpenTelemetry project's own. What is added here is a stream
that names one file a process and signal, rotates it by size, starts a file of
its own after a fork, and writes whole lines, so that a reader never sees two
processes mixed in one line.
"""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any, cast

from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter
from opentelemetry.exporter.otlp.json.file._log_exporter import FileLogExporter
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics import (
    Counter,
    Histogram,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
    UpDownCounter,
)
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.trace import ReadableSpan

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
DEFAULT_KEPT_FILES = 16

_CUMULATIVE: dict[type, AggregationTemporality] = dict.fromkeys(
    (Counter, Histogram, ObservableCounter, ObservableGauge, ObservableUpDownCounter, UpDownCounter),
    AggregationTemporality.CUMULATIVE,
)


class RotatingStream(io.TextIOBase):
    """A text stream over ``<signal>-<pid>-<instance>-<n>.jsonl``, opened when first written.

    A line that cannot be written is lost, and said so once: nobody further up can do
    better, and the program goes on.

    Args:
        folder: Where the files go; made when needed.
        signal: ``spans``, ``metrics`` or ``logs``.
        instance_id: Tells the identity of this process, part of the name.
        max_bytes: Size at which the next file is begun.
        kept_files: How many files of this process and signal stay; the oldest go first.

    Attributes:
        failed: The last line could not be written.
    """

    def __init__(
        self,
        folder: Path,
        signal: str,
        instance_id: Callable[[], str],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        kept_files: int = DEFAULT_KEPT_FILES,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._signal = signal
        self._instance_id = instance_id
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._pid = os.getpid()
        self._number = 0
        self._size = 0
        self._descriptor: int | None = None
        self._paths: list[Path] = []
        self._cut = False
        self.failed = False

    def writable(self) -> bool:
        """Return True: this stream only writes."""
        return True

    def write(self, text: str, /) -> int:
        """Append one line, in one write, to the file of this process."""
        data = text.encode("utf-8")
        self.failed = False
        try:
            self._append(data)
        except OSError as error:
            self.failed = True
            faults.log_once(
                f"write:{self._signal}",
                "gputrace cannot write %s to %s (%s); the program goes on, they are lost until it can",
                self._signal,
                self._folder,
                error.strerror or error,
            )
        return len(text)

    def _append(self, data: bytes) -> None:
        if self._pid != os.getpid():
            # A forked child shares the parent's file descriptor: never its file.
            self._close_file()
            self._pid, self._number, self._paths = os.getpid(), 0, []
        elif self._cut or (self._size and self._size + len(data) > self._max_bytes):
            # What stands in a file behind a line that was cut short would be read as a part of it.
            self._finish_file()
        if self._descriptor is None:
            self._open_file()
        descriptor = cast("int", self._descriptor)
        view = memoryview(data)
        while view:
            written = os.write(descriptor, view)
            self._size += written
            view = view[written:]
            self._cut = bool(view)

    def flush(self) -> None:
        """Do nothing: each line is handed to the operating system at once."""

    def close(self) -> None:
        """Close the file; a later write would begin another."""
        self._close_file()
        super().close()

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open_file(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._signal}-{self._pid}-{self._instance_id()[:8]}-{self._number}.jsonl"
        path = self._folder / name
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._descriptor).st_size
        self._paths.append(path)

    def _finish_file(self) -> None:
        self._close_file()
        self._cut = False
        self._size = 0
        self._number += 1
        while len(self._paths) >= self._kept_files:
            self._paths.pop(0).unlink(missing_ok=True)


class _SpanExporter(FileSpanExporter):
    def __init__(self, stream: RotatingStream) -> None:
        super().__init__(stream=cast("IO[str]", stream))
        self._lines = stream

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        return SpanExportResult.FAILURE if self._lines.failed else result


class _MetricExporter(FileMetricExporter):
    def __init__(self, stream: RotatingStream) -> None:
        super().__init__(stream=cast("IO[str]", stream), preferred_temporality=_CUMULATIVE)
        self._lines = stream

    def export(self, metrics_data: MetricsData, *arguments: Any, **named: Any) -> MetricExportResult:
        result = super().export(metrics_data, *arguments, **named)
        return MetricExportResult.FAILURE if self._lines.failed else result


class _LogExporter(FileLogExporter):
    def __init__(self, stream: RotatingStream) -> None:
        super().__init__(stream=cast("IO[str]", stream))
        self._lines = stream

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        result = super().export(batch)
        return LogRecordExportResult.FAILURE if self._lines.failed else result


def span_exporter(folder: Path, instance_id: Callable[[], str]) -> FileSpanExporter:
    """Return an exporter that writes spans under ``folder``."""
    return _SpanExporter(RotatingStream(folder, "spans", instance_id))


def log_exporter(folder: Path, instance_id: Callable[[], str]) -> FileLogExporter:
    """Return an exporter that writes log events under ``folder``."""
    return _LogExporter(RotatingStream(folder, "logs", instance_id))


def metric_exporter(folder: Path, instance_id: Callable[[], str]) -> FileMetricExporter:
    """Return an exporter that writes cumulative metric points under ``folder``.

    Cumulative whatever the environment prefers for other exporters: a file that
    lost its last line then loses nothing but time.
    """
    return _MetricExporter(RotatingStream(folder, "metrics", instance_id))
