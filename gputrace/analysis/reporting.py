"""From a path to a spend report: survey, read, count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputrace.analysis import achievements, latency, readings
from gputrace.analysis.pricing import reprice
from gputrace.analysis.spend import grouping, spend
from gputrace.analysis.store import FilesChangedError, Store
from gputrace.analysis.survey import Advance, NoDataError, survey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gputrace.analysis.figures import SpendReport
    from gputrace.analysis.latency import Latencies
    from gputrace.analysis.readings import Readings
    from gputrace.prices_timeline import PriceTable

# A program that rotates its files renames some between our look and our read.
_ATTEMPTS = 3


def spend_report(  # noqa: PLR0913 - one argument an option of the command
    path: Path,
    by: Sequence[str] = ("feature",),
    since_ns: int | None = None,
    *,
    percentiles: bool = True,
    prices: PriceTable | None = None,
    idle: str = "separate",
    advance: Advance | None = None,
) -> SpendReport:
    """Report what the data of one folder or file says.

    Args:
        path: Folder that gputrace wrote to, or one file of it.
        by: Fields to group by, of `latency.FIELDS`.
        since_ns: Start of the window, Unix time in nanoseconds; all data if `None`.
        percentiles: Whether to read spans, which is most of the work.
        prices: Price book that all costs are made anew from; `None` leaves them as recorded.
        idle: What becomes of the cost of idle time, of `prices_billing.IDLE_POLICIES`.
        advance: Told how far the reading is.

    Raises:
        NoDataError: There is nothing to report on; the message says why.
        PriceBookError: Rows of the book claim a device alike.
    """
    for _ in range(_ATTEMPTS):
        found = survey(path, advance)
        store = Store(found, advance)
        try:
            values, said = _points(store, since_ns, prices)
            fields = grouping(values, by)
            latencies = _latencies(store, values, fields, since_ns) if percentiles else None
            skipped = {file.name: count for file, count in store.skipped().items()}
            known = _known(store, values, since_ns) if percentiles else None
            report = spend(values, fields, latencies, skipped, prices=prices, idle=idle, known=known)
            return replace(report, notes=(*report.notes, *said, *found.unreadable))
        except FilesChangedError:
            continue
        finally:
            store.close()
    message = f"{path}: files kept going away while they were read. Try again, or copy the folder first."
    raise NoDataError(message)


def _points(
    store: Store, since_ns: int | None, prices: PriceTable | None
) -> tuple[Readings, tuple[str, ...]]:
    store.load_points()
    values = readings.read(store, since_ns)
    return (values, ()) if prices is None else reprice(store, values, prices)


def _latencies(store: Store, values: Readings, fields: Sequence[str], since_ns: int | None) -> Latencies:
    store.load_calls(identities=achievements.needs_spans(values.series))
    # Spans from before the first reading are calls that it counts.
    start_ns = None if since_ns is None else min(values.start_ns, since_ns)
    return latency.read(store, values.series, fields, start_ns)


def _known(store: Store, values: Readings, since_ns: int | None) -> dict[achievements.Count, float]:
    """Return what the spans say of outcomes that were counted for no feature, since the same export."""
    if not achievements.needs_spans(values.series):
        return {}
    return achievements.joined(store, None if since_ns is None else values.start_ns)
