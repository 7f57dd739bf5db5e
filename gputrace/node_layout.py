"""How a ring file is laid out: what stands where, and how a half-written entry is told from a whole one.

No reader relies on the order in which another process's stores become visible. Every entry carries a
checksum, every record its sequence number, and every frontier the count of records that it covers. What
changes in place is a *cell*: two copies, written in turn, so that a process killed while it writes one
leaves the other.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Return up to so many bytes from an offset of a ring file; fewer where it ends.
    ReadAt = Callable[[int, int], bytes]

MAGIC = b"GPUTRACE"
VERSION = 1

#: Intervals that a ring keeps: over three seconds of the shortest calls, and one MiB.
SLOTS = 32_768
#: Devices that a process may hold; eight GPUs in seven slices each are 56.
MOST_DEVICES = 64

_IDENTITY = struct.Struct("=8sIIQQQH36sH254s")
_CELL = struct.Struct("=7q")
_CHECKSUM = struct.Struct("=Q")
_NAME = struct.Struct("=H118sI")
_RECORD = struct.Struct("=QqqI")
_ENTERED = struct.Struct("@q")
_RECORD_CHECKSUM = struct.Struct("=I")

_COPY_BYTES = 64
CELL_BYTES = 2 * _COPY_BYTES
RECORD_BYTES = 32
_NAME_BYTES = 128
_NAME_MOST = 118

STATE_AT = 512
#: Calls that entered, behind the state: one aligned word, written whole.
_ENTERED_AT = 768
_DEVICES_AT = 1024
_DEVICE_BYTES = _NAME_BYTES + CELL_BYTES
RECORDS_AT = _DEVICES_AT + MOST_DEVICES * _DEVICE_BYTES

#: A cell that is read while its writer writes both copies is read again, this often.
_READS = 4


def write_entered(buffer: memoryview, count: int) -> None:
    """Say how many calls a process has accepted."""
    _ENTERED.pack_into(buffer, _ENTERED_AT, count)


def read_entered(read_at: ReadAt) -> int:
    """Return how many calls a process has accepted, 0 where it does not say."""
    data = read_at(_ENTERED_AT, _ENTERED.size)
    return int(_ENTERED.unpack(data)[0]) if len(data) == _ENTERED.size else 0


class Identity(NamedTuple):
    """Who writes a ring.

    Attributes:
        slots: Records that the ring keeps.
        pid: The process, in its own namespace of process ids.
        started: Its start time since boot in clock ticks, which tells it from a later process of that id.
        pid_namespace: Number of that namespace, 0 where unknown.
        boot: Id of the boot: its clock means nothing after the next one.
        instance_id: ``service.instance.id`` of the process.
    """

    slots: int
    pid: int
    started: int
    pid_namespace: int
    boot: str
    instance_id: str

    def pack(self) -> bytes:
        """Return the bytes at the beginning of the file."""
        boot = self.boot.encode()[:36]
        # Cut between characters: half of one would make the rest unreadable.
        instance = self.instance_id.encode()[:254].decode(errors="ignore").encode()
        numbers = (self.slots, self.pid, self.started, self.pid_namespace)
        return _IDENTITY.pack(MAGIC, VERSION, *numbers, len(boot), boot, len(instance), instance)


class UnknownFormatError(ValueError):
    """The file is no ring, or of a version that this one cannot read."""


def read_identity(read_at: ReadAt) -> Identity:
    """Return who writes the ring.

    Raises:
        UnknownFormatError: It is no ring that can be read.
    """
    data = read_at(0, _IDENTITY.size)
    if len(data) < _IDENTITY.size or not data.startswith(MAGIC):
        raise UnknownFormatError("not a ring of gputrace")
    _, version, slots, pid, started, namespace, boot_size, boot, size, instance = _IDENTITY.unpack(data)
    if version != VERSION or slots < 1:
        raise UnknownFormatError(f"a ring of version {version}; this gputrace reads version {VERSION}")
    return Identity(
        slots,
        pid,
        started,
        namespace,
        boot[:boot_size].decode(errors="replace"),
        instance[:size].decode(errors="replace"),
    )


def file_bytes(slots: int) -> int:
    """Return the size of a ring file."""
    return RECORDS_AT + slots * RECORD_BYTES


class Cell:
    """Seven words at a fixed place that one process writes and others read whole or not at all.

    Args:
        buffer: The mapped file.
        at: Where the cell begins.
    """

    __slots__ = ("_at", "_buffer", "_writes")

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer = buffer
        self._at = at
        self._writes = 0

    def write(self, *words: int) -> None:
        """Replace the six words of the cell; the count of writes is the seventh."""
        self._writes += 1
        body = _CELL.pack(self._writes, *words)
        at = self._at + (self._writes & 1) * _COPY_BYTES
        self._buffer[at : at + _COPY_BYTES] = body + _CHECKSUM.pack(crc32(body))


def newest(cell: bytes) -> tuple[int, ...] | None:
    """Return the six words of the newer copy that is whole, None where neither is."""
    best: tuple[int, ...] | None = None
    for at in (0, _COPY_BYTES):
        body, checksum = cell[at : at + _CELL.size], cell[at + _CELL.size : at + _COPY_BYTES]
        if len(checksum) == _CHECKSUM.size and _CHECKSUM.unpack(checksum)[0] == crc32(body):
            words = _CELL.unpack(body)
            if words[0] > 0 and (best is None or words[0] > best[0]):
                best = words
    return None if best is None else best[1:]


def read_cell(read_at: ReadAt, at: int) -> tuple[int, ...] | None:
    """Return the words of the cell at ``at``, None where they cannot be had now."""
    for _ in range(_READS):
        words = newest(read_at(at, CELL_BYTES))
        if words is not None:
            return words
    return None


def device_cell_at(index: int) -> int:
    """Return where the cell of a device begins."""
    return _DEVICES_AT + index * _DEVICE_BYTES + _NAME_BYTES


def write_name(buffer: memoryview, index: int, device_id: str) -> None:
    """Write the id of a device, once.

    Raises:
        ValueError: The id is too long, or there are too many.
    """
    name = device_id.encode()
    if index >= MOST_DEVICES:
        raise ValueError(f"a process shares at most {MOST_DEVICES} devices")
    if len(name) > _NAME_MOST:
        raise ValueError(
            f"{device_id!r} is longer than the {_NAME_MOST} bytes that an id of a device may take"
        )
    _NAME.pack_into(buffer, _DEVICES_AT + index * _DEVICE_BYTES, len(name), name, crc32(name))


def read_name(read_at: ReadAt, index: int) -> str | None:
    """Return the id of a device, None where it is not written yet."""
    data = read_at(_DEVICES_AT + index * _DEVICE_BYTES, _NAME.size)
    if len(data) < _NAME.size:
        return None
    size, name, checksum = _NAME.unpack(data)
    name = name[:size]
    return name.decode(errors="replace") if size and crc32(name) == checksum else None


def write_record(buffer: memoryview, slots: int, sequence: int, record: tuple[int, int, int]) -> None:
    """Write record number ``sequence``, over the oldest one.

    Args:
        buffer: The mapped file.
        slots: Records that the ring keeps.
        sequence: Its number, from 0.
        record: Start and end, ns, and the index of the device.
    """
    body = _RECORD.pack(sequence + 1, *record)
    at = RECORDS_AT + sequence % slots * RECORD_BYTES
    buffer[at : at + RECORD_BYTES] = body + _RECORD_CHECKSUM.pack(crc32(body))


def parse_record(data: bytes) -> tuple[int, int, int, int] | None:
    """Return (sequence, start, end, index of the device), None where the record is not whole."""
    body, checksum = data[: _RECORD.size], data[_RECORD.size :]
    if len(checksum) < _RECORD_CHECKSUM.size or _RECORD_CHECKSUM.unpack(checksum)[0] != crc32(body):
        return None
    sequence, start_ns, end_ns, device = _RECORD.unpack(body)
    return sequence - 1, start_ns, end_ns, device
