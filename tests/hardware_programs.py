"""Processes of one node, for tests: several ``Hardware`` of this process; locks are between open files."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from gputrace import catalogue, ledger, node_handover
from gputrace.accounts import Account
from gputrace.cardinality import Series
from gputrace.devices.nvml import NvmlSampler
from gputrace.devices.readings import Reading
from gputrace.hardware import Hardware
from gputrace.hardware_features import Stretch
from gputrace.hardware_published import NodeDevice
from tests.devices import nvml_stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gputrace.catalogue import Metric
    from gputrace.costs import Costs
    from gputrace.node import Shown

S = 1_000_000_000
MS = 1_000_000
#: When processes begin, unless they are told otherwise.
T0 = 1_000 * S
GPU0, GPU1 = nvml_stand_in.GPU0, nvml_stand_in.GPU1
H100 = "NVIDIA H100 80GB HBM3"


class Program:
    """A process: its ``Hardware``, told what the settler would tell it."""

    def __init__(  # noqa: PLR0913 - what differs between processes
        self,
        folder: Path,
        name: str = "a",
        at_ns: int = T0,
        *,
        costs: Costs | None = None,
        device: str = GPU0,
        named: str | None = H100,
        **others: Any,
    ) -> None:
        environment = {"GPUTRACE_NODE_DIR": str(folder)}
        self.name = name
        self.costs = costs
        self.hardware = Hardware(name, at_ns, environment=environment, **{"sampler": NvmlSampler(), **others})
        self.account = Account(NodeDevice(device, named), at_ns)
        self.series = Series({catalogue.FEATURE: name, catalogue.HW_TYPE: "gpu"})
        self.ticked_ns = at_ns
        self.held_ns = 0

    def tick(self, now_ns: int, *holds: tuple[int, int]) -> None:
        """Tick, and have held the device in these stretches since the last time."""
        held_ns = sum(end_ns - start_ns for start_ns, end_ns in holds)
        for start_ns, end_ns in holds:
            self.hardware.declare(self.account)
            self.hardware.start(self.account, start_ns)
            self.hardware.stop(self.account, end_ns)
        self.held_ns += held_ns
        if self.held_ns:
            charges = ((self.series, held_ns * ledger.SCALE),) if held_ns else ()
            self.hardware.charged(self.account, Stretch(self.ticked_ns, now_ns, charges))
        self.ticked_ns = now_ns
        self.hardware.tick(now_ns, self.costs, {})

    def read(self, start_ns: int, end_ns: int, busy_ns: int = 0, device: str = GPU0, **others: Any) -> None:
        self.hardware.take(Reading(device, start_ns, end_ns, busy_ns, **others))

    def close(self, now_ns: int) -> None:
        self.hardware.close(now_ns, self.costs)

    @property
    def publishes(self) -> bool:
        return self.hardware.node.is_publisher

    def states(self, device: str = GPU0) -> dict[str, int]:
        return next((one.states_ns() for one in self.hardware.accounts() if one.device.id == device), {})

    def spent_ns(self, device: str = GPU0) -> int:
        return sum(self.states(device).values())

    def overlap_ns(self) -> int:
        return sum(one.overlap_ns for one in self.hardware._published.values())

    def rows(self, metric: Metric) -> dict[tuple[str | None, str | None], float]:
        """Value by (hw.id, state or type of error), as a reader that collects sees it."""
        return {
            (of.get(catalogue.HW_ID), of.get(catalogue.DEVICE_STATE) or of.get(catalogue.ERROR_TYPE)): value
            for of, value in self.hardware.rows(self.name).get(metric.name, [])
        }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """`start("a")` is a process on a node that all of them share; it ends with the test."""
    with ExitStack() as running:

        def start(name: str = "a", at_ns: int = T0, **others: Any) -> Program:
            program = Program(tmp_path, name, at_ns, **others)
            running.callback(program.hardware.node.forget)
            return program

        yield start


class Counted(NamedTuple):
    charged_ns: int
    overlap_ns: int
    all_ns: int


def counted(*programs: Program) -> Counted:
    """What all of them together count of the device."""
    return Counted(
        sum(one.states().get("charged", 0) for one in programs),
        sum(one.overlap_ns() for one in programs),
        sum(one.spent_ns() for one in programs),
    )


def word(folder: Path) -> Shown:
    """What the last publisher left of the device."""
    found = node_handover.read(folder)
    assert found is not None
    return found[GPU0]
