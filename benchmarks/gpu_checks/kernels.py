"""What a device did for one call: pure arithmetic on the intervals of its kernels, in int ns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kernel(NamedTuple):
    """One kernel, copy or fill on a device.

    Attributes:
        start_ns: Begin on the profiler's clock.
        end_ns: End.
        name: What the profiler calls it.
    """

    start_ns: int
    end_ns: int
    name: str = ""


class Work(NamedTuple):
    """What a call had a device do.

    Attributes:
        kernels: How many there were.
        start_ns: Start of the first.
        end_ns: End of the last.
        busy_ns: Time in which at least one of them ran.
    """

    kernels: int
    start_ns: int
    end_ns: int
    busy_ns: int

    @property
    def span_ns(self) -> int:
        """From the start of the first kernel to the end of the last."""
        return self.end_ns - self.start_ns

    @property
    def gaps_ns(self) -> int:
        """Time in between in which none of them ran."""
        return self.span_ns - self.busy_ns


def work_of(kernels: Iterable[Kernel]) -> Work:
    """Sum up the kernels of a call, in any order.

    Raises:
        ValueError: There are none: then nothing is known of the call.
    """
    ordered = sorted(kernels)
    if not ordered:
        raise ValueError("the profiler shows no kernel of this call, so that it has nothing to compare with")
    busy_ns, until_ns = 0, ordered[0].start_ns
    for kernel in ordered:
        busy_ns += max(0, kernel.end_ns - max(kernel.start_ns, until_ns))
        until_ns = max(until_ns, kernel.end_ns)
    return Work(len(ordered), ordered[0].start_ns, until_ns, busy_ns)
