"""Several real processes on one device: counted together, published once, however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from time import monotonic, monotonic_ns, sleep

import pytest

from gputrace.devices.readings import split_time

MS = 1_000_000
# For what hangs: nothing here is judged by time.
PATIENCE_S = 60

WORKER = """
import json, os, sys
from time import monotonic_ns
from gputrace.node import Node

node = Node(sys.argv[1], int(sys.argv[2]), agent=sys.argv[3] == "agent")
said = {
    "tick": lambda at: {device: list(shared) for device, shared in node.tick(at).items()},
    "role": lambda: node.is_publisher,
    "reap": lambda: [list(dead) for dead in node.reap()],
    "others": lambda: sorted(one.instance_id for one in node.others() if one.lives),
    "holder": node.publisher_id,
    "held": node.held_between,
    "final": node.final_ns,
    "close": lambda at: {device: list(shared) for device, shared in node.close(at).items()},
}
print("ready", flush=True)
for line in sys.stdin:
    name, *arguments = json.loads(line)
    found = (said.get(name) or getattr(node.ring, name))(*arguments)
    print(json.dumps(found), flush=True)
"""


class Worker:
    """A process with a node, which does what it is told."""

    def __init__(self, name, began_ns, folder, *, agent=False):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, name, str(began_ns), "agent" if agent else "worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GPUTRACE_NODE_DIR": str(folder)},
        )

    def ready(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __getattr__(self, name):
        def tell(*arguments):
            self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

        return tell

    def hold(self, start, end, device="GPU-1"):
        self.append(device, start, end)
        self.frontier(device, end)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def began():
    return monotonic_ns()


@pytest.fixture
def start(tmp_path, began):
    """`start("a", "b")` starts workers that share a folder, the first of them first."""
    with ExitStack() as running:

        def start(*names, folder=tmp_path, agent=False):
            workers = []
            for name in names:
                workers.append(Worker(name, began, folder, agent=agent))
                running.callback(workers[-1].end)
                # The first takes the role.
                if len(workers) == 1:
                    workers[0].ready()
            for worker in workers[1:]:
                worker.ready()
            return workers

        yield start


def until(ask, *, expected=True):
    """Ask until the answer is as expected."""
    deadline = monotonic() + PATIENCE_S
    while (answer := ask()) != expected:
        assert monotonic() < deadline, f"still {answer!r}, not {expected!r}"
        sleep(0.02)
    return answer


def total(increments, device="GPU-1"):
    return [sum(values) for values in zip(*(one[device] for one in increments if device in one), strict=True)]


def test_two_on_one_device_all_the_time_are_charged_once(start, began):
    first, second = start("a", "b")
    for worker in (first, second):
        worker.hold(began + 10 * MS, began + 30 * MS)
    assert second.tick(began + 30 * MS) == {}
    assert first.tick(began + 30 * MS) == {"GPU-1": [20 * MS, 20 * MS, 0]}
    assert (first.role(), second.role()) == (True, False)
    assert (first.others(), second.others()) == (["b"], ["a"])
    assert second.holder() == "a"
    assert first.held("GPU-1", began, began + 20 * MS) == 10 * MS


def test_dcgm_exporter_587_processes_that_share_a_gpu_by_time_slices_sum_to_one_gpu(start, began):
    """dcgm-exporter#582: each of two pods was shown the whole device, so that their sum was two of it.

    The driver calls the device 90 % busy, to both. One of them publishes that, against the union of what
    both held; what each was charged by itself, less the overlap, is what the device was charged.
    """
    first, second = start("a", "b")
    wall = 100 * MS
    held = {first: (began, began + 60 * MS), second: (began + 30 * MS, began + 80 * MS)}
    for worker, stretch in held.items():
        worker.hold(*stretch)
        worker.frontier("GPU-1", began + wall)
    published = [worker.tick(began + wall) for worker in (second, first)]
    assert published == [{}, {"GPU-1": [80 * MS, 30 * MS, 0]}]
    ((charged, overlap, _),) = published[1].values()
    assert sum(end - begin for begin, end in held.values()) - overlap == charged
    parts = split_time(wall, first.held("GPU-1", began, began + wall), wall * 90 // 100)
    assert (parts.charged_ns, parts.untracked_ns, parts.idle_ns) == (80 * MS, 10 * MS, 10 * MS)
    # Nobody else may read it: two readers would publish two devices.
    assert [worker.role() for worker in (first, second)] == [True, False]


def test_without_a_shared_folder_each_publishes_for_itself(start, began, tmp_path):
    """Nothing can tell that they overlap: each says so under an id of its own."""
    (first,) = start("a", folder=tmp_path / "a")
    (second,) = start("b", folder=tmp_path / "b")
    for worker in (first, second):
        worker.hold(began + 10 * MS, began + 30 * MS)
        assert worker.tick(began + 30 * MS) == {"GPU-1": [20 * MS, 0, 0]}
        assert worker.role()
        assert worker.others() == []
        assert worker.holder() == worker.name


def test_eight_workers_publish_each_device_once(start, began):
    workers = start(*"abcdefgh")
    held = {}
    for number, worker in enumerate(workers):
        device = f"GPU-{number % 2}"
        begin, end = began + number * MS, began + (number + 10) * MS
        worker.hold(begin, end, device)
        worker.frontier(device, began + 20 * MS)
        held.setdefault(device, []).append((begin, end))
    increments = [worker.tick(began + 20 * MS) for worker in reversed(workers)]
    assert [worker.role() for worker in workers] == [True] + [False] * 7
    assert increments[:7] == [{}] * 7
    for device, stretches in held.items():
        charged, overlap, unknown = total(increments, device)
        assert charged == max(end for _, end in stretches) - min(begin for begin, _ in stretches)
        assert charged + overlap == sum(end - begin for begin, end in stretches)
        assert unknown == 0


def test_a_publisher_that_is_killed_is_taken_over(start, began):
    first, second, third = start("a", "b", "c")
    first.count(7, 4)
    first.kill()
    at = began + 50 * MS
    assert second.tick(at) == {}
    assert (second.role(), third.role()) == (True, False)
    assert third.tick(at) == {}
    second.hold(at + MS, at + 5 * MS)
    third.hold(at + 2 * MS, at + 5 * MS)
    third.tick(at + 5 * MS)
    increments = [second.tick(at + 5 * MS)]
    # It is given a while before it is looked after.
    until(lambda: increments.append(second.tick(at + 5 * MS)) or second.final("GPU-1") == at + 5 * MS)
    assert total(increments) == [4 * MS, 3 * MS, 0]
    assert second.reap() == [["a", first.process.pid, 3]]
    assert second.reap() == []


def test_a_process_killed_with_a_call_open_ends_at_its_last_frontier(start, began, tmp_path):
    publisher, killed = start("a", "b")
    killed.start("GPU-1", began + 10 * MS)
    killed.frontier("GPU-1", began + 25 * MS)
    killed.tick(began + 25 * MS)
    killed.count(3, 1)
    publisher.tick(began + 100 * MS)
    # While it lives, nobody knows what it will say.
    assert publisher.final("GPU-1") == began + 25 * MS
    killed.kill()
    until(lambda: publisher.tick(began + 100 * MS) and publisher.final("GPU-1") == began + 100 * MS)
    assert publisher.held("GPU-1", began, began + 100 * MS) == 15 * MS
    assert publisher.reap() == [["b", killed.process.pid, 2]]
    assert len(list(tmp_path.glob("*.ring"))) == 1


def test_a_process_that_stalls_delays_and_falsifies_nothing(start, began):
    publisher, stalled = start("a", "b")
    publisher.hold(began + 10 * MS, began + 50 * MS)
    stalled.tick(began + 20 * MS)
    os.kill(stalled.process.pid, signal.SIGSTOP)
    increments = []
    deadline = monotonic() + 2.5
    while monotonic() < deadline:
        increments.append(publisher.tick(began + 50 * MS))
        sleep(0.1)
    assert total(increments) == [10 * MS, 0, 0]
    os.kill(stalled.process.pid, signal.SIGCONT)
    stalled.hold(began + 30 * MS, began + 60 * MS)
    assert publisher.tick(began + 50 * MS) == {"GPU-1": [30 * MS, 20 * MS, 0]}


def test_a_process_that_leaves_is_read_to_its_end(start, began):
    publisher, leaving = start("a", "b")
    leaving.append("GPU-1", began + 10 * MS, began + 20 * MS)
    leaving.count(2, 2)
    leaving.close(began + 20 * MS)
    assert publisher.tick(began + 40 * MS) == {"GPU-1": [10 * MS, 0, 0]}
    assert publisher.reap() == [["b", leaving.process.pid, 0]]


def test_a_publisher_that_leaves_gives_the_role_back_and_nothing_stays(start, began, tmp_path):
    first, second = start("a", "b")
    second.tick(began + 40 * MS)
    first.append("GPU-1", began + 10 * MS, began + 20 * MS)
    assert first.close(began + 30 * MS) == {"GPU-1": [10 * MS, 0, 0]}
    second.tick(began + 50 * MS)
    assert second.role()
    second.close(began + 50 * MS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["publisher.lock"]


def test_the_last_one_out_leaves_no_ring_behind(start, began, tmp_path):
    first, second = start("a", "b")
    first.kill()
    second.close(began + 10 * MS)
    assert [path.name.partition("-")[0] for path in tmp_path.glob("*.ring")] == [str(first.process.pid)]


def test_the_agent_takes_the_role_and_gives_it_back(start, began):
    (first,) = start("a")
    (agent,) = start("agent", agent=True)
    assert (first.role(), agent.role()) == (True, False)
    # Asked to give way, at its next tick; and no other process takes what the agent waits for.
    (second,) = start("b")
    first.tick(began + 10 * MS)
    second.tick(began + 10 * MS)
    assert (first.role(), second.role()) == (False, False)
    until(lambda: agent.tick(began + 10 * MS) is not None and agent.role())
    first.hold(began + 20 * MS, began + 30 * MS)
    first.tick(began + 30 * MS)
    second.tick(began + 30 * MS)
    assert agent.tick(began + 30 * MS) == {"GPU-1": [10 * MS, 0, 0]}
    assert first.holder() == "agent"
    agent.kill()
    first.tick(began + 40 * MS)
    assert first.role()


def test_one_agent_of_two_publishes(start, began):
    (first,) = start("one", agent=True)
    (second,) = start("two", agent=True)
    assert (first.role(), second.role()) == (True, False)
    first.kill()
    until(lambda: second.tick(began + 10 * MS) is not None and second.role())


FORK = """
import json, os, signal, sys
from pathlib import Path
from time import monotonic_ns
from gputrace.node import Node

began = monotonic_ns()
node = Node("parent", began)
node.ring.append("GPU-1", began + 10, began + 20)
node.ring.frontier("GPU-1", began + 20)
folder = Path(os.environ["GPUTRACE_NODE_DIR"])
(file,) = folder.glob("*.ring")
before = file.read_bytes()
to_child, from_parent = os.pipe()
to_parent, from_child = os.pipe()
child = os.fork()
if child == 0:
    # Else a parent that dies would never be noticed below.
    os.close(from_parent)
    node.reset("child", began + 20)
    node.ring.append("GPU-1", began + 30, began + 50)
    node.ring.frontier("GPU-1", began + 60)
    assert node.tick(began + 60) == {} and not node.is_publisher
    assert file.read_bytes() == before
    # Neither open nor mapped: either would keep the parent's lock.
    assert str(file) not in Path("/proc/self/maps").read_text()
    open_files = [str(path.resolve()) for path in Path("/proc/self/fd").iterdir()]
    assert str(file) not in open_files and str(folder) in "".join(open_files)
    os.write(from_child, b"x")
    os.read(to_child, 1)
    # The parent was killed: its lock did not stay with this process.
    deadline = monotonic_ns() + 30_000_000_000
    while not node.is_publisher and monotonic_ns() < deadline:
        node.tick(began + 70)
    print("child publishes" if node.is_publisher else "nobody publishes", flush=True)
    os._exit(0)
os.close(from_child)
assert os.read(to_parent, 1)
node.ring.append("GPU-1", began + 40, began + 55)
node.ring.frontier("GPU-1", began + 60)
print(node.tick(began + 60), node.is_publisher, flush=True)
print(len(list(folder.glob("*.ring"))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_has_a_ring_of_its_own_and_leaves_the_parents_alone(run_python, tmp_path):
    result = run_python(FORK, code=-signal.SIGKILL, GPUTRACE_NODE_DIR=str(tmp_path / "node"))
    assert result.stdout.splitlines() == [
        "{'GPU-1': Shared(charged_ns=35, overlap_ns=10, unknown_ns=0)} True",
        "2",
        "child publishes",
    ]
