"""What a command that runs Python consists of: the interpreter's options, the program, its arguments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Kinds of programs: `python FILE`, `python -m MODULE`, `python -c CODE`.
FILE, MODULE, CODE = "file", "module", "code"

_INTERPRETER = re.compile(r"python(3(\.\d+)?)?t?")
_SHEBANG_BYTES = 512
_WITH_VALUE = "WX"
_LONG_WITH_VALUE = "--check-hash-based-pycs"
# They end the interpreter at once, or change how it reads the program.
_RUNS_NOTHING = "hVxi?"


class Program(NamedTuple):
    """A Python program on a command line.

    Attributes:
        options: Those of the interpreter.
        kind: `FILE`, `MODULE` or `CODE`.
        program: Path, name or text.
        arguments: Those of the program.
    """

    options: tuple[str, ...]
    kind: str
    program: str
    arguments: tuple[str, ...]

    @property
    def operation(self) -> str:
        """A name for the work."""
        if self.kind == FILE:
            return Path(self.program).name
        return self.program if self.kind == MODULE else "-c"


def arguments_of(path: str, command: Sequence[str]) -> list[str] | None:
    """Return a command as one of a Python interpreter, None where it is none.

    Args:
        path: The executable that the command's first word means.
        command: The command. A script whose first line names Python is one too.
    """
    if _INTERPRETER.fullmatch(Path(command[0]).name):
        return list(command)
    try:
        with Path(path).open("rb") as file:
            first = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        # It may be run and not be read.
        return None
    if not first.startswith(b"#!"):
        return None
    words = shlex.split(first[2:].decode("utf-8", "replace"))
    if words and Path(words[0]).name == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    if not words or not _INTERPRETER.fullmatch(Path(words[0]).name):
        return None
    return [*words, path, *command[1:]]


def parse(arguments: Sequence[str]) -> Program | None:
    """Take the arguments of a Python interpreter apart.

    Returns:
        None where they name no program, or read it in a way that nothing else can.
    """
    position = 0
    while position < len(arguments):
        word = arguments[position]
        if word == "-":
            return None
        if not word.startswith("-"):
            return _program(arguments, position, FILE, position)
        if word.startswith("--"):
            if word != _LONG_WITH_VALUE:
                return None
            position += 2
            continue
        for at, letter in enumerate(word[1:], start=1):
            if letter in _RUNS_NOTHING:
                return None
            if letter in "mc":
                return _last_option(arguments, position, at)
            if letter in _WITH_VALUE:
                position += at + 1 == len(word)
                break
        position += 1
    return None


def _program(arguments: Sequence[str], end: int, kind: str, at: int, *more: str) -> Program:
    options = (*arguments[:end], *more)
    return Program(options, kind, arguments[at], tuple(arguments[at + 1 :]))


def _last_option(arguments: Sequence[str], position: int, at: int) -> Program | None:
    """Read `-m` or `-c`, whose value may be in the same word, behind other options: `-uc CODE`."""
    word = arguments[position]
    kind = MODULE if word[at] == "m" else CODE
    before = [word[:at]] if at > 1 else []
    if word[at + 1 :]:
        options = (*arguments[:position], *before)
        return Program(options, kind, word[at + 1 :], tuple(arguments[position + 1 :]))
    if position + 1 == len(arguments):
        return None
    return _program(arguments, position, kind, position + 1, *before)
