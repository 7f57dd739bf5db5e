"""Outcomes in whole processes: from the start, from elsewhere and late, after a fork, whatever is sampled."""

from __future__ import annotations

import json

import pytest

from gputrace import catalogue
from gputrace.analysis.reporting import spend_report

WORK = """
import os, sys, time
import gputrace

@gputrace.track(feature="search", operation="work")
def work():
    time.sleep(0.01)
"""


def outcomes(folder, **arguments):
    report = spend_report(folder / "gputrace-data", **arguments)
    return [(one.name, one.feature, one.count) for one in report.outcomes]


def test_what_is_declared_is_shown_as_0_from_the_start(run_python, read_files):
    run_python(
        WORK + "gputrace.configure(outcomes=('solved', 'never'))\nwork()\ngputrace.outcome('solved')\n"
    )
    files = read_files(run_python.folder / "gputrace-data")
    values = {
        dict(attributes)["gputrace.outcome.name"]: points
        for (_, attributes), points in files.values("gputrace.outcomes", feature="__none__").items()
    }
    assert set(values["never"]) == {0}
    assert (values["solved"][0], values["solved"][-1]) == (0, 1), "increase() sees the first one"
    assert outcomes(run_python.folder) == [("never", None, 0), ("solved", "__none__", 1)]


def test_the_variable_declares_too_and_before_the_first_call(run_python, read_files):
    run_python(
        WORK + "gputrace.configure()\ngputrace.flush()\nos._exit(0)\n", GPUTRACE_OUTCOMES="solved, never"
    )
    assert outcomes(run_python.folder) == [("never", None, 0), ("solved", None, 0)]


def test_an_outcome_alone_starts_what_counts_it(run_python, read_files):
    run_python(WORK + "gputrace.configure()\ngputrace.outcome('solved', 3, feature='chat')\n")
    ((values,),) = [read_files(run_python.folder / "gputrace-data").values("gputrace.outcomes").values()]
    assert values[0] == 0, "increase() sees the first value"
    assert values[-1] == 3


def test_what_was_counted_before_configure_counts(run_python):
    run_python(WORK + "gputrace.outcome('solved', feature='chat')\ngputrace.configure()\n")
    assert outcomes(run_python.folder) == [("solved", "chat", 1)]


@pytest.mark.parametrize("feature", [None, "chat"])
def test_an_outcome_from_another_process_finds_its_request(run_python, feature):
    request = run_python(
        WORK
        + """
gputrace.configure()
with gputrace.request("GET /answers", feature="search") as request:
    work()
print(request.id)
"""
    ).stdout.strip()
    given = {"request_id": request, "feature": feature}
    run_python(WORK + f"gputrace.configure()\ngputrace.outcome('solved', **{given!r})\n")
    assert outcomes(run_python.folder) == [("solved", feature or "search", 1)]
    assert outcomes(run_python.folder, percentiles=False) == [("solved", feature or "__none__", 1)]
    report = spend_report(run_python.folder / "gputrace-data")
    assert report.spans == 2, "the outcome is no call"
    if feature is None:
        (entry,) = report.outcomes
        assert entry.seconds_per == pytest.approx(report.rows[0].charged_s)


def test_sampling_changes_no_count(run_python, read_files):
    program = (
        WORK
        + """
gputrace.configure()
for _ in range(50):
    work()
    gputrace.outcome("solved", request_id="elsewhere/1")
"""
    )
    run_python(program, OTEL_TRACES_SAMPLER="always_off")
    files = read_files(run_python.folder / "gputrace-data")
    assert files.spans == []
    assert files.total("gputrace.outcomes") == 50


def test_with_the_users_tracer_provider_the_event_leaves_with_its_flush(run_python):
    result = run_python(
        WORK
        + """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
work()
gputrace.outcome("solved", request_id="elsewhere/1")
trace.get_tracer_provider().force_flush()
print(json.dumps([dict(span.attributes) for span in spans.get_finished_spans() if span.name != "work"]))
os._exit(0)
"""
    )
    assert json.loads(result.stdout) == [
        {catalogue.OUTCOME_NAME: "solved", catalogue.OUTCOME_VALUE: 1.0, catalogue.REQUEST_ID: "elsewhere/1"}
    ]


def test_a_fork_neither_loses_nor_doubles(run_python, read_files):
    run_python(
        WORK
        + """
gputrace.configure(outcomes=("solved",))
with gputrace.span("request", feature="search") as call:
    request = call.id
for _ in range(3):
    gputrace.outcome("solved", feature="parent")
gputrace.current().add_units(tokens=5)
if os.fork() == 0:
    gputrace.outcome("solved", feature="child")
    gputrace.outcome("solved", request_id=request)  # the parent's, of which the child's spans tell nothing
    gputrace.shutdown()
    os._exit(0)
os.wait()
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    counted = {
        feature: files.total("gputrace.outcomes", feature=feature)
        for feature in ("parent", "child", "__none__")
    }
    assert counted == {"parent": 3, "child": 1, "__none__": 1}
    assert files.total("gputrace.units") == 5
    assert outcomes(run_python.folder) == [
        ("solved", "child", 1),
        ("solved", "parent", 3),
        ("solved", "search", 1),
    ]


def test_after_a_shutdown_nothing_is_counted_and_nothing_fails(run_python, read_files):
    run_python(
        WORK
        + """
gputrace.configure()
gputrace.outcome("solved", feature="chat")
gputrace.shutdown()
assert gputrace.outcomes.in_force() is None
gputrace.outcome("solved", feature="chat")
gputrace.current().add_units(tokens=5)
"""
    )
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.outcomes") == 1
    assert "gputrace.units" not in files.names()


SCOPE = """
import threading
assert gputrace.current().feature == "nightly"
thread = threading.Thread(target=gputrace.outcome, args=("solved",))
thread.start()
thread.join()
"""


def test_the_environment_names_what_nobody_names(run_python):
    run_python(
        "import gputrace\ngputrace.configure()\n" + SCOPE, GPUTRACE_FEATURE="nightly", GPUTRACE_TENANT="acme"
    )
    assert outcomes(run_python.folder) == [("solved", "nightly", 1)]


def test_a_reserved_name_in_the_environment_is_refused_by_configure_and_harms_nothing_before(run_python):
    result = run_python(
        """
import gputrace
assert gputrace.current().feature == "__none__"
try:
    gputrace.configure()
except ValueError as error:
    print(error)
""",
        GPUTRACE_FEATURE="__mine",
    )
    assert "GPUTRACE_FEATURE: '__mine' starts with '__'" in result.stdout
    assert "GPUTRACE_FEATURE" in result.stderr
