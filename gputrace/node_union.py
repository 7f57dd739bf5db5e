"""What several processes hold together: pure arithmetic, in whole nanoseconds.

Charged is the measure of the union of what the processes hold, overlap what their own unions come to beyond
it. Both are final up to the least frontier of the processes that live: one that stalls delays, and what was
said is never taken back.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Pieces of time that a device remembers, for questions about the past.
KEPT_PIECES = 65_536


class Shared(NamedTuple):
    """What became final of a device.

    Attributes:
        charged_ns: Some process held it.
        overlap_ns: What the processes' own unions come to beyond that.
        unknown_ns: Nobody is known to have held it, but records of somebody's holds went by unread.
    """

    charged_ns: int
    overlap_ns: int
    unknown_ns: int


class Pieces:
    """Disjoint stretches of time in order, the last so many of them.

    Attributes:
        horizon_ns: What lies before was forgotten.
    """

    def __init__(self, horizon_ns: int, kept: int = KEPT_PIECES) -> None:
        self.horizon_ns = horizon_ns
        self._kept = kept
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._sums: list[int] = []

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add a stretch that does not begin before the end of the last one."""
        before_ns = self._sums[-1] if self._sums else 0
        if self._ends and self._ends[-1] == start_ns:
            self._ends[-1] = end_ns
            self._sums[-1] = before_ns + end_ns - start_ns
            return
        self._starts.append(start_ns)
        self._ends.append(end_ns)
        self._sums.append(before_ns + end_ns - start_ns)
        if len(self._starts) > 2 * self._kept:
            extra = len(self._starts) - self._kept
            self.horizon_ns = self._ends[extra - 1]
            del self._starts[:extra], self._ends[:extra], self._sums[:extra]

    @property
    def first_ns(self) -> int | None:
        """Where the first of them begins."""
        return self._starts[0] if self._starts else None

    def until(self, at_ns: int) -> int:
        """Return how much lies before an instant, up to a constant."""
        index = bisect_right(self._starts, at_ns) - 1
        if index < 0:
            # Sums go on counting when pieces are forgotten.
            return self._sums[0] - (self._ends[0] - self._starts[0]) if self._sums else 0
        return self._sums[index] - max(0, self._ends[index] - at_ns)


class _Device:
    """One device: what is final of it, and what is not yet.

    Attributes:
        final_ns: Up to here it was said what is held.
        held: What some process held, final.
        missed: Where nobody is known to have, and somebody may have.
        waiting: Stretches beyond, of any process.
        waiting_missed: The same of those that went by unread.
        ends_ns: By process, the end of its last stretch.
    """

    def __init__(self, begins_ns: int, final_ns: int) -> None:
        self.final_ns = final_ns
        self.held = Pieces(begins_ns)
        self.missed = Pieces(begins_ns)
        self.waiting: list[tuple[int, int]] = []
        self.waiting_missed: list[tuple[int, int]] = []
        self.ends_ns: dict[object, int] = {}

    def advance(self, until_ns: int) -> Shared:
        held, self.waiting = _cut(self.waiting, until_ns)
        missed, self.waiting_missed = _cut(self.waiting_missed, until_ns)
        union = _united(held)
        unknown = _without(_united(missed), union)
        for piece in union:
            self.held.add(*piece)
        for piece in unknown:
            self.missed.add(*piece)
        self.final_ns = until_ns
        charged_ns = _measure(union)
        return Shared(charged_ns, _measure(held) - charged_ns, _measure(unknown))


class Union:
    """The held time of the devices of a node, from what its processes say.

    Args:
        begins_ns: What lies before is no concern of this union.
        finals_ns: By device, up to where another union has said it already.

    Attributes:
        late_ns: Held time that came after the device was final there: of a process that held a device
            before it could say so. It is in no increment.
    """

    def __init__(self, begins_ns: int, finals_ns: Mapping[str, int] | None = None) -> None:
        self.late_ns = 0
        self._begins_ns = begins_ns
        self._finals_ns = dict(finals_ns or {})
        self._devices: dict[str, _Device] = {}
        self._frontiers: dict[object, dict[str, int]] = {}
        self._floors: dict[object, int] = {}
        # Up to where devices that no process has named are known to be free.
        self._unnamed_ns = begins_ns

    @property
    def waiting(self) -> int:
        """How many stretches wait to become final."""
        return sum(len(device.waiting) + len(device.waiting_missed) for device in self._devices.values())

    def join(self, process: object) -> None:
        """Wait for a process from here on."""
        self._frontiers.setdefault(process, {})
        self._floors.setdefault(process, 0)

    def leave(self, process: object) -> None:
        """Wait for it no longer; what it held stands."""
        self._frontiers.pop(process, None)
        self._floors.pop(process, None)
        for device in self._devices.values():
            device.ends_ns.pop(process, None)

    def hold(self, process: object, device_id: str, start_ns: int, end_ns: int) -> None:
        """Add a stretch in which a process held a device; each process's come in order."""
        device = self._device(device_id)
        start_ns = max(start_ns, device.ends_ns.get(process, start_ns), self.begins_ns(device_id))
        if end_ns <= start_ns:
            return
        device.ends_ns[process] = end_ns
        in_time_ns = max(start_ns, min(end_ns, device.final_ns))
        self.late_ns += in_time_ns - start_ns
        if end_ns > in_time_ns:
            device.waiting.append((in_time_ns, end_ns))

    def miss(self, device_id: str, start_ns: int, end_ns: int) -> None:
        """Add a stretch in which a process may have held a device."""
        device = self._device(device_id)
        start_ns = max(start_ns, device.final_ns)
        if end_ns > start_ns:
            device.waiting_missed.append((start_ns, end_ns))

    def frontier(self, process: object, device_id: str, at_ns: int) -> None:
        """Note that everything of a process on a device up to an instant was added."""
        self._device(device_id)
        frontiers = self._frontiers[process]
        frontiers[device_id] = max(at_ns, frontiers.get(device_id, 0))

    def floor(self, process: object, at_ns: int) -> None:
        """Note the same for every device without a frontier of this process."""
        self._floors[process] = max(at_ns, self._floors[process])

    def advance(self, until_ns: int) -> dict[str, Shared]:
        """Return what became final, by device, up to an instant at the most."""
        increments = {}
        for device_id, device in self._devices.items():
            final_ns = min(
                (
                    frontiers.get(device_id, self._floors[process])
                    for process, frontiers in self._frontiers.items()
                ),
                default=until_ns,
            )
            final_ns = min(final_ns, until_ns)
            if final_ns > device.final_ns:
                increments[device_id] = device.advance(final_ns)
        unnamed_ns = min(self._floors.values(), default=until_ns)
        self._unnamed_ns = max(self._unnamed_ns, min(unnamed_ns, until_ns))
        return increments

    def final_ns(self, device_id: str) -> int:
        """Return up to where a device is final; one that nobody named is free until there."""
        device = self._devices.get(device_id)
        if device is None:
            return self._finals_ns.get(device_id, self._unnamed_ns)
        return device.final_ns

    def begins_ns(self, device_id: str) -> int:
        """Return from when on this union says what is held of a device."""
        return self._finals_ns.get(device_id, self._begins_ns)

    def first_held_ns(self, device_id: str) -> int | None:
        """Return the first instant at which a device is known to have been held, None where there is none."""
        device = self._devices.get(device_id)
        return None if device is None else device.held.first_ns

    def held_between(self, device_id: str, start_ns: int, end_ns: int) -> int | None:
        """Return for how long some process held a device between two instants.

        Returns:
            None while that is not final, or where it was forgotten.
        """
        return self._between(device_id, start_ns, end_ns, missed=False)

    def missed_between(self, device_id: str, start_ns: int, end_ns: int) -> int | None:
        """Return for how long it will never be known whether some process did, None as above."""
        return self._between(device_id, start_ns, end_ns, missed=True)

    def _between(self, device_id: str, start_ns: int, end_ns: int, *, missed: bool) -> int | None:
        if end_ns > self.final_ns(device_id):
            return None
        device = self._devices.get(device_id)
        if device is None:
            return 0 if start_ns >= self._begins_ns else None
        pieces = device.missed if missed else device.held
        return pieces.until(end_ns) - pieces.until(start_ns) if start_ns >= pieces.horizon_ns else None

    def _device(self, device_id: str) -> _Device:
        device = self._devices.get(device_id)
        if device is None:
            final_ns = self._finals_ns.get(device_id, self._unnamed_ns)
            device = self._devices[device_id] = _Device(self._begins_ns, final_ns)
        return device


Stretches = list[tuple[int, int]]


def _cut(stretches: Stretches, at_ns: int) -> tuple[Stretches, Stretches]:
    """Return what lies before an instant, in order, and what does not."""
    before, after = [], []
    for start_ns, end_ns in stretches:
        if start_ns < at_ns:
            before.append((start_ns, min(end_ns, at_ns)))
        if end_ns > at_ns:
            after.append((max(start_ns, at_ns), end_ns))
    before.sort()
    return before, after


def _united(stretches: Stretches) -> Stretches:
    united: Stretches = []
    for start_ns, end_ns in stretches:
        if united and start_ns <= united[-1][1]:
            united[-1] = (united[-1][0], max(end_ns, united[-1][1]))
        else:
            united.append((start_ns, end_ns))
    return united


def _without(stretches: Stretches, taken: Stretches) -> Stretches:
    """Return what is left of stretches that are disjoint and in order, as ``taken`` is."""
    left: Stretches = []
    index = 0
    for start_ns, end_ns in stretches:
        at_ns = start_ns
        while index < len(taken) and taken[index][0] < end_ns:
            if taken[index][0] > at_ns:
                left.append((at_ns, taken[index][0]))
            at_ns = max(at_ns, taken[index][1])
            if taken[index][1] > end_ns:
                break
            index += 1
        if at_ns < end_ns:
            left.append((at_ns, end_ns))
    return left


def _measure(stretches: Stretches) -> int:
    return sum(end_ns - start_ns for start_ns, end_ns in stretches)
