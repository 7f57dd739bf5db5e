"""What is wrapped of Ray, as ``patching`` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace.integrations import patching
from gputrace.integrations.patching import Patch, restore

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Patch", "apply", "restore"]

_VERSION = patching.Version("Ray", "2.60", "ray")


def apply(patches: Iterable[Patch]) -> bool:
    """Wrap functions of Ray; see ``patching.apply``."""
    return patching.apply(patches, _VERSION)
