"""What the check asks of a GPU, apart from what torch calls it: a virtual GPU can answer as well."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from gpu_checks.kernels import Kernel

    #: Kernels by operation, filled in when the profile ends.
    Profile = dict[str, list[Kernel]]


class Machine(Protocol):
    """A GPU with its torch.

    Attributes:
        cuda: ``torch.cuda``, or what stands in for it.
        clock: What marks are taken with: None for CLOCK_MONOTONIC.
    """

    cuda: Any
    clock: Callable[[], int] | None

    def synchronize(self) -> None:
        """Wait until the device has done all its work."""
        ...

    def host_work(self, ns: int) -> None:
        """Keep this thread busy for so long, without the device."""
        ...

    def spin(self, ns: int) -> None:
        """Enqueue one kernel of about this length, which leaves nearly all of the device free."""
        ...

    def multiply(self) -> None:
        """Enqueue a large matrix product, which fills the device."""
        ...

    def multiply_small(self, lane: int = 0) -> None:
        """Enqueue a small one, with results of its own for each lane."""
        ...

    def add(self) -> None:
        """Enqueue a kernel of a few microseconds."""
        ...

    def block(self) -> None:
        """Enqueue a transformer block's forward pass, batch 1."""
        ...

    def new_stream(self) -> Any:
        """Return a stream of its own."""
        ...

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream current within a block."""
        ...

    def capture(self) -> AbstractContextManager[Any]:
        """Capture what a block enqueues; gives an object with ``replay()``."""
        ...

    def annotate(self, operation: str) -> AbstractContextManager[Any]:
        """Mark in the profile what a block enqueues as part of a call."""
        ...

    def profiled(self) -> AbstractContextManager[Profile]:
        """Profile a block; gives what is filled in when it ends."""
        ...

    def waiting_functions(self) -> list[tuple[Any, str]]:
        """Return what waits for a device; see ``Synchronisations``."""
        ...

    def waiting_forbidden(self) -> AbstractContextManager[Any]:
        """Let the runtime itself refuse to wait within a block, where it can."""
        ...


def spend(ns: int) -> None:
    """Keep this thread busy on the host's real clock."""
    until_ns = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < until_ns:
        pass
