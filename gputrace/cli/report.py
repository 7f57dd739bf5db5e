"""`gputrace report`: spend by feature, from the files that gputrace wrote."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputrace.prices_billing import IDLE_POLICIES as _IDLE_POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.analysis.figures import SpendReport
    from gputrace.analysis.survey import Advance

_BY = ("feature", "model", "variant", "stage", "tenant", "operation")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NS = 1_000_000_000
_LONG_READ_BYTES = 50_000_000
_FAILED = 2


def add_parser(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="spend by feature, idle and untracked time, unit costs",
        description="Reports what the files of gputrace say: which feature was charged how much device time, "
        "what nobody used, and whether the books agree. Times are UTC.",
    )
    parser.add_argument(
        "path",
        nargs="?",
        default=Path("gputrace-data"),
        type=Path,
        help="folder that gputrace writes to, or one file of it (default: gputrace-data)",
    )
    parser.add_argument(
        "--by",
        type=_fields,
        default=("feature",),
        metavar="FIELD,…",
        help=f"what to group by: one or more of {', '.join(_BY)} (default: feature)",
    )
    parser.add_argument(
        "--since",
        type=_since,
        metavar="WHEN",
        help="leave out what is older: 45s, 30m, 1h, 7d, 2w, or an ISO time such as 2026-01-31T12:00Z",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--no-percentiles", action="store_true", help="do not read spans: several times faster on long data"
    )
    _add_money(parser)
    parser.set_defaults(run=run)


def _add_money(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices",
        type=Path,
        metavar="FILE",
        help="price book (TOML): all costs are made anew from it, and its fleet list tells the capacity",
    )
    parser.add_argument(
        "--idle",
        choices=_IDLE_POLICIES,
        default=_IDLE_POLICIES[0],
        help="who bears the cost of idle time: a line of its own, rows in equal parts, rows by cost, nobody "
        f"(default: {_IDLE_POLICIES[0]})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 2 where there is nothing to report on, and why on stderr."""
    try:
        from gputrace.analysis.reporting import spend_report
        from gputrace.analysis.survey import NoDataError
        from gputrace.prices import load
        from gputrace.prices_rows import PriceBookError
    except ModuleNotFoundError as error:
        return _without_extra(error)
    try:
        prices = None if arguments.prices is None else load(arguments.prices, "--prices")
        with _progress(arguments.path) as advance:
            report = spend_report(
                arguments.path,
                arguments.by,
                arguments.since,
                percentiles=not arguments.no_percentiles,
                prices=prices,
                idle=arguments.idle,
                advance=advance,
            )
        _print(report, as_json=arguments.json)
    except (NoDataError, PriceBookError) as error:
        print(f"gputrace report: {error}", file=sys.stderr)
        return _FAILED
    except ModuleNotFoundError as error:
        return _without_extra(error)
    return 0


def _print(report: SpendReport, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.to_json(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    from gputrace.analysis.render import print_report

    print_report(report, Console(highlight=False))


def _without_extra(error: ModuleNotFoundError) -> int:
    package = (error.name or "").partition(".")[0]
    if package not in {"duckdb", "rich"}:
        raise error
    print(f'gputrace report needs {package}: pip install "gputrace[report]"', file=sys.stderr)
    return _FAILED


@contextlib.contextmanager
def _progress(path: Path) -> Iterator[Advance | None]:
    """Give a callback that draws a bar, or `None` where nobody would see it or it would only flash."""
    if not sys.stderr.isatty() or _bytes(path) < _LONG_READ_BYTES:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def advance(stage: str, part: float) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1.0)
            bar.update(tasks[stage], completed=part)

        yield advance


def _bytes(path: Path) -> int:
    total = 0
    for file in path.glob("*.jsonl") if path.is_dir() else (path,):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [field for field in fields if field not in _BY]
    if unknown or not fields:
        message = f"{', '.join(unknown) or 'nothing'} is no field to group by; choose from {', '.join(_BY)}"
        raise argparse.ArgumentTypeError(message)
    return fields


def _since(text: str) -> int:
    """Return Unix nanoseconds of an age such as `1h`, or of an ISO time (UTC unless it says otherwise)."""
    age = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if age:
        return time.time_ns() - int(float(age[1]) * _UNITS_S[age[2]] * _NS)
    try:
        # Python 3.10 knows no `Z`.
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        message = f"{text!r} is neither an age (45s, 30m, 1h, 7d, 2w) nor an ISO time (2026-01-31T12:00Z)"
        raise argparse.ArgumentTypeError(message) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp()) * _NS + moment.microsecond * 1000
