"""What is written in a CSV file is read as what it is, whatever else it looks like."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from gputrace.analysis.payoff import ColumnError
from gputrace.analysis.payoff_json import to_json
from gputrace.analysis.payoff_render import print_payoff
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.payoff_tables import read_table
from gputrace.analysis.survey import NoDataError

NAMES = (
    "feature", "confidence", "threshold", "escalated", "audited", "audit_propensity", "light_cost",
    "heavy_cost", "light_quality", "heavy_quality",
)  # fmt: skip


def line(number, **changed):
    """Forty per cent escalate; of the kept requests every second is audited."""
    escalated = number % 10 < 4
    audited = not escalated and number % 20 >= 10
    ran = escalated or audited
    values = {
        "feature": "answer",
        "confidence": number % 10 / 10,
        "threshold": 0.4,
        "escalated": escalated,
        "audited": audited,
        "audit_propensity": 1 if escalated else 0.5,
        "light_cost": 1.0,
        "heavy_cost": 10 + number % 7 if ran else "",
        "light_quality": 1,
        "heavy_quality": 1 if ran else "",
    }
    return values | changed


@pytest.fixture
def write(tmp_path):
    def write(lines, names=NAMES, separator=","):
        path = tmp_path / "log.csv"
        rows = [names, *([one[name] for name in names] for one in lines)]
        path.write_text("".join(separator.join(str(cell) for cell in row) + "\n" for row in rows))
        return path

    return write


@pytest.mark.parametrize(
    "names",
    [
        ("light_quality", "heavy_quality"),
        ("heavy_quality",),
        ("confidence",),
        ("threshold",),
        ("confidence", "threshold"),
    ],
)
def test_a_column_may_be_empty_throughout(write, names):
    path = write([line(number, **dict.fromkeys(names, "")) for number in range(200)])
    (row,) = payoff_report(path, Asked()).rows
    assert row.estimates["savings_frac"].value is not None
    assert (row.estimates["quality_delta"].value is None) is ("heavy_quality" in names)
    assert (row.advice is None) is (names[0] in ("confidence", "threshold"))


def test_kept_requests_alone_are_a_log(write):
    kept = {"escalated": False, "audited": False, "heavy_cost": "", "heavy_quality": ""}
    (row,) = payoff_report(write([line(number, **kept) for number in range(20)]), Asked()).rows
    assert row.estimates["cascade_cost"].value == 1.0
    assert row.verdict == "cannot tell yet: needs 30 more audits"


@pytest.mark.parametrize(
    "features",
    [
        ("f", "t"),
        ("2024-01-01", "2024-01-02"),
        ("NULL", "None", "nan"),
        ("007", "7", "7.0"),
        ("", "NA"),
        ("12:30", "inf", "true"),
    ],
)
def test_names_are_kept_as_they_are_written(write, features):
    path = write([line(number, feature=features[number % len(features)]) for number in range(60)])
    assert [one.feature for one in read_table(path)] == sorted(features)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("1", "0"), ("yes", "no"), ("1.0", "0.0")])
def test_truth_and_separators_have_several_spellings(write, yes, no, separator):
    lines = [line(number) for number in range(20)]
    for one in lines:
        one["escalated"] = yes if one["escalated"] else no
    (found,) = read_table(write(lines, separator=separator))
    assert found.columns["escalated"].sum() == 8


@pytest.mark.parametrize("absent", ["", "NaN", "nan", "NA", "null", "None", "n/a"])
def test_what_was_not_observed_has_several_spellings(write, absent):
    (found,) = read_table(write([line(1), line(2, confidence=absent)]))
    assert np.isnan(found.columns["confidence"]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("light_cost", "much", "column 'light_cost', line 30: 'much' is no number"),
        ("light_cost", "inf", "column 'light_cost', line 30: it is infinite"),
        ("light_cost", "-1", "column 'light_cost', line 30: it is negative"),
        ("escalated", "maybe", "column 'escalated', line 30: 'maybe' is neither true nor false"),
        ("escalated", "2", "column 'escalated', line 30: it must be true or false"),
        ("escalated", "", "column 'escalated', line 30: it must be true or false"),
    ],
)
def test_what_is_wrong_is_named_by_column_and_line(write, column, value, says):
    lines = [line(number) for number in range(60)]
    lines[27][column] = value
    # Quoted text with lines of its own, before the place.
    lines[3]["feature"] = '"two\nlines"'
    with pytest.raises(ColumnError, match=says):
        payoff_report(write(lines), Asked())


def scaled(name, factor):
    return lambda one: one | {name: "" if one[name] == "" else float(one[name]) * factor}


@pytest.mark.parametrize(
    ("name", "factor", "size"),
    [
        ("light_cost", 1e200, "large"),
        ("heavy_cost", 1e307, "large"),
        ("heavy_cost", 1e-300, "small"),
        ("light_cost", 5e-324, "small"),
        ("light_quality", 1e308, "large"),
        ("threshold", 1e99, "large"),
        ("audit_propensity", 1e-200, "small"),
    ],
)
def test_a_number_that_cannot_be_reckoned_with_is_named(write, name, factor, size):
    path = write([scaled(name, factor)(line(number)) for number in range(40)])
    with pytest.raises(ColumnError, match=rf"column '{name}', line \d+: .* is too {size} to reckon with"):
        payoff_report(path, Asked())


@pytest.mark.parametrize(
    ("names", "factor"),
    [
        (("light_cost", "heavy_cost"), 1e46),
        (("light_cost", "heavy_cost"), 1e-46),
        (("light_cost",), 1e-46),
        (("heavy_cost",), 1e-46),
        (("light_quality", "heavy_quality"), 1e49),
        (("confidence", "threshold"), 1e-300),
        (("confidence", "threshold"), -1e-300),
        (("confidence", "threshold"), 1e49),
        (("audit_propensity",), 1e-19),
        (("light_cost", "heavy_cost"), 0),
    ],
)
@pytest.mark.parametrize("level", [0.5, 0.999999])
def test_numbers_may_be_very_large_and_small(write, names, factor, level):
    """No warning of NumPy either, which is an error here; and neither infinity nor a row of zeros is said."""
    lines = [line(number, confidence=number % 17 / 17 + 0.1) for number in range(200)]
    for name in names:
        lines = [scaled(name, factor)(one) for one in lines]
    lines += [line(0, feature="one"), line(0, feature="two"), line(1, feature="two", heavy_cost=1e9)]
    report = payoff_report(write(lines), Asked(level=level))
    json.dumps(to_json(report), allow_nan=False)
    text = io.StringIO()
    print_payoff(report, Console(file=text, width=200))
    assert "0.00000000" not in text.getvalue()
    assert max(len(word) for word in text.getvalue().split() if "─" not in word and "/" not in word) < 30


def test_audits_without_a_column_that_says_so_are_refused(write):
    names = [name for name in NAMES if name != "audited"]
    with pytest.raises(ColumnError, match="column 'audited' is missing: 60 kept requests have a heavy_cost"):
        payoff_report(write([line(number) for number in range(200)], names), Asked())
    lines = [line(number, audit_propensity="") for number in range(200)]
    assert payoff_report(write(lines, names), Asked()).rows[0].requests == 200


def test_what_contradicts_itself_is_noted(write):
    lines = [line(number) for number in range(200)]
    (row,) = payoff_report(write(lines), Asked()).rows
    assert row.notes == ()
    (row,) = payoff_report(write([one | {"heavy_cost": 10} for one in lines]), Asked()).rows
    assert row.notes == ("60 kept requests have a heavy_cost, but were not audited: it is not used.",)
    turned = [one | {"confidence": -one["confidence"], "threshold": -0.39} for one in lines]
    (row,) = payoff_report(write(turned), Asked()).rows
    assert row.notes[0].startswith("200 of 200 requests were escalated at a confidence above the threshold")


@pytest.mark.parametrize("several", [True, False])
def test_several_thresholds_are_not_said_to_be_one(write, several):
    lines = [line(number, threshold=0.35 if several and number < 100 else 0.4) for number in range(200)]
    text = io.StringIO()
    print_payoff(payoff_report(write(lines), Asked()), Console(file=text, width=200))
    assert ("threshold: several, 0.4 last, in force" in text.getvalue()) is several
    assert ("threshold: 0.4 in force" in text.getvalue()) is not several


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_named(write, encoding):
    path = write([line(number, feature="caf\xe9") for number in range(40)])
    path.write_text(path.read_text(encoding="utf-8"), encoding=encoding)
    with pytest.raises(NoDataError, match="it is not UTF-8"):
        payoff_report(path, Asked())
