from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gputrace.cli import main

HEADER = (
    "feature,cascade,confidence,threshold,escalated,audited,audit_propensity,"
    "light_cost,heavy_cost,light_quality,heavy_quality\n"
)


def line(number, feature="answer"):
    """Forty per cent escalate; of the kept requests every second is audited, and the light one is right."""
    sure = number % 10 / 10
    escalated = sure < 0.4
    audited = not escalated and number % 20 >= 10
    heavy, grade = ("10", "1") if escalated or audited else ("", "")
    chance = 1 if escalated else 0.5
    return f"{feature},qa,{sure},0.4,{int(escalated)},{int(audited)},{chance},1,{heavy},1,{grade}\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "".join(line(number) for number in range(400)))
    return path


@pytest.fixture
def two(tmp_path):
    path = tmp_path / "two.csv"
    text = "".join(line(number) for number in range(400))
    path.write_text(HEADER + text + "".join(line(number, "search") for number in range(20)))
    return path


def said(capsys):
    output = capsys.readouterr()
    assert output.err == ""
    return " ".join(output.out.split())


def test_the_sentence_and_the_lines_of_one_cascade(log, capsys):
    """40 % × 10 + 1 = 5 against 10: half is saved, whatever the interval."""
    assert main(["payoff", str(log)]) == 0
    text = said(capsys)
    assert "answer / qa: pays: saves 50 % ± " in text
    assert "quality as always-heavy's" in text
    assert "a request costs 5.00, always-heavy would 10.0" in text
    assert "wasted light runs: 0.400 a request (8.0% of what the cascade costs)" in text
    assert "audit tax: 3.00 a request (60.0% of what the cascade costs), for 120 audits" in text
    assert "the dearest request is 0.5% of what the cascade cost" in text
    assert "threshold: 0.4 in force; cheapest for a loss of at most 2.0 pt: " in text
    assert "(not guaranteed)" in text
    assert "no idle time is in them" in text


def test_json_is_one_object_and_nothing_else(log, capsys):
    assert main(["payoff", str(log), "--json", "--overhead", "0.5", "--target-loss", "0.1"]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["rows"][0]["estimates"]["savings_frac"]["value"] == pytest.approx(0.45)
    assert (found["overhead"], found["target_loss"], found["provisioned"]) == (0.5, 0.1, None)
    assert found["rows"][0]["advice"]["guaranteed"] <= 0.4
    assert output.err == ""


def test_several_features_have_a_total(two, capsys):
    assert main(["payoff", str(two)]) == 0
    text = said(capsys)
    assert "search / qa: cannot tell yet: saves 50 % so far, needs 24 more audits" in text
    assert "all together: pays: saves 50 % ± " in text


def test_bounds_of_the_table_are_given_as_they_are(tmp_path, capsys):
    """Of everything that escalates no interval is as wide above as below."""
    path = tmp_path / "all.csv"
    path.write_text("escalated,light_cost,heavy_cost\n" + "1,1,10\n" * 6)
    assert main(["payoff", str(path)]) == 0
    output = capsys.readouterr().out
    table = output.partition("all requests:")[0]
    assert "±" not in table
    assert "61 to 100" in table


def test_many_features_are_one_line_each(tmp_path, capsys):
    path = tmp_path / "many.csv"
    path.write_text(HEADER + "".join(line(number, f"f{number // 20}") for number in range(400)))
    assert main(["payoff", str(path)]) == 0
    text = said(capsys)
    assert "f19 / qa: cannot tell yet" in text
    assert "wasted light runs" not in text
    assert "--feature NAME" in text


def test_a_feature_may_be_chosen(two, capsys):
    assert main(["payoff", str(two), "--feature", "search", "--json"]) == 0
    assert [row["feature"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["search"]


def test_replicas_change_the_basis(log, capsys):
    arguments = ["--replicas", "1", "1", "1", "--replica-price", "1", "8"]
    assert main(["payoff", str(log), *arguments]) == 0
    assert "nothing is saved at this load" in said(capsys)
    assert main(["payoff", str(log), "--json", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["provisioned"]["savings_frac"] == pytest.approx(-0.125)


def test_the_sweep_is_drawn(log, tmp_path, capsys):
    page = tmp_path / "sweep.html"
    assert main(["payoff", str(log), "--html", str(page)]) == 0
    assert page.read_text().count("<svg") == 2
    assert main(["payoff", str(log), "--html", str(tmp_path / "none" / "sweep.html")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--level", "95"], "'95' is no confidence between 0 and 1"),
        (["--level", "0"], "'0' is no confidence between 0 and 1"),
        (["--target-loss", "-1"], "'-1' is no loss of 0 or more"),
        (["--overhead", "much"], "'much' is no cost of 0 or more"),
        (["--replicas", "1", "1.5", "2"], "'1.5' is no count of replicas"),
        (["--replicas", "1", "1", "2"], "--replicas and --replica-price need each other"),
        (["--endpoint", "http://localhost:4318"], "--endpoint needs --watch"),
        (["--export", "folder"], "--export needs --watch"),
        (["--score", "correct"], "--score is for folders: the quality in "),
        (["--feature", "chat"], "has no feature chat; it has answer"),
    ],
)
def test_wrong_arguments_are_named(log, capsys, arguments, says):
    assert main(["payoff", str(log), *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert says in output.err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("none.csv", None, "no such file or folder"),
        ("log.csv", "escalated,light_cost\n1,1\n", "no column heavy_cost"),
        (
            "log.csv",
            "escalated,light_cost,heavy_cost\n1,1,-2\n",
            "column 'heavy_cost', line 2: it is negative",
        ),
        (
            "log.csv",
            "escalated,light_cost,heavy_cost,escalated\n1,1,2,1\n",
            "the header names escalated more",
        ),
        (
            "log.csv",
            "escalated,light_cost,heavy_cost\n1,1,2,4,5\n0,1,2,4,5\n",
            "line 2 has 5 values, and the header names 3 columns",
        ),
        ("log.jsonl", '{"resourceSpans":[]}\n', "holds no decision of a cascade"),
        ("log.jsonl", "", "is empty"),
    ],
)
def test_where_there_is_nothing_to_report_one_line_says_so(tmp_path, capsys, name, text, says):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    assert main(["payoff", str(path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gputrace payoff: ")
    assert says in output.err
    assert len(output.err.splitlines()) == 1


def test_the_truth_stands_beside_the_intervals(log, two, tmp_path, capsys):
    truth = tmp_path / "truth.json"
    truth.write_text('{"wall": 1, "escalation": {"savings_frac": 0.5, "quality_delta": -0.5, "foreign": 1}}')
    assert main(["payoff", str(log), "--truth", str(truth)]) == 0
    text = said(capsys)
    assert "0.5 yes" in text
    assert "-0.5 no" in text
    assert main(["payoff", str(log), "--truth", str(truth), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["truth"]
    assert [(one["name"], one["inside"]) for one in found] == [
        ("savings_frac", True),
        ("quality_delta", False),
    ]
    assert main(["payoff", str(two), "--truth", str(truth)]) == 2
    assert "give --feature" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [("no", "cannot be read as JSON"), ("[1]", "holds no number by name"), ('{"a": 1}', "(a): name one")],
)
def test_a_truth_that_is_none_is_named(log, tmp_path, capsys, text, says):
    truth = tmp_path / "truth.json"
    truth.write_text(text)
    assert main(["payoff", str(log), "--truth", str(truth)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("package", ["duckdb", "numpy", "rich", "scipy"])
def test_a_missing_extra_is_one_line_that_says_what_to_install(log, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None; from gputrace.cli import main\n"
        f"sys.exit(main(['payoff', {str(log)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'gputrace payoff needs {package}: pip install "gputrace[report]"\n'


PROGRAM = """
import gputrace, time
gputrace.configure(service_name="shop")
answer = gputrace.Cascade("qa", stages=("small", "large"), threshold=0.5, audit_rate=1.0)
for number in range(80):
    with answer.request(feature="answer", audit=lambda: sum(range(20_000))) as request:
        with request.stage("small"):
            sum(range(1_000))
        if request.escalate(number % 10 / 10):
            with request.stage("large"):
                sum(range(20_000))
    gputrace.score(request.id, 1.0, name="correct", stage="small", label_propensity=1.0)
    gputrace.score(request.id, 1.0, name="correct", stage="large", label_propensity=1.0)
gputrace.flush()
gputrace.shutdown()
"""


def test_what_a_program_records_is_reported(tmp_path, capsys):
    """From the SDK's own files, in a process of its own."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, cwd=tmp_path, timeout=60)
    assert main(["payoff", str(tmp_path / "gputrace-data"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["feature"], row["cascade"], row["unit"], row["threshold"]) == ("answer", "qa", "s", 0.5)
    assert row["requests"] + sum(row["excluded"].values()) == 80
    assert row["estimates"]["quality_retention"]["value"] == 1
    # A busy machine makes single stages dear, and the interval wide.
    assert row["estimates"]["always_heavy_cost"]["value"] > row["estimates"]["light_cost"]["value"]
