"""The node: several processes on the same devices, counted together, published once.

Each process writes what it holds into a ring that the others can read. One of them, the publisher, takes the
union of all rings: that is what a device was charged for, and what the processes' own unions come to beyond
it is overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import faults, node_folder, node_handover, node_layout, node_peers
from gputrace.node_files import MemoryRing, RingFile
from gputrace.node_handover import Shown
from gputrace.node_peers import Dead, Peers, Process
from gputrace.node_publisher import Publisher
from gputrace.node_ring import RingWriter
from gputrace.node_union import Shared, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: Whoever begins so shortly after the last publisher ended goes on from there: it may have ended because this
#: process began, and could say only what every process had said by then.
HANDOVER_NS = 1_000_000_000

_PARTING = faults.contained("hand the devices over to another publisher")

__all__ = ["Dead", "Node", "Process", "Shared", "Shown"]


class Node:
    """This process among those of its node. For one thread at a time.

    Where no folder can be shared the process is alone, and publishes for itself.

    Args:
        instance_id: ``service.instance.id`` of this process.
        now_ns: CLOCK_MONOTONIC; nothing is held before.
        agent: This is ``gputrace agent``: it takes the publisher's role from any other process.
        environment: ``os.environ`` by default.
        slots: Records that the ring keeps.

    Attributes:
        ring: What this process holds goes here.
        instance_id: ``instance_id``; it is ``gputrace.publisher`` while :attr:`is_publisher`.
        folder: Where processes meet, None where this one is alone.
        taken_over: What the publisher before this one showed, where this process goes on from there.
        why_alone: Why no folder could be shared, None where one is.
        on_parting: Called with what became final last, where another process takes the role, before it can;
            what it leaves word of by then, that one does not show again.
    """

    def __init__(
        self,
        instance_id: str,
        now_ns: int,
        *,
        agent: bool = False,
        environment: Mapping[str, str] | None = None,
        slots: int = node_layout.SLOTS,
    ) -> None:
        self._agent = agent
        self._environment = environment
        self._slots = slots
        self.on_parting: Callable[[int, dict[str, Shared]], None] | None = None
        self._open(instance_id, now_ns)

    def _open(self, instance_id: str, now_ns: int) -> None:
        self.instance_id = instance_id
        self.folder: Path | None = None
        self.why_alone: str | None = None
        self._own: RingFile | MemoryRing
        self._peers: Peers | None = None
        self._union = Union(now_ns)
        self._overwritten = self._late_ns = 0
        self._opened_ns = self._now_ns = now_ns
        self.taken_over: dict[str, Shown] = {}
        identity = node_folder.own_identity(instance_id, self._slots)
        try:
            folder = node_folder.find(self._environment)
            self._own = RingFile(folder, identity)
            self.folder = folder
        except OSError as error:
            self._own = MemoryRing(identity)
            self.why_alone = str(error)
            faults.log_once(
                "node-alone",
                "gputrace: this process counts its devices alone and sees no others on them: %s",
                error,
            )
        self.ring = RingWriter(self._own.buffer, self._slots)
        self.ring.floor(now_ns)
        self._publisher = Publisher(self.folder, instance_id, agent=self._agent, before_giving_way=self._part)
        self._take_role(now_ns)

    @property
    def is_publisher(self) -> bool:
        """Whether this process speaks for the devices of the node."""
        return self._peers is not None

    @property
    def overwritten(self) -> int:
        """Records of held time that were overwritten before this process read them."""
        return self._overwritten + (0 if self._peers is None else self._peers.overwritten)

    @property
    def late_ns(self) -> int:
        """Held time that came too late to be counted on a device."""
        return self._late_ns + self._union.late_ns

    def tick(self, now_ns: int, floor_ns: int | None = None) -> dict[str, Shared]:
        """Say that this process lives; as publisher, return what became final by device.

        Comes after the frontiers of this process's devices.

        Args:
            now_ns: The instant T of the settler's tick.
            floor_ns: T less the error of the mapping of a device that this process has never held.
        """
        self.ring.floor(now_ns if floor_ns is None else floor_ns)
        if not self._take_role(now_ns) or self._peers is None:
            return {}
        self._peers.read()
        return self._union.advance(now_ns)

    def _take_role(self, now_ns: int) -> bool:
        self._now_ns = now_ns
        holds = self._publisher.try_acquire()
        if holds and self._peers is None:
            self._late_ns += self._union.late_ns
            begins_ns = self._take_over(now_ns)
            own = self._own if isinstance(self._own, MemoryRing) else None
            self._peers = Peers(self.folder, own, self._union, begins_ns)
        elif not holds and self._peers is not None:
            self._leave_role()
        return holds

    def _take_over(self, now_ns: int) -> int:
        """Go on where the last publisher ended, as far as this process was there; return from when on."""
        found = None if self.folder is None else node_handover.read(self.folder)
        shown = {device_id: one for device_id, one in (found or {}).items() if one.final_ns <= now_ns}
        # What ended long before this process began was another time, with nobody to speak for it. Since then
        # nobody has shown anything, or there would be word of it.
        since_ns = self._opened_ns - HANDOVER_NS
        finals_ns = {device_id: max(one.final_ns, since_ns) for device_id, one in shown.items()}
        self.taken_over = {device_id: one for device_id, one in shown.items() if one.final_ns >= since_ns}
        begins_ns = now_ns if found is None else since_ns
        self._union = Union(begins_ns, finals_ns)
        return begins_ns

    def _part(self) -> None:
        if self._peers is not None and self.on_parting is not None:
            with _PARTING:
                self._peers.read()
                self.on_parting(self._now_ns, self._union.advance(self._now_ns))

    def leave_word(self, devices: Mapping[str, Shown]) -> None:
        """As publisher, tell the next one up to where devices were shown."""
        if self.is_publisher and self.folder is not None:
            node_handover.write(self.folder, devices)

    def _leave_role(self) -> None:
        if self._peers is not None:
            self._overwritten += self._peers.overwritten
            self._peers.close()
            self._peers = None

    def final_ns(self, device_id: str) -> int:
        """Return up to where it was said what a device is charged for; for the publisher."""
        return self._union.final_ns(device_id)

    def begins_ns(self, device_id: str) -> int:
        """Return from when on this process says what a device is charged for; for the publisher."""
        return self._union.begins_ns(device_id)

    def first_held_ns(self, device_id: str) -> int | None:
        """Return the first instant since then at which any process held a device; for the publisher."""
        return self._union.first_held_ns(device_id)

    def held_between(self, device_id: str, start_ns: int, end_ns: int) -> int | None:
        """Return for how long any process held a device between two instants; for the publisher.

        Returns:
            None while that is not final, or where it lies before the role was taken or too far back.
        """
        return self._union.held_between(device_id, start_ns, end_ns)

    def missed_between(self, device_id: str, start_ns: int, end_ns: int) -> int | None:
        """Return for how long it will never be known whether any process did, None as above."""
        return self._union.missed_between(device_id, start_ns, end_ns)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was read of any process waits to become final; for the publisher."""
        return not self._union.waiting

    def reap(self, shown_ns: Mapping[str, int] | None = None) -> list[Dead]:
        """Return the processes that are gone, each once on a node; for the publisher.

        Args:
            shown_ns: By device, up to where this one left word; who held beyond is returned later.
                None for all.
        """
        return [] if self._peers is None else self._peers.reap(shown_ns)

    def others(self) -> list[Process]:
        """Return the other processes that this one sees."""
        if self.folder is None:
            return []
        return [one for one in node_peers.processes(self.folder) if one.instance_id != self.instance_id]

    def publisher_id(self) -> str | None:
        """Return the instance id of the node's publisher, None where there is none at the moment."""
        return self._publisher.holder()

    def reset(self, instance_id: str, now_ns: int) -> None:
        """Begin anew in a forked child; what is the parent's stays as it is."""
        self.forget()
        self._open(instance_id, now_ns)

    def forget(self) -> None:
        """Let go of what is the parent's, in a forked child that does not begin anew yet."""
        self._leave_role()
        self._publisher.release()
        self._own.close()

    def conclude(self, now_ns: int) -> dict[str, Shared]:
        """Hold nothing more.

        Returns:
            As publisher, what became final last.
        """
        self.ring.close()
        # The last one out takes the role if nobody has it, and leaves no ring behind.
        if not self._take_role(now_ns) or self._peers is None:
            return {}
        # There is no later tick in which to find that a process is gone.
        self._peers.read(quiet_ns=0)
        last = self._union.advance(now_ns)
        if self.is_settled:
            # Read to its end. Else, as those of other processes, it waits for the next publisher.
            self._own.remove()
        return last

    def close(self, now_ns: int) -> dict[str, Shared]:
        """Leave the node, and give the role back.

        Returns:
            As publisher, what became final last.
        """
        last = self.conclude(now_ns)
        self.leave()
        return last

    def leave(self) -> None:
        """Give the role back; after :meth:`conclude`."""
        self._leave_role()
        self._publisher.release()
        self._own.close()
