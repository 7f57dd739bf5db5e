"""What lies in a data folder: which files, and which signal each line holds.

DuckDB parses a line's JSON at about a gigabyte a second; telling lines apart by
their first bytes is several times cheaper. So the folder is surveyed first, and
each query reads only the files that hold its signal. Names of files decide
nothing: only what a line says does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

METRICS = "resourceMetrics"
SPANS = "resourceSpans"
LOGS = "resourceLogs"

Advance = Callable[[str, float], None]
"""Told the name of a stage and the part of it that is done, 0 to 1."""

_CHUNK_BYTES = 4 << 20
_HEAD_BYTES = 128
_NAMED_FILES = 5
_SIGNAL = re.compile(rb'\s*(?:\xef\xbb\xbf)?\s*\{\s*"(resourceMetrics|resourceSpans|resourceLogs)"')


class NoDataError(Exception):
    """There is nothing to report on; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What one file held when it was surveyed.

    Attributes:
        path: The file.
        size: Bytes.
        lines: Number of lines by signal; `None` for lines of no signal.
        longest: Length of the longest line in bytes.
    """

    path: Path
    size: int
    lines: Counter[str | None]
    longest: int

    def holds(self, signal: str) -> bool:
        """Say whether any line starts as one of `signal` does."""
        return self.lines[signal] > 0

    @property
    def foreign(self) -> bool:
        """Say whether there are lines, and none of them is OTLP/JSON."""
        return bool(self.lines) and self.lines[None] == sum(self.lines.values())


@dataclass(frozen=True, slots=True)
class Survey:
    """The files of one data folder.

    Attributes:
        source: The folder or file that was asked for.
        files: Those that could be read.
        unreadable: Why the others could not, a sentence each.
    """

    source: Path
    files: tuple[FileFacts, ...]
    unreadable: tuple[str, ...]

    def holding(self, signal: str) -> tuple[FileFacts, ...]:
        """Return the files with at least one line of `signal`."""
        return tuple(file for file in self.files if file.holds(signal))


def survey(source: Path, advance: Advance | None = None) -> Survey:
    """Look through every `*.jsonl` file of a folder, or through a single file.

    Args:
        source: Folder that gputrace wrote to, or one file of it.
        advance: Told how far the reading is.

    Raises:
        NoDataError: The path is missing, or no line there is OTLP/JSON.
    """
    paths = _paths(source)
    sizes = {path: _size(path) for path in paths}
    whole = sum(sizes.values()) or 1
    files: list[FileFacts] = []
    unreadable: list[str] = []
    done = 0
    for path in paths:
        try:
            files.append(_facts(path))
        except OSError as error:
            unreadable.append(f"{path.name} was left out: {error.strerror or error}.")
        done += sizes[path]
        if advance is not None:
            advance("Looking through the files", done / whole)
    result = Survey(source, tuple(files), tuple(unreadable))
    _refuse_foreign(result)
    return result


def _paths(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.exists():
        message = (
            f"{source}: no such file or folder. Give the folder that gputrace writes to (gputrace-data)."
        )
        raise NoDataError(message)
    if not source.is_dir():
        message = f"{source} is neither a file nor a folder. Give the folder that gputrace writes to."
        raise NoDataError(message)
    try:
        paths = sorted(path for path in source.glob("*.jsonl") if path.is_file())
    except OSError as error:
        message = f"{source} cannot be listed: {error.strerror or error}."
        raise NoDataError(message) from error
    if not paths:
        message = f"{source} holds no *.jsonl file. Has a program with gputrace written there yet?"
        raise NoDataError(message)
    return paths


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _facts(path: Path) -> FileFacts:
    lines: Counter[str | None] = Counter()
    longest = size = 0
    # Plain reads, no memory map: a file that is cut while it is mapped kills the process.
    with path.open("rb", buffering=0) as file:
        head, length = b"", 0
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                if length:
                    line_head, length = (head + chunk[start:end][:_HEAD_BYTES]), length + end - start
                else:
                    line_head, length = chunk[start : min(end, start + _HEAD_BYTES)], end - start
                longest = max(longest, length)
                _count(lines, line_head)
                head, length, start = b"", 0, end + 1
            if len(head) < _HEAD_BYTES:
                head += chunk[start : start + _HEAD_BYTES]
            length += len(chunk) - start
        if length:
            longest = max(longest, length)
            _count(lines, head)
    return FileFacts(path, size, lines, longest)


def _count(lines: Counter[str | None], head: bytes) -> None:
    if head.startswith(b'{"resourceSpans"'):
        lines[SPANS] += 1
    elif match := _SIGNAL.match(head):
        lines[match[1].decode()] += 1
    elif head.strip():
        lines[None] += 1


def _refuse_foreign(found: Survey) -> None:
    if any(file.holds(signal) for file in found.files for signal in (METRICS, SPANS, LOGS)):
        return
    reasons = [
        f"{file.path.name}: {file.lines[None]:,} lines, none of them OTLP/JSON."
        if file.lines
        else f"{file.path.name} is empty."
        for file in found.files[:_NAMED_FILES]
    ]
    message = f"{found.source} holds no gputrace data. {' '.join((*found.unreadable, *reasons))}"
    raise NoDataError(message)
