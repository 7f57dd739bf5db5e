"""`gputrace dashboards`: writes the boards, the rules and what a stack needs to show them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "dashboards",
        help="write the Grafana boards, Prometheus rules and a compose file",
        description="Writes Grafana boards, provisioning, Prometheus rules with their runbook, and a compose "
        "file that starts them. Files that are as they should be stay untouched; others of these names are "
        "written anew.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to write")
    parser.add_argument(
        "--grafana-url",
        metavar="URL",
        default="http://localhost:3000",
        help="where alerts find the boards (default: %(default)s)",
    )
    parser.add_argument(
        "--runbook-url",
        metavar="URL",
        default="docs/runbooks.md",
        help="where alerts find what to do (default: %(default)s, which is written to DIR/runbooks.md)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the files.

    Returns:
        0, or 1 where the folder cannot be written to.
    """
    from gputrace.grafana import output, rules

    files = output.static() | output.generated(arguments.grafana_url, arguments.runbook_url)
    files["runbooks.md"] = rules.runbook_page()
    try:
        changed = output.write(arguments.folder, files)
    except OSError as error:
        print(f"gputrace dashboards: cannot write to {arguments.folder}: {error}", file=sys.stderr)
        return 1
    print(f"{len(files)} files in {arguments.folder}, {len(changed)} of them written anew")
    print(f"  docker compose -f {arguments.folder / 'compose.yaml'} up")
    return 0
