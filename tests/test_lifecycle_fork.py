"""Forked children: what the parent counted is neither lost nor doubled, none of its locks is waited for."""

from __future__ import annotations

import http.server
import threading

import pytest

PROGRAM = """
import os, sys, time
import gputrace

@gputrace.track(feature="search", operation="work")
def work(seconds=0.0):
    time.sleep(seconds)

def fork(child):
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)
    return pid

def wait(*pids):
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, status

def named(name):
    with gputrace.span(name, feature="search"):
        pass
"""


def test_each_process_counts_its_own_calls_in_its_own_files(run_python, read_files):
    run_python(
        PROGRAM
        + """
gputrace.configure(export_interval=0.1)
for _ in range(5):
    work()
time.sleep(0.3)

def child():
    assert gputrace.flush()
    for _ in range(3):
        work()
    wait(fork(work))

wait(fork(child), fork(child))
work()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    # 6 in the parent, 3 in each of two children, 1 in each of two grandchildren.
    assert files.total("gputrace.calls") == 6 + 2 * 3 + 2 * 1
    assert len(files.spans) == 6 + 2 * 3 + 2 * 1
    assert len(files.processes()) == 5
    metrics = [path for path in files.paths if path.name.startswith("metrics")]
    assert len({path.name.split("-")[1] for path in metrics}) == 5
    assert all(values[0] == 0 for values in files.values("gputrace.calls").values())


def test_histograms_are_a_childs_own_too(run_python, read_files):
    run_python(
        PROGRAM
        + """
gputrace.configure()
work(); work(); work()
assert gputrace.flush()
wait(fork(work))
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert sorted(values[-1] for values in files.values("gputrace.call.duration").values()) == [1, 3]


def test_a_device_is_a_processes_own(run_python, read_files):
    run_python(PROGRAM + "gputrace.configure()\nwork()\nwait(fork(lambda: work(0.05)))\n")
    files = read_files(run_python.folder / "gputrace-data")
    devices = {
        dict(attributes)["hw.id"]: process for process, attributes in files.values("gputrace.device.time")
    }
    assert len(devices) == 2
    assert all(device.endswith(f"/{process}") for device, process in devices.items())


IMPORTS = """
import builtins, sys, threading
import gputrace

plain, found = builtins.__import__, []

def watched(name, *arguments, **named):
    new = name not in sys.modules and not (len(arguments) > 3 and arguments[3])
    module = plain(name, *arguments, **named)
    if new and threading.current_thread() is not threading.main_thread():
        found.append((threading.current_thread().name, name))
    return module

builtins.__import__ = watched
gputrace.configure(export_interval=0.1)
cascade = gputrace.Cascade("answer", threshold=0.5)
with cascade.request(feature="search") as request:
    with request.stage("light"):
        pass
    request.escalate(0.9)
gputrace.score(request.id, 1.0, name="correct")
gputrace.outcome("sold")
gputrace.current().add_units(tokens=3)
assert gputrace.flush()
builtins.__import__ = plain
print(found)
"""


class Taker(http.server.BaseHTTPRequestHandler):
    """Takes all that is sent."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("over_otlp", [False, True])
def test_no_thread_of_ours_imports_anything(run_python, over_otlp):
    """A fork while a thread imports a module leaves the child waiting for it for ever, at its own exit."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        done = run_python(IMPORTS, **(endpoint if over_otlp else {}))
        server.shutdown()
    assert done.stdout.strip() == "[]"


def test_a_call_that_forks_is_the_parents_and_the_childs_spans_hang_under_it(run_python, read_files):
    run_python(
        PROGRAM
        + """
gputrace.configure()
with gputrace.span("outer", feature="search"):
    pid = os.fork()
    named("child" if pid == 0 else "parent")
if pid == 0:
    sys.exit(0)
wait(pid)
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    spans = {span["name"]: span for span in files.spans}
    assert sorted(span["name"] for span in files.spans) == ["child", "outer", "parent"]
    assert spans["child"]["parentSpanId"] == spans["parent"]["parentSpanId"] == spans["outer"]["spanId"]
    assert files.total("gputrace.calls", operation="outer") == 1


def test_the_users_own_tracers_and_instruments_go_on_in_a_child(run_python, read_files):
    run_python(
        PROGRAM
        + """
from opentelemetry import metrics, trace
gputrace.configure()
tracer, counter = trace.get_tracer("mine"), metrics.get_meter("mine").create_counter("mine")

def mine():
    with tracer.start_as_current_span("mine"):
        counter.add(1)

mine(); mine()
gputrace.flush()
wait(fork(mine))
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert len(files.spans) == 3
    assert sorted(values[-1] for values in files.values("mine").values()) == [1, 2]
    assert len({span["resource"]["service.instance.id"] for span in files.spans}) == 2


@pytest.mark.parametrize("ended", ["gputrace.shutdown()", ""])
def test_a_child_configures_itself_or_stays_unrecorded_after_shutdown(run_python, read_files, ended):
    run_python(
        PROGRAM
        + f"""
gputrace.configure(data_dir="parent")
work()
{ended}

def child():
    work()
    gputrace.configure(data_dir="child")
    work()

wait(fork(child))
""",
        GPUTRACE_RAISE_FAULTS="",
    )
    parent = read_files(run_python.folder / "parent")
    child = read_files(run_python.folder / "child")
    # Without a shutdown the parent's set-up is in force in the child too, and stays so.
    assert (parent.total("gputrace.calls"), child.total("gputrace.calls")) == ((1, 1) if ended else (3, 0))


@pytest.mark.parametrize("made", ["Process(target=work)", "Process(target=named, args=('x',))"])
def test_children_of_multiprocessing_are_flushed(run_python, read_files, made):
    """They leave by os._exit, past all exit hooks."""
    run_python(
        PROGRAM
        + f"""
import multiprocessing
multiprocessing = multiprocessing.get_context("fork")
gputrace.configure()
work()
children = [multiprocessing.{made} for _ in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
    assert child.exitcode == 0
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 4
    assert len(files.spans) == 4
    assert len(files.processes()) == 4


def test_spawned_children_are_flushed(run_python, read_files):
    run_python(
        PROGRAM
        + """
if __name__ == "__main__":
    import multiprocessing
    gputrace.configure()
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
else:
    gputrace.configure()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 1
    assert len(files.spans) == 1


def test_the_workers_of_a_pool_are_flushed(run_python, read_files):
    run_python(
        PROGRAM
        + """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
gputrace.configure()
work()
with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
    list(pool.map(work, [0.001] * 20))
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == 21
    assert len(files.spans) == 21


def test_leaving_by_os_exit_loses_at_most_the_last_interval(run_python, read_files):
    run_python(
        PROGRAM
        + """
gputrace.configure(export_interval=0.05)

def child():
    for _ in range(4):
        work()
    time.sleep(0.5)
    work()
    os._exit(0)

wait(fork(child))
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert 4 <= files.total("gputrace.calls") <= 5


LOAD = """
import threading
busy = True

def load():
    while busy:
        work()

threads = [threading.Thread(target=load, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()

def child():
    # What the parent's threads hold at this instant, nobody here will ever release.
    import faulthandler
    faulthandler.dump_traceback_later(20, exit=True)
    work(); work()
    assert gputrace.flush(timeout=15)
"""

ALL_HELD = """
settler = lifecycle._process.runtime.settler
locks = [settler._state_lock, settler._emit_lock, lifecycle._process.lock, call._numbering]
own = lifecycle._process.own
if own is not None:
    outlets = own._metric_outlets.values()
    locks += [outlet.reader._export_lock for outlet in outlets]
    locks += [outlet.reader._shutdown_event._cond for outlet in outlets]
    locks += [outlet.exporter._inner._exporter._lock for outlet in own._span_outlets.values()]
    locks += [own._settling._counting, own.meter_provider._measurement_consumer._lock]
"""


def test_forks_under_load_come_through(run_python, read_files):
    """The export interval is as short as can be, so that collections run all the time."""
    run_python(
        PROGRAM
        + """
gputrace.configure(export_interval=0.01)
"""
        + LOAD
        + """
for _ in range(10):
    wait(fork(child))
busy = False
for thread in threads:
    thread.join()
gputrace.flush()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert len(files.processes()) == 11
    finished = [values[-1] for values in files.values("gputrace.calls").values()]
    assert sorted(finished)[:-1] == [2] * 10


@pytest.mark.parametrize("configured", ["gputrace.configure()", ""])
def test_a_child_waits_for_no_lock_that_its_parent_held(run_python, read_files, configured):
    """The same by construction: another thread of the parent's holds every lock while it forks."""
    run_python(
        PROGRAM
        + f"""
import threading
from gputrace import call, lifecycle
{configured}
work()
gputrace.flush()
"""
        + ALL_HELD
        + """
held, done = threading.Event(), threading.Event()

def hold():
    for lock in locks:
        lock.acquire()
    held.set()
    done.wait()
    for lock in reversed(locks):
        lock.release()

thread = threading.Thread(target=hold)
thread.start()
held.wait()

def child():
    import faulthandler
    faulthandler.dump_traceback_later(20, exit=True)
    work(); work()
    assert gputrace.flush(timeout=15)

pid = fork(child)
done.set()
thread.join()
wait(pid)
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.calls") == (3 if configured else 0)


def test_with_the_users_providers_a_child_counts_its_own_calls(run_python):
    """The counters are; histograms, which the SDK keeps, begin in a child with the parent's counts."""
    result = run_python(
        PROGRAM
        + """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
metrics.set_meter_provider(MeterProvider([reader]))

def calls():
    data = reader.get_metrics_data()
    return [
        point.value
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        if metric.name == "gputrace.calls"
        for point in metric.data.data_points
    ]

work(); work()
gputrace.flush()
print(calls(), len(spans.get_finished_spans()), flush=True)

def child():
    spans.clear()
    # Nothing of the parent's is shown, by the reader that the child inherits.
    print(calls(), flush=True)
    trace.get_tracer_provider().force_flush()
    work()
    print(calls(), calls(), flush=True)
    trace.get_tracer_provider().force_flush()
    print(len(spans.get_finished_spans()), flush=True)

wait(fork(child))
work()
gputrace.flush()
print(calls(), len(spans.get_finished_spans()))
"""
    )
    assert result.stdout.splitlines() == ["[2] 2", "[]", "[0] [1]", "1", "[3] 3"]


def test_a_child_is_not_held_up_by_the_sdks_own_fork_hook(run_python):
    """It runs a thread pool, whose lock is held where the pool's module came after the provider."""
    run_python(
        PROGRAM
        + """
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider(resource=Resource({"service.name": "shop"})))
work()
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    pool.submit(work).result()
wait(fork(work))
"""
    )


def test_names_are_those_of_the_parent(run_python):
    """Its metric readers go on in the child, where names of its own would come on top of the parent's."""
    result = run_python(
        PROGRAM
        + """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))

def calls():
    gputrace.flush()
    found = {}
    for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
        if metric.name == "gputrace.call.duration":
            for point in metric.data.data_points:
                name = point.attributes["gputrace.operation"]
                found[name] = found.get(name, 0) + point.count
    return found

def child():
    for name in ("c", "b", "a"):
        named(name)
    print(calls(), flush=True)

for name in ("a", "b", "c"):
    named(name)
print(calls(), flush=True)
wait(fork(child))
""",
        GPUTRACE_ATTRIBUTE_VALUE_LIMIT="2",
    )
    # The SDK's own histograms go on from what the parent counted.
    assert result.stdout.splitlines() == [
        "{'a': 1, 'b': 1, '__other__': 1}",
        "{'a': 2, 'b': 2, '__other__': 2}",
    ]
