"""Taking a share out of what counters grew by, export by export."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputrace.analysis.store import Store

# A counter loses what its increases lose, all of them so far.
_REDUCE = """
CREATE OR REPLACE TEMP TABLE point AS
WITH named AS (
    SELECT *, {columns}, value - coalesce(lag(value) OVER series, 0) AS step
    FROM point WHERE list_contains($metrics, metric)
    WINDOW series AS (PARTITION BY process, metric, delta, start_ns, attributes ORDER BY at_ns))
SELECT process, metric, delta, start_ns, at_ns, attributes,
    value - sum(step * coalesce({shares}.share, 0)) OVER (
        PARTITION BY process, metric, delta, start_ns, attributes ORDER BY at_ns) AS value
FROM named LEFT JOIN {shares} USING (process, at_ns, {keys})
UNION ALL
SELECT process, metric, delta, start_ns, at_ns, attributes, value
FROM point WHERE NOT list_contains($metrics, metric)
"""


def reduce(store: Store, metrics: Sequence[str], keys: Mapping[str, str], shares: str) -> None:
    """Reduce the counters of some metrics.

    Args:
        store: A store whose points are loaded; they are changed.
        metrics: Names of the metrics.
        keys: Attributes that a share goes by, under the names of their columns; an absent one is empty.
        shares: Table of `process`, `at_ns`, the keys and `share`: the part, 0 to 1, of what a counter
            of that process grew by in the export of that moment.
    """
    columns = ", ".join(
        f"coalesce(list_filter(attributes, lambda item: item.key = ${name})[1].text, '') AS {name}"
        for name in keys
    )
    sql = _REDUCE.format(columns=columns, shares=shares, keys=", ".join(keys))
    store.rows(sql, {"metrics": list(metrics), **keys})
