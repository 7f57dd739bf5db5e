"""``gputrace demo``: a real two-model service on this machine, and its spend report."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from gputrace.demo.driver import Outcome
    from gputrace.demo.models import Models

NEEDED = ("torch", "sklearn", "fastapi", "uvicorn", "httpx", "rich", "duckdb", "numpy", "scipy")
NO_GPU = "There is no GPU that torch can use: the time of this process on the host stands in for GPU time."
FAILED = 2
INTERRUPTED = 130


def add_parser(subparsers: Any) -> None:
    """Describe the command to ``argparse``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="run a real two-model service on this machine and print its spend report",
        description="Trains two models in a few seconds, serves three product features over HTTP on "
        "loopback, sends real requests, and prints which feature spent what, beside what the demo "
        "measured itself. Takes about half a minute, with or without a GPU.",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("gputrace-data"),
        metavar="DIR",
        help="where the telemetry goes (%(default)s). Files of an earlier demo there are removed, no others; "
        "where there are others, a new folder below it is used",
    )
    parser.add_argument(
        "--requests", type=_count, default=1500, metavar="N", help="how many requests to send (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=_count, default=0, metavar="N", help="decides the models and the order of the requests"
    )
    parser.add_argument(
        "--pause", type=_seconds, default=5.0, metavar="S", help="seconds in which nothing runs (%(default)s)"
    )
    parser.add_argument(
        "--untracked",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="seconds of the heavy model that nothing tracks (%(default)s)",
    )
    parser.add_argument(
        "--epochs",
        type=_count,
        default=5,
        metavar="N",
        help="passes over the training images for the heavy model (%(default)s); fewer are faster and worse",
    )
    parser.add_argument(
        "--truth", type=Path, metavar="FILE", help="also write what the demo measured itself, as JSON"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; 130 where it was interrupted, after a report of what ran."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f'gputrace demo needs {", ".join(missing)}: pip install "gputrace[demo]"', file=sys.stderr)
        return FAILED
    from rich.console import Console

    from gputrace.analysis.survey import NoDataError
    from gputrace.demo.driver import ServiceFailedError
    from gputrace.settings import SettingError

    try:
        return _demonstrate(arguments, Console(highlight=False, markup=False, soft_wrap=True))
    except (NoDataError, ServiceFailedError, SettingError) as error:
        print(f"gputrace demo: {error}", file=sys.stderr)
    except OSError as error:
        print(f"gputrace demo cannot use {error.filename}: {error.strerror}", file=sys.stderr)
    return FAILED


def _demonstrate(arguments: argparse.Namespace, console: Console) -> int:
    from gputrace.demo import driver, folder

    data = folder.prepare(arguments.data)
    models = _train(arguments, console)
    plan = driver.Plan(data, arguments.requests, arguments.seed, arguments.pause, arguments.untracked)
    outcome = driver.drive(plan, models, lambda text: console.print(f"  {text}"))
    if arguments.truth is not None:
        arguments.truth.write_text(json.dumps(outcome.as_json(), indent=2), encoding="utf-8")
    _report(outcome, data, console)
    return INTERRUPTED if outcome.interrupted else 0


def _train(arguments: argparse.Namespace, console: Console) -> Models:
    from gputrace.demo import models

    device = models.choose_device()
    gpu = models.gpu_name(device)
    console.print(
        "A real service with two models and three features, under real load on this machine.\n"
        + (f"It runs on {gpu}." if gpu else NO_GPU)
    )
    began = time.perf_counter()
    console.print("\n  training a light and a heavy model on scikit-learn's digits", end=" ")
    trained = models.train(seed=arguments.seed, device=device, heavy_epochs=arguments.epochs)
    console.print(f"({time.perf_counter() - began:.0f} s)")
    return trained


def _report(outcome: Outcome, data: Path, console: Console) -> None:
    from gputrace.analysis.render import print_report
    from gputrace.analysis.reporting import spend_report
    from gputrace.demo import summary

    if outcome.interrupted:
        console.print("\nStopped before its end. What ran until then:")
    report = spend_report(data)
    console.print()
    print_report(report, console)
    summary.show(console, outcome, report.to_json())
    _payoff(outcome, data, console)
    console.print("To look further:")
    for options in ("--by feature,model", "--json"):
        console.print(f"  {_command()} report {shlex.quote(str(data))} {options}")
    console.print(f"  {_command()} payoff {shlex.quote(str(data))} --target-loss 0.01")


def _payoff(outcome: Outcome, data: Path, console: Console) -> None:
    """Print where escalation pays, and the truth beside each interval: the demo knows both answers."""
    if not outcome.escalation:
        return
    from gputrace.analysis.payoff_render import print_payoff, print_truth
    from gputrace.analysis.payoff_reports import Asked, payoff_report
    from gputrace.analysis.payoff_truth import compare

    report = payoff_report(data, Asked())
    console.print()
    print_payoff(report, console)
    print_truth(compare(report, outcome.escalation), console)
    console.print()


def _command() -> str:
    """Return how this command was called, where an environment in this folder holds it."""
    called = Path(sys.argv[0])
    if called.name == "gputrace" and called.absolute().is_relative_to(Path.cwd()):
        return str(called.absolute().relative_to(Path.cwd()))
    return "gputrace"


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        message = f"{value} is negative"
        raise argparse.ArgumentTypeError(message)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < threading.TIMEOUT_MAX:
        message = f"{text} is no length of time"
        raise argparse.ArgumentTypeError(message)
    return value
