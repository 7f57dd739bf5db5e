"""The `gputrace` command. Each command is one module, imported only to describe itself."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    "gputrace.cli.report",
    "gputrace.cli.payoff",
    "gputrace.cli.doctor",
    "gputrace.cli.demo",
    "gputrace.cli.agent",
    "gputrace.cli.run",
    "gputrace.cli.simulate",
    "gputrace.cli.dashboards",
)
"""Modules with `add_parser(subparsers)`, which sets `run`: arguments in, exit status out.

They import what is heavy only when they run, so that `gputrace --help` is quick
and works without the extras.
"""

USAGE_ERROR = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; `sys.argv` if `None`.

    Returns:
        The exit status: 0, 2 for a usage error, 130 when interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show must not cost the report.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    if not hasattr(arguments, "run"):
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gputrace", description="Which product feature spends your GPUs, and how much nobody used."
    )
    version = f"%(prog)s {importlib.metadata.version('gputrace')}"
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(name).add_parser(subparsers)
    return parser
