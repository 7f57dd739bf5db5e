"""Made-up data is called that, and cannot be taken for measured data."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.render import print_report


def process(program, name, simulated):
    one = program(instance=name, marks={catalogue.SIMULATED: True} if simulated else {})
    one.device({catalogue.HW_ID: f"GPU-{name}", catalogue.HW_TYPE: "gpu"}, charged=1.0)
    one.call(1.0, feature="a")
    one.export()


def read(report):
    found = report()
    stream = io.StringIO()
    print_report(found, Console(file=stream, highlight=False))
    return found.to_json(), " ".join(stream.getvalue().split())


def test_what_was_measured_needs_no_word(program, report):
    process(program, "1", simulated=False)
    data, text = read(report)
    assert data["simulated"] == {"processes": 0, "of": 1}
    assert "imulat" not in text
    assert not any("imulat" in note for note in data["notes"])


def test_a_simulation_is_called_one(program, report):
    process(program, "1", simulated=True)
    process(program, "2", simulated=True)
    data, text = read(report)
    assert data["simulated"] == {"processes": 2, "of": 2}
    assert data["notes"][0] == "All of this is simulated (gputrace.simulated=true): nobody measured it."
    assert text.startswith("Spend report of a simulation ")
    assert "All of this is simulated" in text


def test_a_mixture_is_warned_about_first(program, report):
    for name, simulated in (("1", True), ("2", False), ("3", False)):
        process(program, name, simulated)
    data, text = read(report)
    assert data["simulated"] == {"processes": 1, "of": 3}
    assert data["notes"][0].startswith("Measured and simulated data are mixed: 1 of 3 processes is simulated")
    assert "MEASURED AND SIMULATED DATA ARE MIXED" in text.partition("feature calls")[0]


def test_what_the_window_leaves_out_mixes_nothing(write, lines, report):
    old = lines.export(0) + lines.export(10, charged=1.0)
    old = old.replace(INSTANCE, MARK)
    write(old, lines.export(50, instance="i2", start_s=50) + lines.export(60, 1.0, instance="i2", start_s=50))
    assert report().to_json()["simulated"] == {"processes": 1, "of": 2}
    assert report(since=40).to_json()["simulated"] == {"processes": 0, "of": 1}


INSTANCE = '"attributes": [{"key": "service.instance.id"'
MARK = INSTANCE.replace("[", '[{"key": "gputrace.simulated", "value": {"boolValue": true}}, ')


def decision(number, simulated):
    given = {
        catalogue.REQUEST_ID: f"r{number}",
        catalogue.FEATURE: "support",
        catalogue.ESCALATION_CASCADE: "answer",
        catalogue.ESCALATION_DECISION: "kept",
        catalogue.ESCALATION_LIGHT_STAGE: "small",
        catalogue.ESCALATION_LIGHT_TIME: "0.1",
    }
    record = {
        "eventName": catalogue.DECISION_EVENT,
        "timeUnixNano": str(number),
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in given.items()],
    }
    marks = [{"key": catalogue.SIMULATED, "value": {"boolValue": True}}] if simulated else []
    return {"resource": {"attributes": marks}, "scopeLogs": [{"logRecords": [record]}]}


@pytest.mark.parametrize(
    ("simulated", "says"),
    [
        ((False, False), None),
        ((True, True), "All of this is simulated"),
        ((True, False), "Measured and simulated data are mixed: 1 of 2 decisions is simulated"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_payoff_says_so_too(data, simulated, says, together):
    data.mkdir()
    found = [decision(number, one) for number, one in enumerate(simulated)]
    lines = [found] if together else [[one] for one in found]
    text = "".join(json.dumps({"resourceLogs": one}) + "\n" for one in lines)
    (data / "logs-1-a-0.jsonl").write_text(text)
    notes = [note for note in payoff_report(data, Asked()).notes if "imulat" in note]
    if says is None:
        assert notes == []
    else:
        (note,) = notes
        assert note.startswith(says)
