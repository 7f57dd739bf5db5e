"""`gputrace simulate` from the command line: two processes, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gputrace.cli import main
from tests.simulate.conftest import served_as_one

SHORT = ("simulate", "--start", "2026-01-01T00:00Z", "--hours", "0.25", "--step", "60", "--requests", "60")


def test_a_simulation_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, truth = tmp_path / "data", tmp_path / "data" / "truth.json"
    assert main([*SHORT, "--data", str(data), "--truth", str(truth), "--gpus", "2"]) == 0
    said = capsys.readouterr().out
    assert "Simulated 0.25 h of 2 GPUs" in said
    assert f"gputrace report {data}" in said
    assert len(list(data.glob("metrics-*"))) == 3
    told = json.loads(truth.read_text())
    assert main(["report", str(data), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["balanced"]
    charged = {row["feature"]: row["charged_s"] for row in report["rows"]}
    assert served_as_one(charged) == pytest.approx(served_as_one(told["feature_s"]), rel=1e-5)
    assert len(report["devices"]) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--gpus", "3"), "must be a multiple of the processes: say so with --processes"),
        (("--step", "0"), "--step must be at least 1 s, not 0"),
        (("--step", "-5"), "--step must be at least 1 s, not -5"),
        (("--hours", "0.001"), "3.6 s is less than two steps of 60 s"),
        (("--step", "100000"), "is less than two steps of 100000 s"),
        (("--scenario", "none,night"), "--scenario is all, none, or names of incidents, not both"),
        (("--scenario", "flood"), "no incident is called flood"),
        (("--trace", "nowhere.csv", "--processes", "1"), "nowhere.csv: No such file"),
        (("--prices", "nowhere.toml", "--processes", "1"), "nowhere.toml: No such file"),
        (("--start", "2999-01-01", "--remote-write", "http://localhost:9"), "no history of the future"),
    ],
)
def test_what_cannot_be(
    arguments: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SHORT, *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("--truth", "/proc/truth.json"), "--truth /proc/truth.json cannot be written: "),
        (("--truth", "."), "--truth . cannot be written: Is a directory"),
        (("--truth", "none/truth.json"), "--truth none/truth.json cannot be written: No such file"),
        (("--data", "/proc/data"), "--data /proc/data cannot be written to: "),
        (("--data", "file/below"), "--data file/below cannot be written to: Not a directory"),
        (("--data", "file"), "--data file cannot be written to: File exists"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_played(
    given: tuple[str, str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    assert main([*SHORT, "--processes", "1", *given]) == 2
    assert complaint in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert Path("file").read_text() == "mine"


def test_what_could_be_written_is_left_as_it_was_where_the_plan_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("truth.json").write_text("older")
    given = ("--data", "made/data", "--truth", "truth.json", "--prices", "nowhere.toml")
    assert main([*SHORT, "--processes", "1", *given]) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["truth.json"]
    assert Path("truth.json").read_text() == "older"


def test_a_price_book_that_is_wrong_is_told_from_another_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "prices.toml"
    book.write_text("[[price]]\n")
    assert main([*SHORT, "--data", str(tmp_path / "data"), "--prices", str(book)]) == 2
    assert "prices.toml: price 1: name: say which devices" in capsys.readouterr().err


def test_a_prometheus_that_is_not_there(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    assert main([*SHORT, "--processes", "1", "--remote-write", url]) == 1
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "inf", "soon"])
def test_a_length_is_a_positive_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--hours", text]) == 2
    assert "no positive number" in capsys.readouterr().err
