"""The ring that one process writes its held intervals into, without a lock and of fixed size.

What it writes is its own union for each device, on CLOCK_MONOTONIC, merged where intervals touch, so that
readers need to know nothing of its calls.
"""

from __future__ import annotations

import itertools
from time import monotonic_ns
from typing import TYPE_CHECKING

from gputrace import faults, node_layout

if TYPE_CHECKING:
    from collections.abc import Callable


class _Device:
    """What the writer keeps about one device.

    Attributes:
        start_ns: Start of the newest interval, which may still grow.
        end_ns: Its end; nothing later is written before it.
        is_waiting: That interval is not in the ring yet.
        frontier_ns: Everything up to here is in the ring.
        holders: Calls that hold the device now.
        since_ns: Since when any of them does, or the last frontier after that.
    """

    __slots__ = ("cell", "end_ns", "frontier_ns", "holders", "index", "is_waiting", "since_ns", "start_ns")

    def __init__(self, index: int, cell: node_layout.Cell, frontier_ns: int) -> None:
        self.index = index
        self.cell = cell
        self.start_ns = self.end_ns = 0
        self.is_waiting = False
        self.frontier_ns = frontier_ns
        self.holders = 0
        self.since_ns = 0


class RingWriter:
    """Writes one ring. For one thread at a time.

    Intervals come in the order of their starts, by :meth:`append`, or as the starts and stops of single
    calls. What is written is seen by readers from the next :meth:`frontier` on.

    Args:
        buffer: ``node_layout.file_bytes(slots)`` bytes: who writes, then zeros.
        slots: Records that the ring keeps.
    """

    def __init__(self, buffer: memoryview, slots: int) -> None:
        self._buffer = buffer
        self._slots = slots
        self._state = node_layout.Cell(buffer, node_layout.STATE_AT)
        self._devices: dict[str, _Device] = {}
        self._refused: set[str] = set()
        self._written = 0
        self._accepted = 0
        self._exported = 0
        self._floor_ns = 0

    def start(self, device_id: str, at_ns: int) -> None:
        """Let one more call hold a device."""
        device = self._device(device_id)
        if device is not None:
            if not device.holders:
                device.since_ns = at_ns
            device.holders += 1

    def stop(self, device_id: str, at_ns: int) -> None:
        """Let one call hold a device no more."""
        device = self._device(device_id)
        if device is not None and device.holders:
            device.holders -= 1
            if not device.holders:
                self._append(device, device.since_ns, at_ns)

    def append(self, device_id: str, start_ns: int, end_ns: int) -> None:
        """Add one interval in which this process held a device.

        Args:
            device_id: ``hw.id`` of the device.
            start_ns: Not before the start of the one before; where they overlap they are united.
            end_ns: The instant after the last.
        """
        device = self._device(device_id)
        if device is not None:
            self._append(device, start_ns, end_ns)

    def _append(self, device: _Device, start_ns: int, end_ns: int) -> None:
        if end_ns <= max(start_ns, device.end_ns):
            return
        if start_ns > device.end_ns or not device.is_waiting:
            self._write_waiting(device)
            device.start_ns = max(start_ns, device.end_ns)
            device.is_waiting = True
        device.end_ns = end_ns

    def _write_waiting(self, device: _Device) -> None:
        if device.is_waiting:
            record = (device.start_ns, device.end_ns, device.index)
            node_layout.write_record(self._buffer, self._slots, self._written, record)
            self._written += 1
            device.is_waiting = False

    def declare(self, device_id: str) -> None:
        """Say that this process may hold a device from here on, so that its frontier is waited for."""
        self._device(device_id)

    def frontier(self, device_id: str, at_ns: int) -> None:
        """Say that every hold of this process on a device up to ``at_ns`` is known.

        A call that holds on is written up to here.
        """
        device = self._device(device_id)
        if device is None or at_ns < device.frontier_ns:
            return
        if device.holders:
            self._append(device, device.since_ns, at_ns)
            device.since_ns = at_ns
        self._write_waiting(device)
        device.frontier_ns = at_ns
        device.cell.write(at_ns, self._written, device.end_ns, 0, 0, 0)

    def floor(self, at_ns: int) -> None:
        """Say the same of every device that was not declared; and that this process is alive.

        Comes last in a tick, so that no device which the tick declares is passed.
        """
        self._floor_ns = max(self._floor_ns, at_ns)
        self._write_state()

    def count(self, accepted: int, exported: int) -> None:
        """Say how many calls this process accepted and exported so far."""
        self._accepted, self._exported = accepted, exported
        self._write_state()

    def entering(self, accepted: int) -> Callable[[], None]:
        """Return what counts one more call that this process accepts, on whichever thread.

        Seen at once, also if the process is killed before it ticks.

        Args:
            accepted: Those before.
        """
        buffer, numbers = self._buffer, itertools.count(accepted + 1)

        def entered() -> None:
            try:  # noqa: SIM105 - on the hot path
                node_layout.write_entered(buffer, next(numbers))
            except ValueError:
                # The file was closed meanwhile: nobody asks for this process any more.
                pass

        return entered

    def close(self) -> None:
        """Say that nothing more will come: readers wait for this process no longer."""
        for device_id, device in self._devices.items():
            self.frontier(device_id, max(device.frontier_ns, device.end_ns))
        self._write_state(closed=True)

    def _write_state(self, *, closed: bool = False) -> None:
        devices = len(self._devices)
        self._state.write(
            monotonic_ns(),
            self._accepted,
            self._exported,
            self._floor_ns,
            self._written,
            -devices - 1 if closed else devices,
        )

    def _device(self, device_id: str) -> _Device | None:
        return self._devices.get(device_id) or self._add(device_id)

    def _add(self, device_id: str) -> _Device | None:
        if device_id in self._refused:
            return None
        index = len(self._devices)
        try:
            node_layout.write_name(self._buffer, index, device_id)
        except ValueError as error:
            self._refused.add(device_id)
            faults.log_once(
                "node-device",
                "gputrace: other processes do not see what this one holds of %s: %s",
                device_id,
                error,
            )
            return None
        cell = node_layout.Cell(self._buffer, node_layout.device_cell_at(index))
        device = self._devices[device_id] = _Device(index, cell, self._floor_ns)
        cell.write(self._floor_ns, self._written, 0, 0, 0, 0)
        # Readers learn of its frontier with the count of devices.
        self._write_state()
        return device
