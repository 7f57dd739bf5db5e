"""Ring files: making one's own, and reading those of the other processes of a node."""

from __future__ import annotations

import mmap
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from gputrace import node_folder, node_layout
from gputrace.node_reader import RingReader

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.node_layout import Identity

# How often a ring is made anew, where somebody removed it before it had its name.
_ATTEMPTS = 3


class RingFile:
    """The ring file of this process, mapped and locked.

    Args:
        folder: Where it is made.
        identity: Who writes it.

    Raises:
        OSError: It could not be made: no space, say.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._make(folder, identity)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _make(self, folder: Path, identity: Identity) -> None:
        name = f"{identity.pid}-{secrets.token_hex(8)}"
        new = folder / (name + node_folder.NEW_SUFFIX)
        self.path = folder / (name + node_folder.RING_SUFFIX)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600)
        try:
            # Space is taken now: a page that cannot be had later would end the process with SIGBUS.
            os.posix_fallocate(descriptor, 0, node_layout.file_bytes(identity.slots))
            # Who may enter the folder may read: a publisher of another user's, too, whatever the umask.
            os.fchmod(descriptor, 0o644)
            node_folder.lock(descriptor)
            self._map = mmap.mmap(descriptor, node_layout.file_bytes(identity.slots))
            self._map[: len(identity.pack())] = identity.pack()
            # Others see it from here on: whole, and locked.
            new.rename(self.path)
        except OSError:
            os.close(descriptor)
            new.unlink(missing_ok=True)
            raise
        self._descriptor: int | None = descriptor
        self.buffer = memoryview(self._map)

    def close(self) -> None:
        """Let the file go; with it goes the lock. In a forked child the parent keeps both."""
        self.buffer.release()
        self._map.close()
        # Once: by the second time the number may be that of a file of the program's.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file, which nobody is to read any more."""
        with suppress(OSError):
            self.path.unlink()


class StaleError(Exception):
    """The ring is of an earlier boot: its clock means nothing."""


class OpenRing:
    """The ring of some process, opened for reading.

    It is read, never mapped: a file that somebody cuts short then ends in an answer, not in SIGBUS.

    Args:
        path: The file.
        boot: Id of this boot.
        begins_ns: What lies before is not asked for.

    Raises:
        OSError: It cannot be opened.
        UnknownFormatError: It is no ring that can be read.
        StaleError: It is of an earlier boot.
    """

    def __init__(self, path: Path, boot: str, begins_ns: int) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self.reader = RingReader(self.read_at, begins_ns)
        except (OSError, ValueError):
            self.close()
            raise
        if self.reader.identity.boot != boot:
            self.close()
            raise StaleError

    def read_at(self, at: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``at``."""
        return os.pread(self._descriptor, size, at)

    def lives(self) -> bool:
        """Tell whether its process lives."""
        return node_folder.lives(self.reader.identity, self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class MemoryRing:
    """The ring of a process that nobody else sees: the same, without a file.

    Args:
        identity: Who writes it.
    """

    def __init__(self, identity: Identity) -> None:
        self._bytes = bytearray(node_layout.file_bytes(identity.slots))
        header = identity.pack()
        self._bytes[: len(header)] = header
        self.buffer = memoryview(self._bytes)

    def read_at(self, at: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``at``."""
        return self.buffer[at : at + size].tobytes()

    def close(self) -> None:
        """Nothing to let go."""

    def remove(self) -> None:
        """Nothing to remove."""
