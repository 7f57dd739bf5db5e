"""The machine that speaks to torch, with torch's CPU build and a virtual GPU for ``torch.cuda``.

Operators run on the CPU, so the profiler shows no kernel; whatever else torch is asked is really asked.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gpu_checks import capturing, charging, torch_machine, tracking_cost
from gpu_checks.workloads import WORKLOADS, Workload

from gputrace.testing import VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.requires("torch")
MS = 1_000_000


class CudaStandIn(VirtualGpu):
    """What the machine asks of ``torch.cuda`` beyond what gputrace does."""

    modes: tuple[str, ...] = ()

    def _sleep(self, cycles: int) -> None:
        # As if it counted at 2 GHz.
        self.launch(cycles // 2)

    class CUDAGraph:
        def __init__(self) -> None:
            self.captured: Any = None

        def replay(self) -> None:
            self.captured.replay()

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        with self.capture() as graph.captured:
            yield

    def set_sync_debug_mode(self, mode: str) -> None:
        self.modes = (*self.modes, mode)


class TorchStandIn:
    """torch, with everything on the CPU and small."""

    def __init__(self, torch: Any, gpu: CudaStandIn) -> None:
        self._torch = torch
        self.cuda = gpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def randn(self, *shape: int, device: str, dtype: Any) -> Any:
        assert device == "cuda"
        return self._torch.randn(*shape, dtype=dtype)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch_machine.TorchMachine]:
    import torch

    for name, size in {"_LARGE": 16, "_SMALL": 8, "_WIDTH": 32, "_LENGTH": 8, "_HEADS": 2}.items():
        monkeypatch.setattr(torch_machine, name, size)
    # The real one asks for another name for them: torch.cuda.Event is a class, here it is made by a partial.
    monkeypatch.setattr(
        torch_machine.TorchMachine, "waiting_functions", lambda machine: [(machine.cuda, "synchronize")]
    )
    before = torch.is_grad_enabled()
    with CudaStandIn(devices=1, tied_to_real_time=True) as gpu:
        gpu.init()
        yield torch_machine.TorchMachine(TorchStandIn(torch, gpu))
    torch.set_grad_enabled(before)


def test_a_spin_takes_as_long_as_it_says(made: Any) -> None:
    made.spin(3 * MS)
    last = made.cuda.log[-1]
    assert last.end_ns - last.start_ns == pytest.approx(3 * MS, rel=1e-3)


@pytest.mark.filterwarnings("ignore:CUDA is not available, disabling CUDA profiling")
def test_every_workload_runs_and_says_that_the_profiler_saw_no_kernel(made: Any) -> None:
    few = [Workload(one.key, one.title, one.run, 2, one.judged) for one in WORKLOADS]
    found = charging.check(made, few)
    for workload in found["workloads"]:
        assert workload["error"].startswith("the profiler shows no kernel of ")
    assert found["conservation"]["exact"]
    assert found["unmeasured"] == {}


def test_a_graph_is_captured_and_the_cost_measured(made: Any) -> None:
    found = capturing.check(made)
    assert found["held"], found["error"]
    found = tracking_cost.check(made, {100_000: (5, 1)})
    assert found["synchronisations"] == []
    # Forbidden for the tracked loop alone.
    assert made.cuda.modes == ("error", "default")
