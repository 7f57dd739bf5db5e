from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gputrace import cli

HEAVY = ("duckdb", "rich", "opentelemetry.sdk", "torch", "numpy")


def test_without_a_command_the_help_says_what_there_is(capsys):
    assert cli.main([]) == cli.USAGE_ERROR
    assert "report" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--help"], 0), (["report", "--help"], 0), (["nonsense"], 2)]
)
def test_what_argparse_answers_is_a_status(arguments, status):
    assert cli.main(arguments) == status


def test_a_command_gives_its_own_status(monkeypatch):
    monkeypatch.setattr("gputrace.cli.report.run", lambda _: 7)
    assert cli.main(["report"]) == 7


def test_an_interrupt_is_no_traceback(monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gputrace.cli.report.run", interrupt)
    assert cli.main(["report"]) == 130


def test_a_reader_that_has_seen_enough_is_no_error():
    code = (
        "import sys, gputrace.cli.report as report\n"
        "report.run = lambda arguments: print('x' * 1_000_000) or 0\n"
        "from gputrace.cli import main\n"
        "sys.exit(main(['report']))"
    )
    reading, writing = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


def test_describing_the_commands_imports_nothing_heavy():
    code = (
        f"import sys, gputrace.cli as cli; cli._parser(); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "gputrace", "--help"], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: gputrace")
