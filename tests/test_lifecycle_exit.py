"""The end of a process: what waited is exported whoever owns the provider; nothing holds the program up."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK = """
import os, sys, time
import gputrace

@gputrace.track(feature="search", operation="work")
def work(seconds=0.0):
    time.sleep(seconds)
"""

# Exporters of the user's that append to a file what they get, with values: a pipe may be gone at exit.
USERS = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality, MetricExporter, MetricExportResult, PeriodicExportingMetricReader)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

def note(*words):
    with open("exported", "a") as file:
        print(*words, file=file)

class Spans(SpanExporter):
    def export(self, spans):
        for span in spans:
            note("span", span.name, span.status.status_code.name)
        return SpanExportResult.SUCCESS

class Points(MetricExporter):
    def __init__(self):
        super().__init__({}, {})
    def export(self, data, timeout_millis=0, **_):
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == "gputrace.calls":
                        note("calls", *(point.value for point in metric.data.data_points))
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=0):
        return True
    def shutdown(self, timeout_millis=0, **_):
        pass

def set_providers():
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Spans()))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(Points())]))
"""


def exported(run_python, what: str) -> list[str]:
    """What the user's exporters got, in order: `span` names with their status, values of `calls`."""
    lines = (run_python.folder / "exported").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(what)]


@pytest.mark.parametrize(
    "program",
    [
        "set_providers()\nwork()",
        "work()\nset_providers()\nwork()\n",
        "work()\nset_providers()\nwork(); work()",
    ],
)
def test_the_users_providers_get_what_waited_whenever_they_were_set(run_python, program):
    result = run_python(WORK + USERS + program)
    calls = program.count("work()")
    spans = program.rpartition("set_providers()")[2].count("work()")
    assert exported(run_python, "span") == ["work UNSET"] * spans
    # A new series first as 0, and at shutdown collected twice: increase() sees the call.
    assert exported(run_python, "calls")[-2:] == ["0", str(calls)]
    assert result.stderr == ""


@pytest.mark.parametrize("provider", ["trace.get_tracer_provider()", "metrics.get_meter_provider()"])
def test_a_provider_that_the_user_shuts_down_gets_what_waited(run_python, provider):
    run_python(WORK + USERS + f"set_providers()\nwork()\n{provider}.shutdown()\n")
    assert exported(run_python, "span") == ["work UNSET"]
    # Nobody collects again from a meter provider that is shut down: the value then comes without its 0.
    assert exported(run_python, "calls")[-1] == "1"


def test_a_flush_by_hand_exports_what_waited(run_python):
    run_python(
        WORK
        + USERS
        + """
set_providers()
work()
trace.get_tracer_provider().force_flush()
assert open("exported").read() == "span work UNSET\\n"
os._exit(0)
"""
    )


ENDINGS = {"sys.exit(3)": 3, "raise ValueError('boom')": 1, "raise KeyboardInterrupt": -2}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_call_that_the_end_of_the_program_interrupts_is_recorded(run_python, read_files, ending):
    program = "gputrace.configure()\nwith gputrace.span('last', feature='search'):\n    work()\n    "
    run_python(WORK + program + ending, code=ENDINGS[ending])
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls", status="error") == 1
    assert files.total("gputrace.calls", status="ok") == 1
    assert sorted(span["name"] for span in files.spans) == ["last", "work"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_and_so_it_is_by_the_users_providers(run_python, ending):
    program = "set_providers()\nwith gputrace.span('last', feature='search'):\n    work()\n    "
    run_python(WORK + USERS + program + ending, code=ENDINGS[ending])
    assert sorted(exported(run_python, "span")) == ["last ERROR", "work UNSET"]
    assert exported(run_python, "calls")[-1] == "1 1"


def test_an_exit_hook_that_fails_does_not_keep_anything_back(run_python, read_files):
    result = run_python(
        WORK
        + """
import atexit
gputrace.configure()
work()

@atexit.register
def hook():
    work()
    raise ValueError("boom")
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 2
    assert len(files.spans) == 2
    assert "boom" in result.stderr


@pytest.mark.parametrize("own", ["gputrace.configure()", "set_providers()"])
def test_no_thread_is_started_at_exit(run_python, read_files, own):
    """From Python 3.12 on an interpreter that ends refuses new threads."""
    result = run_python(
        WORK
        + USERS
        + f"""
import atexit, threading
{own}
work()

@atexit.register
def refuse():
    def start(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    threading._start_new_thread = start
    threading._start_joinable_thread = start
"""
    )
    assert result.stderr == ""
    if own == "set_providers()":
        assert exported(run_python, "span") == ["work UNSET"]
        assert exported(run_python, "calls") == ["0", "1"]
    else:
        files = read_files(run_python.folder / "gputrace-data")
        [values] = files.values("gputrace.calls").values()
        assert values[:2] == [0, 1]
        assert len(files.spans) == 1


def test_a_first_call_at_exit_does_no_harm(run_python):
    result = run_python(
        WORK
        + """
import atexit, threading

@atexit.register
def late():
    def start(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    threading._start_new_thread = start
    threading._start_joinable_thread = start
    work(); work()
    print("worked")
""",
        GPUTRACE_RAISE_FAULTS="",
    )
    assert result.stdout == "worked\n"
    assert result.stderr.count("gputrace could not start") == 1


@contextlib.contextmanager
def silent_collector() -> Iterator[int]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


@contextlib.contextmanager
def refusing_collector() -> Iterator[int]:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextlib.contextmanager
def failing_collector() -> Iterator[int]:
    """Answers, and takes nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("collector", [refusing_collector, silent_collector, failing_collector])
def test_a_collector_that_takes_nothing_holds_no_program_up(run_python, read_files, collector):
    """We wait 1.8 s; the bound is for a whole interpreter on a busy machine. The SDK alone takes 12 s."""
    with collector() as port:
        began = time.monotonic()
        result = run_python(
            WORK
            + f"""
gputrace.configure(endpoint="http://127.0.0.1:{port}", data_dir="data")
for _ in range(7):
    work()
"""
        )
        assert time.monotonic() - began < 8
    said = [line for line in result.stderr.splitlines() if "gputrace was stopped" in line]
    assert len(said) == 1
    assert "7 spans and the last " in said[0]
    assert said[0].endswith(f"metric points to http://127.0.0.1:{port}")
    # The files beside it are complete all the same.
    files = read_files(run_python.folder / "data")
    assert len(files.spans) == 7
    assert files.total("gputrace.calls") == 7


def test_a_slow_disk_is_waited_for_longer_than_a_collector(run_python, read_files):
    result = run_python(
        WORK
        + """
from gputrace.exporters import file

class SlowOs:
    def __getattr__(self, name):
        return getattr(os, name)
    def write(self, *arguments):
        time.sleep(1.5)
        return os.write(*arguments)

file.os = SlowOs()
gputrace.configure(data_dir="data")
work()
"""
    )
    assert result.stderr == ""
    files = read_files(run_python.folder / "data")
    assert len(files.spans) == 1
    assert files.total("gputrace.calls") == 1


def test_a_collection_that_hangs_is_no_silent_loss(run_python):
    result = run_python(
        WORK
        + """
from opentelemetry import metrics
gputrace.configure(data_dir="data")
work()
assert gputrace.flush()
metrics.get_meter("mine").create_observable_counter("mine", [lambda _: time.sleep(30) or []])
work()
"""
    )
    [said] = result.stderr.splitlines()
    assert said.endswith(f"could deliver the last metric points to {run_python.folder}/data")


def test_spans_that_an_exporter_gave_up_on_are_counted_while_the_program_runs(run_python, read_files):
    with failing_collector() as port:
        result = run_python(
            WORK
            + f"""
gputrace.configure(endpoint="http://127.0.0.1:{port}", data_dir="data")
work(); work()
print(gputrace.flush())
work()
"""
        )
    assert result.stdout == "False\n"
    files = read_files(run_python.folder / "data")
    assert files.total("gputrace.sdk.lost", reason="export_failed") == 2
    assert "could deliver 3 spans and" in result.stderr


def test_a_flush_is_bounded_and_says_that_it_failed(run_python):
    with silent_collector() as port:
        result = run_python(
            WORK
            + f"""
gputrace.configure(endpoint="http://127.0.0.1:{port}", data_dir="data")
work()
began = time.monotonic()
done = gputrace.flush(timeout=0.3)
print(done, time.monotonic() - began < 5)
"""
        )
    assert result.stdout == "False True\n"


def in_turn(values):
    """Without those that came again: on a slow machine another export may lie in between."""
    return [value for value, _ in itertools.groupby(values)]


@pytest.mark.parametrize("own", ["gputrace.configure()", "set_providers()"])
def test_a_flush_exports_values_and_not_only_first_zeros(run_python, read_files, own):
    """Also of a series that is new between two collections; the process leaves right after it."""
    # A while for the first export of all, and the one that comes soon after a 0.
    begin = f"{own}\nassert gputrace.flush()\ntime.sleep(0.3)\n"
    program = f"{begin}work()\nassert gputrace.flush()\nos._exit(0)\n"
    run_python(WORK + USERS + program)
    if own == "set_providers()":
        assert exported(run_python, "span") == ["work UNSET"]
        assert in_turn(exported(run_python, "calls")) == ["0", "1"]
    else:
        files = read_files(run_python.folder / "gputrace-data")
        assert [in_turn(values) for values in files.values("gputrace.calls").values()] == [[0, 1]]
        assert len(files.spans) == 1


def test_a_process_that_is_killed_loses_at_most_the_last_interval(run_python, read_files):
    process = run_python.start(
        WORK
        + """
gputrace.configure(export_interval=0.1)
for i in range(1_000_000):
    work(0.001)
    print(i + 1, flush=True)
"""
    )
    with process:
        for line in process.stdout:
            if int(line) == 1000:
                break
        process.kill()
        last = int((process.stdout.read().splitlines() or ["1000"])[-1])
    files = read_files(run_python.folder / "gputrace-data")
    # A last line may be cut short, none before it.
    assert len(files.broken) <= 2
    assert 100 < files.total("gputrace.calls") <= last + 1
