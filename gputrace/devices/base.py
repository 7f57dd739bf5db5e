"""What the settler needs to know about a device and about the timing of a call.

A *mark* is what is recorded on the user's thread at the start or the end of a
step of a call. On the host a mark is a plain int, nanoseconds on
CLOCK_MONOTONIC. On a GPU it is a :class:`Mark`: one timing event for each
(device, stream) pair that the call uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class DeviceLostError(RuntimeError):
    """The device of an event no longer answers."""


class NotReadableError(RuntimeError):
    """When an event happened, or whether it did, cannot be told at the moment.

    Unlike an event that has not happened, it may lie in the past: nothing of its
    device is final until it can be read.
    """


class Event(Protocol):
    """The part of ``torch.cuda.Event(enable_timing=True)`` that is used."""

    def record(self, stream: Any = None) -> None:
        """Record it on a stream."""
        ...

    def query(self) -> bool:
        """Tell whether it has happened; True as well where it was never recorded."""
        ...

    def elapsed_time(self, end_event: Any) -> float:
        """Return the time to a later event, float32 milliseconds."""
        ...


class Device(Protocol):
    """One device that time is charged on.

    Attributes:
        id: ``hw.id``: UUID of a GPU, ``<host>/<service.instance.id>`` of the host stand-in.
        type: ``hw.type``: ``gpu`` or ``cpu``.
        name: ``hw.name``: product name, None where unknown.
        source: ``gputrace.time.source`` of the intervals measured on it.
    """

    id: str
    type: str
    name: str | None
    source: str


class EventDevice(Device, Protocol):
    """A device with a clock of its own, read through events."""

    #: Upper bound of the error of the mapping to the host clock, in ns.
    mapping_error_ns: int

    def read(self, event: Event) -> int | None:
        """Return when the event happened, None while it has not.

        Returns:
            Nanoseconds on the device's own clock, in coordinates of the host's
            CLOCK_MONOTONIC: the true host time lies in ``[value, value + mapping_error_ns]``.

        Raises:
            DeviceLostError: The device no longer answers.
            NotReadableError: It does not tell now; try again at the next tick.
        """
        ...

    def answers(self, event: Event) -> bool:
        """Tell whether the device still answers when it is asked for an event."""
        ...

    def release(self, *events: Event) -> None:
        """Give events back to the pool, once both of a pair were read."""
        ...


@dataclass(slots=True)
class Mark:
    """A mark on one or more GPU streams.

    Attributes:
        host_ns: CLOCK_MONOTONIC before the first event was recorded.
        events: One event for each slot of the timer, in the order of its slots.
    """

    host_ns: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One (device, stream) pair on which a call is timed."""

    device: EventDevice
    stream: Any


class Timer(Protocol):
    """How one call is timed on GPUs; made at entry, on the user's thread.

    Attributes:
        slots: The pairs on which each mark records an event.
        estimated: Another stream was current at exit than at entry, so that
            the interval does not cover all of the call's work.
        host_ns: Host clock at the last mark, ns.
        unmeasured: Why the call could not be timed, None where it could.
    """

    slots: tuple[Slot, ...]
    estimated: bool
    host_ns: int
    unmeasured: str | None

    def mark(self) -> Mark | None:
        """Record one event a slot, now. None where that was not possible; ``unmeasured`` says why."""
        ...
