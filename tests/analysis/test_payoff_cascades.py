"""Which decision a score belongs to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gputrace import catalogue
from gputrace.analysis.payoff_cascades import read_folder


def event(name, at, attributes):
    def value(one):
        return {"doubleValue": one} if isinstance(one, float) else {"stringValue": one}

    given = [{"key": key, "value": value(one)} for key, one in attributes.items()]
    return {"eventName": name, "timeUnixNano": str(at), "attributes": given}


def decision(request, around=None, cascade="answer"):
    given = {
        catalogue.REQUEST_ID: request,
        catalogue.FEATURE: "support",
        catalogue.ESCALATION_CASCADE: cascade,
        catalogue.ESCALATION_DECISION: "kept",
        catalogue.ESCALATION_CONFIDENCE: 0.9,
        catalogue.ESCALATION_LIGHT_STAGE: "small",
        catalogue.ESCALATION_LIGHT_TIME: 0.1,
    }
    more = {} if around is None else {catalogue.ESCALATION_ENCLOSING_ID: around}
    return event(catalogue.DECISION_EVENT, 1, given | more)


def score(request, value):
    given = {catalogue.REQUEST_ID: request, catalogue.SCORE_NAME: "correct", catalogue.SCORE_VALUE: value}
    return event(catalogue.SCORE_EVENT, 2, given)


@pytest.fixture
def read(tmp_path):
    def read(*events):
        record = {"resourceLogs": [{"scopeLogs": [{"logRecords": list(events)}]}]}
        (tmp_path / "logs-1-a-0.jsonl").write_text(json.dumps(record) + "\n")
        return read_folder(tmp_path)

    return read


def qualities(one):
    return [None if np.isnan(value) else value for value in one.columns["light_quality"]]


def test_a_score_by_the_request_around_it_is_the_decisions(read):
    (one,) = read(decision("1", "outer"), decision("2"), score("outer", 0.25), score("2", 0.5))
    assert qualities(one) == [0.25, 0.5]
    assert not any("belong to no decision" in note for note in one.notes)


def test_decisions_of_several_cascades_in_a_request_all_have_its_score(read):
    one, other = read(decision("1", "outer"), decision("2", "outer", "search"), score("outer", 0.25))
    assert qualities(one) == qualities(other) == [0.25]


def test_a_score_by_an_identity_that_a_decision_has_itself_is_of_no_other(read):
    (one,) = read(decision("1", "2"), decision("2"), score("2", 0.5))
    assert qualities(one) == [None, 0.5]


def test_scores_that_belong_to_no_decision_are_counted(read):
    shared = [decision("1", "outer"), decision("2", "outer")]
    (one,) = read(*shared, score("outer", 0.25), score("elsewhere", 0.5), score("1", 0.75))
    assert qualities(one) == [0.75, None]
    assert "2 scores 'correct' belong to no decision, by the identity that they name." in one.notes
