"""`gputrace payoff`: where conditional escalation pays, per feature and cascade, with intervals."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.analysis.payoff_provision import Provision
    from gputrace.analysis.payoff_reports import PayoffReport
    from gputrace.analysis.payoff_truth import Compared

_FAILED = 2
_TABLES = frozenset({".csv", ".parquet", ".tsv"})
_EXTRA = frozenset({"duckdb", "numpy", "rich", "scipy"})


def add_parser(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "payoff",
        help="where escalating to the large model pays, with intervals",
        description="Tells per feature and cascade what escalation saved against always asking the heavy "
        "model, what quality it lost, where it breaks even, and which threshold to use: each with how sure "
        "that is.",
    )
    parser.add_argument(
        "path",
        nargs="?",
        default=Path("gputrace-data"),
        type=Path,
        help="folder that gputrace writes to, one file of it, or a decision log as CSV or Parquet "
        "(default: gputrace-data)",
    )
    parser.add_argument("--feature", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument(
        "--target-loss",
        type=_loss,
        default=0.02,
        metavar="LOSS",
        help="quality that may be lost, in the unit of the grades (default: 0.02, two points of 0 to 1)",
    )
    parser.add_argument(
        "--overhead",
        type=_cost,
        default=0.0,
        metavar="COST",
        help="what deciding costs on every request, in the unit of the costs (default: 0)",
    )
    parser.add_argument(
        "--level", type=_level, default=0.95, metavar="P", help="confidence of the intervals (default: 0.95)"
    )
    parser.add_argument(
        "--score", metavar="NAME", help="scores that are the quality (default: the commonest)"
    )
    parser.add_argument(
        "--truth",
        type=Path,
        metavar="FILE",
        help="JSON of what is known to be true, to stand beside the intervals (gputrace demo --truth)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also draw the sweep of thresholds as a page"
    )
    _add_replicas(parser)
    _add_watching(parser)
    parser.set_defaults(run=run)


def _add_replicas(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replicas",
        nargs=3,
        type=_count,
        metavar=("LIGHT", "HEAVY", "ALWAYS"),
        help="replicas that run, light and heavy, and heavy ones that would serve everything",
    )
    parser.add_argument(
        "--replica-price",
        nargs=2,
        type=_cost,
        metavar=("LIGHT", "HEAVY"),
        help="price of a light and a heavy replica an hour, with --replicas",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 2 where there is nothing to report on, and why on stderr."""
    if (arguments.replicas is None) != (arguments.replica_price is None):
        print("gputrace payoff: --replicas and --replica-price need each other", file=sys.stderr)
        return _FAILED
    wrong = _useless(arguments)
    if wrong is not None:
        print(f"gputrace payoff: {wrong}", file=sys.stderr)
        return _FAILED
    try:
        return _report(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        print(f'gputrace payoff needs {package}: pip install "gputrace[report]"', file=sys.stderr)
        return _FAILED


def _useless(arguments: argparse.Namespace) -> str | None:
    """Return which option would have no effect."""
    for name in ("endpoint", "export"):
        if arguments.watch is None and getattr(arguments, name) is not None:
            return f"--{name} needs --watch: a report is printed, not exported"
    if arguments.score is not None and arguments.path.suffix.lower() in _TABLES:
        return f"--score is for folders: the quality in {arguments.path} is what its columns say"
    return None


def _report(arguments: argparse.Namespace) -> int:
    from gputrace.analysis.payoff_log import ColumnError
    from gputrace.analysis.payoff_reports import Asked, payoff_report
    from gputrace.analysis.payoff_truth import compare, read_truth
    from gputrace.analysis.survey import NoDataError

    asked = Asked(
        features=tuple(arguments.feature or ()),
        target_loss=arguments.target_loss,
        overhead=arguments.overhead,
        level=arguments.level,
        score=arguments.score,
    )
    if arguments.watch is not None:
        from gputrace.cli.payoff_watch import watch

        return watch(
            lambda: payoff_report(arguments.path, asked),
            arguments.watch,
            endpoint=arguments.endpoint,
            folder=arguments.export,
        )
    try:
        truth = None if arguments.truth is None else read_truth(arguments.truth)
        report = payoff_report(arguments.path, asked)
        compared = None if truth is None else compare(report, truth)
        if arguments.html is not None:
            _draw(report, arguments.html)
    except (NoDataError, ColumnError) as error:
        where = f"{arguments.path}: " if isinstance(error, ColumnError) else ""
        print(f"gputrace payoff: {where}{error}", file=sys.stderr)
        return _FAILED
    except OSError as error:
        print(f"gputrace payoff: {arguments.html}: {error.strerror or error}", file=sys.stderr)
        return _FAILED
    _print(report, compared, arguments)
    return 0


def _draw(report: PayoffReport, file: Path) -> None:
    from gputrace.analysis.payoff_picture import page

    file.write_text(page(report), encoding="utf-8")


def _print(report: PayoffReport, compared: Sequence[Compared] | None, arguments: argparse.Namespace) -> None:
    provision = _provision(arguments)
    if arguments.json:
        from gputrace.analysis.payoff_json import to_json

        found = to_json(report)
        found["provisioned"] = (
            None
            if provision is None
            else {
                "cascade_cost_per_hour": provision.cascade_cost,
                "always_heavy_cost_per_hour": provision.always_heavy_cost,
                "savings_frac": provision.savings_frac,
            }
        )
        if compared is not None:
            found["truth"] = [one._asdict() for one in compared]
        print(json.dumps(found, indent=2, allow_nan=False))
        return
    from rich.console import Console

    from gputrace.analysis.payoff_render import print_payoff, print_truth

    console = Console(highlight=False)
    print_payoff(report, console, provision)
    if compared is not None:
        print_truth(compared, console)


def _provision(arguments: argparse.Namespace) -> Provision | None:
    if arguments.replicas is None:
        return None
    from gputrace.analysis.payoff_provision import Provision

    return Provision(*arguments.replicas, *arguments.replica_price)


def _number(text: str, what: str, *, below: float = math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < below:
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
    return value


def _add_watching(parser: argparse.ArgumentParser) -> None:
    watching = parser.add_argument_group(
        "as metrics",
        "Exports the estimates as gauges until it is stopped, with bounds that hold however often one looks.",
    )
    watching.add_argument("--watch", type=_interval, metavar="S", help="estimate anew every so many seconds")
    watching.add_argument(
        "--endpoint", metavar="URL", help="OTLP/HTTP receiver; by default as OTEL_EXPORTER_OTLP_ENDPOINT says"
    )
    watching.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="write OTLP/JSON files here; by default GPUTRACE_DATA_DIR, or gputrace-data without an endpoint",
    )


def _interval(text: str) -> float:
    value = _number(text, "number of seconds above 0")
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _loss(text: str) -> float:
    return _number(text, "loss of 0 or more, such as 0.02")


def _cost(text: str) -> float:
    return _number(text, "cost of 0 or more")


def _level(text: str) -> float:
    value = _number(text, "confidence between 0 and 1, such as 0.95", below=1)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no confidence between 0 and 1, such as 0.95")
    return value


def _count(text: str) -> int:
    value = _number(text, "count of replicas")
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no count of replicas")
    return int(value)
