"""Percentiles of calls, from spans.

Only sampled calls have a span, and not every kind of call need be sampled alike.
So each span stands for as many calls as the metrics count for its kind, divided
by the spans that there are: where all calls have a span, every weight is 1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.analysis.readings import Series
    from gputrace.analysis.store import Store

Key = tuple[str | None, ...]
"""Values of the fields that rows are grouped by, in that order; `None` where there is none."""

TYPE_FIELD = "hw_type"

FIELDS: Mapping[str, str] = {
    "feature": catalogue.FEATURE,
    "model": catalogue.MODEL,
    "variant": catalogue.VARIANT,
    "stage": catalogue.STAGE,
    "tenant": catalogue.TENANT,
    "operation": catalogue.OPERATION,
    TYPE_FIELD: catalogue.HW_TYPE,
}
"""What rows can be grouped by, and the attribute that each is read from."""

# Calls of one kind are sampled alike. Whoever samples late (a collector that keeps
# errors, say) goes by status too.
_KIND: Mapping[str, str] = {**FIELDS, "status": catalogue.STATUS}
_COLUMNS = ", ".join(_KIND)

_CALLS = """
CREATE TEMP TABLE call AS
SELECT {columns}, wall_s, device_s FROM raw_call
WHERE NOT bad AND outcome IS NULL AND ($start_ns IS NULL OR end_ns >= $start_ns OR end_ns IS NULL)
"""

_SPANS = f"SELECT {_COLUMNS}, count(*) FROM call GROUP BY ALL"  # noqa: S608 - our own names

_HW_TYPE = """CASE WHEN raw_call.hw_type IS NOT NULL THEN raw_call.hw_type
    WHEN time_source = 'host' THEN 'cpu'
    WHEN time_source IN ('cuda_event', 'kernel') THEN 'gpu' ELSE '' END"""

# The nearest rank: a percentile is a time that some call really took.
_PERCENTILES = """
WITH weighted AS (
    SELECT {by}, {value} AS value, weight FROM call JOIN kind USING ({columns}) WHERE {value} >= 0),
ranked AS (
    SELECT {by}, value,
        sum(weight) OVER (PARTITION BY {by} ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank,
        sum(weight) OVER (PARTITION BY {by}) AS whole
    FROM weighted)
SELECT {by},
    min(value) FILTER (rank >= 0.50 * whole * (1 - 1e-9)),
    min(value) FILTER (rank >= 0.95 * whole * (1 - 1e-9))
FROM ranked GROUP BY {by}
"""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Times of one group's calls in seconds; `None` where no call has one."""

    wall_p50_s: float | None = None
    wall_p95_s: float | None = None
    device_p50_s: float | None = None
    device_p95_s: float | None = None


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles by group.

    Attributes:
        groups: Percentiles by the values of the grouping fields.
        spans: Spans of gputrace in the window.
        broken: Spans among them without a usable start and end.
    """

    groups: Mapping[Key, Percentiles]
    spans: int
    broken: int


def key_of(attributes: Mapping[str, str], by: Sequence[str]) -> Key:
    """Return the group that a point belongs to.

    Args:
        attributes: Attributes of the point.
        by: Fields to group by, of `FIELDS`.
    """
    unnamed = {"feature": catalogue.NO_FEATURE}
    return tuple(attributes.get(_KIND[field]) or unnamed.get(field) for field in by)


def read(store: Store, series: Iterable[Series], by: Sequence[str], start_ns: int | None) -> Latencies:
    """Compute the percentiles of each group.

    Args:
        store: A store whose calls are loaded.
        series: Those of the same window: they say how many calls there were.
        by: Fields to group by, of `FIELDS`.
        start_ns: Calls that ended before it are left out; Unix time.
    """
    calls = [one for one in series if one.metric == catalogue.CALLS.name]
    store.rows(_CALLS.format(columns=_columns(calls)), {"start_ns": start_ns})
    _weigh(store, calls)
    groups: dict[Key, dict[str, float]] = {}
    for value in ("wall", "device"):
        sql = _PERCENTILES.format(by=", ".join(by), value=f"{value}_s", columns=_COLUMNS)
        for row in store.rows(sql):
            key = tuple(text or None for text in row[: len(by)])
            p50, p95 = row[len(by) :]
            groups.setdefault(key, {}).update({f"{value}_p50_s": p50, f"{value}_p95_s": p95})
    spans, broken = store.rows("SELECT count(*), count(*) FILTER (wall_s IS NULL OR wall_s < 0) FROM call")[0]
    return Latencies({key: Percentiles(**times) for key, times in groups.items()}, spans, broken)


def _columns(calls: Sequence[Series]) -> str:
    """Return the select list that gives a span the kind under which metrics count it."""
    counted = {attribute for one in calls for attribute in one.attributes}
    types = {one.attributes.get(catalogue.HW_TYPE, "") for one in calls}
    columns = []
    for field, attribute in _KIND.items():
        if field == "feature":
            source = f"coalesce(feature, '{catalogue.NO_FEATURE}')"
        elif field == "hw_type":
            source = _HW_TYPE if len(types) > 1 else "'" + "".join(types).replace("'", "''") + "'"
        else:
            # A tenant, say, is on every span, and on metrics only when asked for.
            source = f"coalesce({field}, '')" if attribute in counted else "''"
        columns.append(f"{source} AS {field}")
    return ", ".join(columns)


def _weigh(store: Store, calls: Iterable[Series]) -> None:
    """Fill the table `kind`: how many calls each span of a kind stands for."""
    counted: Counter[tuple[str, ...]] = Counter()
    for one in calls:
        counted[tuple(value or "" for value in key_of(one.attributes, tuple(_KIND)))] += round(one.value)
    spans = {row[:-1]: row[-1] for row in store.rows(_SPANS)}
    usual = (sum(counted.values()) / sum(spans.values()) if spans else 0) or 1.0
    columns = list(zip(*spans, strict=True)) or [()] * len(_KIND)
    weights = [counted[kind] / count if counted[kind] else usual for kind, count in spans.items()]
    names = (*_KIND, "weight")
    select = ", ".join(f"unnest(CAST(${name} AS {_type(name)}[])) AS {name}" for name in names)
    values = dict(zip(names, [*map(list, columns), weights], strict=True))
    store.rows(f"CREATE TEMP TABLE kind AS SELECT {select}", values)


def _type(name: str) -> str:
    return "DOUBLE" if name == "weight" else "VARCHAR"
