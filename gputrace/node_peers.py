"""What the publisher sees: every ring in the folder, read into one union; and what the dead left behind."""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

from gputrace import faults, node_folder
from gputrace.node_files import MemoryRing, OpenRing, StaleError
from gputrace.node_layout import UnknownFormatError
from gputrace.node_reader import RingReader, read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gputrace.node_union import Union

#: A process that was silent for so long is looked after: it may be dead.
QUIET_NS = 1_000_000_000
#: Stretches that may wait for a process that stalls. Beyond, the others are left unread: their rings
#: overflow and that time is unknown, but the memory of the publisher is bounded.
MOST_WAITING = 200_000


class Dead(NamedTuple):
    """A process that is gone.

    Attributes:
        instance_id: Its ``service.instance.id``.
        pid: Its process id, in its own namespace.
        lost: Calls that it accepted and never exported.
    """

    instance_id: str
    pid: int
    lost: int


class _Peer:
    """One process and its ring.

    Attributes:
        known_ns: Up to where everything of it is known.
        dead: What it left, once it is gone and everything of it was read.
        ends_ns: By device, the end of the last stretch that it held, or may have.
    """

    def __init__(self, ring: OpenRing | None, reader: RingReader) -> None:
        self.known_ns = 0
        self.dead: Dead | None = None
        self.ends_ns: dict[str, int] = {}
        self._ring = ring
        self.reader = reader

    def read(self, union: Union, quiet_ns: int = QUIET_NS) -> None:
        """Read what is new; if it is gone, for the last time.

        Args:
            union: What is read goes there.
            quiet_ns: If it was silent for so long it is looked after.
        """
        if self.dead is not None:
            return
        is_gone = self._is_gone(quiet_ns)
        # After it was found gone: nothing comes behind this.
        if self._read_into(union) or is_gone:
            state = read_state(self.reader.read_at)
            accepted, exported = (0, 0) if state is None else (state.accepted, state.exported)
            identity = self.reader.identity
            self.dead = Dead(identity.instance_id, identity.pid, max(0, accepted - exported))
            union.leave(self)
            self.close()

    def close(self) -> None:
        """Close its file."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _is_gone(self, quiet_ns: int) -> bool:
        state = read_state(self.reader.read_at)
        heartbeat_ns = 0 if state is None else state.heartbeat_ns
        return self._ring is not None and monotonic_ns() - heartbeat_ns > quiet_ns and not self._ring.lives()

    def _read_into(self, union: Union) -> bool:
        reading = self.reader.read()
        for held in reading.held:
            union.hold(self, *held)
        for missed in reading.missed:
            union.miss(*missed)
        for stretch in (*reading.held, *reading.missed):
            self.ends_ns[stretch.device_id] = max(stretch.end_ns, self.ends_ns.get(stretch.device_id, 0))
        for device_id, at_ns in reading.frontiers.items():
            union.frontier(self, device_id, at_ns)
        if reading.floor_ns is not None:
            union.floor(self, reading.floor_ns)
            self.known_ns = min([reading.floor_ns, *reading.frontiers.values()])
        return reading.is_closed


class Peers:
    """All processes of the node.

    Args:
        folder: Where they meet, None where this process is alone.
        own: The ring of this process where it is alone.
        union: What is read goes there.
        begins_ns: What lies before is not asked for.
    """

    def __init__(self, folder: Path | None, own: MemoryRing | None, union: Union, begins_ns: int) -> None:
        self._folder = folder
        self._union = union
        self._begins_ns = begins_ns
        self._boot = node_folder.boot_id()
        self._peers: dict[str, _Peer] = {}
        self._unreadable: set[str] = set()
        self._overwritten = 0
        if own is not None:
            self._add("", _Peer(None, RingReader(own.read_at, begins_ns)))

    @property
    def overwritten(self) -> int:
        """Records that were overwritten before they were read."""
        return self._overwritten + sum(peer.reader.overwritten for peer in self._peers.values())

    def read(self, quiet_ns: int = QUIET_NS) -> None:
        """Read what is new of every process. The instant to advance to is taken before.

        Args:
            quiet_ns: Those that were silent for so long are looked after.
        """
        if self._folder is not None:
            self._scan(self._folder)
        living = [peer for peer in self._peers.values() if peer.dead is None]
        is_full = self._union.waiting > MOST_WAITING
        last_ns = min((peer.known_ns for peer in living), default=0)
        for peer in living:
            if not is_full or peer.known_ns == last_ns:
                peer.read(self._union, quiet_ns)

    def reap(self, shown_ns: Mapping[str, int] | None = None) -> list[Dead]:
        """Remove what dead processes left, and return them: each to one reaper alone.

        Args:
            shown_ns: By device, up to where what was held was shown for good; whoever held beyond stays, for
                the next publisher to read. None for all.
        """
        found = []
        for name, peer in list(self._peers.items()):
            if shown_ns is not None and any(
                end_ns > shown_ns.get(device_id, 0) for device_id, end_ns in peer.ends_ns.items()
            ):
                continue
            if peer.dead is not None and self._folder is not None and _removed(self._folder / name):
                found.append(peer.dead)
                self._forget(name)
        if self._folder is not None:
            _remove_unfinished(self._folder)
        return found

    def close(self) -> None:
        """Close all files."""
        for peer in self._peers.values():
            peer.close()

    def _scan(self, folder: Path) -> None:
        try:
            names = {path.name for path in folder.iterdir() if path.suffix == node_folder.RING_SUFFIX}
        except OSError as error:
            faults.log_once("node-scan", "gputrace: other processes on the devices are not seen: %s", error)
            return
        for name in names - self._peers.keys() - self._unreadable:
            self._open(folder / name)
        for name in [name for name, peer in self._peers.items() if peer.dead is not None]:
            if name not in names:
                self._forget(name)
        self._unreadable &= names

    def _open(self, path: Path) -> None:
        try:
            ring = OpenRing(path, self._boot, self._begins_ns)
        except FileNotFoundError:
            return
        except StaleError:
            _removed(path)
            return
        except (OSError, UnknownFormatError) as error:
            self._unreadable.add(path.name)
            faults.log_once(
                "node-unreadable", "gputrace: what one process holds of the devices is not seen: %s", error
            )
            return
        self._add(path.name, _Peer(ring, ring.reader))

    def _add(self, name: str, peer: _Peer) -> None:
        self._peers[name] = peer
        self._union.join(peer)

    def _forget(self, name: str) -> None:
        self._overwritten += self._peers.pop(name).reader.overwritten


def _removed(path: Path) -> bool:
    """Remove a file; tell whether it was this process that did."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _remove_unfinished(folder: Path) -> None:
    """Remove rings whose processes died while they made them."""
    for path in _listed(folder, node_folder.NEW_SUFFIX):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        # One that is made at this moment may not be locked yet: its process then makes another.
        if not node_folder.is_locked(descriptor):
            _removed(path)
        os.close(descriptor)


def _listed(folder: Path, suffix: str) -> Iterable[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == suffix)
    except OSError:
        return []


class Process(NamedTuple):
    """A process that meets others in the folder.

    Attributes:
        instance_id: Its ``service.instance.id``; the name of the file where that cannot be read.
        pid: Its process id, in its own namespace.
        lives: Whether it lives.
        devices: ``hw.id`` of the devices that it declared.
        heartbeat_ns: When it last said something.
        problem: Why its ring cannot be read, None where it can.
    """

    instance_id: str
    pid: int
    lives: bool
    devices: tuple[str, ...]
    heartbeat_ns: int
    problem: str | None


def processes(folder: Path) -> list[Process]:
    """Return every process whose ring lies in the folder."""
    found = []
    for path in _listed(folder, node_folder.RING_SUFFIX):
        try:
            ring = OpenRing(path, node_folder.boot_id(), 0)
        except FileNotFoundError:
            continue
        except StaleError:
            found.append(
                Process(path.name, 0, lives=False, devices=(), heartbeat_ns=0, problem="earlier boot")
            )
        except (OSError, UnknownFormatError) as error:
            found.append(Process(path.name, 0, lives=False, devices=(), heartbeat_ns=0, problem=str(error)))
        else:
            state = read_state(ring.read_at)
            identity = ring.reader.identity
            found.append(
                Process(
                    identity.instance_id,
                    identity.pid,
                    ring.lives() and not (state is not None and state.is_closed),
                    tuple(ring.reader.devices()),
                    0 if state is None else state.heartbeat_ns,
                    None,
                )
            )
            ring.close()
    return found
