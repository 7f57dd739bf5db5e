"""Tracks work under random faults of driver and devices; the ledger must balance to the nanosecond.

    python tests/soak.py --seconds 600 --seed 7

Threads, tasks and generators hold three virtual GPUs in real time, nested and at once, fail and are
cancelled; another process holds them too and is killed now and then; the driver refuses and hangs at random,
and one device falls off the bus halfway. Checked exactly, in whole nanoseconds: features were charged what
this process held; the states of each device sum to the time that was told of it; its energy by state to what
was read.
"""

# ruff: noqa: T201 - a script that prints

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gputrace
from gputrace import ledger, lifecycle
from gputrace.devices.virtual import VirtualGpu
from tests.devices import nvml_stand_in as driver

FEATURES = ("search", "chat", "summary", None)
ERRORS = (1, 3, 4, 6, 9, 10, 13, 15, 16, 18, 21, 25, 999)
FOR_EVER_NS = 1 << 62
CALLS = ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2", *driver.DEVICE_CALLS)
OTHER = """
import random, sys, time
sys.path.insert(0, {root!r})
from tests import soak
soak.hold_in_another_process(float(sys.argv[1]), int(sys.argv[2]))
"""


def make_gpus() -> VirtualGpu:
    gpu = VirtualGpu(3, tied_to_real_time=True)
    for index, device in enumerate(gpu.devices):
        device.uuid = f"{index:08d}-1111-2222-3333-444444444444"  # type: ignore[assignment]
    gpu.install()
    gpu.init()
    return gpu


class Load:
    """Random work on the GPUs until it is told to stop."""

    def __init__(self, gpu: VirtualGpu, seed: int) -> None:
        self.gpu = gpu
        self.seed = seed
        self.ended = threading.Event()
        self.calls = 0

    def run(self, number: int) -> None:
        rng = random.Random(self.seed * 1_000 + number)
        while not self.ended.is_set():
            kind = rng.choice((self.nested, self.generator, self.coroutine, self.fails))
            # A lost device refuses; that is the program's error, not ours.
            with contextlib.suppress(RuntimeError, ZeroDivisionError):
                kind(rng)
            self.calls += 1
            time.sleep(rng.random() * 0.01)

    def work(self, rng: random.Random) -> None:
        self.gpu.launch(rng.randrange(50_000, 5_000_000))
        time.sleep(rng.random() * 0.004)

    def nested(self, rng: random.Random) -> None:
        device = rng.randrange(3)
        with gputrace.span("outer", feature=rng.choice(FEATURES), devices=device, weight=rng.randint(1, 3)):
            self.work(rng)
            with gputrace.span("inner", devices=rng.choice((device, [0, 1]))):
                self.work(rng)

    def generator(self, rng: random.Random) -> None:
        @gputrace.track(feature="stream", devices=rng.randrange(3))
        def items():
            for _ in range(3):
                self.work(rng)
                yield

        for _ in items():
            time.sleep(rng.random() * 0.002)
            if rng.random() < 0.2:
                break

    def coroutine(self, rng: random.Random) -> None:
        @gputrace.track(feature="async", devices=rng.randrange(3))
        async def step() -> None:
            self.work(rng)
            await asyncio.sleep(rng.random() * 0.002)
            self.work(rng)

        async def main() -> None:
            tasks = [asyncio.create_task(step()) for _ in range(3)]
            await asyncio.sleep(0.001)
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(main())

    def fails(self, rng: random.Random) -> None:
        with gputrace.span("fails", feature="errors", devices=rng.randrange(3)):
            self.work(rng)
            raise ZeroDivisionError


def hold_in_another_process(seconds: float, seed: int) -> None:
    gpu = make_gpus()
    gputrace.configure(data_dir=tempfile.mkdtemp())
    load = Load(gpu, seed)
    threading.Timer(seconds, load.ended.set).start()
    load.run(0)


def disturb(script: Path, rng: random.Random) -> None:
    """Let the driver answer wrongly in some way, or healthily again."""
    lines = ["begin 3", *(f"ok {call} {device}" for call in CALLS for device in ("0", "1", "2", "-"))]
    for _ in range(rng.randrange(4)):
        call, device = rng.choice(CALLS), rng.choice(("0", "1", "2", "-"))
        wrong = (
            f"hang {call} {device}" if rng.random() < 0.2 else f"fail {call} {device} {rng.choice(ERRORS)}"
        )
        lines.append(wrong)
    lines += [f"set {rng.randrange(3)} util {rng.choice((0, 10, 40, 100))}"]
    unfinished = script.with_suffix(".part")
    unfinished.write_text("\n".join(lines))
    unfinished.replace(script)


def soak(seconds: float, seed: int, folder: Path) -> dict[str, float]:
    """Run, stop, and check.

    Raises:
        AssertionError: The ledger does not balance.
    """
    rng = random.Random(seed)
    script = folder / "driver.txt"
    script.write_text("begin 3")
    os.environ |= {"NVML_STAND_IN": str(script), "GPUTRACE_NODE_DIR": str(folder / "node")}
    gpu = make_gpus()
    gputrace.configure(data_dir=folder / "data", export_interval=0.5)
    load = Load(gpu, seed)
    threads = [threading.Thread(target=load.run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    others: list[subprocess.Popen[bytes]] = []
    program = OTHER.format(root=str(Path(__file__).resolve().parent.parent))
    began, lost = time.monotonic(), False
    while time.monotonic() - began < seconds:
        time.sleep(0.7)
        disturb(script, rng)
        assert {other.poll() for other in others} <= {None, 0, -signal.SIGKILL}
        others = [other for other in others if other.poll() is None]
        if not others:
            others.append(subprocess.Popen([sys.executable, "-c", program, "3", str(rng.randrange(1_000))]))
        elif rng.random() < 0.15:
            others[0].send_signal(signal.SIGKILL)
        if not lost and time.monotonic() - began > seconds / 2:
            gpu.devices[2].lost = lost = True
    load.ended.set()
    for thread in threads:
        thread.join()
    for other in others:
        other.wait()
        assert other.returncode in {0, -signal.SIGKILL}
    runtime = lifecycle._process.runtime
    assert runtime is not None
    # Those of the others are exported elsewhere: here only this process's count.
    gputrace.shutdown()
    return {"calls": load.calls, **check(runtime.settler)}


def check(settler: object) -> dict[str, float]:
    """Check the exact totals of a settler that has stopped, and return what was found, s and J."""
    totals, hardware = settler.totals, settler.hardware  # type: ignore[attr-defined]
    published = list(hardware._published.values())
    own = sum(totals.time.values())
    held = hardware._features
    own_held_ns = sum(held.held_between(one.device.id, 0, FOR_EVER_NS)[0] for one in published)
    # The streaming ledger is exact: features sum to the union of what this process held.
    assert own == own_held_ns * ledger.SCALE, own / ledger.SCALE - own_held_ns
    for one in published:
        states = one.states_ns()
        assert all(spent_ns >= 0 for spent_ns in states.values()), states
        mine_ns, _ = held.held_between(one.device.id, 0, one.frontier_ns)
        assert states["charged"] + one.overlap_ns >= mine_ns
        wall_ns, told_held_ns = one.told_ns
        assert states["untracked"] + states["idle"] + states["unknown"] + told_held_ns == wall_ns, states
        assert states["charged"] >= told_held_ns
        drawn_uj = sum(drawn for parts in one._energy_uj.values() for drawn in parts.values())
        assert drawn_uj == sum(one.drawn_uj.values())
    return {
        "charged_s": sum(one.states_ns()["charged"] for one in published) / 1e9,
        "overlap_s": sum(one.overlap_ns for one in published) / 1e9,
        "idle_s": sum(one.states_ns()["idle"] for one in published) / 1e9,
        "unknown_s": sum(one.states_ns()["unknown"] for one in published) / 1e9,
        "drawn_j": sum(sum(one.drawn_uj.values()) for one in published) / 1e6,
        "lost_calls": hardware.lost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = driver.build(Path(folder) / "driver")
        if "SOAK_CHILD" not in os.environ:
            # The dynamic linker looks for the driver when the process begins.
            os.environ |= {**driver.variables(library), "SOAK_CHILD": "1"}
            command = [
                sys.executable,
                __file__,
                "--seconds",
                str(arguments.seconds),
                "--seed",
                str(arguments.seed),
            ]
            sys.exit(subprocess.run(command, check=False).returncode)
        found = soak(arguments.seconds, arguments.seed, Path(folder))
    print(f"seed {arguments.seed}: " + ", ".join(f"{name} {value:,.3f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
