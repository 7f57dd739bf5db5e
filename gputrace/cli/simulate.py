"""`gputrace simulate`: days of a made-up service on GPUs that are not there, through the real SDK."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.simulate.outputs import Outputs
    from gputrace.simulate.plan import Plan
    from gputrace.simulate.truth import Truth

_FAILED = 1
_USAGE_ERROR = 2
_HOUR_S = 3_600
_NS = 1_000_000_000
_FOLDER = Path("gputrace-simulated")


def add_parser(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "simulate",
        help="write telemetry of a made-up service on virtual GPUs, to see reports and boards at once",
        description="Plays requests against virtual GPUs through the real SDK, in virtual time: a week takes "
        "minutes. Writes files that `gputrace report` reads, and sends OTLP or Prometheus history. All of it "
        "is marked with the resource attribute gputrace.simulated=true. One seed, one result.",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=_positive, metavar="N", help="how long (default: 1 hour)")
    length.add_argument("--days", type=_positive, metavar="N", help="the same in days")
    parser.add_argument(
        "--start", type=_moment, metavar="WHEN", help="ISO time (default: so that it ends now)"
    )
    parser.add_argument("--gpus", type=int, default=4, metavar="N", help="GPUs of the fleet (default: 4)")
    parser.add_argument(
        "--processes",
        type=int,
        default=2,
        metavar="N",
        help="processes, each on a node of its own (default: 2)",
    )
    parser.add_argument("--features", type=int, default=7, metavar="N", help="product features (default: 7)")
    parser.add_argument(
        "--step", type=int, default=15, metavar="S", help="seconds between two exports (default: 15)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all draws (default: 1)")
    parser.add_argument(
        "--scenario",
        default="all",
        metavar="NAME,…",
        help="what happens: all, none, or some of night, launch, failures, notebook, loss, threshold, price "
        "(default: all)",
    )
    parser.add_argument(
        "--requests",
        type=int,
        metavar="N",
        help="requests in all, about; the fewer, the longer each computes (default: by the length)",
    )
    parser.add_argument("--spans", type=int, default=1_000, metavar="N", help="of which so many leave spans")
    parser.add_argument(
        "--tenants", action="store_true", help="say on metrics for which customer: six times as many series"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="CSV with t_s,input_tokens,output_tokens")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price book (default: one that is made up)"
    )
    parser.add_argument("--gpu-name", default="Simulated GPU", metavar="NAME", help="hw.name of the GPUs")
    _add_outputs(parser)
    parser.set_defaults(run=run)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where it goes")
    where.add_argument(
        "--data", type=Path, metavar="DIR", help=f"files (default: {_FOLDER}, unless another place is given)"
    )
    where.add_argument("--endpoint", metavar="URL", help="OTLP/HTTP receiver, such as http://localhost:4318")
    where.add_argument(
        "--remote-write", metavar="URL", help="Prometheus with --web.enable-remote-write-receiver"
    )
    where.add_argument(
        "--truth", type=Path, metavar="FILE", help="what happened, reckoned without the SDK, as JSON"
    )


def run(arguments: argparse.Namespace) -> int:
    """Simulate; 1 where it could not be written, 2 where it cannot be asked for so."""
    from gputrace.exporters.remote_write import RemoteWriteError
    from gputrace.prices_rows import PriceBookError
    from gputrace.simulate.plan import PlanError
    from gputrace.simulate.running import SimulationError, simulate
    from gputrace.telemetry.by_hand import NotDeliveredError

    try:
        plan, outputs = _plan(arguments), _outputs(arguments)
        began_s = time.monotonic()
        truth = simulate(plan, outputs, _progress())
    except (PlanError, PriceBookError) as error:
        print(f"gputrace simulate: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except (RemoteWriteError, NotDeliveredError, SimulationError) as error:
        print(f"gputrace simulate: {error}", file=sys.stderr)
        return _FAILED
    _say(plan, outputs, truth, time.monotonic() - began_s)
    return _tell(arguments.truth, plan, truth)


def _plan(arguments: argparse.Namespace) -> Plan:
    from gputrace.simulate.plan import INCIDENTS, Plan, PlanError, enough_requests

    hours = arguments.days * 24 if arguments.days is not None else arguments.hours or 1.0
    step_s = arguments.step
    if step_s < 1:
        raise PlanError(f"--step must be at least 1 s, not {step_s}")
    if hours * _HOUR_S < 2 * step_s:
        raise PlanError(
            f"{hours * _HOUR_S:g} s is less than two steps of {step_s} s: let --hours be more, or --step less"
        )
    span_s = max(2, round(hours * _HOUR_S / step_s)) * step_s
    named = [name.strip() for name in arguments.scenario.split(",") if name.strip()]
    if len(named) > 1 and {"all", "none"} & set(named):
        raise PlanError("--scenario is all, none, or names of incidents, not both")
    incidents = frozenset({"all": INCIDENTS, "none": ()}.get(arguments.scenario, named))
    start_ns = arguments.start
    if start_ns is None:
        start_ns = (int(time.time()) - span_s) // 60 * 60 * _NS
    if arguments.remote_write is not None and start_ns + span_s * _NS > time.time_ns() + 60 * _NS:
        raise PlanError("Prometheus takes no history of the future: let --start be earlier")
    return Plan(
        start_ns=start_ns,
        span_s=span_s,
        gpus=arguments.gpus,
        processes=arguments.processes,
        features=arguments.features,
        step_s=step_s,
        seed=arguments.seed,
        requests=enough_requests(span_s, arguments.gpus)
        if arguments.requests is None
        else arguments.requests,
        incidents=incidents,
        prices=arguments.prices,
        gpu_name=arguments.gpu_name,
        trace=arguments.trace,
        traced_requests=arguments.spans,
        tenants=arguments.tenants,
    )


def _outputs(arguments: argparse.Namespace) -> Outputs:
    from gputrace.simulate.outputs import Outputs

    folder = arguments.data
    if folder is None and arguments.endpoint is None and arguments.remote_write is None:
        folder = _FOLDER
    return Outputs(folder, arguments.endpoint, arguments.remote_write, truth=arguments.truth)


def _progress() -> Callable[[float], None]:
    def draw(part: float) -> None:
        if sys.stderr.isatty():
            print(f"\r{part:6.1%}", end="" if part < 1 else "\r       \r", file=sys.stderr, flush=True)

    return draw


def _tell(path: Path | None, plan: Plan, truth: Truth) -> int:
    """Write what happened, where that was asked for."""
    if path is None:
        return 0
    try:
        path.write_text(json.dumps(_as_json(plan, truth), indent=2))
    except OSError as error:
        print(f"gputrace simulate: --truth {path}: {error.strerror or error}", file=sys.stderr)
        return _FAILED
    return 0


def _as_json(plan: Plan, truth: Truth) -> dict[str, Any]:
    """Return a truth whose keys are text."""
    found: dict[str, Any] = {"start_ns": plan.start_ns, "end_ns": plan.end_ns, "step_s": plan.step_s}
    for name, values in vars(truth).items():
        found[name] = {
            "/".join(key) if isinstance(key, tuple) else key: value for key, value in sorted(values.items())
        }
    return found


def _say(plan: Plan, outputs: Outputs, truth: Truth, took_s: float) -> None:
    states = truth.state_s()
    whole = sum(states.values())
    shares = ", ".join(f"{spent / whole:.0%} {state}" for state, spent in states.items())
    print(
        f"Simulated {plan.span_s / _HOUR_S:g} h of {plan.gpus} GPUs in {took_s:.0f} s, seed {plan.seed}: "
        f"{sum(truth.requests.values())} requests of {plan.features} features, "
        f"{sum(truth.feature_cost.values()):.2f} charged; {shares}."
    )
    if outputs.folder is not None:
        print(f"Next: gputrace report {outputs.folder}")


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        message = f"{text!r} is no positive number"
        raise argparse.ArgumentTypeError(message)
    return number


def _moment(text: str) -> int:
    try:
        # Python 3.10 knows no `Z`.
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        message = f"{text!r} is no ISO time, such as 2026-01-31T12:00Z"
        raise argparse.ArgumentTypeError(message) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp()) * _NS
