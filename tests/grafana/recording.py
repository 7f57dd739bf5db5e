"""Records what the rules would have, had they been evaluated while a history was made."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gputrace.exporters.remote_write import RemoteWriter, labels, moment, sample, series
from gputrace.grafana import recorded

_EVERY_S, _WINDOW_S = 60, 300
# A range query answers with 11 000 points at most.
_POINTS = 10_000


def record(prometheus: Any, start_s: int, end_s: int) -> None:
    """Evaluate the recording rules, those that rest on others after them.

    Args:
        prometheus: A server of tests/integration that takes samples by remote write.
        start_s: Unix time; a multiple of five minutes.
        end_s: Likewise.
    """
    writer = RemoteWriter(prometheus.url)
    for rules in (recorded.RATES, recorded.SUMS, recorded.HOURS, recorded.MONTHS):
        step_s = _WINDOW_S if rules is recorded.SUMS else _EVERY_S
        found: defaultdict[bytes, bytearray] = defaultdict(bytearray)
        for rule in rules:
            for begin_s in range(start_s, end_s + 1, (_POINTS + 1) * step_s):
                answer = prometheus.get(
                    "/api/v1/query_range",
                    query=rule.expr,
                    start=str(begin_s),
                    end=str(min(begin_s + _POINTS * step_s, end_s)),
                    step=str(step_s),
                )
                for row in answer["data"]["result"]:
                    points = found[labels(rule.name, {**row["metric"], "__name__": rule.name})]
                    for at_s, value in row["values"]:
                        points += sample(float(value), moment(int(at_s) * 1_000_000_000))
        writer.send(series(named, points) for named, points in found.items())
