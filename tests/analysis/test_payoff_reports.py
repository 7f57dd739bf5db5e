"""From files to a report: tables, folders of log events, sums, pictures."""

from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET

import duckdb
import numpy as np
import pytest
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis.payoff import ColumnError, estimate
from gputrace.analysis.payoff_json import to_json
from gputrace.analysis.payoff_picture import page
from gputrace.analysis.payoff_render import print_payoff
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.survey import NoDataError


@pytest.fixture
def log(payoff_logs):
    """Three features: one like the others of the tests, one that escalates everything, one without audits."""
    table = payoff_logs.whole(1500, rate=0.25)
    feature = np.repeat(["answer", "search", "draft"], 500)
    table["escalated"] |= feature == "search"
    table["audit_propensity"] = np.where(table["escalated"], 1.0, np.where(feature == "draft", 0.0, 0.25))
    return payoff_logs.audited(table) | {"feature": feature, "cascade": np.full(1500, "small-large")}


def write(path, log):
    with path.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(log)
        for row in zip(*log.values(), strict=True):
            writer.writerow(["" if isinstance(one, float) and math.isnan(one) else one for one in row])
    return path


@pytest.fixture
def file(tmp_path, log):
    return write(tmp_path / "log[1].csv", log)


def only(log, feature):
    chosen = log["feature"] == feature
    return {name: values[chosen] for name, values in log.items()}


def test_a_table_is_reported_by_feature_and_cascade(file, log):
    report = payoff_report(file, Asked())
    assert [(row.feature, row.cascade) for row in report.rows] == [
        ("answer", "small-large"),
        ("draft", "small-large"),
        ("search", "small-large"),
    ]
    answer, draft, search = report.rows
    assert answer.estimates == estimate(only(log, "answer"))
    assert answer.verdict.startswith("pays: saves")
    assert draft.verdict == "cannot tell yet: needs 30 more audits"
    assert search.verdict.endswith("since every request is escalated after its light run")
    assert answer.threshold == 0.5
    assert len(answer.sweep) > 30
    spent = only(log, "answer")
    spent = spent["light_cost"] + np.where(spent["escalated"], spent["heavy_cost"], 0)
    assert answer.top_request_share == pytest.approx(spent.max() / spent.sum())


def test_parquet_is_read_like_csv(file, tmp_path):
    path = tmp_path / "log.parquet"
    pattern = str(file).replace("[", "[[]", 1)
    duckdb.sql(f"COPY (FROM read_csv('{pattern}', header=true)) TO '{path}' (FORMAT parquet)")
    one, other = to_json(payoff_report(file, Asked())), to_json(payoff_report(path, Asked()))
    assert one["rows"] == other["rows"]


def test_the_parts_add_up_to_the_total(file):
    report = payoff_report(file, Asked())
    assert report.total.left_out == (1,)
    assert report.total_verdict.endswith(
        "(without draft / small-large: 500 requests, of which too few were audited or escalated)"
    )
    found = report.total.estimates
    parts = [report.rows[0], report.rows[2]]
    assert report.total.requests == 1000
    for name in ("savings_abs", "always_heavy_cost", "cascade_cost", "quality_delta", "audit_tax"):
        whole = sum(row.requests * row.estimates[name].value for row in parts)
        assert 1000 * found[name].value == pytest.approx(whole), name
        assert found[name].low < found[name].value < found[name].high, name
    whole = found["savings_abs"].value / found["always_heavy_cost"].value
    assert found["savings_frac"].value == pytest.approx(whole)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_dear_request_or_two_do_not_spoil_the_total(tmp_path, log, requests):
    """Of 502, the last are of another feature, and dearer than all the others together."""
    both = {
        name: np.concatenate([only(log, "answer")[name], values[:requests]]) for name, values in log.items()
    }
    for name, value in {
        "feature": "dear",
        "escalated": True,
        "audited": False,
        "audit_propensity": 1.0,
    }.items():
        both[name] = both[name].astype("U6") if name == "feature" else both[name]
        both[name][500:] = value
    both["light_cost"][500:] = both["heavy_cost"][500:] = 10_000.0
    report = payoff_report(write(tmp_path / "log.csv", both), Asked())
    (answer, dear), total = report.rows, report.total
    assert dear.feature == "dear"
    assert report.total_verdict.startswith("pays: saves")
    assert "(without dear / small-large: " in report.total_verdict
    assert total.estimates["savings_frac"].half_width < 2 * answer.estimates["savings_frac"].half_width


def test_the_total_covers_the_truth(payoff_logs):
    """100 logs of ten small features, seeds fixed."""
    from gputrace.analysis import payoff_log
    from gputrace.analysis.payoff_totals import add_up

    tables = [payoff_logs.whole(100, seed=seed, rate=0.3) for seed in range(10)]
    merged = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    true = payoff_logs.by_definition(merged)
    hits = dict.fromkeys(("always_heavy_cost", "savings_frac", "quality_delta"), 0)
    for seed in range(100):
        logs = [payoff_log.read(payoff_logs.audited(table, 10 * seed + k)) for k, table in enumerate(tables)]
        total = add_up(logs, 0.025, 0.0)
        assert total.left_out == ()
        for name in hits:
            hits[name] += total.estimates[name].low <= true[name] <= total.estimates[name].high
    assert min(hits.values()) >= 91, hits


@pytest.mark.parametrize(("share", "told"), [(0.05, True), (0.5, False)])
def test_a_few_requests_that_no_audit_could_draw_are_taken_for_like_the_others(tmp_path, log, share, told):
    """Load rules audits out for moments; were they many, nothing could be said."""
    answer = only(log, "answer")
    idle = np.flatnonzero(~answer["escalated"] & ~answer["audited"])
    answer["audit_propensity"][idle[: int(share * len(idle))]] = 0.0
    path = tmp_path / "log.csv"
    write(path, answer)
    (row,) = payoff_report(path, Asked()).rows
    assert (row.estimates["savings_frac"].value is not None) is told
    assert any("could not have been audited (propensity 0)" in note for note in row.notes) is told


def test_features_are_chosen_by_name(file):
    report = payoff_report(file, Asked(features=("search",)))
    assert [row.feature for row in report.rows] == ["search"]
    assert report.total is None
    with pytest.raises(NoDataError, match="has no feature chat; it has answer, draft, search"):
        payoff_report(file, Asked(features=("chat",)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("escalated,light_cost\nTrue,1\n", "no column heavy_cost; it has escalated, light_cost"),
        ("escalated,light_cost,heavy_cost\n", "has no row"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("escalated,light_cost,heavy_cost,cost_unit\n1,1,2,J\n1,1,2,USD\n", "costs in several units"),
    ],
)
def test_a_table_that_is_no_log_says_why(tmp_path, text, says):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(NoDataError, match=says):
        payoff_report(path, Asked())


def test_a_wrong_value_is_named_by_the_line_of_the_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("feature,escalated,light_cost,heavy_cost\na,1,1,2\nb,1,1,2\na,1,1,\n")
    with pytest.raises(ColumnError, match="column 'heavy_cost', line 4"):
        payoff_report(path, Asked())


def test_without_confidence_there_is_no_advice_and_the_rest_is_told(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("escalated,light_cost,heavy_cost\n1,1,2\n1,1,4\n")
    (row,) = payoff_report(path, Asked()).rows
    assert (row.advice, row.signal, row.sweep) == (None, None, ())
    assert row.estimates["savings_frac"].value == pytest.approx(-1 / 3)
    assert "2 of 2 requests have no confidence or threshold" in row.notes[0]


def test_a_request_without_confidence_is_in_no_advice(tmp_path, log):
    answer = only(log, "answer")
    answer["confidence"][3] = math.nan
    (row,) = payoff_report(write(tmp_path / "log.csv", answer), Asked()).rows
    assert row.advice is not None
    assert "1 requests without a confidence or threshold are in no advice" in row.notes[0]


def test_the_report_is_json(file):
    found = json.loads(json.dumps(to_json(payoff_report(file, Asked())), allow_nan=False))
    row = found["rows"][0]
    assert row["estimates"]["savings_frac"].keys() == {
        "value", "low", "high", "method", "n", "effective_n", "reason", "needs",
    }  # fmt: skip
    assert row["sweep"][0].keys() == {"threshold", "savings_frac", "quality_delta", "supported"}
    assert row["advice"].keys() == {"guaranteed", "point", "reason"}
    assert found["total"]["left_out"] == [{"feature": "draft", "cascade": "small-large"}]


def test_the_picture_is_one_page_without_script_or_network(file):
    text = page(payoff_report(file, Asked(features=("answer", "search"))))
    for forbidden in ("<script", "http:", "https:", "url(", "@import"):
        assert forbidden not in text, forbidden
    drawings = ["<svg" + part.partition("</svg>")[0] + "</svg>" for part in text.split("<svg")[1:]]
    assert len(drawings) == 4
    for drawing in drawings:
        shapes = [(one.tag, one.get("class")) for one in ET.fromstring(drawing)]  # noqa: S314 - our own
        assert ("polyline", "line saved") in shapes or ("polyline", "line lost") in shapes
    assert 'class="now"' in drawings[0]
    assert "polygon" in drawings[0]


def test_names_in_the_picture_are_text(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("feature,escalated,light_cost,heavy_cost\n<script>,1,1,2\n<script>,1,1,4\n")
    text = page(payoff_report(path, Asked()))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def event(name, request, attributes, at=1):
    given = {catalogue.REQUEST_ID: request, **attributes}
    values = {str: "stringValue", float: "doubleValue", bool: "boolValue"}
    return {
        "timeUnixNano": str(at),
        "eventName": name,
        "attributes": [{"key": key, "value": {values[type(value)]: value}} for key, value in given.items()],
    }


def decision(request, decision, confidence=0.9, **more):
    return event(
        catalogue.DECISION_EVENT,
        request,
        {
            catalogue.FEATURE: "answer",
            catalogue.ESCALATION_CASCADE: "qa",
            catalogue.ESCALATION_DECISION: decision,
            catalogue.ESCALATION_CONFIDENCE: confidence,
            catalogue.ESCALATION_THRESHOLD_VALUE: 0.5,
            catalogue.ESCALATION_SURER: "higher",
            catalogue.ESCALATION_AUDIT_PROPENSITY: 1.0 if decision == "escalated" else 0.5,
            catalogue.ESCALATION_LIGHT_STAGE: "small",
            catalogue.ESCALATION_LIGHT_TIME: 1.0,
            **({} if decision == "kept" else {catalogue.ESCALATION_HEAVY_TIME: 5.0}),
            **more,
        },
    )


def score(request, value, stage=None, name="correct", at=2, **more):
    given = {catalogue.SCORE_NAME: name, catalogue.SCORE_VALUE: value, **more}
    if stage is not None:
        given[catalogue.STAGE] = stage
    return event(catalogue.SCORE_EVENT, request, given, at)


@pytest.fixture
def folder(tmp_path):
    def write(*events):
        record = {
            "resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": list(events)}]}]
        }
        (tmp_path / "logs-1-a-0.jsonl").write_text(json.dumps(record) + "\n")
        return tmp_path

    return write


def test_decisions_and_scores_of_a_folder_are_joined(folder):
    path = folder(
        decision("1", "kept"),
        decision("1", "kept"),
        decision("2", "audited"),
        decision("3", "escalated", 0.1),
        score("1", 1.0),
        score("2", 0.0, "small"),
        score("2", 1.0, "large"),
        score("3", 0.0, at=2),
        score("3", 1.0, at=3),
        score("unknown", 1.0),
        score("2", 7.0, name="stars"),
        event("foreign", "1", {}),
    )
    report = payoff_report(path, Asked())
    (row,) = report.rows
    assert (row.feature, row.cascade, row.requests, row.unit) == ("answer", "qa", 3, "s")
    found = {name: one.value for name, one in row.estimates.items()}
    assert found["always_heavy_cost"] == pytest.approx(5.0)
    assert found["cascade_cost"] == pytest.approx(1 + 5 / 3)
    assert found["quality_cascade"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert found["quality_delta"] == pytest.approx(-2 / 3)
    assert any("there are also stars" in note for note in report.notes)
    assert any("label_propensity" in note for note in report.notes)
    (row,) = payoff_report(path, Asked(score="stars")).rows
    assert row.estimates["quality_delta"].value is None
    with pytest.raises(NoDataError, match="no score called 'nice'; there are: correct, stars"):
        payoff_report(path, Asked(score="nice"))


def test_decisions_that_must_be_left_out_are_counted(folder):
    untimed = {
        catalogue.FEATURE: "answer",
        catalogue.ESCALATION_CASCADE: "qa",
        catalogue.ESCALATION_DECISION: "kept",
    }
    path = folder(
        decision("1", "kept"),
        decision("2", "audited"),
        decision("3", "kept", **{catalogue.ESCALATION_EXCLUDED: "audit_failed"}),
        decision("4", "kept", **{catalogue.ESCALATION_EXCLUDED: "audit_failed"}),
        event(catalogue.DECISION_EVENT, "5", untimed),
    )
    (row,) = payoff_report(path, Asked()).rows
    assert row.requests == 2
    assert row.excluded == {"audit_failed": 2, "no cost or time of a stage that ran": 1}


def printed(report):
    text = io.StringIO()
    print_payoff(report, Console(file=text, width=200))
    return text.getvalue()


@pytest.mark.parametrize("features", [1, 2, 9])
def test_decisions_that_are_left_out_are_told_however_many_rows_there_are(folder, features):
    left = {catalogue.ESCALATION_EXCLUDED: "audit_failed"}
    events = []
    for number in range(features):
        name = {catalogue.FEATURE: f"f{number}"}
        events += [
            decision(f"{number}-1", "kept", **name),
            decision(f"{number}-2", "kept", **name, **left),
            decision(f"{number}-3", "kept", **name, **left),
            decision(f"{number}-4", "kept", **name, **{catalogue.ESCALATION_EXCLUDED: "unsettled"}),
        ]
    events.append(decision("5", "kept", **{catalogue.FEATURE: "open"}, **left))
    text = printed(payoff_report(folder(*events), Asked()))
    for number in range(features):
        assert f"f{number} / qa: left out are 2 (audit failed), 1 (unsettled)" in text
    assert "open / qa: no decision can be used: 1 (audit failed)." in text


def test_where_all_must_be_left_out_the_reason_is_said(folder):
    path = folder(decision("1", "kept", **{catalogue.ESCALATION_EXCLUDED: "unsettled"}))
    with pytest.raises(NoDataError, match=r"no decision can be used \(unsettled\)"):
        payoff_report(path, Asked())


def test_money_is_used_where_every_stage_has_a_price(folder):
    priced = {
        catalogue.CURRENCY: "EUR",
        catalogue.ESCALATION_LIGHT_COST: 0.1,
        catalogue.ESCALATION_HEAVY_COST: 0.7,
    }
    (row,) = payoff_report(folder(decision("1", "escalated", 0.1, **priced)), Asked()).rows
    assert (row.unit, row.estimates["cascade_cost"].value) == ("EUR", pytest.approx(0.8))
    del priced[catalogue.ESCALATION_HEAVY_COST]
    report = payoff_report(folder(decision("1", "escalated", 0.1, **priced)), Asked())
    assert (report.rows[0].unit, report.rows[0].estimates["cascade_cost"].value) == ("s", pytest.approx(6.0))
    assert "Not every stage has a price" in report.notes[0]


def test_a_confidence_of_which_lower_is_surer_is_shown_in_its_own_sign(folder):
    lower = {catalogue.ESCALATION_SURER: "lower"}
    decisions = [decision(f"k{i}", "audited", 0.01 * i, **lower) for i in range(40)]
    decisions += [decision(f"e{i}", "escalated", 0.5 + 0.01 * (i + 1), **lower) for i in range(40)]
    events = [
        score(one["attributes"][0]["value"]["stringValue"], 1.0, stage)
        for one in decisions
        for stage in ("small", "large")
    ]
    (row,) = payoff_report(folder(*decisions, *events), Asked(target_loss=0.3)).rows
    assert row.threshold == 0.5
    kept_all = min(row.sweep, key=lambda point: point.savings_frac.value)
    assert kept_all.threshold == pytest.approx(0.0, abs=1e-9)
    assert row.advice.guaranteed > 0.5
    assert "lower confidence is the surer" in row.notes[0]


def test_a_folder_without_decisions_says_so(folder):
    with pytest.raises(NoDataError, match="holds no decision of a cascade"):
        payoff_report(folder(score("1", 1.0)), Asked())
