"""Where the processes of a node meet, and which of them still live.

A process keeps an exclusive lock on its ring for as long as it lives, and the kernel gives it back however
the process ends. That also holds between containers, which do not see each other's process ids.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gputrace.node_layout import SLOTS, Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER_VARIABLE = "GPUTRACE_NODE_DIR"

RING_SUFFIX = ".ring"
#: A ring that its process has not finished making.
NEW_SUFFIX = ".new"

#: Files that never reach a disk.
MEMORY = Path("/dev/shm")  # noqa: S108 - the folder that is made inside is private, and checked

_ROOT = 0


class NotSharedError(OSError):
    """The folder cannot be shared; the message says why, and what would help."""


def find(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder where the processes of this node meet, and make it where it is missing.

    Args:
        environment: ``os.environ`` by default.

    Raises:
        OSError: It cannot be used.
    """
    given = (os.environ if environment is None else environment).get(FOLDER_VARIABLE, "").strip()
    if given:
        return _given(Path(given))
    in_memory = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    parent = MEMORY if in_memory else Path(tempfile.gettempdir())
    return private(parent / f"gputrace-{os.geteuid()}")


def _given(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = folder.stat().st_uid
    if os.geteuid() not in {owner, _ROOT} and owner != _ROOT:
        raise NotSharedError(f"{folder} belongs to user {owner}; give it to root or to user {os.geteuid()}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NotSharedError(f"user {os.geteuid()} may not write into {folder}")
    return folder.absolute()


def private(folder: Path) -> Path:
    """Return a folder of this user alone, made where it is missing.

    Raises:
        OSError: It cannot be made, or is not this user's: in a folder where all may write, anybody could
            have made it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotSharedError(f"{folder} is no folder; remove it, or set {FOLDER_VARIABLE}")
    if found.st_uid != os.geteuid():
        raise NotSharedError(f"{folder} belongs to user {found.st_uid}; set {FOLDER_VARIABLE}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def boot_id() -> str:
    """Return the id of this boot, empty where the kernel tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """Return the number of this process's namespace of process ids, 0 where unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None where it is gone or hidden."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program stands in parentheses, and may hold anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(fields[18])


def own_identity(instance_id: str, slots: int = SLOTS) -> Identity:
    """Return the identity of this process."""
    pid = os.getpid()
    return Identity(slots, pid, started(pid) or 0, pid_namespace(), boot_id(), instance_id)


def lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file, if nobody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(descriptor: int) -> bool:
    """Tell whether another open file has the exclusive lock of this one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def lives(identity: Identity, descriptor: int) -> bool:
    """Tell whether the process that wrote a ring lives.

    Args:
        identity: Who wrote it.
        descriptor: The file, opened by this process.
    """
    if not is_locked(descriptor):
        return False
    if identity.pid_namespace != pid_namespace() or not identity.started:
        return True
    # A child forked without Python's knowledge keeps the lock of a parent that is gone.
    found = started(identity.pid)
    if found is not None:
        return found == identity.started
    return _is_hidden(identity.pid)


def _is_hidden(pid: int) -> bool:
    """Tell whether a process without an entry in /proc exists: they can be hidden from other users."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    # It answers to this user, so /proc would show it: a zombie.
    return False
