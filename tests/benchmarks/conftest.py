"""The check of a real GPU, with a virtual one in its place."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gputrace.testing import VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"
# As when its script is run.
sys.path.insert(0, str(BENCHMARKS))

from gpu_checks.kernels import Kernel  # noqa: E402 - found through the line above

MS = 1_000_000
# Length of each kind of kernel, ns.
LARGE, SMALL, TINY = 1_500_000, 20_000, 3_000
BLOCK = (40_000, 5_000, 300_000, 90_000)


class VirtualMachine:
    """Answers what the check asks of a GPU, on a clock that stands unless somebody works or waits."""

    def __init__(self, gpu: VirtualGpu) -> None:
        self.cuda = gpu
        self.clock = gpu.host_ns
        self.profile: dict[str, list[Kernel]] = {}

    def synchronize(self) -> None:
        self.cuda.synchronize()
        # Beyond the bound of the clock's mapping, so that everything can be settled.
        self.cuda.advance(10 * MS)

    def host_work(self, ns: int) -> None:
        self.cuda.advance(ns)

    def spin(self, ns: int) -> None:
        self.cuda.launch(ns)

    def multiply(self) -> None:
        self.cuda.launch(LARGE)

    def multiply_small(self, lane: int = 0) -> None:
        self.cuda.launch(SMALL + lane)

    def add(self) -> None:
        self.cuda.launch(TINY)

    def block(self) -> None:
        for duration_ns in BLOCK:
            self.cuda.launch(duration_ns)

    def new_stream(self) -> Any:
        return self.cuda.Stream()

    def on(self, stream: Any) -> Any:
        return self.cuda.stream(stream)

    def capture(self) -> Any:
        return self.cuda.capture()

    @contextmanager
    def annotate(self, operation: str) -> Iterator[None]:
        begun = len(self.cuda.log)
        yield
        self.profile.setdefault(operation, []).extend(
            Kernel(entry.start_ns, entry.end_ns) for entry in self.cuda.log[begun:] if entry.kind == "kernel"
        )

    @contextmanager
    def profiled(self) -> Iterator[dict[str, list[Kernel]]]:
        found: dict[str, list[Kernel]] = {}
        yield found
        found.update(self.profile)

    def waiting_functions(self) -> list[tuple[Any, str]]:
        return [(self.cuda, "synchronize")]

    def waiting_forbidden(self) -> Any:
        return nullcontext()


@pytest.fixture
def machine() -> Iterator[VirtualMachine]:
    with VirtualGpu(devices=1) as gpu:
        gpu.init()
        yield VirtualMachine(gpu)
