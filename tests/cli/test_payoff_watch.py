"""`gputrace payoff --watch`: the estimates as gauges."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from gputrace import catalogue
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.analysis.payoff_sequences import watched
from gputrace.cli import main

HEADER = (
    "feature,cascade,confidence,threshold,escalated,audited,audit_propensity,"
    "light_cost,heavy_cost,light_quality,heavy_quality\n"
)


def line(number):
    """Forty per cent escalate; every second kept request is audited."""
    sure = number % 10 / 10
    escalated = sure < 0.4
    audited = not escalated and number % 20 >= 10
    heavy, grade = (str(8 + number % 5), "1") if escalated or audited else ("", "")
    chance = 1 if escalated else 0.5
    return f"answer,qa,{sure},0.4,{int(escalated)},{int(audited)},{chance},1,{heavy},1,{grade}\n"


def lines(log, count):
    log.write_text(HEADER + "".join(line(number) for number in range(count)))


@pytest.fixture
def watch(tmp_path):
    started = []

    def watch(*arguments):
        command = [sys.executable, "-m", "gputrace", "payoff", *arguments, "--export", str(tmp_path / "out")]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        )
        return started[-1]

    yield watch
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it never came")


def last(files):
    """The last value by quantity and bound, of the only cascade."""
    found = {}
    for (_, attributes), values in files.values(catalogue.ESCALATION_ESTIMATE.name).items():
        of = dict(attributes)
        assert (of[catalogue.FEATURE], of[catalogue.ESCALATION_CASCADE]) == ("answer", "qa")
        found[of[catalogue.ESCALATION_QUANTITY], of[catalogue.ESCALATION_BOUND]] = values[-1]
    return found


def test_estimates_are_exported_with_bounds_that_hold_however_often_one_looks(watch, tmp_path, read_files):
    log = tmp_path / "log.csv"
    process = watch(str(log), "--watch", "0.2")
    # There is nothing yet: it waits, and says so once.
    assert str(log) in process.stderr.readline()
    lines(log, 40)
    wait_for(lambda: (tmp_path / "out").exists() and last(read_files(tmp_path / "out")))
    few = last(read_files(tmp_path / "out"))
    assert few["savings_frac", "value"] == pytest.approx(0.5, abs=0.1)
    assert ("savings_frac", "low") not in few
    assert few["audits_needed", "value"] == 50 - 12
    lines(log, 2_000)
    wait_for(lambda: ("savings_frac", "low") in last(read_files(tmp_path / "out")))
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert f"exporting estimates to {tmp_path / 'out'} every" in output
    shown = last(read_files(tmp_path / "out"))
    estimates = payoff_report(log, Asked()).rows[0].estimates
    assert shown["audits_needed", "value"] == 0
    for name, estimate in estimates.items():
        bounds = watched(estimate)
        expected = {
            "value": estimate.value,
            **({} if bounds is None else dict(zip(("low", "high"), bounds, strict=True))),
        }
        assert {bound: shown[name, bound] for bound in expected} == pytest.approx(expected), name
    interval = estimates["savings_frac"]
    assert shown["savings_frac", "low"] < interval.low < interval.high < shown["savings_frac", "high"]
    # What the process does itself is nobody's spend.
    assert read_files(tmp_path / "out").names() == {catalogue.ESCALATION_ESTIMATE.name}


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_an_interval_that_is_none_is_refused(seconds, capsys):
    assert main(["payoff", "log.csv", "--watch", seconds]) == 2
    assert "seconds above 0" in capsys.readouterr().err


def test_a_setting_that_cannot_be_used_is_one_line(watch, tmp_path):
    lines(tmp_path / "log.csv", 40)
    process = watch("log.csv", "--watch", "1", "--endpoint", "no url")
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output) == (2, "")
    assert errors.startswith("gputrace payoff: ")
    assert len(errors.splitlines()) == 1


def test_json_of_rows_stays_what_it_was(tmp_path, capsys):
    """Watching is apart: without it nothing is exported."""
    lines(tmp_path / "log.csv", 40)
    assert main(["payoff", str(tmp_path / "log.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]
    assert not (tmp_path / "out").exists()
