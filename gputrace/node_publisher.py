"""The publisher's role: one process a node speaks for its devices.

The role is a lock on a file, so that the kernel frees it however its holder ends. ``gputrace agent`` holds a
second lock for as long as it runs: where that is taken, every other process gives way.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gputrace import faults, node_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_ROLE = "publisher.lock"
_AGENT = "agent.lock"
_INSTANCE_MOST = 256


class _LockFile:
    """A lock file, opened when it is first needed, and again after it was removed.

    Args:
        path: Where it lies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock, if nobody has it."""
        return node_folder.lock(self._open())

    def is_taken(self) -> bool:
        """Tell whether another process has it."""
        return self._path.exists() and node_folder.is_locked(self._open())

    def stands(self) -> bool:
        """Tell whether the file that is open is the one that others find."""
        try:
            return self._descriptor is not None and os.path.samestat(
                os.fstat(self._descriptor), self._path.stat()
            )
        except FileNotFoundError:
            return False

    def write(self, text: str) -> None:
        """Write who has the lock."""
        descriptor = self._open()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode()[:_INSTANCE_MOST], 0)

    def read(self) -> str:
        """Return who wrote last."""
        return os.pread(self._open(), _INSTANCE_MOST, 0).decode(errors="replace")

    def close(self) -> None:
        """Give the lock back; in a forked child, leave it to the parent."""
        # Not LOCK_UN: parent and child share the lock, which that would take from both.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and not self.stands():
            self.close()
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                # Kernels refuse O_CREAT on a file of another user's in a folder that all may write into.
                self._descriptor = os.open(self._path, flags)
            except FileNotFoundError:
                self._descriptor = os.open(self._path, flags | os.O_CREAT, 0o600)
                # Who may enter the folder may take part: other users of it too, whatever the umask.
                with suppress(PermissionError):
                    os.fchmod(self._descriptor, 0o666)
        return self._descriptor


class Publisher:
    """The role, as one process sees it.

    Args:
        folder: Where the processes of the node meet; None where they cannot: then each speaks for itself.
        instance_id: ``service.instance.id`` of this process, ``gputrace.publisher`` while it holds the role.
        agent: This is ``gputrace agent``, for which other processes give way.
        before_giving_way: Called while this process still holds the role that another one wants.
    """

    def __init__(
        self,
        folder: Path | None,
        instance_id: str,
        *,
        agent: bool = False,
        before_giving_way: Callable[[], None] = lambda: None,
    ) -> None:
        self._role = None if folder is None else _LockFile(folder / _ROLE)
        self._claim = None if folder is None else _LockFile(folder / _AGENT)
        self._instance_id = instance_id
        self._agent = agent
        self._before_giving_way = before_giving_way
        self._claims = False
        self._holds = folder is None

    @property
    def is_publisher(self) -> bool:
        """Whether this process held the role when it was last asked."""
        return self._holds

    def try_acquire(self) -> bool:
        """Take the role, keep it, or give way; to be asked once a tick.

        Returns:
            Whether this process holds the role now.
        """
        if self._role is None or self._claim is None:
            return True
        try:
            self._holds = self._try(self._role, self._claim)
        except OSError as error:
            self._give_up()
            faults.log_once(
                "node-role", "gputrace: this process cannot publish the devices of the node: %s", error
            )
        return self._holds

    def _try(self, role: _LockFile, claim: _LockFile) -> bool:
        if self._agent:
            if not (self._claims and claim.stands()):
                self._claims = claim.take()
            wanted = self._claims
        else:
            wanted = not claim.is_taken()
        if not wanted:
            if self._holds:
                self._before_giving_way()
            self._give_up()
            return False
        if self._holds and role.stands():
            return True
        if not role.take():
            return False
        if not role.stands():
            # Removed between opening and locking: others would lock another file.
            role.close()
            return False
        role.write(self._instance_id)
        return True

    def holder(self) -> str | None:
        """Return the instance id of the process that holds the role, None where nobody does."""
        if self._holds:
            return self._instance_id
        try:
            return self._role.read() if self._role is not None and self._role.is_taken() else None
        except OSError:
            return None

    def release(self) -> None:
        """Give the role back. In a forked child: leave it to the parent, and start without."""
        self._give_up()
        if self._claim is not None:
            self._claim.close()
        self._claims = False

    def _give_up(self) -> None:
        if self._role is not None:
            self._role.close()
            self._holds = False
