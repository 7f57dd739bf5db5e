"""Who this process is: the identity under which its telemetry is told apart."""

from __future__ import annotations

import socket
import uuid

_instance_id: str | None = None


def instance_id() -> str:
    """Return ``service.instance.id`` of this process, made when first asked for."""
    global _instance_id  # noqa: PLW0603 - one identity a process
    if _instance_id is None:
        _instance_id = str(uuid.uuid4())
    return _instance_id


def use_instance_id(value: str) -> None:
    """Take over the identity that the user's own resource already carries."""
    global _instance_id  # noqa: PLW0603 - one identity a process
    _instance_id = value


def reset() -> None:
    """Give a forked child an identity of its own."""
    global _instance_id  # noqa: PLW0603 - one identity a process
    _instance_id = None


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()
