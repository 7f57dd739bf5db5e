"""Compares a vLLM with gputrace in it and one without: the same requests, in alternating runs.

python tests/vllm_check/throughput.py
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).resolve().parent))

import model
import psutil
import server
import traffic

import gputrace

_RUNS = 5
_REQUESTS = 150
_WARM_UP = 60
#: gputrace is not among the plugins that may be loaded, nor is the probe.
_BARE = {"VLLM_PLUGINS": "", "SERVE_CHECK_STEPS": ""}
_QUIET = {"SERVE_CHECK_STEPS": ""}


def main() -> None:
    """Print what each run took, and the ratio of the medians."""
    folder = Path(tempfile.mkdtemp(prefix="serve-check-"))
    gputrace.configure(data_dir=folder / "client", baggage_key=server.KEY, metric_attributes=("tenant",))
    tiny = model.make(folder / "model")
    planned = [sent for sent in traffic.plan(_REQUESTS) if not sent.gone]
    took: dict[str, list[float]] = {"without": [], "with": []}
    used: dict[str, list[float]] = {"without": [], "with": []}
    with (
        server.serving(tiny, folder / "without", variables=_BARE, middleware=False) as without,
        server.serving(tiny, folder / "with", variables=_QUIET) as with_it,
    ):
        servers = {"without": without, "with": with_it}
        urls = {name: one.url for name, one in servers.items()}
        for url in urls.values():
            asyncio.run(traffic.send_all(url, traffic.plan(_WARM_UP)))
        for _ in range(_RUNS):
            for name, url in urls.items():
                began, before = monotonic(), _processor_s(servers[name].process_id)
                asyncio.run(traffic.send_all(url, planned))
                took[name].append(monotonic() - began)
                used[name].append(_processor_s(servers[name].process_id) - before)
    _say("took", took)
    _say("used the processor for", used)


def _processor_s(process_id: int) -> float:
    """Return what all processes of a server have used: on a busy machine it says more than the clock."""
    started = psutil.Process(process_id)
    times = [one.cpu_times() for one in (started, *started.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def _say(what: str, measured: dict[str, list[float]]) -> None:
    for name, seconds in measured.items():
        each = " ".join(f"{one:.2f}" for one in seconds)
        print(f"{name} {what} {each} s, median {statistics.median(seconds):.2f} s", flush=True)
    pairs = [after / before for before, after in zip(measured["without"], measured["with"], strict=True)]
    print(f"  with / without: median of the pairs {statistics.median(pairs):.4f}", flush=True)


if __name__ == "__main__":
    main()
