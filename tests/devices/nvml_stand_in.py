"""Builds the stand-in for the driver's library and puts it under the real binding."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gputrace.devices.nvml import NvmlSampler
from gputrace.devices.nvml_worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.devices.readings import Reading

SOURCE = Path(__file__).with_suffix(".c")
NAME = "libnvidia-ml.so.1"

#: Where the stand-in's own clock starts, µs since the epoch: no round number, as in life.
EPOCH_US = 1_750_000_000_123_456
#: The monotonic clock then, ns.
BOOT_NS = 5_000_000_000

SECOND_US = 1_000_000
GPU0, GPU1 = (f"GPU-{index:08d}-1111-2222-3333-444444444444" for index in (0, 1))

#: Every call on a device that the sampler makes.
DEVICE_CALLS = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetSamples",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperature",
)


def build(folder: Path, *flags: str) -> Path:
    """Compile the library into a folder of its own, which can be put on LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{NAME}", "-pthread"]
    subprocess.run([*command, *flags, "-o", str(path), str(SOURCE)], check=True)
    return path


class StandIn:
    """The library as loaded here, and the clocks that go with it.

    Attributes:
        path: The shared object.
    """

    def __init__(self, path: Path, library: Any) -> None:
        self.path = path
        self._library = library
        library.standin_calls.restype = ctypes.c_long
        self._us = EPOCH_US
        #: Wall clock less the clock that began at boot: a step of the wall clock changes it.
        self._boot_us = EPOCH_US - BOOT_NS // 1_000

    def script(self, *lines: str) -> None:
        self._library.standin_script("\n".join(lines).encode())

    def start(self, gpus: int = 2) -> None:
        """Make healthy GPUs, on a clock that stands still until ``advance``."""
        self._us, self._boot_us = EPOCH_US, EPOCH_US - BOOT_NS // 1_000
        self.script(f"gpus {gpus}", f"clock {self._us}")

    def advance(self, seconds: float) -> None:
        self._us += round(seconds * SECOND_US)
        self.script(f"clock {self._us}")

    def step_wall_clock(self, seconds: float) -> None:
        self._us += round(seconds * SECOND_US)
        self._boot_us += round(seconds * SECOND_US)
        self.script(f"step {round(seconds * SECOND_US)}")

    def calls(self, name: str, device: str = "0") -> int:
        return int(self._library.standin_calls(name.encode(), device.encode()))

    def hanging(self) -> int:
        return int(self._library.standin_hanging())

    def references(self) -> int:
        return int(self._library.standin_references())

    def wall_ns(self) -> int:
        return self._us * 1_000

    def monotonic_ns(self) -> int:
        return (self._us - self._boot_us) * 1_000


@contextmanager
def under_pynvml(path: Path) -> Iterator[StandIn]:
    """Let the real binding call the stand-in for the length of a ``with`` block."""
    before = pynvml.nvmlLib
    cache = dict(pynvml._nvmlGetFunctionPointer_cache)
    library = pynvml.nvmlLib = ctypes.CDLL(str(path))
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield StandIn(path, library)
    finally:
        pynvml.nvmlLib = before
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)


def variables(path: Path) -> dict[str, str]:
    """What a process of its own needs in its environment to load the stand-in as the driver's library."""
    others = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": f"{path.parent}{os.pathsep + others if others else ''}"}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path) -> Iterator[StandIn]:
    with under_pynvml(library) as driver:
        driver.start()
        yield driver
        driver.script("gpus 2")


@pytest.fixture
def sampler(driver: StandIn) -> Iterator[NvmlSampler]:
    sampler = make(driver)
    yield sampler
    sampler.stop()


def make(driver: StandIn, **others: Any) -> NvmlSampler:
    return NvmlSampler(
        worker=lambda: patient(driver), monotonic_ns=driver.monotonic_ns, wall_ns=driver.wall_ns, **others
    )


def patient(driver: StandIn) -> Worker:
    """Knows of the stand-in when a call hangs, so that no test depends on how fast the machine is."""
    given_up: list[Any] = []

    def wait(job: Any) -> None:
        while not job.done():
            still = [other for other in given_up if not other.done()]
            if driver.hanging() > len(still):
                given_up.append(job)
                return

    return Worker(wait=wait)


def poll(sampler: NvmlSampler, driver: StandIn, seconds: int = 1) -> list[Reading]:
    readings = []
    for _ in range(seconds):
        driver.advance(1)
        readings += sampler.sample_once()
    return readings


def of(readings: list[Reading], uuid: str) -> list[Reading]:
    return [reading for reading in readings if reading.device == uuid]


def trouble(sampler: NvmlSampler, place: int = 0) -> str:
    found = sampler.state().devices[place].trouble
    assert found is not None
    return found.reason


def started(sampler: NvmlSampler, driver: StandIn) -> None:
    """The first poll begins the first period, the second learns the rhythm of the samples."""
    sampler.sample_once()
    poll(sampler, driver, 2)


def release(sampler: NvmlSampler, driver: StandIn, command: str) -> None:
    """End a hang, and wait until the call has returned."""
    driver.script(command)
    while sampler._worker.hanging:
        time.sleep(0.001)
