"""What one publisher leaves to the next: up to where it showed each device, so that none is shown twice."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import faults, node_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE = "published.json"
_WRITING = faults.contained("leave word for the next publisher")


class Shown(NamedTuple):
    """A device as the last publisher showed it.

    Attributes:
        final_ns: Up to here on CLOCK_MONOTONIC.
        name: Product name, None where unknown.
        parent: UUID of the GPU that a slice is cut from.
        untold_ns: How much of the time before was shown in no state: nobody held the device, and no reading
            had told yet what it did.
    """

    final_ns: int
    name: str | None = None
    parent: str | None = None
    untold_ns: int = 0


def write(folder: Path, devices: Mapping[str, Shown]) -> None:
    """Leave word for the next publisher; whoever reads it finds all of it or what was there before."""
    with _WRITING:
        path = folder / _FILE
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps({"boot": node_folder.boot_id(), "devices": devices}))
        os.replace(unfinished, path)  # noqa: PTH105 - os.replace says that it replaces


def read(folder: Path) -> dict[str, Shown] | None:
    """Return what was shown last, nothing where nobody left word; None where that cannot be known."""
    try:
        found = json.loads((folder / _FILE).read_text())
        if found["boot"] != node_folder.boot_id():
            return {}
        return {str(device): _parsed(shown) for device, shown in found["devices"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(fields: list[Any]) -> Shown:
    # Another version may have appended some.
    shown = Shown(*fields[: len(Shown._fields)])
    for time in (shown.final_ns, shown.untold_ns):
        if type(time) is not int or time < 0:
            raise ValueError(f"{time!r} is no time in {fields}")
    for name in (shown.name, shown.parent):
        if not isinstance(name, (str, type(None))):
            raise TypeError(f"{name!r} is no name in {fields}")
    return shown
