"""What the metric points say about one window of time.

Every counter is cumulative, so its increase over a window is the value at the
end less the value at the start. Both are read at exports of the same process,
for all of its series at once: at one export the books agree, between two they
need not. A gauge is what it was at the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import origins, overlap, publishers, stretches
from gputrace.analysis.origins import Origins
from gputrace.analysis.stretches import NS
from gputrace.analysis.survey import NoDataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.analysis.publishers import LeftOut
    from gputrace.analysis.store import Store
    from gputrace.analysis.stretches import Run


@dataclass(frozen=True, slots=True)
class Series:
    """One series of one process, over the window.

    Attributes:
        process: `service.instance.id`, or what else tells processes apart.
        metric: Name of the metric.
        attributes: Those of its points.
        value: Its increase over the window, in the unit of the metric; of a gauge, its last value.
        fell: Whether the counter ever went backwards, which a counter may not.
    """

    process: str
    metric: str
    attributes: Mapping[str, str]
    value: float
    fell: bool = False


@dataclass(frozen=True, slots=True)
class Readings:
    """All that the numbers of a report are made of, except percentiles.

    Attributes:
        series: One entry a series.
        runs: Who read which device when: one publisher per device at any moment.
        start_ns: First export of any process in the window, Unix time.
        end_ns: Last export.
        clip_error_s: Largest distance between the asked start and an export that was used for it.
        left_out: Readings of further publishers at the same time, which are in no series.
        corrected_s: What several processes charged at once and was taken off the features, by `hw.type`.
        origins: How many processes exported in the window, and how many of them are simulated.
        notes: A sentence for all that a reader must know about whose readings these are.
    """

    series: tuple[Series, ...]
    runs: tuple[Run, ...]
    start_ns: int
    end_ns: int
    clip_error_s: float = 0.0
    left_out: tuple[LeftOut, ...] = ()
    corrected_s: Mapping[str, float] = field(default_factory=dict)
    origins: Origins = field(default_factory=Origins)
    notes: tuple[str, ...] = ()


# The start of the window in each process: its last export before the cut; where
# older files are gone, its first export that is left; nothing for a process that
# started after the cut, whose counters all began at 0.
_PROCESSES = """
CREATE TEMP TABLE process AS
SELECT process, min(at_ns) AS first_ns, max(at_ns) AS last_ns, CASE
    WHEN $cut IS NULL THEN NULL
    WHEN min(at_ns) <= $cut THEN max(at_ns) FILTER (at_ns <= $cut)
    WHEN min(start_ns) < $cut THEN min(at_ns) END AS base_ns
FROM point GROUP BY process
"""

_GAUGES = [metric.name for metric in catalogue.METRICS if metric.kind is catalogue.Kind.GAUGE]

_WINDOW = """
SELECT min(coalesce(base_ns, first_ns)), max(last_ns), max(abs(base_ns - $cut))
FROM process WHERE base_ns IS NULL OR last_ns > base_ns
"""

_SERIES = """
SELECT process, metric, attributes,
    arg_max(value, at_ns) - CASE WHEN list_contains($gauges, metric) THEN 0
        ELSE coalesce(arg_max(value, at_ns) FILTER (at_ns <= base_ns), 0) END AS increase,
    max(value) > arg_max(value, at_ns) AND NOT list_contains($gauges, metric) AS fell
FROM point JOIN process USING (process)
WHERE base_ns IS NULL OR last_ns > base_ns
GROUP BY process, metric, delta, start_ns, attributes
-- What a gauge no longer shows at the last export, it has no value of.
HAVING NOT list_contains($gauges, metric) OR max(at_ns) = max(last_ns)
"""


def utc(at_ns: int) -> str:
    """Return Unix nanoseconds as ISO 8601 in UTC, to the microsecond."""
    moment = datetime.fromtimestamp(at_ns // NS, tz=timezone.utc)
    return moment.replace(microsecond=at_ns % NS // 1000).isoformat(timespec="microseconds")[:-6] + "Z"


def read(store: Store, since_ns: int | None = None) -> Readings:
    """Read every series over the window.

    Args:
        store: A store whose points are loaded.
        since_ns: Start of the window, Unix time in nanoseconds; all data if `None`.

    Raises:
        NoDataError: There are no points of gputrace, or none after `since_ns`.
    """
    count, last_ns = store.rows("SELECT count(*), max(at_ns) FROM point")[0]
    if not count:
        message = (
            "There is OTLP/JSON, but no metric of gputrace in it. Are these the files of a program "
            "that uses gputrace, and did it run long enough for one export?"
        )
        raise NoDataError(message)
    if since_ns is not None and last_ns <= since_ns:
        message = (
            f"No reading after {utc(since_ns)}: the last one is of {utc(last_ns)}. Give an earlier --since."
        )
        raise NoDataError(message)
    store.rows(_PROCESSES, {"cut": since_ns})
    choice = publishers.choose(stretches.read(store))
    publishers.leave_out(store, choice.left_out)
    corrected_s = overlap.correct(store)
    series = tuple(
        Series(
            process,
            metric,
            {item["key"]: item["text"] for item in attributes if item["text"] is not None},
            value,
            fell,
        )
        for process, metric, attributes, value, fell in store.rows(_SERIES, {"gauges": _GAUGES})
    )
    start_ns, end_ns, distance_ns = store.rows(_WINDOW, {"cut": since_ns})[0]
    return Readings(
        series,
        choice.runs,
        start_ns,
        end_ns,
        (distance_ns or 0) / NS,
        choice.left_out,
        corrected_s,
        origins.read(store),
        choice.notes,
    )
