"""Files of the embedded default: whole lines, rotation, forks, and folders that cannot be written."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from gputrace import faults
from gputrace.exporters import file


@pytest.fixture(autouse=True)
def forgotten():
    """What was logged once is logged again in the next test."""
    faults.reset()


def stream(folder: Path, **options: int) -> file.RotatingStream:
    return file.RotatingStream(folder, "spans", lambda: "0123456789abcdef", **options)


def lines(path: Path) -> list[str]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return text.splitlines()


def test_nothing_is_made_before_something_is_written(tmp_path):
    made = stream(tmp_path / "deep" / "folder")
    made.flush()
    assert list(tmp_path.iterdir()) == []
    made.write("one\n")
    name = f"spans-{os.getpid()}-01234567-0.jsonl"
    assert lines(tmp_path / "deep" / "folder" / name) == ["one"]
    assert made.writable()
    made.close()


def test_files_rotate_by_size_and_the_oldest_go(tmp_path):
    made = stream(tmp_path, max_bytes=100, kept_files=3)
    for number in range(50):
        made.write(f"{number:019}\n")
    made.close()
    paths = sorted(tmp_path.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))
    assert [path.stem.rpartition("-")[2] for path in paths] == ["7", "8", "9"]
    assert [line for path in paths for line in lines(path)] == [f"{number:019}" for number in range(35, 50)]
    assert all(path.stat().st_size == 100 for path in paths)


def test_a_line_longer_than_a_file_is_written_whole(tmp_path):
    made = stream(tmp_path, max_bytes=10)
    for text in ("a" * 50, "b", "c" * 50):
        made.write(f"{text}\n")
    made.close()
    assert sorted(line for path in tmp_path.iterdir() for line in lines(path)) == ["a" * 50, "b", "c" * 50]
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_there_from_before_is_kept_and_counts(tmp_path):
    """A process id and an instance can come again only by intent; then nothing is overwritten."""
    first = stream(tmp_path, max_bytes=10)
    first.write("12345\n")
    first.close()
    second = stream(tmp_path, max_bytes=10)
    second.write("67890\n")
    second.write("abcde\n")
    second.close()
    assert sorted(line for path in tmp_path.iterdir() for line in lines(path)) == ["12345", "67890", "abcde"]


def test_a_reader_sees_only_whole_lines_while_a_writer_writes(tmp_path):
    made = stream(tmp_path, max_bytes=200_000, kept_files=1000)
    line = json.dumps({"text": "x" * 5000}) + "\n"
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            made.write(line)

    writer = threading.Thread(target=write)
    writer.start()
    read = 0
    try:
        while read < 2000:
            for path in list(tmp_path.iterdir()):
                text = path.read_text()
                whole, _, rest = text.rpartition("\n")
                # Only what is being written this moment may be short, and it stands at the end.
                assert line.startswith(rest)
                for one in whole.splitlines():
                    assert one == line[:-1]
                    read += 1
    finally:
        stop.set()
        writer.join()
        made.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_never_writes_to_its_parents_file(tmp_path):
    made = stream(tmp_path)
    made.write("parent\n")
    pid = os.fork()
    if pid == 0:
        made.write("child\n")
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    made.write("parent\n")
    made.close()
    assert lines(tmp_path / f"spans-{os.getpid()}-01234567-0.jsonl") == ["parent", "parent"]
    assert lines(tmp_path / f"spans-{pid}-01234567-0.jsonl") == ["child"]


def span():
    provider = TracerProvider(shutdown_on_exit=False)
    ended = provider.get_tracer("mine").start_span("work")
    ended.end()
    return ended


@pytest.mark.parametrize("obstacle", ["file", "read-only"])
def test_a_folder_that_cannot_be_written_is_one_line_and_a_failure_each_time(tmp_path, caplog, obstacle):
    if obstacle == "file":
        (tmp_path / "data").write_text("in the way")
    elif os.geteuid() == 0:
        # No folder is closed to root; one under /proc is to everybody.
        tmp_path = Path("/proc/self")
    else:
        tmp_path.chmod(0o500)
    exporter = file.span_exporter(tmp_path / "data", lambda: "0123456789")
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert exporter.export([span()]) is SpanExportResult.FAILURE
    assert len(caplog.records) == 1
    assert caplog.records[0].name == "gputrace"
    said = caplog.records[0].getMessage()
    assert f"gputrace cannot write spans to {tmp_path}/data" in said
    assert caplog.records[0].exc_info is None


def test_a_folder_that_can_be_written_again_is(tmp_path):
    exporter = file.span_exporter(tmp_path / "data", lambda: "0123456789")
    (tmp_path / "data").write_text("in the way")
    assert exporter.export([span()]) is SpanExportResult.FAILURE
    (tmp_path / "data").unlink()
    assert exporter.export([span()]) is SpanExportResult.SUCCESS
    [path] = (tmp_path / "data").iterdir()
    assert len(lines(path)) == 1


def test_a_line_cut_short_is_the_last_of_its_file(tmp_path, monkeypatch):
    """A full disk takes a part of a line; the next must not be read as its rest."""
    made = stream(tmp_path)
    made.write("first\n")
    real = os.write
    full = [False]

    def write(descriptor: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        full[0] = True
        return real(descriptor, data[:3])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        made.write("second\n")
        assert made.failed
    for number in range(3):
        made.write(f"later {number}\n")
        assert not made.failed
    made.close()
    first, second = sorted(tmp_path.iterdir())
    assert first.read_text() == "first\nsec"
    assert lines(second) == ["later 0", "later 1", "later 2"]


def test_a_full_disk_does_not_cost_what_was_written_before(tmp_path, monkeypatch):
    made = stream(tmp_path, kept_files=2)
    made.write("first\n")

    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        for _ in range(10):
            made.write("lost\n")
    made.write("last\n")
    made.close()
    [path] = tmp_path.iterdir()
    assert lines(path) == ["first", "last"]


def test_metrics_are_cumulative_whatever_the_environment_prefers(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    exporter = file.metric_exporter(tmp_path, lambda: "0123456789")
    reader = PeriodicExportingMetricReader(exporter, 3_600_000)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    counter = provider.get_meter("mine").create_counter("mine")
    for _ in range(2):
        counter.add(1)
        provider.force_flush()
    provider.shutdown()
    [path] = tmp_path.iterdir()
    found = [json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0] for line in lines(path)]
    assert [metric["sum"]["aggregationTemporality"] for metric in found] == [2, 2, 2]
    assert [metric["sum"]["dataPoints"][0]["asInt"] for metric in found] == ["1", "2", "2"]


def test_metrics_that_cannot_be_written_are_a_failure_too(tmp_path, caplog):
    (tmp_path / "data").write_text("in the way")
    exporter = file.metric_exporter(tmp_path / "data", lambda: "0123456789")
    results = []
    reader = PeriodicExportingMetricReader(exporter, 3_600_000)
    real = exporter.export
    exporter.export = lambda *arguments, **named: results.append(real(*arguments, **named))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    provider.get_meter("mine").create_counter("mine").add(1)
    with caplog.at_level(logging.DEBUG):
        provider.force_flush()
        provider.shutdown()
    assert results == [MetricExportResult.FAILURE] * 2
    assert [record.name for record in caplog.records] == ["gputrace"]


def test_a_program_whose_folder_cannot_be_written_goes_on(run_python):
    (run_python.folder / "gputrace-data").write_text("in the way")
    result = run_python(
        """
import gputrace, time
gputrace.configure(export_interval=0.05)
for _ in range(5):
    with gputrace.span("work"):
        time.sleep(0.05)
print("done")
"""
    )
    assert result.stdout == "done\n"
    said = result.stderr.splitlines()
    # A line for each signal, and at the end what was lost.
    assert len(said) == 3
    assert sum("gputrace cannot write spans" in line for line in said) == 1
    assert sum("gputrace cannot write metrics" in line for line in said) == 1
    assert "could deliver 5 spans and the last" in said[-1]
