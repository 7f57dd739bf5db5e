"""What one outcome and one unit of work cost: the spend of a feature over what it achieved.

Counts come from metric points. An outcome whose request ran in another process
is counted there for no feature; the span that it left says which request that
was, and the request's own span which feature.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gputrace import catalogue
from gputrace.analysis import formats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gputrace.analysis.readings import Series
    from gputrace.analysis.store import Store

Count = tuple[str, str]
"""Name of an outcome or unit, and the feature that it is counted for."""

_NAMES = {
    catalogue.OUTCOMES.name: catalogue.OUTCOME_NAME,
    catalogue.UNITS.name: catalogue.UNIT_NAME,
}

# The same line may lie in two copies of a file.
_JOINED = """
WITH event AS (
    SELECT DISTINCT span_id, request_id, outcome, outcome_value FROM raw_call
    WHERE NOT bad AND outcome IS NOT NULL AND outcome_value > 0
        AND ($start_ns IS NULL OR end_ns >= $start_ns)),
request AS (
    SELECT call_id, any_value(feature) AS feature FROM raw_call
    WHERE call_id IN (SELECT request_id FROM event) AND feature IS NOT NULL GROUP BY call_id)
SELECT outcome, feature, sum(outcome_value)
FROM event JOIN request ON call_id = request_id GROUP BY outcome, feature ORDER BY ALL
"""


class Spender(Protocol):
    """What a feature spent on devices of one type.

    Attributes:
        charged: Parts of its charged time, seconds.
        costs: Parts of its cost by currency.
    """

    charged: list[float]
    costs: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Achievement:
    """An outcome or unit of a feature; `None` is unknown.

    Attributes:
        name: Of the outcome or unit.
        feature: Whose; `None` for one that was declared and never counted.
        count: How many; `None` in the further rows of one that was paid for in several currencies.
        cost_per: Cost of the feature for each, in `currency`.
        seconds_per: Its charged seconds for each; `None` where it used devices of several types.
        currency: ISO 4217.
    """

    name: str
    feature: str | None
    count: float | None
    cost_per: float | None = None
    seconds_per: float | None = None
    currency: str | None = None


def needs_spans(series: Iterable[Series]) -> bool:
    """Say whether outcomes were counted for no feature, so that spans may tell more."""
    return any(
        one.metric == catalogue.OUTCOMES.name
        and one.value
        and one.attributes.get(catalogue.FEATURE) == catalogue.NO_FEATURE
        for one in series
    )


def joined(store: Store, start_ns: int | None) -> dict[Count, float]:
    """Return which outcomes belong to which feature by the spans of their requests.

    Args:
        store: A store whose calls are loaded, with their identities.
        start_ns: Outcomes before it are left out; Unix time.
    """
    rows = store.rows(_JOINED, {"start_ns": start_ns})
    return {(name, feature): value for name, feature, value in rows}


def measure(
    metric: catalogue.Metric,
    series: Iterable[Series],
    spenders: Mapping[tuple[str | None, ...], Spender],
    known: Mapping[Count, float] | None = None,
) -> tuple[Achievement, ...]:
    """Divide what each feature spent by what it achieved.

    Args:
        metric: `gputrace.outcomes` or `gputrace.units`.
        series: Every series over the window.
        spenders: What was spent, by feature and type of device.
        known: Outcomes whose feature spans tell, from `joined`.
    """
    counts = _counts(metric, series)
    _move(counts, known or {})
    names = {name for name, _ in counts}
    found = [
        one
        for (name, feature), count in counts.items()
        if count
        for one in _of_feature(name, feature, count, spenders)
    ]
    found += [Achievement(name, None, 0) for name in names - {one.name for one in found}]
    found.sort(key=lambda one: (one.name, one.feature or "", one.currency or ""))
    return tuple(found)


def notes(outcomes: Sequence[Achievement]) -> Iterator[str]:
    """Yield a sentence where outcomes belong to no feature."""
    nobodys = math.fsum(one.count or 0 for one in outcomes if one.feature == catalogue.NO_FEATURE)
    if nobodys:
        yield (
            f"{formats.amount(nobodys)} outcomes are counted for {catalogue.NO_FEATURE}: nobody named a "
            "feature there, or the request was another process's and its span is not here."
        )


def _counts(metric: catalogue.Metric, series: Iterable[Series]) -> dict[Count, float]:
    counts: dict[Count, float] = defaultdict(float)
    for one in series:
        if one.metric == metric.name:
            name = one.attributes.get(_NAMES[metric.name], "?")
            counts[name, one.attributes.get(catalogue.FEATURE, catalogue.NO_FEATURE)] += one.value
    return counts


def _move(counts: dict[Count, float], known: Mapping[Count, float]) -> None:
    """Give outcomes to the features that spans tell, never more than were counted for none."""
    for (name, feature), value in known.items():
        moved = min(value, counts[name, catalogue.NO_FEATURE])
        counts[name, catalogue.NO_FEATURE] -= moved
        counts[name, feature] += moved


def _of_feature(
    name: str, feature: str, count: float, spenders: Mapping[tuple[str | None, ...], Spender]
) -> Iterator[Achievement]:
    # Requests and the like hold nothing themselves, and so have no time at all.
    timed = [one for key, one in spenders.items() if key[0] == feature and one.charged]
    costs: dict[str, list[float]] = {}
    for spender in timed:
        for currency, parts in spender.costs.items():
            costs.setdefault(currency, []).extend(parts)
    # Seconds of two types are never added.
    seconds = math.fsum(timed[0].charged) / count if len(timed) == 1 else None
    prices: list[tuple[str | None, float | None]] = [
        (currency, math.fsum(costs[currency]) / count) for currency in sorted(costs)
    ]
    for number, (unit, cost_per) in enumerate(prices or [(None, None)]):
        yield Achievement(
            name=name,
            feature=feature,
            count=None if number else int(count) if count.is_integer() else count,
            cost_per=cost_per,
            seconds_per=None if number else seconds,
            currency=unit,
        )
