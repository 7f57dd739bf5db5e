"""What instrumentation adds to a task and to an actor call of Ray's, beside plain Ray in the same run.

    python benchmarks/ray_overhead.py [--calls N] [--pairs N] [--address A] [--json]

Plain and instrumented jobs take turns on one cluster, each a process of its
own with one worker that does nothing. The median of the pairs' ratios is
what travels between machines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ray_scale import SETTINGS, cluster

#: One job: prints µs per call, by kind.
JOB = """
import json, os, sys, time
instrumented, calls = sys.argv[1] == "instrumented", int(sys.argv[2])
if instrumented:
    import gputrace
    gputrace.instrument_ray(data_dir="data")
import ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)

@ray.remote(num_cpus=1)
def task():
    pass

@ray.remote(num_cpus=1)
class Actor:
    def method(self):
        pass

actor = Actor.remote()

def us_per_call(one):
    ray.get([one() for _ in range(calls // 10)])
    began = time.perf_counter()
    ray.get([one() for _ in range(calls)])
    return (time.perf_counter() - began) / calls * 1e6

def serve():
    return {"task": us_per_call(task.remote), "actor call": us_per_call(actor.method.remote)}

if instrumented:
    with gputrace.attribute_to(feature="search"):
        found = serve()
else:
    found = serve()
print(json.dumps(found))
"""


def job(kind: str, calls: int, address: str) -> dict[str, float]:
    """Run one job and return µs per call, by kind of call."""
    done = subprocess.run(
        [sys.executable, "-c", JOB, kind, str(calls)],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"a {kind} job failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(calls: int, pairs: int, running: str | None) -> dict[str, dict[str, float]]:
    """Let both kinds of jobs take turns."""
    found: dict[str, list[tuple[float, float]]] = {}
    with cluster(1, running) as address:
        for _ in range(pairs):
            plain, ours = job("plain", calls, address), job("instrumented", calls, address)
            for kind, us in plain.items():
                found.setdefault(kind, []).append((us, ours[kind]))
    return {
        kind: {
            "plain_us": min(plain for plain, _ in of),
            "instrumented_us": min(ours for _, ours in of),
            "ratio": statistics.median(ours / plain for plain, ours in of),
        }
        for kind, of in found.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--address", help="a cluster that runs already, instead of a new one")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    options = parser.parse_args()
    os.environ.update(SETTINGS)
    with tempfile.TemporaryDirectory(prefix="ray-overhead-", ignore_cleanup_errors=True) as folder:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), *sys.path[1:]])
        os.chdir(folder)
        found = compare(options.calls, options.pairs, options.address)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'':<12}{'plain µs':>10}{'ours µs':>10}{'ratio':>8}")
    for kind, of in found.items():
        print(f"{kind:<12}{of['plain_us']:>10.0f}{of['instrumented_us']:>10.0f}{of['ratio']:>8.2f}")


if __name__ == "__main__":
    main()
