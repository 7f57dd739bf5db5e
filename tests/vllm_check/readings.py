"""What a run has left behind: gputrace's files, the probe's, and vLLM's own counters."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

NANO = 1_000_000_000


class Metrics:
    """The last value of every series of every worker.

    Args:
        folder: Of gputrace's files.
    """

    def __init__(self, folder: Path) -> None:
        self._last: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
        for file in sorted(folder.glob("metrics-*.jsonl")):
            for line in file.read_text().splitlines():
                self._take(file.name, json.loads(line))

    def _take(self, file: str, batch: Any) -> None:
        for resource in batch["resourceMetrics"]:
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    kind = metric.get("sum") or metric.get("gauge") or {}
                    for point in kind.get("dataPoints", ()):
                        attributes = tuple(sorted(_attributes(point).items()))
                        value = point.get("asDouble", point.get("asInt", 0))
                        self._last[file, metric["name"], attributes] = float(value)

    def total(self, name: str, **wanted: str) -> float:
        """Return the sum of a metric over all workers, of series that have these attributes."""
        return sum(self.by(name, "gputrace.feature", **wanted).values())

    def by(self, name: str, *attributes: str, **wanted: str) -> dict[tuple[str, ...], float]:
        """Return a metric summed by some attributes; in ``wanted`` an underscore stands for a point."""
        summed: dict[tuple[str, ...], float] = defaultdict(float)
        for (_, metric, given), value in self._last.items():
            had = dict(given)
            if metric == name and all(
                had.get(one.replace("_", ".")) == other for one, other in wanted.items()
            ):
                summed[tuple(had.get(one, "") for one in attributes)] += value
        return dict(summed)


def spans(folder: Path) -> list[dict[str, Any]]:
    """Return all spans that the workers wrote, with their attributes as one table."""
    found = []
    for file in sorted(folder.glob("spans-*.jsonl")):
        for line in file.read_text().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found += [{**span, "attributes": _attributes(span)} for span in scope["spans"]]
    return found


def _attributes(given: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in given.get("attributes", ())}


class Steps(NamedTuple):
    """What the probe saw in one worker."""

    steps: list[dict[str, Any]]
    ended: dict[str, dict[str, Any]]

    def tokens(self) -> Counter[str]:
        """Return the sums over all steps, by kind of token."""
        summed: Counter[str] = Counter()
        for step in self.steps:
            for prefill, decode, _, cached, recomputed in step.get("work", ()):
                summed.update(prefill=prefill, decode=decode, cached=cached, recomputed=recomputed)
        return summed


def probed(folder: Path) -> list[Steps]:
    """Return what the probe wrote, by worker."""
    found = []
    for file in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found.append(
            Steps(
                [row for row in rows if "ns" in row],
                {row["ended"]: row for row in rows if "ended" in row},
            )
        )
    return found


def counters(text: str) -> dict[str, float]:
    """Return vLLM's own counters, by name and labels but for those of model and engine; engines summed."""
    summed: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        matched = re.fullmatch(r"(vllm:[a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)", line)
        if matched:
            name, labels, value = matched.groups()
            kept = [
                one
                for one in re.findall(r'(\w+="[^"]*")', labels or "")
                if not one.startswith(("engine=", "model_name="))
            ]
            summed[name + "".join(kept)] += float(value)
    return dict(summed)
