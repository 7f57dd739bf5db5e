"""Cascades in whole processes: files, the program's own OpenTelemetry, forks, exits, scores of others."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.test_lifecycle_exit import failing_collector

if TYPE_CHECKING:
    from collections.abc import Iterator

DECIDED, SCORED = "gputrace.escalation.decided", "gputrace.scored"

WORK = """
import os, sys, time
import gputrace

cascade = gputrace.Cascade("answer", stages=("small", "large"), threshold=0.8, audit_rate=1.0, seed=7)

def serve(confidence, audit=None):
    with cascade.request(feature="support") as request:
        with request.stage("small"):
            time.sleep(0.002)
        if request.escalate(confidence, audit=audit):
            with request.stage("large"):
                time.sleep(0.004)
    return request
"""


def records(files: Any, name: str) -> list[dict[str, Any]]:
    return [record for record in files.logs if record["eventName"] == name]


def words(record: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("gputrace.escalation."): value for key, value in record["attributes"].items()}


def test_decisions_and_scores_lie_in_the_files(run_python: Any, read_files: Any) -> None:
    run_python(
        WORK
        + """
gputrace.configure(service_name="chat")
for confidence in (0.1, 0.9):
    request = serve(confidence, lambda: time.sleep(0.004))
    gputrace.score(request.id, True, "correct", stage="small", label_propensity=0.25)
    gputrace.score(request.id, 0.5)
assert gputrace.Cascade.wait_for_audits()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert [path.name.split("-")[0] for path in files.paths] == ["logs", "metrics", "spans"]
    escalated, audited = sorted(map(words, records(files, DECIDED)), key=lambda one: one["confidence"])
    assert (escalated["decision"], escalated["audit.propensity"]) == ("escalated", 1.0)
    assert (audited["decision"], audited["audit.propensity"]) == ("audited", 1.0)
    for one in (escalated, audited):
        assert one["light.time"] >= 0.002
        assert one["heavy.time"] >= 0.004
    scores = {one["gputrace.score.name"]: one for one in map(words, records(files, SCORED))}
    assert scores["quality"]["gputrace.score.value"] == 0.5
    assert "gputrace.stage" not in scores["quality"]
    assert scores["correct"]["gputrace.score.value"] == 1.0
    assert scores["correct"]["gputrace.stage"] == "small"
    assert scores["correct"]["gputrace.score.label.propensity"] == 0.25
    assert {one["resource"]["service.name"] for one in files.logs} == {"chat"}
    spans = {span["spanId"]: span for span in files.spans}
    for record in records(files, DECIDED):
        container = spans[record["spanId"]]
        assert container["traceId"] == record["traceId"]
        assert container["attributes"]["gputrace.call.id"] == record["attributes"]["gputrace.request.id"]
        assert container["attributes"]["gputrace.escalation.decision"] in {"escalated", "audited"}
    requests = files.values("gputrace.escalation.requests", decision="audited")
    ((first_value, *_, last_value),) = requests.values()
    assert (first_value, last_value) == (0, 1), "increase() sees the first one"
    scored = files.values("gputrace.score").items()
    counts = {dict(attributes)["gputrace.score.name"]: values[-1] for (_, attributes), values in scored}
    assert counts == {"correct": 2, "quality": 1}, "a stage each"
    assert files.values("gputrace.escalation.threshold", cascade="answer")


def test_a_score_comes_from_another_process(run_python: Any, read_files: Any) -> None:
    request = run_python(WORK + "gputrace.configure()\nprint(serve(0.9).id)\n").stdout.strip()
    run_python(f"import gputrace\ngputrace.configure()\ngputrace.score({request!r}, 0.75, stage='large')\n")
    files = read_files(run_python.folder / "gputrace-data")
    (score,) = records(files, SCORED)
    (decision,) = records(files, DECIDED)
    assert (
        score["attributes"]["gputrace.request.id"] == decision["attributes"]["gputrace.request.id"] == request
    )
    assert files.total("gputrace.score", stage="large", feature="__none__") == 1


def test_nothing_of_logs_begins_without_a_cascade(run_python: Any, read_files: Any) -> None:
    result = run_python(
        """
import threading
import gputrace
gputrace.configure()
with gputrace.span("work"):
    pass
gputrace.flush()
print([thread.name for thread in threading.enumerate()])
"""
    )
    assert "Log" not in result.stdout
    assert "logs" not in result.stdout
    assert [path.name.split("-")[0] for path in read_files(run_python.folder / "gputrace-data").paths] == [
        "metrics",
        "spans",
    ]


def test_children_of_a_fork_write_their_own_and_draw_their_own(run_python: Any, read_files: Any) -> None:
    result = run_python(
        WORK
        + """
gputrace.configure()
cascade.audits._rate = 0.5
serve(0.9, int)
assert gputrace.Cascade.wait_for_audits()
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        for _ in range(20):
            serve(0.9, lambda: None)
        assert gputrace.Cascade.wait_for_audits()
        gputrace.shutdown()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
for _ in range(20):
    serve(0.9, lambda: None)
assert gputrace.Cascade.wait_for_audits()
"""
    )
    assert result.stderr == ""
    files = read_files(run_python.folder / "gputrace-data")
    drawn: dict[str, list[bool]] = {}
    for record in sorted(records(files, DECIDED), key=lambda one: one["timeUnixNano"]):
        drawn.setdefault(record["resource"]["service.instance.id"], []).append(words(record)["audit.drawn"])
    assert sorted(map(len, drawn.values())) == [20, 20, 21]
    assert len({tuple(one[-20:]) for one in drawn.values()}) == 3
    assert files.total("gputrace.escalation.requests") == 61
    assert len([path for path in files.paths if path.name.startswith("logs-")]) == 3


def test_a_child_may_have_the_first_cascade(run_python: Any, read_files: Any) -> None:
    run_python(
        WORK
        + """
gputrace.configure()
with gputrace.span("work"):
    pass
if os.fork() == 0:
    serve(0.9)
    gputrace.shutdown()
    os._exit(0)
os.wait()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    (decision,) = records(files, DECIDED)
    child = decision["resource"]["service.instance.id"]
    assert decision["attributes"]["gputrace.request.id"].startswith(child)


def test_a_request_that_is_open_at_a_fork_is_the_parents(run_python: Any, read_files: Any) -> None:
    result = run_python(
        WORK
        + """
gputrace.configure()
with cascade.request(feature="support") as request:
    request.escalate(0.9, audit=lambda: print("audit", flush=True))
    child = os.fork()
if child == 0:
    assert gputrace.Cascade.wait_for_audits()
    gputrace.shutdown()
    os._exit(0)
os.wait()
assert gputrace.Cascade.wait_for_audits()
"""
    )
    assert result.stdout.split() == ["audit"]
    (decision,) = records(read_files(run_python.folder / "gputrace-data"), DECIDED)
    assert words(decision)["decision"] == "audited"


def test_an_exit_waits_for_no_audit_and_says_so_of_the_row(run_python: Any, read_files: Any) -> None:
    run_python(
        WORK
        + "gputrace.configure()\nserve(0.9, lambda: time.sleep(30))\nserve(0.9, lambda: time.sleep(30))\n"
    )
    told = [words(one) for one in records(read_files(run_python.folder / "gputrace-data"), DECIDED)]
    assert [one["excluded"] for one in told] == ["audit_unfinished"] * 2
    assert {one["decision"] for one in told} == {"kept"}
    assert not any("audit.propensity" in one for one in told)


UNDER_WAY = """
gputrace.configure()
with cascade.request(feature="support") as undecided:
    pass
opened = cascade.request(feature="support", audit=lambda: None)
request = opened.__enter__()
with request.stage("small"):
    time.sleep(0.002)
request.escalate({confidence})
{stage}
"""


@pytest.mark.parametrize(
    ("confidence", "stage", "decision"),
    [
        (0.1, "request.stage('large').__enter__()", "escalated"),
        (0.1, "", "escalated"),
        (0.9, "", "kept"),
        (0.9, "gputrace.shutdown()", "kept"),
    ],
)
def test_a_decision_that_is_under_way_at_the_end_is_left_out_by_name(
    run_python: Any, read_files: Any, confidence: float, stage: str, decision: str
) -> None:
    run_python(WORK + UNDER_WAY.format(confidence=confidence, stage=stage))
    told = [words(one) for one in records(read_files(run_python.folder / "gputrace-data"), DECIDED)]
    assert [(one["decision"], one["excluded"]) for one in told] == [(decision, "unfinished")]
    assert "gputrace.status" not in told[0]
    assert told[0]["light.time"] > 0


def test_an_exit_tells_of_an_audit_that_is_nearly_done(run_python: Any, read_files: Any) -> None:
    run_python(WORK + "gputrace.configure()\nserve(0.9, lambda: time.sleep(0.05))\n")
    (decision,) = records(read_files(run_python.folder / "gputrace-data"), DECIDED)
    assert words(decision)["decision"] == "audited"


def test_the_programs_own_logger_provider_takes_them(run_python: Any) -> None:
    result = run_python(
        WORK
        + """
import json
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, BatchLogRecordProcessor

found = InMemoryLogRecordExporter()
provider = LoggerProvider()
provider.add_log_record_processor(BatchLogRecordProcessor(found, schedule_delay_millis=60_000))
set_logger_provider(provider)
gputrace.configure()
request = serve(0.1)
gputrace.score(request.id, 1)
assert gputrace.flush()
print(json.dumps([one.log_record.event_name for one in found.get_finished_logs()]))
"""
    )
    assert json.loads(result.stdout) == [DECIDED, SCORED]
    assert not list((run_python.folder / "gputrace-data").glob("logs-*"))


def test_a_program_that_records_nothing_is_cascaded_and_audits_nothing(run_python: Any) -> None:
    result = run_python(
        WORK
        + "gputrace.configure()\nprint(serve(0.1).escalated, serve(0.9, lambda: print('audit')).escalated)\n"
        "assert gputrace.Cascade.wait_for_audits()\n",
        OTEL_SDK_DISABLED="true",
    )
    assert result.stdout.split() == ["True", "False"]


class Receiver(BaseHTTPRequestHandler):
    seen: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    seen: list[tuple[str, bytes]] = []
    server = HTTPServer(("127.0.0.1", 0), type("One", (Receiver,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_otlp_endpoint_gets_them(run_python: Any, receiver: tuple[str, list[tuple[str, bytes]]]) -> None:
    endpoint, seen = receiver
    run_python(WORK + "gputrace.configure()\nserve(0.1)\n", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    logs = b"".join(body for path, body in seen if path == "/v1/logs")
    assert {path for path, _ in seen} == {"/v1/logs", "/v1/metrics", "/v1/traces"}
    import gzip

    text = gzip.decompress(logs) if logs[:2] == b"\x1f\x8b" else logs
    assert DECIDED.encode() in text


def test_what_a_dead_collector_does_not_take_is_said_to_be_lost(run_python: Any) -> None:
    result = run_python(
        WORK + "gputrace.configure()\nserve(0.1)\n",
        OTEL_EXPORTER_OTLP_LOGS_ENDPOINT="http://127.0.0.1:9/v1/logs",
    )
    assert "1 log event to" in result.stderr


def test_decisions_that_a_collector_refuses_are_counted_while_the_program_runs(
    run_python: Any, read_files: Any
) -> None:
    with failing_collector() as port:
        run_python(
            WORK
            + """
gputrace.configure(data_dir="data")
serve(0.1)
assert not gputrace.flush()
serve(0.9)
""",
            OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"http://127.0.0.1:{port}/v1/logs",
        )
    files = read_files(run_python.folder / "data")
    assert files.total("gputrace.sdk.lost", reason="export_failed") == 1


def test_a_flush_exports_them(run_python: Any, read_files: Any) -> None:
    run_python(WORK + "gputrace.configure()\nserve(0.1)\nassert gputrace.flush()\nos._exit(0)\n")
    assert len(records(read_files(run_python.folder / "gputrace-data"), DECIDED)) == 1
