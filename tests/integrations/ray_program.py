"""Every kind of call that Ray has, as a job of its own: with gputrace, or without where `PLAIN` is set.

Each is made within a feature and a span named after it, and each body opens one: `inside KIND`. What the
calls return is printed as JSON, and must not depend on gputrace.
"""

# ruff: noqa: T201 - it is run as a program

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import time
from contextlib import contextmanager
from pathlib import Path

import gputrace

if "PLAIN" not in os.environ:
    gputrace.configure()
    gputrace.instrument_ray()

import ray
from ray.util.actor_pool import ActorPool
from ray.util.queue import Queue

results = {}


@contextmanager
def calling(kind):
    with gputrace.attribute_to(feature=kind, tenant="acme"), gputrace.span(f"calling {kind}", hold="none"):
        yield


def inside(kind):
    return gputrace.span(f"inside {kind}", hold="none")


@ray.remote(num_cpus=0)
def no_arguments():
    with inside("task without arguments"):
        return "done"


@ray.remote(num_cpus=0)
def task(a, /, b, *rest, c=3, **others):
    """Say what it got."""
    with inside("task"):
        return [a, b, list(rest), c, others]


@ray.remote(num_cpus=0)
def referring(value, held):
    return [value, [type(one).__name__ for one in held]]


@ray.remote(num_cpus=0, num_returns=2)
def two():
    return 1, 2


@ray.remote(num_cpus=0)
def items(count):
    for number in range(count):
        with inside("task generator"):
            yield number
    if count > 2:
        raise ValueError("too many")


@ray.remote(num_cpus=0)
def iterator(count):
    """Return a generator and be none."""

    def numbers():
        for number in range(count):
            with inside("task that returns a generator"):
                yield number

    return numbers()


@ray.remote(num_cpus=0)
def outer():
    with inside("outer task"):
        return ray.get(inner.remote())


@ray.remote(num_cpus=0)
def inner():
    with inside("inner task"):
        return "inner"


@ray.remote(num_cpus=0)
def failing():
    raise KeyError("missing")


@ray.remote(num_cpus=0, max_retries=1)
def dying(marker):
    """Die at the first attempt."""
    if not marker.exists():
        marker.touch()
        os._exit(1)
    with inside("retried task"):
        return "alive"


@ray.remote(num_cpus=0)
def sleeping(marker):
    with inside("cancelled task"):
        marker.touch()
        # The interrupt comes between two instructions.
        for _ in range(6_000):
            time.sleep(0.01)


@ray.remote(num_cpus=0)
class Guest:
    """Of the job without gputrace, whose workers would not know what to do with a carrier."""

    def method(self, a, b=2):
        return [a, b]


class Base:
    def inherited(self, x=1):
        with inside("inherited method"):
            return x


@ray.remote(num_cpus=0)
class Plain(Base):
    def __init__(self, start, *, step=1):
        with inside("creation"):
            self.value, self.step = start, step

    def method(self, a, *rest, b=2, **others):
        with inside("method"):
            return [self.value, self.step, a, list(rest), b, others]

    def items(self, count):
        for number in range(count):
            with inside("actor generator"):
                yield number

    @staticmethod
    def static(a, b=2):
        with inside("static method"):
            return [a, b]

    @classmethod
    def of_class(cls, a, b=2):
        with inside("class method"):
            return [cls.__name__, a, b]

    @ray.method(num_returns=2)
    def two(self):
        return 1, 2

    def failing(self):
        raise KeyError("missing")


@ray.remote(num_cpus=0, max_concurrency=2)
class WithoutInit:
    def twice(self, value):
        with inside("pool"):
            return 2 * value

    def threaded(self, number):
        with inside("threaded method"):
            time.sleep(0.1)
            return number


@ray.remote(num_cpus=0)
class Async:
    async def method(self, a, b=2):
        with inside("async method"):
            await asyncio.sleep(0.01)
            return [a, b]

    async def items(self, count):
        for number in range(count):
            with inside("async generator"):
                await asyncio.sleep(0.01)
                yield number

    def sync(self, a):
        with inside("sync method of an async actor"):
            return a

    async def sleeping(self, marker):
        with inside("cancelled method"):
            marker.touch()
            await asyncio.sleep(60)


def error_of(reference):
    try:
        ray.get(reference)
    except Exception as error:  # noqa: BLE001 - what it is is compared
        cause = getattr(error, "cause", None)
        return [type(error).__name__, re.sub(r"TaskID\(\w+\)", "TaskID", repr(cause))]
    return None


def refusal(call):
    try:
        call()
    except TypeError as error:
        return str(error)
    return None


def wait_for(marker):
    while not marker.exists():
        time.sleep(0.02)


def tasks():
    with calling("task without arguments"):
        results["no arguments"] = ray.get(no_arguments.remote())
    with calling("task"):
        results["task"] = ray.get(task.remote(1, 2, 3, c=4, d=5))
        results["default"] = ray.get(task.options(name="named").remote(1, b=2))
        results["refused"] = [refusal(task.remote), refusal(lambda: no_arguments.remote(x=1))]
        reference = ray.put("value")
        results["references"] = ray.get(referring.remote(reference, [reference]))
        results["two"] = ray.get(two.remote())
    with calling("task generator"):
        results["generator"] = [ray.get(one) for one in items.remote(2)]
        found = list(items.remote(3))
        results["failing generator"] = [ray.get(found[:3]), error_of(found[3])]
        results["dynamic"] = [ray.get(one) for one in ray.get(items.options(num_returns="dynamic").remote(2))]
    with calling("task that returns a generator"):
        results["returned generator"] = ray.get(iterator.options(num_returns=2).remote(2))
    with calling("nested"):
        results["nested"] = ray.get(outer.remote())
    results["failing"] = error_of(failing.remote())


def actors():
    with calling("creation"):
        plain = Plain.options(name="plain").remote(5, step=7)
    with calling("method"):
        results["method"] = ray.get(plain.method.remote(1, 2, b=3, c=4))
        results["named"] = ray.get(ray.get_actor("plain").method.remote(1))
        results["refused method"] = refusal(plain.method.remote)
        results["two of a method"] = ray.get(plain.two.remote())
    with calling("inherited method"):
        results["inherited"] = ray.get(plain.inherited.remote())
    with calling("static method"):
        results["static"] = ray.get(plain.static.remote(1))
    with calling("class method"):
        results["class"] = ray.get(plain.of_class.remote(1, b=3))
    with calling("actor generator"):
        results["actor generator"] = [ray.get(one) for one in plain.items.remote(2)]
    results["failing method"] = error_of(plain.failing.remote())
    ray.get(plain.__ray_ready__.remote())


def other_actors():
    first, second = Async.remote(), WithoutInit.remote()
    with calling("async method"):
        results["async"] = ray.get([first.method.remote(number) for number in range(3)])
    with calling("async generator"):
        results["async generator"] = [ray.get(one) for one in first.items.remote(2)]
    with calling("sync method of an async actor"):
        results["sync"] = ray.get(first.sync.remote(1))
    with calling("pool"):
        pool = ActorPool([second])
        for number in range(3):
            pool.submit(lambda actor, value: actor.twice.remote(value), number)
    # What waits for an actor is sent only here.
    results["pool"] = [pool.get_next() for _ in range(3)]
    with calling("threaded method"):
        results["threaded"] = ray.get([second.threaded.remote(number) for number in range(2)])
    return first


def endings(first):
    with calling("retried task"):
        results["retried"] = ray.get(dying.remote(Path("died").absolute()))
    for kind, call in (("cancelled method", first.sleeping), ("cancelled task", sleeping)):
        with calling(kind):
            marker = Path(kind).absolute()
            reference = call.remote(marker)
        wait_for(marker)
        ray.cancel(reference)
        results[kind] = error_of(reference)
    with calling("task without arguments"):
        results["after it"] = ray.get(no_arguments.remote())


def queue():
    @ray.remote(num_cpus=0)
    def produce(queue):
        queue.put({"item": 1})

    @ray.remote(num_cpus=0)
    def consume(queue):
        with inside("consumer"):
            return queue.get(timeout=30)

    made = Queue(actor_options={"num_cpus": 0})
    with calling("consumer"):
        consumed = consume.remote(made)
    with calling("producer"):
        ray.get(produce.remote(made))
    results["queue"] = [ray.get(consumed), made.qsize()]


def guest():
    if "PLAIN" in os.environ:
        return Guest.options(name="guest", namespace="shared", lifetime="detached").remote()
    while True:
        try:
            return ray.get_actor("guest", namespace="shared")
        except ValueError:
            time.sleep(0.1)


ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
with calling("guest"):
    results["guest"] = ray.get(guest().method.remote(1, b=3))
tasks()
actors()
endings(other_actors())
queue()
results["signatures"] = [
    str(inspect.signature(one))
    for one in (task._function, Plain.__init__, Plain.method, Async.method, ray.get_actor, Queue.put)
]
results["documentation"] = task._function.__doc__
print(json.dumps(results))
ray.shutdown()
Path("ended").touch()
