"""What is written in a CSV file is read as what it is, whatever else it looks like."""

from __future__ import annotations

import numpy as np
import pytest

from gputrace.analysis.payoff import ColumnError
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.payoff_tables import read_table

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
