"""A Ray cluster of several nodes, workers that are killed, and whether every call is accounted for.

    python benchmarks/ray_scale.py [--nodes N] [--actors N] [--calls N] [--kills N] [--address A] [--json]

All nodes run on this machine, with logical resources. Actors hold a fifth of a
virtual GPU each and serve calls of three features. Some are killed while they
work. Each actor writes down itself, line by line, which calls it has begun.
What was exported and what gputrace says was lost must come to that, to the
call: a worker that is killed between a call and its line may make one more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURES = ("search", "chat", "summary")
SHARE_OF_GPU = 0.2
CALL_NS = 200_000
IN_FLIGHT = 200
# Publishers look for dead processes once a second, and export what they find.
REAPING_S = 3.0
STORE_BYTES = 100 * 1024 * 1024
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_enable_metrics_collection": "0",
}


def users_hook() -> None:
    """Give a worker a virtual GPU, before gputrace looks for one there."""
    from gputrace.testing import VirtualGpu

    gpu = VirtualGpu(1, tied_to_real_time=True).install()
    gpu.init()
    sys.modules["the_gpu"] = gpu  # type: ignore[assignment]


class Model:
    """An actor: a model on a share of a virtual GPU, with a log of its own."""

    def __init__(self, folder: str) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        self._gpu: Any = sys.modules["the_gpu"]
        # What Ray shows two actors as the same GPU is the same device.
        (shown,) = ray.get_gpu_ids()
        self._gpu.devices[0].uuid = f"{node[:8]}-0000-0000-0000-{int(shown):012d}"
        self._log = os.open(f"{folder}/{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write("begun")

    def _write(self, what: str) -> None:
        os.write(self._log, f"{what}\n".encode())

    def infer(self) -> None:
        """Serve one call: Ray's, and the one inside it that holds the device."""
        import gputrace

        self._write("begun")
        with gputrace.span("infer"):
            self._write("begun")
            self._gpu.launch(CALL_NS)
            time.sleep(CALL_NS / 1e9)


@contextmanager
def cluster(nodes: int, address: str | None = None) -> Iterator[str]:
    """Start the nodes, and yield the address of the cluster; that of one that runs already, where given."""
    if address is not None:
        yield address
        return
    from ray.cluster_utils import Cluster

    resources = {"num_cpus": 8, "num_gpus": 4, "object_store_memory": STORE_BYTES}
    made = Cluster(initialize_head=True, head_node_args={**resources, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            made.add_node(**resources)
        made.wait_for_nodes()
        yield str(made.address)
    finally:
        made.shutdown()


def serve(actors: list[Any], calls: int, kills: int) -> Counter[str]:
    """Let the actors serve calls of all features in turn, and kill some of them on the way."""
    import ray

    import gputrace

    told: Counter[str] = Counter()
    living = list(actors)
    waiting: list[Any] = []

    def wait_for(most: int) -> None:
        while len(waiting) > most:
            done, waiting[:] = ray.wait(waiting, num_returns=min(50, len(waiting) - most), timeout=60)
            for one in done:
                try:
                    ray.get(one)
                    told["answered"] += 1
                except ray.exceptions.RayActorError:
                    told["failed"] += 1

    at = {calls * (number + 1) // (kills + 1) for number in range(kills)}
    for number in range(calls):
        if number in at:
            ray.kill(living.pop(0))
            told["killed"] += 1
        with gputrace.attribute_to(feature=FEATURES[number % len(FEATURES)]):
            waiting.append(living[number % len(living)].infer.remote())
        if len(waiting) >= IN_FLIGHT:
            wait_for(IN_FLIGHT // 2)
    wait_for(0)
    time.sleep(REAPING_S)
    return told


def points(folder: Path) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """Yield the last value of each series: name, process, attributes."""
    last: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
    for path in sorted(folder.glob("metrics-*.jsonl")):
        for line in path.read_text().splitlines():
            for resource in json.loads(line)["resourceMetrics"]:
                process = named(resource["resource"])["service.instance.id"]
                for metric in (one for scope in resource["scopeMetrics"] for one in scope["metrics"]):
                    for point in metric.get("sum", {}).get("dataPoints", ()):
                        key = (metric["name"], process, tuple(named(point).items()))
                        last[key] = float(point.get("asDouble", point.get("asInt", 0)))
    for (name, process, attributes), value in last.items():
        yield name, process, dict(attributes), value


def named(item: dict[str, Any]) -> dict[str, str]:
    """Return the attributes of a resource or a point."""
    return {one["key"]: str(next(iter(one["value"].values()))) for one in item.get("attributes", ())}


def account_for(folder: Path) -> dict[str, Any]:
    """Return what was begun, exported and lost, and whether the ledger of the devices balances."""
    found: dict[str, float] = defaultdict(float)
    features: dict[str, float] = defaultdict(float)
    processes = set()
    for name, process, of, value in points(folder / "data"):
        if name == "gputrace.calls":
            found["exported"] += value
            processes.add(process)
        elif name == "gputrace.sdk.lost":
            found["lost"] += value
        elif name == "gputrace.feature.time":
            features[of["gputrace.feature"]] += value
        elif name == "gputrace.device.overlap.time":
            found["overlap_s"] += value
        elif name == "gputrace.device.time" and of["gputrace.device.state"] == "charged":
            found["charged_s"] += value
    logs = sorted((folder / "logs").glob("*.log"))
    return {
        "begun": sum(len(path.read_text().splitlines()) for path in logs),
        "exported": round(found["exported"]),
        "lost": round(found["lost"]),
        "processes": len(processes),
        "workers": len(logs),
        "features_s": dict(features),
        "overlap_s": found["overlap_s"],
        "charged_s": found["charged_s"],
    }


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the cluster and return what came of it."""
    import gputrace

    os.environ.update(SETTINGS)
    (folder / "logs").mkdir()
    os.chdir(folder)
    # One publisher for each node of Ray's, although they all share this machine.
    variables = {
        "GPUTRACE_NODE_DIR": str(folder / "node-{ray_node_id}"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    environment = {"env_vars": variables, "worker_process_setup_hook": users_hook}
    gputrace.instrument_ray(data_dir=str(folder / "data"), export_interval=1)
    import ray

    with cluster(options.nodes, options.address) as address:
        began = time.perf_counter()
        ray.init(address=address, log_to_driver=False, runtime_env=environment)
        model = ray.remote(num_cpus=0.1, num_gpus=SHARE_OF_GPU)(Model)
        actors = [model.remote(str(folder / "logs")) for _ in range(options.actors)]
        ray.get([actor.__ray_ready__.remote() for actor in actors])
        started_s = time.perf_counter() - began
        told = serve(actors, options.calls, options.kills)
        served_s = time.perf_counter() - began - started_s - REAPING_S
        ray.shutdown()
    return {**account_for(folder), **told, "started_s": started_s, "served_s": served_s}


def show(found: dict[str, Any]) -> None:
    """Print what came of it."""
    accounted = found["exported"] + found["lost"]
    print(
        f"{found['workers']} workers, {found['killed']} of them killed; {found['answered']} calls answered, "
    )
    print(f"{found['failed']} failed, in {found['served_s']:.0f} s ({found['started_s']:.0f} s to start)")
    print(f"begun by the workers' own logs  {found['begun']:>8}")
    print(f"exported                        {found['exported']:>8}")
    print(f"lost, as gputrace says          {found['lost']:>8}")
    print(f"difference                      {accounted - found['begun']:>8}")
    for feature, seconds in sorted(found["features_s"].items()):
        print(f"  {feature:<12} {seconds:10.3f} s")
    print(f"charged to devices {found['charged_s']:.3f} s + overlap {found['overlap_s']:.3f} s")


def main() -> int:
    """Run, print, and tell by the exit status whether every call is accounted for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--actors", type=int, default=50)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--address", help="a cluster that runs already, instead of new nodes")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ray-scale-", ignore_cleanup_errors=True) as folder:
        found = run(Path(folder), options)
    print(json.dumps(found)) if options.json else show(found)
    return 0 if 0 <= found["exported"] + found["lost"] - found["begun"] <= found["killed"] else 1


if __name__ == "__main__":
    sys.exit(main())
