"""Which words of a command are Python's, which name the program, which are the program's own."""

from __future__ import annotations

import pytest

from gputrace.cli.run_python import CODE, FILE, MODULE, arguments_of, parse


@pytest.mark.parametrize(
    ("words", "options", "kind", "program", "arguments"),
    [
        ("job.py", "", FILE, "job.py", ""),
        ("job.py -m -c --", "", FILE, "job.py", "-m -c --"),
        ("-u -X dev -W ignore job.py -u", "-u -X dev -W ignore", FILE, "job.py", "-u"),
        ("-Xdev -Wignore job.py", "-Xdev -Wignore", FILE, "job.py", ""),
        ("-BuW ignore job.py", "-BuW ignore", FILE, "job.py", ""),
        ("--check-hash-based-pycs never job.py", "--check-hash-based-pycs never", FILE, "job.py", ""),
        ("-m package.job -m", "", MODULE, "package.job", "-m"),
        ("-mjob a", "", MODULE, "job", "a"),
        ("-um job a", "-u", MODULE, "job", "a"),
        ("-u -c pass a b", "-u", CODE, "pass", "a b"),
        ("-uBcpass a", "-uB", CODE, "pass", "a"),
    ],
)
def test_a_program_is_found(words, options, kind, program, arguments):
    found = parse(words.split())
    assert found is not None
    assert (found.options, found.kind, found.program) == (tuple(options.split()), kind, program)
    assert found.arguments == tuple(arguments.split())


@pytest.mark.parametrize(
    "words", ["", "-", "-u -", "-V", "--version", "-uh", "-i job.py", "-x job.py", "-m", "-uc"]
)
def test_where_none_is_named_there_is_nothing_to_measure(words):
    assert parse(words.split()) is None


@pytest.mark.parametrize(
    ("words", "operation"),
    [("/a/b/job.py x", "job.py"), ("-m package.job", "package.job"), ("-c pass", "-c")],
)
def test_the_work_is_named_after_the_program(words, operation):
    assert parse(words.split()).operation == operation


@pytest.mark.parametrize(
    ("first_line", "expected"),
    [
        ("#!/usr/bin/python3", ["/usr/bin/python3"]),
        ("#!/opt/env/bin/python3.11 -u", ["/opt/env/bin/python3.11", "-u"]),
        ("#!/usr/bin/env python", ["python"]),
        ("#!/usr/bin/env -S python3 -u", ["python3", "-u"]),
        ("#!/bin/sh", None),
        ("#!", None),
        ("#!/usr/bin/env", None),
        ("import sys", None),
        ("\x7fELF", None),
    ],
)
def test_a_script_says_by_its_first_line_whether_it_is_python(tmp_path, first_line, expected):
    script = tmp_path / "tool"
    script.write_text(f"{first_line}\nprint()\n")
    found = arguments_of(str(script), ["tool", "-x"])
    assert found == (None if expected is None else [*expected, str(script), "-x"])


@pytest.mark.parametrize("name", ["python", "python3", "/usr/bin/python3.12", "python3.13t"])
def test_an_interpreter_is_known_by_its_name(name):
    assert arguments_of("/nowhere", [name, "job.py"]) == [name, "job.py"]


@pytest.mark.parametrize("name", ["bpython", "python2", "python.exe.sh", "pythonic"])
def test_others_are_none(tmp_path, name):
    assert arguments_of(str(tmp_path / "gone"), [name, "job.py"]) is None
