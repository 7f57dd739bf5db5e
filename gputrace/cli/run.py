"""`gputrace run`: a whole program, such as a training or a batch job, billed to one feature."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_FOUND = 127
NOT_EXECUTABLE = 126
USAGE_ERROR = 2

# Without the folder that the program is started in, which the interpreter would look in first.
_BOOT = "import sys; sys.path[:] = filter(None, sys.path); import gputrace.cli.run_child as run; run.main()"

#: What Python ignores and what it starts would ignore too.
_PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")


def add_parser(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="run a whole program, such as a training or batch job, billed to one feature",
        usage="gputrace run --feature FEATURE [--operation NAME] [--tenant TENANT] -- python job.py …",
        description="Runs a program with gputrace set up by GPUTRACE_* and OTEL_* variables, its whole life "
        "as one tracked call, and everything that is tracked inside billed to the feature unless it names "
        "another. The program takes the place of this command: its signals, output and exit status are its "
        "own. `python` is the one that gputrace is installed in. Without a GPU the whole life is charged; on "
        "one, what calls inside hold. Of a program that is not Python nothing is measured.",
    )
    parser.add_argument("--feature", required=True, help="product feature that is billed")
    parser.add_argument("--operation", metavar="NAME", help="name of the work (default: that of the program)")
    parser.add_argument("--tenant", help="customer that is billed")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Become the program; returns only where that cannot be, with the exit status that shells give then."""
    from gputrace import settings

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        return _refuse("say what to run: gputrace run --feature nightly -- python job.py", USAGE_ERROR)
    for option in ("feature", "operation", "tenant"):
        name = getattr(arguments, option)
        # What an unset variable of a shell leaves would bill nobody, without a word.
        if name is not None and not name.strip():
            return _refuse(f"--{option} {name!r} must be a name; is a shell variable unset?", USAGE_ERROR)
    given = {"feature": arguments.feature, "tenant": arguments.tenant}
    variables = {settings.SCOPE_VARIABLES[field]: text for field, text in given.items() if text is not None}
    environment = {**os.environ, **variables}
    try:
        settings.read(environment=environment)
    except settings.SettingError as error:
        return _refuse(str(error), USAGE_ERROR)
    path = _interpreter_here(command[0]) or shutil.which(command[0])
    if path is None:
        found = os.path.exists(command[0])  # noqa: PTH110 - a word that may be anything
        reason = "cannot be executed" if found else "is not there, or not on PATH"
        return _refuse(f"{command[0]} {reason}", NOT_EXECUTABLE if found else NOT_FOUND)
    # An interpreter finds its environment by the path that it is called by; others may go by their name.
    untracked = [path if path == sys.executable else command[0], *command[1:]]
    tracked = _tracked(path, command, arguments.operation)
    return _become(tracked[0] if tracked else path, tracked or untracked, environment)


def _refuse(message: str, status: int) -> int:
    print(f"gputrace run: {message}", file=sys.stderr)
    return status


def _become(path: str, command: list[str], environment: dict[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    for name in _PYTHON_IGNORES:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execve(path, command, environment)  # noqa: S606 - the user's own program
    except OSError as error:
        return _refuse(f"{path} cannot be executed: {error.strerror}", NOT_EXECUTABLE)


def _tracked(path: str, command: Sequence[str], operation: str | None) -> list[str] | None:
    """Return the command that runs a Python program as one tracked call, None where that cannot be."""
    from gputrace.cli import run_python

    arguments = run_python.arguments_of(path, command)
    if arguments is None:
        _say_unmeasured(f"{command[0]} is no Python program")
        return None
    interpreter, *rest = arguments
    parsed = run_python.parse(rest)
    if parsed is None:
        _say_unmeasured("no script, module or -c is named for Python")
        return None
    interpreter = _interpreter_here(interpreter) or shutil.which(interpreter) or interpreter
    ready = interpreter == sys.executable and not parsed.options
    if not ready and not _has_gputrace([interpreter, *parsed.options]):
        _say_unmeasured(f"{' '.join([interpreter, *parsed.options])} finds no gputrace to import")
        return None
    return [
        interpreter,
        *parsed.options,
        "-c",
        _BOOT,
        operation or parsed.operation,
        parsed.kind,
        parsed.program,
        *parsed.arguments,
    ]


def _interpreter_here(name: str) -> str | None:
    """Return this environment's interpreter where a bare `python` or `python3` is asked for."""
    return sys.executable if name in {"python", "python3"} else None


def _has_gputrace(interpreter: Sequence[str]) -> bool:
    code = _BOOT.rpartition(";")[0]
    try:
        done = subprocess.run([*interpreter, "-c", code], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _say_unmeasured(why: str) -> None:
    print(f"gputrace run: {why}: it runs, and nothing of it is measured from outside", file=sys.stderr)
