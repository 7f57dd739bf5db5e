"""From a path to a spend report: survey, read, count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputrace.analysis import latency, readings
from gputrace.analysis.spend import grouping, spend
from gputrace.analysis.store import FilesChangedError, Store
from gputrace.analysis.survey import Advance, NoDataError, Survey, survey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gputrace.analysis.figures import SpendReport

# A program that rotates its files renames some between our look and our read.
_ATTEMPTS = 3


def spend_report(
    path: Path,
    by: Sequence[str] = ("feature",),
    since_ns: int | None = None,
    *,
    percentiles: bool = True,
    advance: Advance | None = None,
) -> SpendReport:
    """Report what the data of one folder or file says.

    Args:
        path: Folder that gputrace wrote to, or one file of it.
        by: Fields to group by, of `latency.FIELDS`.
        since_ns: Start of the window, Unix time in nanoseconds; all data if `None`.
        percentiles: Whether to read spans, which is most of the work.
        advance: Told how far the reading is.

    Raises:
        NoDataError: There is nothing to report on; the message says why.
    """
    for _ in range(_ATTEMPTS):
        found = survey(path, advance)
        store = Store(found, advance)
        try:
            return _report(store, found, by, since_ns, percentiles=percentiles)
        except FilesChangedError:
            continue
        finally:
            store.close()
    message = f"{path}: files kept going away while they were read. Try again, or copy the folder first."
    raise NoDataError(message)


def _report(
    store: Store, found: Survey, by: Sequence[str], since_ns: int | None, *, percentiles: bool
) -> SpendReport:
    store.load_points()
    values = readings.read(store, since_ns)
    fields = grouping(values, by)
    latencies = None
    if percentiles:
        store.load_calls()
        start_ns = None if since_ns is None else values.start_ns
        latencies = latency.read(store, values.series, fields, start_ns)
    skipped = {file.name: count for file, count in store.skipped().items()}
    report = spend(values, fields, latencies, skipped)
    return replace(report, notes=(*report.notes, *found.unreadable))
