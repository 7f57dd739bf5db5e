"""Records what the rules would have, had they been evaluated while a history was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace.grafana import recorded
from tests.grafana import remote_write

if TYPE_CHECKING:
    from tests.grafana.remote_write import Series

_EVERY_S = 60
# A range query answers with 11 000 points at most.
_STRETCH_S = 10_000 * _EVERY_S


def record(prometheus: Any, start_s: int, end_s: int) -> None:
    """Evaluate the recording rules, those that rest on others after them.

    Args:
        prometheus: A server of tests/integration that takes samples by remote write.
        start_s: Unix time; a whole minute.
        end_s: Likewise.
    """
    for rules in (recorded.RATES, recorded.HOURS, recorded.MONTHS):
        found: Series = {}
        for rule in rules:
            for begin_s in range(start_s, end_s + 1, _STRETCH_S + _EVERY_S):
                answer = prometheus.get(
                    "/api/v1/query_range",
                    query=rule.expr,
                    start=str(begin_s),
                    end=str(min(begin_s + _STRETCH_S, end_s)),
                    step=str(_EVERY_S),
                )
                for row in answer["data"]["result"]:
                    labels = frozenset({**row["metric"], "__name__": rule.name}.items())
                    points = ((int(at * 1000), float(value)) for at, value in row["values"])
                    found.setdefault(labels, []).extend(points)
        remote_write.write(prometheus.url, found)
