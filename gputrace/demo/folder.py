"""Where a demo's data goes, so that its report shows this run and nothing else."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE_NAME = "gputrace-demo"

# The service is named at the start of every line, before the first span or point.
HEAD_BYTES = 8192
_BY_A_DEMO = re.compile(
    rb'"key"\s*:\s*"service\.name"\s*,\s*"value"\s*:\s*\{\s*"stringValue"\s*:\s*"'
    + SERVICE_NAME.encode()
    + rb'"'
)


def prepare(folder: Path) -> Path:
    """Return an existing folder whose report will show the coming run alone.

    Files that an earlier demo wrote, known by the service name in their first line, are
    removed. No other file ever is: where any remain, a fresh folder below is used.

    Args:
        folder: What the user named. It is created where it is missing.

    Raises:
        OSError: It cannot be created, read or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    foreign = False
    for path in _records(folder):
        if _is_a_demos(path):
            path.unlink()
        else:
            foreign = True
    if not foreign:
        return folder
    fresh = folder / f"demo-{datetime.now(timezone.utc):%Y%m%dT%H%M%S.%f}Z"
    fresh.mkdir()
    return fresh


def _records(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.glob("*.jsonl") if path.is_file() and path.stat().st_size)


def _is_a_demos(path: Path) -> bool:
    with path.open("rb") as stream:
        return _BY_A_DEMO.search(stream.readline(HEAD_BYTES)) is not None
