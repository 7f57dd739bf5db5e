"""A device whose intervals are told afterwards, by whoever knows them: see ``gputrace.record_interval``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gputrace.devices.base import Slot

#: How long after it began an interval may still be told, ns. What it did before is final by then.
LATEST_NS = 10_000_000_000

#: Where an interval may come from: a guess or a log, or the durations of the kernels themselves.
SOURCES: Final = ("estimated", "kernel")


class ReportedDevice:
    """A GPU that this process hears of, without timing anything on it.

    Its time becomes final :data:`LATEST_NS` later than that of other devices.

    Args:
        hardware_id: ``hw.id``.

    Attributes:
        mapping_error_ns: By how much its frontier lags behind the clock, ns.
    """

    type = "gpu"
    name: str | None = None
    source = "kernel"

    def __init__(self, hardware_id: str) -> None:
        self.id = hardware_id
        self.mapping_error_ns = LATEST_NS

    def read(self, event: object) -> int | None:
        """Return None: no event is recorded on it."""
        del event
        return None

    def answers(self, event: object) -> bool:
        """Return True: nobody can say that it does not."""
        del event
        return True

    def release(self, *events: object) -> None:
        """Do nothing: there are no events."""


class Told:
    """Stands in for the timer of a call whose interval was told.

    Attributes:
        hardware_id: ``hw.id`` of its device.
        estimated: The interval is a guess, or comes from a log.
        unmeasured: Why it cannot be charged, None while it can.
    """

    __slots__ = ("estimated", "hardware_id", "host_ns", "slots", "unmeasured")

    #: Nothing is recorded on any stream.
    slots: tuple[Slot, ...]

    def __init__(self, hardware_id: str, *, estimated: bool) -> None:
        self.slots = ()
        self.host_ns = 0
        self.hardware_id = hardware_id
        self.estimated = estimated
        self.unmeasured: str | None = None

    def mark(self) -> None:
        """Record nothing."""
