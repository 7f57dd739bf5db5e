"""Who read which device when: the stretches of time in which a publisher's states grow.

A publisher that hands its role over goes on exporting what it read, which stays what it is. So a stretch
ends where the states stop, not where the exports do, and the same publisher may begin another one later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from gputrace.analysis.store import Store

NS = 1_000_000_000
# Two publishers that hand over within a second do not compete, and leave no gap.
SAME_MOMENT_NS = NS


@dataclass(frozen=True, slots=True)
class Run:
    """One stretch of readings of one device by one publisher in one process.

    Attributes:
        process: As in `readings.Series`.
        publisher: `gputrace.publisher`.
        device: `hw.id`.
        start_ns: First reading in the window, Unix time.
        end_ns: Last reading.
        wall_s: Sum of the states over the stretch.
        elapsed_s: Time by the clock between the first and the last export that show a value.
        states_s: Sum of the states between the same two exports: the same, where every moment has a state.
        exported_ns: Last export of the publisher's states, whether or not they still grew; 0 if not known.
    """

    process: str
    publisher: str
    device: str
    start_ns: int
    end_ns: int
    wall_s: float
    elapsed_s: float
    states_s: float
    exported_ns: int = 0


# What each export of a device's states adds, and the time that this covers: the whole
# interval before it, except where a stretch begins or ends in its midst.
_READINGS = """
CREATE TEMP TABLE reading AS
WITH step AS (
    SELECT process, base_ns, at_ns,
        coalesce(list_filter(attributes, lambda item: item.key = $publisher)[1].text, '') AS publisher,
        coalesce(list_filter(attributes, lambda item: item.key = $device)[1].text, '') AS device,
        value - coalesce(lag(value) OVER (
            PARTITION BY process, delta, start_ns, attributes ORDER BY at_ns), 0) AS step
    FROM point JOIN process USING (process)
    WHERE metric = $metric AND (base_ns IS NULL OR last_ns > base_ns)),
export AS (
    SELECT process, publisher, device, base_ns, at_ns, sum(step) AS step
    FROM step GROUP BY ALL),
beside AS (
    SELECT *, lag(at_ns) OVER key AS from_ns, lag(step) OVER key > 1e-6 AS goes_on,
        lead(step) OVER key <= 1e-6 AS halts
    FROM export WINDOW key AS (PARTITION BY process, publisher, device ORDER BY at_ns)),
extent AS (
    SELECT *, step > 1e-6 AS grew, CAST(step * 1e9 AS BIGINT) AS length_ns,
        coalesce(halts, false) AND length_ns < at_ns - from_ns AS cut_short
    FROM beside WHERE base_ns IS NULL OR at_ns > base_ns)
SELECT process, publisher, device, at_ns, step, coalesce(goes_on, false) AS goes_on,
    CASE WHEN NOT grew THEN NULL WHEN coalesce(goes_on, false) THEN from_ns ELSE at_ns - length_ns
        END AS cover_from,
    CASE WHEN NOT grew THEN NULL WHEN coalesce(goes_on, false) AND cut_short THEN from_ns + length_ns
        ELSE at_ns END AS cover_until,
    coalesce(goes_on, false) AND cut_short AS cut_short, from_ns
FROM extent
"""

# A new series shows 0 in its first export, whatever it holds; so a stretch begins where
# the later exports say that it did, and clocks are compared from the first value on.
_RUNS = """
WITH cover AS (
    SELECT *, lag(cover_until) OVER key AS reached_ns, lag(at_ns) OVER key AS shown_ns
    FROM reading WHERE cover_from IS NOT NULL
    WINDOW key AS (PARTITION BY process, publisher, device ORDER BY at_ns)),
numbered AS (
    SELECT *, coalesce(shown_ns, CASE WHEN goes_on THEN from_ns END) AS clock_ns,
        count(*) FILTER (reached_ns IS NULL OR cover_from - reached_ns > $same_moment_ns) OVER (
            PARTITION BY process, publisher, device ORDER BY at_ns) AS stretch
    FROM cover),
grown AS (
    SELECT *, first_value(goes_on) OVER part AS from_base, row_number() OVER part AS number,
        sum(step) OVER part AS states
    FROM numbered
    WINDOW part AS (PARTITION BY process, publisher, device, stretch ORDER BY at_ns)),
run AS (
    SELECT process, publisher, device, stretch,
        CASE WHEN bool_or(from_base) THEN min(cover_from)
            ELSE min(at_ns - CAST(states * 1e9 AS BIGINT)) END AS start_ns,
        max(cover_until) AS end_ns, sum(step) AS wall_s,
        coalesce(sum(at_ns - clock_ns) FILTER (compared), 0) / 1e9 AS elapsed_s,
        coalesce(sum(step) FILTER (compared), 0) AS states_s
    FROM (SELECT *, (number > 1 OR from_base) AND NOT cut_short AS compared FROM grown)
    GROUP BY ALL),
owner AS (
    SELECT process, publisher, device, max(at_ns) AS exported_ns FROM reading GROUP BY ALL)
SELECT process, publisher, device, coalesce(start_ns, exported_ns), coalesce(end_ns, exported_ns),
    coalesce(wall_s, 0), coalesce(elapsed_s, 0), coalesce(states_s, 0), exported_ns
FROM owner LEFT JOIN run USING (process, publisher, device)
ORDER BY device, start_ns, process
"""


def read(store: Store) -> tuple[Run, ...]:
    """Read who read which device when; also fill the table `reading`, one row an export of a device's states.

    Args:
        store: A store whose points are loaded and whose table `process` tells the window.
    """
    names = {
        "metric": catalogue.DEVICE_TIME.name,
        "publisher": catalogue.PUBLISHER,
        "device": catalogue.HW_ID,
    }
    store.rows(_READINGS, names)
    return tuple(Run(*row) for row in store.rows(_RUNS, {"same_moment_ns": SAME_MOMENT_NS}))
