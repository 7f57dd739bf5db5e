"""Time that several processes charged at once, taken off their features.

Each process charges its features for what it held, so a moment that two held is in the features' time twice
and in the device's once; the publisher counts how much that is. Which device a feature held is in no metric,
so the correction goes by type and name of the devices, minute by minute: what the devices of a name were
charged twice in a minute is taken off the features' time on that name in that minute, off each in
proportion. Cost and energy of the same interval lose the same share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import amending

if TYPE_CHECKING:
    from gputrace.analysis.store import Store

_MINUTE_NS = 60_000_000_000

_METRICS = (catalogue.FEATURE_TIME.name, catalogue.FEATURE_COST.name, catalogue.FEATURE_ENERGY.name)

_ANY = "SELECT count(*) FROM point WHERE metric = $metric AND value > 0"

# What a metric of seconds grew by between two exports of a process, on all devices of a
# name, and how long each such interval lies in each minute. A process that was never
# exported before counts from the start of its counters.
_MINUTES = """
CREATE TEMP TABLE {table} AS
WITH step AS (
    SELECT process, at_ns, base_ns, start_ns,
        coalesce(list_filter(attributes, lambda item: item.key = $type)[1].text, '') AS hw_type,
        coalesce(list_filter(attributes, lambda item: item.key = $name)[1].text, '') AS hw_name,
        value - coalesce(lag(value) OVER (
            PARTITION BY process, delta, start_ns, attributes ORDER BY at_ns), 0) AS step
    FROM point JOIN process USING (process) WHERE metric = $metric),
export AS (
    SELECT process, at_ns, lag(at_ns) OVER (PARTITION BY process ORDER BY at_ns) AS before_ns
    FROM (SELECT DISTINCT process, at_ns FROM step)),
span AS (
    SELECT process, hw_type, hw_name, at_ns, sum(step) AS seconds,
        least(at_ns - 1, coalesce(
            before_ns, min(start_ns) FILTER (start_ns > 0), at_ns - $minute_ns)) AS from_ns
    FROM step JOIN export USING (process, at_ns)
    WHERE base_ns IS NULL OR at_ns > base_ns
    GROUP BY process, hw_type, hw_name, at_ns, before_ns HAVING sum(step) > 0),
split AS (
    SELECT *, unnest(generate_series(from_ns // $minute_ns, (at_ns - 1) // $minute_ns)) AS minute FROM span)
SELECT process, hw_type, hw_name, at_ns, minute, seconds,
    (least(at_ns, (minute + 1) * $minute_ns) - greatest(from_ns, minute * $minute_ns))
        / (at_ns - from_ns) AS part
FROM split
"""

_SHARES = """
CREATE TEMP TABLE overlap_share AS
WITH twice AS (
    SELECT hw_type, hw_name, minute, sum(seconds * part) AS twice FROM overlap_minute GROUP BY ALL),
whole AS (
    SELECT hw_type, hw_name, minute, sum(seconds * part) AS whole FROM feature_minute GROUP BY ALL),
share AS (
    SELECT hw_type, hw_name, minute, least(1, twice / whole) AS share
    FROM twice JOIN whole USING (hw_type, hw_name, minute) WHERE twice > 0)
SELECT process, hw_type, hw_name, at_ns, sum(part * share) AS share, any_value(seconds) AS seconds
FROM feature_minute JOIN share USING (hw_type, hw_name, minute) GROUP BY process, hw_type, hw_name, at_ns
"""

_CORRECTED = "SELECT hw_type, sum(share * seconds) FROM overlap_share GROUP BY hw_type"


def correct(store: Store) -> dict[str, float]:
    """Take what was charged twice off the features' time, cost and energy.

    Args:
        store: A store whose points are those of one publisher per device, and whose table `process` tells
            the window; the points of the features are changed.

    Returns:
        The seconds that were taken off, by `hw.type`; empty where nothing was charged twice.
    """
    if not store.rows(_ANY, {"metric": catalogue.DEVICE_OVERLAP_TIME.name})[0][0]:
        return {}
    keys = {"type": catalogue.HW_TYPE, "name": catalogue.HW_NAME, "minute_ns": _MINUTE_NS}
    for table, metric in (
        ("overlap_minute", catalogue.DEVICE_OVERLAP_TIME),
        ("feature_minute", catalogue.FEATURE_TIME),
    ):
        store.rows(_MINUTES.format(table=table), {"metric": metric.name, **keys})
    store.rows(_SHARES)
    amending.reduce(
        store, _METRICS, {"hw_type": catalogue.HW_TYPE, "hw_name": catalogue.HW_NAME}, "overlap_share"
    )
    return dict(store.rows(_CORRECTED))
