"""OTLP over HTTP: where it goes, what the standard variables say, and what a collector gets."""

from __future__ import annotations

import contextlib
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gputrace.exporters import otlp

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK = """
import gputrace
gputrace.configure({arguments})
with gputrace.span("work", feature="search"):
    pass
gputrace.flush()
with gputrace.span("work", feature="search"):
    pass
"""
CUMULATIVE, DELTA = 2, 1


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]


class Collector:
    """Takes whatever is posted.

    Attributes:
        requests: What was.
    """

    def __init__(self, port: int, requests: list[Request]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests = requests

    def spans(self) -> list[str]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies_at("/v1/traces")]
        return [
            span.name
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self, name: str):
        """Each collection's data of one metric."""
        requests = [ExportMetricsServiceRequest.FromString(body) for body in self.bodies_at("/v1/metrics")]
        return [
            getattr(metric, metric.WhichOneof("data"))
            for request in requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]

    def bodies_at(self, path: str) -> list[bytes]:
        return [request.body for request in self.requests if request.path.endswith(path)]

    def processes_by_connection(self) -> dict[tuple[str, int], set[str]]:
        """Every `service.instance.id` whose spans came through a connection."""
        found: dict[tuple[str, int], set[str]] = {}
        for request in self.requests:
            if request.path.endswith("/v1/traces"):
                for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
                    attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
                    found.setdefault(request.connection, set()).add(attributes["service.instance.id"])
        return found


@contextlib.contextmanager
def running_collector() -> Iterator[Collector]:
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open, as collectors do

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            requests.append(Request(self.path, dict(self.headers), body, self.client_address))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield Collector(server.server_port, requests)
        server.shutdown()
        thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


@pytest.mark.parametrize(
    "endpoint", ["http://localhost:4318", "http://localhost:4318/", "http://localhost:4318//"]
)
def test_each_signal_has_its_path_under_the_base(endpoint):
    assert otlp.span_exporter(endpoint)._endpoint == "http://localhost:4318/v1/traces"
    assert otlp.metric_exporter(endpoint)._endpoint == "http://localhost:4318/v1/metrics"
    assert otlp.log_exporter(endpoint)._endpoint == "http://localhost:4318/v1/logs"
    nested = f"{endpoint.rstrip('/')}/opentelemetry"
    assert otlp.metric_exporter(nested)._endpoint == "http://localhost:4318/opentelemetry/v1/metrics"


def test_without_an_argument_the_standard_variables_hold(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/v1/traces")
    assert otlp.span_exporter(None)._endpoint == "http://traces:1/v1/traces"
    assert otlp.metric_exporter(None)._endpoint == "http://collector:4318/v1/metrics"


def test_a_receiver_is_called_what_the_user_calls_it(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert otlp.name_of(None) == "the OTLP endpoint"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    assert otlp.name_of(None) == "http://collector:4318"
    assert otlp.name_of("http://other") == "http://other"


def test_a_collector_gets_everything_and_no_files_are_made(run_python, collector):
    result = run_python(WORK.format(arguments=f"endpoint={collector.url!r}"))
    assert result.stderr == ""
    assert collector.spans() == ["work", "work"]
    values = [data.data_points[0].as_int for data in collector.metrics("gputrace.calls")]
    assert values[0] == 0
    assert values[-1] == 2
    assert not (run_python.folder / "gputrace-data").exists()


def test_the_variable_is_as_good_as_the_argument_and_headers_go_along(run_python, collector, read_files):
    result = run_python(
        WORK.format(arguments="data_dir='data'"),
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20token",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )
    assert result.stderr == ""
    assert collector.spans() == ["work", "work"]
    assert {request.headers["authorization"] for request in collector.requests} == {"Bearer token"}
    assert read_files(run_python.folder / "data").total("gputrace.calls") == 2


def test_deltas_where_they_are_preferred_and_never_in_files(run_python, collector, read_files):
    run_python(
        WORK.format(arguments=f"endpoint={collector.url!r}, data_dir='data'"),
        OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta",
    )
    calls = collector.metrics("gputrace.calls")
    assert {data.aggregation_temporality for data in calls} == {DELTA}
    assert sum(data.data_points[0].as_int for data in calls) == 2
    durations = collector.metrics("gputrace.call.duration")
    assert {data.aggregation_temporality for data in durations} == {DELTA}
    assert sum(data.data_points[0].count for data in durations) == 2
    files = read_files(run_python.folder / "data")
    assert files.total("gputrace.calls") == 2
    assert files.total("gputrace.call.duration") == 2


def test_exponential_histograms_where_they_are_asked_for(run_python, collector):
    run_python(
        WORK.format(arguments=f"endpoint={collector.url!r}"),
        OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION="base2_exponential_bucket_histogram",
    )
    data = collector.metrics("gputrace.call.duration")
    assert {type(one).__name__ for one in data} == {"ExponentialHistogram"}
    assert data[-1].data_points[0].count == 2


@pytest.mark.parametrize("exemplars", ["trace_based", "always_off", ""])
def test_histograms_begin_empty_and_lead_to_the_trace(run_python, collector, exemplars):
    variables = {"OTEL_METRICS_EXEMPLAR_FILTER": exemplars} if exemplars else {}
    run_python(WORK.format(arguments=f"endpoint={collector.url!r}"), **variables)
    data = collector.metrics("gputrace.call.duration")
    assert {one.aggregation_temporality for one in data} == {CUMULATIVE}
    counts = [one.data_points[0].count for one in data]
    assert counts[-1] == 2
    if not exemplars:
        # Our own; the SDK has no way to show a histogram before its first value.
        assert counts[0] == 0
    found = {exemplar.trace_id for one in data for exemplar in one.data_points[0].exemplars}
    [request] = [ExportTraceServiceRequest.FromString(body) for body in collector.bodies_at("/v1/traces")][:1]
    known = {span.trace_id for span in request.resource_spans[0].scope_spans[0].spans}
    assert bool(found) == (exemplars != "always_off")
    assert not found or found & known


def test_a_forked_child_has_connections_of_its_own(run_python, collector):
    """Kept alive, the parent's would carry both processes' requests, mixed."""
    result = run_python(
        f"ENDPOINT = {collector.url!r}"
        """
import os, sys
import gputrace

def work():
    with gputrace.span("work", feature="search"):
        pass

gputrace.configure(endpoint=ENDPOINT)
work()
gputrace.flush()
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        for _ in range(5):
            work()
            assert gputrace.flush()
        sys.exit(0)
    pids.append(pid)
    work()
    gputrace.flush()
for pid in pids:
    assert os.waitpid(pid, 0)[1] == 0
""",
        PYTHONWARNINGS="ignore",  # from 3.12 on of any fork beside threads
    )
    assert result.stderr == ""
    assert len(collector.spans()) == 4 + 3 * 5
    connections = collector.processes_by_connection()
    assert all(len(processes) == 1 for processes in connections.values())
    assert len(set().union(*connections.values())) == 4
