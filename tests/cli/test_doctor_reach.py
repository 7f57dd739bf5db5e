"""`gputrace doctor` on where telemetry goes, and on who else is on the node."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PROCESS = """
import sys
from time import monotonic_ns
from gputrace.node import Node

node = Node(sys.argv[1], monotonic_ns())
node.ring.frontier("GPU-1", monotonic_ns())
node.tick(monotonic_ns())
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def receiver(status=200, headers=(), context=None):
    """A server that answers every request alike; gives its URL and what came."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            requests.append((self.path, self.rfile.read(length), dict(self.headers)))
            self.send_response(status.get(self.path, 404) if isinstance(status, dict) else status)
            self.send_header("Content-Length", "0")
            for header in headers:
                self.send_header(*header)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


@pytest.fixture
def here(without_driver):
    """No device takes time to be looked at."""
    return without_driver


def test_an_endpoint_that_takes_it(here):
    with receiver() as (url, requests):
        report = here.doctor(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_HEADERS="x-key=secret")
    assert report.status == 0
    assert report.finding("exporters", f"metrics to {url}/v1/metrics: accepted")["level"] == "ok"
    assert report.finding("exporters", f"spans to {url}/v1/traces: accepted")["level"] == "ok"
    assert sorted(path for path, _, _ in requests) == ["/v1/metrics", "/v1/traces"]
    for _, body, headers in requests:
        assert (body, headers["x-key"], headers["content-type"]) == (b"", "secret", "application/x-protobuf")


def test_an_endpoint_that_is_refused(here, free_port):
    report = here.doctor("--endpoint", f"http://127.0.0.1:{free_port}")
    assert report.status == 1
    found = report.finding("exporters", f"metrics to http://127.0.0.1:{free_port}/v1/metrics")
    assert "[Errno 111] Connection refused" in found["text"]
    assert "4318" in found["remedy"]
    assert report.texts("exporters", "failure") == ["no metrics arrive anywhere"]


def test_files_are_a_place_too(here, free_port):
    report = here.doctor(
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port}", GPUTRACE_DATA_DIR="data"
    )
    assert report.status == 0
    assert report.finding("exporters", "metrics to")["level"] == "warning"
    assert report.finding("exporters", "files can be written to")["level"] == "ok"
    assert not (here.folder / "data").exists()


@pytest.mark.parametrize(
    ("status", "words", "remedy"),
    [
        (404, "404 Not Found", "base URL"),
        (401, "401 Unauthorized", "OTEL_EXPORTER_OTLP_HEADERS"),
        (302, "redirect, which is not followed", "leads to"),
        (503, "503 Service Unavailable", "see its log"),
    ],
)
def test_an_endpoint_that_answers_something_else(here, status, words, remedy):
    with receiver(status) as (url, requests):
        report = here.doctor("--endpoint", url)
    assert report.status == 1
    found = report.finding("exporters", "metrics to")
    assert (found["level"], words in found["text"], remedy in found["remedy"]) == ("warning", True, True)
    # It is not tried again and again.
    assert len(requests) == 2


def test_a_web_server_that_says_yes_to_everything(here):
    with receiver(200, [("Content-Type", "text/html; charset=utf-8")]) as (url, _):
        report = here.doctor("--endpoint", url)
    assert report.status == 1
    assert report.finding("exporters", f"metrics to {url}/v1/metrics: answers with a web page")


def test_a_receiver_of_metrics_alone_is_enough(here):
    with receiver({"/v1/metrics": 200}) as (url, _):
        report = here.doctor("--endpoint", url)
    assert report.status == 0
    assert report.finding("exporters", "spans to")["level"] == "warning"


def test_a_name_that_is_none(here):
    # One that does not have a name server to ask must not wait for it long.
    report = here.doctor(
        "--endpoint", "http://no-such-host.invalid.:4318", RES_OPTIONS="timeout:1 attempts:1"
    )
    assert report.status == 1
    assert "DNS" in report.finding("exporters", "metrics to")["remedy"]


def test_tls_where_there_is_none(here):
    with receiver() as (url, _):
        report = here.doctor("--endpoint", url.replace("http://", "https://"))
    assert report.status == 1
    found = report.finding("exporters", "metrics to")
    assert "SSL" in found["text"]
    assert "http://" in found["remedy"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_that_nobody_vouches_for(here, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=receiver"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiver(context=context) as (url, _):
        report = here.doctor("--endpoint", url)
    assert report.status == 1
    found = report.finding("exporters", "metrics to")
    assert "self-signed certificate" in found["text"]
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in found["remedy"]


def test_a_receiver_that_never_answers(here):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        report = here.doctor("--endpoint", url, "--patience", "1")
    assert report.status == 1
    assert "timed out" in report.finding("exporters", "metrics to")["text"]


def test_a_folder_that_cannot_be_written(here):
    (here.folder / "file").write_text("in the way")
    report = here.doctor(GPUTRACE_DATA_DIR="file/data")
    assert report.status == 1
    assert report.finding("exporters", "files cannot be written to")["level"] == "warning"


def test_recording_that_is_switched_off(here):
    report = here.doctor(OTEL_SDK_DISABLED="true")
    assert report.status == 1
    assert report.texts("exporters", "failure") == ["OTEL_SDK_DISABLED is set: nothing is recorded"]


def test_a_setting_that_cannot_be_used(here):
    report = here.doctor(GPUTRACE_EXPORT_INTERVAL="often")
    assert report.status == 1
    assert "GPUTRACE_EXPORT_INTERVAL='often' is not a number" in report.texts("settings", "failure")[0]


@pytest.fixture
def other_process(here):
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, "the-other"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **here.variables},
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_another_process_on_the_node(here, other_process):
    before = sorted(path.name for path in (here.folder / "node").iterdir())
    report = here.doctor()
    assert report.status == 0
    found = report.finding("node", "the-other")
    assert found["text"] == f"process {other_process.pid} (the-other), publishes the devices: GPU-1"
    node = report.json["sections"]["node"]
    assert node["publisher"] == "the-other"
    assert [one["lives"] for one in node["processes"]] == [True]
    assert sorted(path.name for path in (here.folder / "node").iterdir()) == before


def test_a_process_that_died(here, other_process):
    other_process.kill()
    other_process.wait()
    report = here.doctor()
    assert report.json["sections"]["node"]["publisher"] is None
    assert report.finding("node", "1 process(es) that ended left a file behind")["level"] == "note"
    # It is left to a publisher, which counts what that process lost.
    assert [path.suffix for path in (here.folder / "node").glob("*.ring")] == [".ring"]


def test_a_ring_of_another_version_is_named(here):
    (here.folder / "node").mkdir()
    (here.folder / "node" / "1-a.ring").write_bytes(b"something else")
    assert here.doctor().finding("node", "1-a.ring holds cannot be read: not a ring")["level"] == "warning"


def test_nobody_else_and_no_trace_of_doctor(here):
    report = here.doctor()
    assert report.finding("node", "none in")["level"] == "ok"
    assert list((here.folder / "node").iterdir()) == []
    assert sorted(path.name for path in here.folder.iterdir()) == ["made-up", "node"]


def test_a_folder_that_cannot_be_shared(here):
    (here.folder / "file").write_text("")
    report = here.doctor(GPUTRACE_NODE_DIR=str(here.folder / "file"))
    assert report.status == 0
    assert "GPUTRACE_NODE_DIR" in report.finding("node", "counts alone")["remedy"]


def test_json_is_all_there_is_on_the_output(here, free_port):
    done = here.run("--json", "--endpoint", f"http://127.0.0.1:{free_port}")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["healthy"] is False
