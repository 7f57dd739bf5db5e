"""A job whose workers hold shares of virtual GPUs, and end in every way in which Ray ends them.

Prints as JSON what its workers saw. Metrics are exported once a minute, so that what is in the files was
written because a worker ended, had nothing more to do, or was told to.
"""

# ruff: noqa: T201 - it is run as a program

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import gputrace

MS = 1_000_000

gputrace.instrument_ray(data_dir="gputrace-data", export_interval=60)


def users_hook():
    """Of the user's: runs in each worker too, before gputrace has done anything there."""
    from gputrace.testing import VirtualGpu

    os.environ["USERS_HOOK"] = " ".join(sorted(thread.name for thread in threading.enumerate()))
    gpu = VirtualGpu(1, tied_to_real_time=True).install()
    gpu.init()
    sys.modules["the_gpu"] = gpu


ray.init(
    address=os.environ["RAY_ADDRESS"],
    log_to_driver=False,
    runtime_env={
        "worker_process_setup_hook": users_hook,
        "env_vars": {
            "GPUTRACE_NODE_DIR": str(Path("node-{ray_node_id}").absolute()),
            "USERS_VARIABLE": "kept",
        },
    },
)


def hold(ms, name="held"):
    with gputrace.span(name):
        sys.modules["the_gpu"].launch(ms * MS)
        time.sleep(ms / 1_000)


@ray.remote(num_cpus=0)
class Holder:
    def seen(self):
        context = ray.get_runtime_context()
        return {
            "ids": [str(one) for one in ray.get_gpu_ids()],
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "hook": os.environ.get("USERS_HOOK"),
            "variable": os.environ.get("USERS_VARIABLE"),
            "node": os.environ["GPUTRACE_NODE_DIR"].endswith(context.get_node_id()),
            "worker": context.get_worker_id(),
            "resource": os.environ.get("OTEL_RESOURCE_ATTRIBUTES"),
        }

    def hold(self, until):
        while time.monotonic() < until:
            hold(20)

    def end(self):
        hold(5, "ended")
        ray.actor.exit_actor()

    def last(self, name="last"):
        hold(5, name)

    def stay(self, marker):
        for _ in range(3):
            hold(5, "killed")
        # Long enough to be taken note of, by whoever counts what the dead had.
        time.sleep(0.5)
        marker.touch()
        time.sleep(60)

    def flush(self):
        return gputrace.flush()


@ray.remote(num_cpus=0)
class AsyncHolder:
    async def end(self):
        hold(5, "ended async")
        ray.actor.exit_actor()


@ray.remote(num_cpus=0, num_gpus=0, max_calls=1)
def once():
    hold(5, "once")
    return ray.get_runtime_context().get_worker_id()


# Not on the node that is removed.
@ray.remote(num_cpus=0, resources={"head": 1})
def quiet(name="quiet"):
    hold(5, name)


@ray.remote(num_cpus=0, resources={"head": 1}, max_retries=1)
def retried(marker):
    hold(5, "tried")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for(marker):
    while not Path(marker).exists():
        time.sleep(0.02)


def gone(reference):
    try:
        ray.get(reference)
    except ray.exceptions.RayActorError:
        return True
    return False


group = placement_group([{"GPU": 1}])
ray.get(group.ready())
placed = PlacementGroupSchedulingStrategy(group)
quarters = [Holder.options(num_gpus=0.25, scheduling_strategy=placed).remote() for _ in range(4)]
whole, ending = Holder.options(num_gpus=1).remote(), AsyncHolder.remote()
results = {
    "quarters": ray.get([one.seen.remote() for one in quarters]),
    "whole": ray.get(whole.seen.remote()),
}
spare = Holder.options(resources={"spare": 1}).remote()
until = time.monotonic() + 0.5
ray.get([one.hold.remote(until) for one in quarters])

keeper, dropped, exiting, killed = quarters
results["exited"] = [gone(exiting.end.remote()), gone(ending.end.remote())]
results["once"] = ray.get(once.remote())
ray.get(dropped.last.remote())
del dropped, quarters
ray.get(spare.last.remote("spare"))
killed.stay.remote(Path("held").absolute())
ray.get(retried.remote(Path("tried").absolute()))
wait_for("held")
ray.kill(killed)
ray.get(quiet.remote())
Path("at the end").touch()
while not Path("removed").exists():
    ray.get([keeper.flush.remote(), whole.flush.remote()])
    # Idle, it may be the one that speaks for the node.
    ray.get(quiet.remote("again"))
    time.sleep(0.2)
results["removed"] = gone(spare.last.remote("too late"))
with gputrace.attribute_to(feature="last"):
    ray.get(whole.last.remote())
print(json.dumps(results))
# No shutdown: that comes with the end of the program, at once.
