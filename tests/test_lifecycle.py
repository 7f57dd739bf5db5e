"""configure, flush and shutdown, in fresh interpreters: providers are set once in the life of a process."""

from __future__ import annotations

import pytest

WORK = """
import time
import gputrace

@gputrace.track(feature="search", operation="work")
def work(seconds=0.01):
    time.sleep(seconds)
"""

USERS = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()

def set_tracer_provider():
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(spans, schedule_delay_millis=60_000))
    trace.set_tracer_provider(provider)

def set_meter_provider():
    metrics.set_meter_provider(MeterProvider([reader]))

def operations():
    return [span.name for span in spans.get_finished_spans()]

def shown(name):
    data = reader.get_metrics_data()
    return [
        point.value
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]
"""


def test_without_providers_calls_go_to_files_where_the_program_began(run_python, read_files):
    run_python(
        WORK
        + """
import os
gputrace.configure(service_name="shop")
os.chdir("/")
work(); work()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert [span["name"] for span in files.spans] == ["work", "work"]
    assert {span["resource"]["service.name"] for span in files.spans} == {"shop"}
    assert files.total("gputrace.calls", feature="search") == 2
    assert files.total("gputrace.feature.time", feature="search") >= 0.02
    assert files.values("gputrace.calls")[next(iter(files.values("gputrace.calls")))][0] == 0


def test_what_was_tracked_before_configure_counts(run_python, read_files):
    run_python(WORK + "work()\ngputrace.configure()\nwork()\n")
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 2
    assert [span["name"] for span in files.spans] == ["work"]
    assert len(files.values("gputrace.calls")) == 1


def test_configure_after_the_first_call_applies_its_settings_to_later_calls(run_python, read_files):
    run_python(
        WORK
        + """
with gputrace.attribute_to(tenant="acme"):
    work()
    gputrace.configure(metric_attributes=("tenant",))
    work()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 2
    assert files.total("gputrace.calls", tenant="acme") == 1


@pytest.mark.parametrize("before", ["set_tracer_provider(); set_meter_provider()", ""])
@pytest.mark.parametrize("configured", ["gputrace.configure()", ""])
def test_the_users_providers_are_used_set_before_or_after_the_first_call(run_python, before, configured):
    after = "" if before else "set_tracer_provider(); set_meter_provider()"
    if configured and not before:
        # configure() makes what is missing when it is called, so it has to come after.
        after += f"; {configured}"
        configured = ""
    result = run_python(
        WORK
        + USERS
        + f"""
{before}
{configured}
work()
{after}
work()
assert gputrace.flush()
print(operations(), shown("gputrace.calls"), shown("gputrace.calls"))
"""
    )
    spans = ["work", "work"] if before else ["work"]
    # flush() collects until every reader has seen a value in place of its first 0.
    assert result.stdout == f"{spans} [2] [2]\n"
    assert result.stderr == ""
    assert not (run_python.folder / "gputrace-data").exists()


def test_a_missing_meter_provider_is_made_beside_the_users_tracer_provider(run_python, read_files):
    result = run_python(
        WORK
        + USERS
        + "set_tracer_provider()\ngputrace.configure()\nwork()\ngputrace.flush()\nprint(operations())"
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert result.stdout == "['work']\n"
    assert files.spans == []
    assert files.total("gputrace.calls") == 1


def test_a_missing_tracer_provider_is_made_beside_the_users_meter_provider(run_python, read_files):
    program = "set_meter_provider()\ngputrace.configure()\nwork()\ngputrace.flush()\n"
    result = run_python(WORK + USERS + program + "print(shown('gputrace.calls'))")
    files = read_files(run_python.folder / "gputrace-data")
    assert result.stdout == "[1]\n"
    assert [span["name"] for span in files.spans] == ["work"]
    assert files.names() == set()


def test_both_halves_say_that_they_are_one_process(run_python, read_files):
    result = run_python(
        WORK
        + USERS
        + """
from opentelemetry.sdk.resources import Resource
trace.set_tracer_provider(TracerProvider(resource=Resource({"service.instance.id": "pod-1"})))
gputrace.configure()
work()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.processes() == {"pod-1"}
    [(_, attributes), *_] = files.values("gputrace.device.time")
    assert dict(attributes)["hw.id"].endswith("/pod-1")
    assert dict(attributes)["gputrace.publisher"] == "pod-1"
    assert result.stderr == ""


def test_settings_that_change_nothing_are_said_to(run_python):
    result = run_python(
        WORK
        + USERS
        + "set_tracer_provider(); set_meter_provider()\ngputrace.configure(data_dir='here')\nwork()\n"
    )
    assert result.stderr.count("endpoint and data_dir change nothing") == 1
    assert not (run_python.folder / "here").exists()


def test_the_identity_that_the_environment_gives_is_kept(run_python, read_files):
    run_python(
        WORK + "gputrace.configure()\nwork()\n", OTEL_RESOURCE_ATTRIBUTES="service.instance.id=pod-7,a=b"
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.processes() == {"pod-7"}
    assert {span["resource"]["a"] for span in files.spans} == {"b"}


def test_configure_called_again_changes_nothing_and_says_so_where_it_was_meant_to(run_python, read_files):
    result = run_python(
        WORK
        + """
gputrace.configure(data_dir="one")
gputrace.configure(data_dir="one")
work()
gputrace.configure(data_dir="two", metric_attributes=("tenant",))
gputrace.configure(data_dir="three")
with gputrace.attribute_to(tenant="acme"):
    work()
"""
    )
    assert result.stderr.count("called again with other settings") == 1
    assert read_files(run_python.folder / "one").total("gputrace.calls") == 2
    assert read_files(run_python.folder / "one").total("gputrace.calls", tenant="acme") == 0
    assert not (run_python.folder / "two").exists()


def test_after_shutdown_functions_run_and_nothing_grows(run_python, read_files):
    run_python(
        WORK
        + """
import gc, threading
from gputrace import call, lifecycle

gputrace.configure()
work()
gputrace.shutdown()
names = [thread.name for thread in threading.enumerate()]
assert not any(name == "gputrace-settler" for name in names), names
held = len(gc.get_objects())
for _ in range(1000):
    work(0)
gc.collect()
assert len(gc.get_objects()) - held < 200
assert not call.queue and gputrace.flush()
gputrace.shutdown()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 1
    assert len(files.spans) == 1


def test_shutdown_before_the_first_call_keeps_all_unrecorded(run_python):
    result = run_python(
        WORK
        + """
import threading
gputrace.shutdown()
work()
print([thread.name for thread in threading.enumerate()])
"""
    )
    assert result.stdout == "['MainThread']\n"


def test_after_shutdown_configure_begins_again(run_python, read_files):
    run_python(
        WORK
        + """
from opentelemetry import metrics, trace
gputrace.configure(data_dir="one")
work()
gputrace.shutdown()
work()
gputrace.configure(data_dir="two")
with trace.get_tracer("mine").start_as_current_span("outside"):
    work(); work()
metrics.get_meter("mine").create_counter("mine").add(3)
"""
    )
    first, second = (read_files(run_python.folder / name) for name in ("one", "two"))
    assert first.total("gputrace.calls") == 1
    assert second.total("gputrace.calls") == 2
    assert second.total("mine") == 3
    assert sorted(span["name"] for span in second.spans) == ["outside", "work", "work"]


def test_what_the_users_readers_see_never_shrinks(run_python):
    """shutdown() and configure() later: the meter provider, and its cumulative series, live on."""
    result = run_python(
        WORK
        + USERS
        + """
set_tracer_provider(); set_meter_provider()
work()
gputrace.flush()
seen = [shown("gputrace.calls"), shown("gputrace.device.time")]
gputrace.shutdown()
work()
stopped = [shown("gputrace.calls"), shown("gputrace.device.time")]
time.sleep(0.05)
assert [shown("gputrace.calls"), shown("gputrace.device.time")] == stopped
gputrace.configure()
work()
gputrace.flush()
print(seen[0], stopped[0], shown("gputrace.calls"))
assert all(later >= earlier for later, earlier in zip(stopped[1], seen[1], strict=True))
assert all(later >= earlier for later, earlier in zip(shown("gputrace.device.time"), stopped[1], strict=True))
"""
    )
    assert result.stdout == "[1] [1] [2]\n"


@pytest.mark.parametrize("configured", ["gputrace.configure()", ""])
def test_a_disabled_sdk_records_nothing_and_runs_no_thread(run_python, configured):
    result = run_python(
        WORK
        + f"""
import threading
from opentelemetry import trace
{configured}
with gputrace.span("block", feature="x"):
    work()
assert gputrace.flush()
print([thread.name for thread in threading.enumerate()], trace._TRACER_PROVIDER)
""",
        OTEL_SDK_DISABLED="true",
    )
    assert result.stdout == "['MainThread'] None\n"
    assert result.stderr == ""
    assert list(run_python.folder.iterdir()) == [run_python.folder / "program.py"]


def test_a_wrong_variable_is_one_line_and_the_program_goes_on(run_python):
    result = run_python(
        WORK + "work()\nwork()\nprint('done')", GPUTRACE_EXPORT_INTERVAL="soon", GPUTRACE_RAISE_FAULTS=""
    )
    assert result.stdout == "done\n"
    assert result.stderr == "gputrace records nothing: GPUTRACE_EXPORT_INTERVAL='soon' is not a number\n"


def test_a_wrong_argument_is_refused_and_leaves_the_process_as_it_was(run_python, read_files):
    run_python(
        WORK
        + """
try:
    gputrace.configure(endpoint="localhost:4318")
except ValueError as error:
    assert "endpoint='localhost:4318'" in str(error), error
gputrace.configure()
work()
"""
    )
    assert read_files(run_python.folder / "gputrace-data").total("gputrace.calls") == 1


def test_files_and_an_endpoint_for_one_signal(run_python, read_files, free_port):
    """Where only traces have an endpoint, files take what would go nowhere; nobody is sent metrics."""
    result = run_python(
        WORK + "gputrace.configure()\nwork()\n",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"http://127.0.0.1:{free_port}/v1/traces",
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 1
    assert len(files.spans) == 1
    assert "could deliver 1 span to the OTLP endpoint" in result.stderr
    assert "metric" not in result.stderr


def test_a_signal_handler_that_flushes_does_not_wait_for_what_it_interrupted(run_python, read_files):
    """As a handler of SIGTERM may; in a process of its own, since what waits for itself waits for ever."""
    run_python(
        WORK
        + """
import signal
from gputrace import lifecycle

flushed = 0
def handler(*_):
    global flushed
    gputrace.flush(timeout=0.2)
    flushed += 1
    signal.setitimer(signal.ITIMER_REAL, 0.0003)

gputrace.configure()
work(0)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0003)
until = time.monotonic() + 2
while time.monotonic() < until:
    work(0)
    lifecycle._process.runtime.settler.tick(users_thread=True)
# First of all: the handler arms the timer again, and one that fires while Python ends would kill it.
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0)
assert flushed > 10, flushed
"""
    )
    assert read_files(run_python.folder / "gputrace-data").broken == []


def test_a_span_processor_that_flushes_does_not_wait_for_itself(run_python):
    result = run_python(
        WORK
        + USERS
        + """
from opentelemetry.sdk.trace import SpanProcessor

class Flushing(SpanProcessor):
    def on_end(self, span):
        gputrace.flush(timeout=0.2)

set_tracer_provider()
trace.get_tracer_provider().add_span_processor(Flushing())
work(); work()
gputrace.flush()
trace.get_tracer_provider().force_flush()
print(operations())
"""
    )
    assert result.stdout == "['work', 'work']\n"
