"""PromQL, made of sources that are known and labels that they have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana.sources import (
    ENVIRONMENT,
    JOB,
    UnknownNameError,
    known_labels,
    label,
    labels,
    name_of,
)

if TYPE_CHECKING:
    from gputrace.catalogue import Metric
    from gputrace.grafana.sources import Recorded

_MATCHER = re.compile(r'(?P<label>\w+)(=|!=|=~|!~)"[^"]*"')
#: Which variable of the boards narrows which label, and whether it may stand for several values.
VARIABLES = {
    "environment": (ENVIRONMENT, True),
    "job": (JOB, True),
    "feature": (catalogue.FEATURE, True),
    "model": (catalogue.MODEL, True),
    "currency": (catalogue.CURRENCY, False),
    "hw_type": (catalogue.HW_TYPE, False),
    "hw_name": (catalogue.HW_NAME, True),
    "cascade": (catalogue.ESCALATION_CASCADE, True),
}
_OF_OTHER_JOBS = (catalogue.BUDGET, catalogue.ESCALATION_ESTIMATE)
#: A window of the rules, and how many seconds it has.
SHORT = "5m"
SHORT_S = 300
LONG = "1h"
# Before Prometheus 3 a range includes both of its ends: asked for on the hour, an hour would hold 13 steps of
# five minutes. `$__range` cannot be shortened; boards are seldom asked for on the millisecond.
HOUR_OF_STEPS = "59m59s999ms"
DAY_OF_STEPS = "23h59m59s999ms"


def select(source: Metric | Recorded, *matchers: str, suffix: str = "") -> str:
    """Return a selector.

    Args:
        source: What is read.
        matchers: Such as `gputrace_status="ok"`.
        suffix: Of a histogram: `_bucket`, `_count` or `_sum`.

    Raises:
        UnknownNameError: The source is not in the catalogue, or has no such label.
    """
    name = f"{name_of(source)}{suffix}"
    for matcher in matchers:
        found = _MATCHER.fullmatch(matcher)
        if found is None or found["label"] not in known_labels(source):
            raise UnknownNameError(f"{name} has no label for {matcher}: {sorted(known_labels(source))}")
    return f"{name}{{{', '.join(matchers)}}}" if matchers else name


def match(attribute: str, value: str, operator: str = "=") -> str:
    """Return a matcher for an attribute."""
    return f'{label(attribute)}{operator}"{value}"'


def matcher_label(matcher: str) -> str:
    """Return the label that a matcher of :func:`match` narrows."""
    found = _MATCHER.fullmatch(matcher)
    if found is None:
        raise UnknownNameError(f'{matcher!r} is no matcher: write job="api"')
    return found["label"]


def ratio(part: str, whole: str) -> str:
    """Return a division that gives nothing where there is nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def or_none(expr: str, there: str) -> str:
    """Return an expression that is 0 where it has no series but another has some.

    `or vector(0)` would call an empty database, or a service that is gone, free of faults.
    """
    return f"{expr} or 0 * {there}"


def named(expr: str, attribute: str, otherwise: str) -> str:
    """Return series of which those without the attribute carry a name for that."""
    name = label(attribute)
    return f'label_replace({expr}, "{name}", "{otherwise}", "{name}", "")'


def by(*attributes: str) -> str:
    """Return the grouping of an aggregation; the whole without attributes."""
    return f"by ({labels(*attributes)}) " if attributes else ""


@dataclass(frozen=True, slots=True)
class Scope:
    """Queries that a board's variables narrow, each source by those labels that it has.

    Attributes:
        variables: Names of the variables.
    """

    variables: tuple[str, ...]

    def matchers(self, source: Metric | Recorded) -> tuple[str, ...]:
        """Return the matchers by which the variables narrow a source."""
        known = known_labels(source)
        found = []
        for variable in self.variables:
            attribute, several = VARIABLES[variable]
            # Devices are published by an agent, estimates by whoever watches: jobs of their own.
            own = label(catalogue.PUBLISHER) in known or source in _OF_OTHER_JOBS
            foreign = attribute == JOB and own
            if label(attribute) in known and not foreign:
                found.append(match(attribute, f"${variable}", "=~" if several else "="))
        return tuple(found)

    def select(self, source: Metric | Recorded, *matchers: str, suffix: str = "") -> str:
        """Return a selector that the variables narrow."""
        return select(source, *self.matchers(source), *matchers, suffix=suffix)

    def now(self, source: Metric | Recorded, *matchers: str, per: tuple[str, ...] = ()) -> str:
        """Return the sum of what a gauge or a recorded rate says at an instant."""
        return f"sum {by(*per)}({self.select(source, *matchers)})"

    def rate(
        self,
        source: Metric,
        *matchers: str,
        per: tuple[str, ...] = (),
        suffix: str = "",
        window: str = "$__rate_interval",
    ) -> str:
        """Return how fast a counter grows, a second, read from the counter itself.

        Args:
            source: The counter.
            matchers: Further matchers.
            per: Attributes to keep.
            suffix: Of a histogram.
            window: `LONG` for what is rare.
        """
        return f"sum {by(*per)}(rate({self.select(source, *matchers, suffix=suffix)}[{window}]))"

    def increase(self, source: Metric, *matchers: str, per: tuple[str, ...] = (), suffix: str = "") -> str:
        """Return by how much a counter of few series grew over the range; for instant queries."""
        return f"sum {by(*per)}(increase({self.select(source, *matchers, suffix=suffix)}[$__range]))"

    def total(self, source: Recorded, *matchers: str, per: tuple[str, ...] = (), before: bool = False) -> str:
        """Return by how much a recorded rate grew over the range; for instant queries.

        Args:
            source: A rate; what is read is the sum of it that has the fewest series and all labels needed.
            matchers: Further matchers.
            per: Attributes to keep.
            before: Over the range of the same length before it.

        Raises:
            UnknownNameError: No sum of it has those labels.
        """
        offset = " offset $__range" if before else ""
        needed = {matcher_label(one) for one in (*self.matchers(source), *matchers)} | set(map(label, per))
        sums = [one for one in source.sums if needed <= known_labels(one)]
        if not sums:
            raise UnknownNameError(
                f"{source.name} has no sum by {sorted(needed)}: see gputrace.grafana.recorded"
            )
        return f"sum {by(*per)}(sum_over_time({self.select(sums[0], *matchers)}[$__range]{offset}))"

    def seen_before(self, source: Recorded) -> str:
        """Return something if the range before was recorded as fully as the range; for instant queries.

        One window in a hundred may be missing: Prometheus was started again just then.
        """
        windows = f"count_over_time({self.select(source.sums[0])}[$__range]"
        return f"max ({windows})) / (max ({windows} offset $__range)) > 0) <= 1.01"

    def quantile(
        self, share: float, source: Metric, *matchers: str, per: tuple[str, ...] = (), window: str = ""
    ) -> str:
        """Return a quantile of a histogram: over the range in instant queries, else at each step."""
        selected = self.select(source, *matchers, suffix="_bucket")
        grown = f"rate({selected}[{window or '$__rate_interval'}])"
        return f"histogram_quantile({share:g}, sum {by('le', *per)}({grown}))"
