"""Reads the ring of another process: what is new since the last time, and what went by unread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gputrace import node_layout

if TYPE_CHECKING:
    from gputrace.node_layout import ReadAt

# A record that is being written while it is read is read again, this often.
_READS = 8


class Held(NamedTuple):
    """One stretch of time of a device.

    Attributes:
        device_id: ``hw.id`` of the device.
        start_ns: First instant, CLOCK_MONOTONIC.
        end_ns: The instant after the last.
    """

    device_id: str
    start_ns: int
    end_ns: int


class State(NamedTuple):
    """What a process says of itself.

    Attributes:
        heartbeat_ns: When it last did.
        accepted: Calls that it took on.
        exported: Those whose telemetry was delivered.
        floor_ns: Up to here everything is known of devices that it has not declared.
        written: Records so far.
        devices: Devices that it has declared.
        is_closed: Nothing more will come.
    """

    heartbeat_ns: int
    accepted: int
    exported: int
    floor_ns: int
    written: int
    devices: int
    is_closed: bool


class _DeviceCell(NamedTuple):
    device_id: str
    frontier_ns: int
    written: int
    last_end_ns: int


@dataclass
class Reading:
    """What one look at a ring brought.

    Attributes:
        held: New intervals in which the process held a device.
        missed: Stretches in which it may have: their records were overwritten unread.
        frontiers: By device, up to where everything is known; empty where the look came too early.
        floor_ns: The same for all other devices, None where the look came too early.
        is_closed: Nothing more will come.
    """

    held: list[Held] = field(default_factory=list)
    missed: list[Held] = field(default_factory=list)
    frontiers: dict[str, int] = field(default_factory=dict)
    floor_ns: int | None = None
    is_closed: bool = False


def read_state(read_at: ReadAt) -> State | None:
    """Return what a process says of itself, None where it has not begun yet."""
    words = node_layout.read_cell(read_at, node_layout.STATE_AT)
    if words is None:
        return None
    heartbeat_ns, accepted, exported, floor_ns, written, devices = words
    is_closed = devices < 0
    return State(
        heartbeat_ns,
        # The state is written tick by tick, and what entered since then as well.
        max(accepted, node_layout.read_entered(read_at)),
        exported,
        floor_ns,
        written,
        -devices - 1 if is_closed else devices,
        is_closed,
    )


class RingReader:
    """Reads one ring, from what it still keeps on.

    Args:
        read_at: Reads the file.
        begins_ns: What lies before is not asked for, and not missed.

    Attributes:
        identity: Who writes it.
        read_at: ``read_at``.
        overwritten: Records that went by unread.

    Raises:
        UnknownFormatError: It is no ring that can be read.
    """

    def __init__(self, read_at: ReadAt, begins_ns: int) -> None:
        self.identity = node_layout.read_identity(read_at)
        self.overwritten = 0
        self.read_at = read_at
        self._next = 0
        self._names: list[str] = []
        # Up to where each device is known, and where the records that went by unread begin to matter.
        self._known: dict[str, int] = {}
        self._gaps: dict[str, int] = {}
        self._missed_until = 0
        self._floor_ns = begins_ns

    def read(self) -> Reading:
        """Return what is new since the last time."""
        reading = Reading()
        # In this order: what is said later may speak of more than what was read before, never of less.
        state = read_state(self.read_at)
        cells = None if state is None else self._device_cells(state.devices)
        if state is None or cells is None:
            return reading
        head = max([state.written, *(cell.written for cell in cells)])
        self._read_records(head, reading)
        for cell in cells:
            self._end_gap(cell.device_id, cell.last_end_ns, reading)
            if self._missed_until > cell.written:
                # What went by may be of this device, and later than its cell knew.
                self._gaps[cell.device_id] = cell.frontier_ns
            self._known[cell.device_id] = max(cell.frontier_ns, self._known.get(cell.device_id, 0))
            reading.frontiers[cell.device_id] = cell.frontier_ns
        reading.floor_ns = state.floor_ns
        self._floor_ns = max(self._floor_ns, state.floor_ns)
        reading.is_closed = state.is_closed
        return reading

    def devices(self) -> list[str]:
        """Return the ids of the devices that the process has declared."""
        state = read_state(self.read_at)
        names = (
            []
            if state is None
            else [self._name(index) for index in range(min(state.devices, node_layout.MOST_DEVICES))]
        )
        return [name for name in names if name is not None]

    def _device_cells(self, count: int) -> list[_DeviceCell] | None:
        cells = []
        for index in range(min(count, node_layout.MOST_DEVICES)):
            name = self._name(index)
            words = node_layout.read_cell(self.read_at, node_layout.device_cell_at(index))
            if name is None or words is None:
                return None
            cells.append(_DeviceCell(name, *words[:3]))
        return cells

    def _name(self, index: int) -> str | None:
        while index >= len(self._names):
            known = len(self._names)
            name = node_layout.read_name(self.read_at, known) if known < node_layout.MOST_DEVICES else None
            if name is None:
                return None
            self._names.append(name)
            if self._gaps:
                # Declared while records went by unread: some may have been its own.
                self._gaps[name] = self._floor_ns
        return self._names[index]

    def _read_records(self, head: int, reading: Reading) -> None:
        slots = self.identity.slots
        if self._next < head - slots:
            self._miss(head - slots - self._next)
        while self._next < head:
            first = self._next % slots
            count = min(head - self._next, slots - first)
            data = self.read_at(
                node_layout.RECORDS_AT + first * node_layout.RECORD_BYTES, count * node_layout.RECORD_BYTES
            )
            for at in range(0, count * node_layout.RECORD_BYTES, node_layout.RECORD_BYTES):
                self._take(data[at : at + node_layout.RECORD_BYTES], reading)

    def _take(self, data: bytes, reading: Reading) -> None:
        record = node_layout.parse_record(data)
        slot = self._next % self.identity.slots
        for _ in range(_READS):
            if record is not None and record[0] >= self._next:
                break
            # Half written, or not visible yet although a frontier counts it.
            data = self.read_at(
                node_layout.RECORDS_AT + slot * node_layout.RECORD_BYTES, node_layout.RECORD_BYTES
            )
            record = node_layout.parse_record(data)
        device_id = self._name(record[3]) if record is not None and record[0] == self._next else None
        if record is None or device_id is None:
            self._miss(1)
            return
        self._next += 1
        _, start_ns, end_ns, _ = record
        self._end_gap(device_id, start_ns, reading)
        self._known[device_id] = max(end_ns, self._known.get(device_id, 0))
        reading.held.append(Held(device_id, start_ns, end_ns))

    def _end_gap(self, device_id: str, end_ns: int, reading: Reading) -> None:
        gap_ns = self._gaps.pop(device_id, None)
        if gap_ns is not None and end_ns > gap_ns:
            reading.missed.append(Held(device_id, gap_ns, end_ns))

    def _miss(self, count: int) -> None:
        self.overwritten += count
        self._next += count
        self._missed_until = self._next
        for device_id in self._names:
            self._gaps.setdefault(device_id, self._known.get(device_id, self._floor_ns))
