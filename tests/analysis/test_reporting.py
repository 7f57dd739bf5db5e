from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputrace import catalogue
from gputrace.analysis import reporting
from gputrace.analysis.survey import NoDataError


def load(program, folder, sampling):
    one = program(folder=folder, sampling=sampling)
    for number in range(300):
        one.call(
            0.001 * (number % 7 + 1),
            feature=f"f{number % 3}",
            model="m",
            status="error" if number % 50 == 0 else "ok",
        )
    one.device(charged=sum(one.counters[catalogue.FEATURE_TIME.name].values()), idle=9.0)
    one.export()
    one.close()


def test_sampling_changes_no_total(program, report, tmp_path):
    whole, sampled = tmp_path / "whole", tmp_path / "sampled"
    load(program, whole, 1.0)
    load(program, sampled, 0.01)
    one, other = report(whole), report(sampled)
    assert one.totals == other.totals
    counted = [(row.key, row.calls, row.errors, row.charged_s, row.share) for row in one.rows]
    assert counted == [(row.key, row.calls, row.errors, row.charged_s, row.share) for row in other.rows]
    assert one.devices == other.devices
    assert one.balance.balanced
    assert other.balance.balanced
    assert one.sampled_share == 1.0
    assert other.sampled_share < 0.1
    assert any("of 300 calls" in note for note in other.notes)


def test_a_growing_file_is_read_as_far_as_it_goes(program, report):
    one = program()
    one.device(charged=1.0, idle=1.0)
    one.call(1.0, feature="a")
    one.export()
    assert report().totals.calls == 1
    one.device(charged=2.0, idle=1.0)
    one.call(2.0, feature="a")
    one.export()
    found = report()
    assert found.totals.calls == 2
    assert found.rows[0].charged_s == 3.0
    assert found.skipped_lines == 0


def test_files_of_several_processes_add_up(program, report):
    for number in range(3):
        one = program(instance=f"i{number}")
        one.device({catalogue.HW_ID: f"host/i{number}", catalogue.HW_TYPE: "cpu"}, charged=1.0, idle=2.0)
        one.call(1.0, feature="a", hw="cpu")
        one.export()
    found = report()
    assert (found.totals.calls, found.rows[0].charged_s) == (3, 3.0)
    assert [device.id for device in found.devices] == ["host/i0", "host/i1", "host/i2"]
    assert found.totals.times.wall_s == 9.0
    assert found.balance.balanced


def test_without_percentiles_spans_are_not_read(program, report, data):
    one = program()
    one.call(1.0, feature="a")
    one.export()
    (data / "spans-1-i1-0.jsonl").write_text('{"resourceSpans":[{"half')
    found = report(percentiles=False)
    assert (found.sampled_share, found.skipped_lines) == (None, 0)
    assert report().skipped_lines == 1


def test_one_file_is_enough(program, report, data):
    one = program()
    one.call(1.0, feature="a")
    one.export()
    found = report(data / "metrics-1-i1-0.jsonl")
    assert (found.totals.calls, found.sampled_share) == (1, 0.0)


def test_since_clips_calls_and_spans_and_states_its_error(write, lines, report):
    write(*(lines.export(float(at), charged=at / 10, idle=at * 0.9, calls=at) for at in range(0, 100, 10)))
    spans = [lines.span({catalogue.FEATURE: "search"}, start_s=float(at), wall_s=0.5) for at in range(90)]
    write(lines.spans((catalogue.SCOPE_NAME, spans)), name="spans.jsonl")
    found = report(since=33.0)
    assert found.totals.calls == 60
    assert found.spans == 60
    assert found.rows[0].charged_s == pytest.approx(6.0)
    assert (found.end_ns - found.start_ns) / 1e9 == 60.0
    assert any("3.000 s" in note for note in found.notes)
    assert found.balance.balanced


def test_since_before_all_data_leaves_no_span_out(write, lines, report):
    write(*(lines.export(float(at), charged=at / 10, calls=at) for at in range(10, 40, 10)))
    spans = [
        lines.span({catalogue.FEATURE: "search"}, start_s=float(at), wall_s=0.5) for at in range(-30, 30)
    ]
    write(lines.spans((catalogue.SCOPE_NAME, spans)), name="spans.jsonl")
    assert report().spans == report(since=-40.0).spans == 60


def test_a_file_renamed_while_it_is_read_is_found_under_its_new_name(write, lines, report, data, monkeypatch):
    write(lines.export(1.0, charged=1.0, calls=1))
    look = reporting.survey
    looks = []

    def look_and_rotate(path, advance):
        found = look(path, advance)
        if not looks:
            (data / "metrics-1-i1-0.jsonl").rename(data / "metrics-1-i1-1.jsonl")
        looks.append(path)
        return found

    monkeypatch.setattr(reporting, "survey", look_and_rotate)
    assert report().totals.calls == 1
    assert len(looks) == 2


def test_files_that_keep_going_away_end_in_a_message(write, lines, report, data, monkeypatch):
    look = reporting.survey

    def look_and_remove(path, advance):
        write(lines.export(1.0))
        found = look(path, advance)
        (data / "metrics-1-i1-0.jsonl").unlink()
        return found

    write(lines.export(1.0))
    monkeypatch.setattr(reporting, "survey", look_and_remove)
    with pytest.raises(NoDataError, match="kept going away"):
        report()


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from conftest import Program
one = Program(Path({folder!r}))
one.device(charged=1.0, idle=1.0)
one.call(1.0, feature="a")
one.export()
with open(Path({folder!r}) / "metrics-1-i1-0.jsonl", "a") as file:
    file.write('{{"resourceMetrics":[{{"resour')
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_files_that_balance(report, data):
    code = KILLED.format(tests=str(Path(__file__).parent), folder=str(data))
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    found = report()
    assert (found.totals.calls, found.skipped_lines) == (1, 1)
    assert found.balance.balanced
