"""A job whose workers hold shares of virtual GPUs, and end in every way in which Ray ends them.

Prints as JSON what its workers saw. Metrics are exported once a minute, so that what is in the files was
written because a worker ended, or had nothing more to do.
"""

# ruff: noqa: T201 - it is run as a program

from __future__ import annotations

import json
import os
import sys
import threading
import time

import gputrace

folder = os.path.abspath("gputrace-data")
gputrace.instrument_ray(data_dir="gputrace-data", export_interval=60)

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

MS = 1_000_000


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
        "env_vars": {"GPUTRACE_NODE_DIR": os.path.abspath("node-{ray_node_id}"), "USERS_VARIABLE": "kept"},
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

    def last(self):
        hold(5, "last")

    def stay(self, marker):
        for _ in range(3):
            hold(5, "killed")
        # Long enough to be taken note of, by whoever counts what the dead had.
        time.sleep(0.5)
        with open(marker, "w"):
            pass
        time.sleep(60)

    def flush(self):
        # What another worker held is known once that one has said that it holds nothing more.
        time.sleep(2.5)
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


@ray.remote(num_cpus=0)
def quiet():
    hold(5, "quiet")


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
results = {"quarters": ray.get([one.seen.remote() for one in quarters]), "whole": ray.get(whole.seen.remote())}
until = time.monotonic() + 0.5
ray.get([one.hold.remote(until) for one in quarters])

keeper, dropped, exiting, killed = quarters
results["exited"] = [gone(exiting.end.remote()), gone(ending.end.remote())]
results["once"] = ray.get(once.remote())
ray.get(dropped.last.remote())
del dropped, quarters
marker = os.path.abspath("held")
killed.stay.remote(marker)
while not os.path.exists(marker):
    time.sleep(0.02)
ray.kill(killed)
ray.get(quiet.remote())
results["flushed"] = ray.get(keeper.flush.remote())
with gputrace.attribute_to(feature="last"):
    ray.get(whole.last.remote())
print(json.dumps(results))
# No shutdown: that comes with the end of the program, at once.
