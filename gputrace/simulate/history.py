"""Turns what a process's instruments showed into series of Prometheus, some minutes at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.exporters import remote_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gputrace.telemetry.collecting import Collected

_INFINITE = float("inf")
_TARGET_INFO = "target_info"
_SERVICE_NAME, _INSTANCE_ID = "service.name", "service.instance.id"
#: What of the resource every series has as a label, where it is there.
_PROMOTED = ("deployment.environment.name", catalogue.SIMULATED)


class History:
    """The series of one process.

    Each has the labels that Prometheus gives what comes over OTLP where it is told to promote the
    environment, and the mark of a simulation: it must be possible to leave them out, and to delete them,
    wherever they were written.

    Args:
        resource: Attributes of the process.
    """

    def __init__(self, resource: Mapping[str, object]) -> None:
        self._identity: dict[str, object] = {
            remote_write.JOB: str(resource[_SERVICE_NAME]),
            remote_write.INSTANCE: str(resource[_INSTANCE_ID]),
            **{name: resource[name] for name in _PROMOTED if name in resource},
        }
        told = {name: value for name, value in resource.items() if name not in {_SERVICE_NAME, _INSTANCE_ID}}
        self._info = remote_write.labels(_TARGET_INFO, {**told, **self._identity})
        self._named: dict[object, tuple[bytes, ...]] = {}
        self._samples: dict[bytes, bytearray] = {}

    def take(self, collected: Collected, at_ns: int) -> None:
        """Keep what was collected.

        Args:
            collected: What all instruments showed.
            at_ns: When, Unix time; later than the last time.
        """
        at = remote_write.moment(at_ns)
        self._add(self._info, 1.0, at)
        for metric, observations in collected.numbers:
            for one in observations:
                attributes = one.attributes or {}
                self._add(self._number(metric, attributes), float(one.value), at)
        for metric, points in collected.histograms:
            for point in points:
                names = self._histogram(metric, point.attributes or {}, point.explicit_bounds)
                self._add(names[0], float(point.count), at)
                self._add(names[1], float(point.sum), at)
                count = 0
                for named, more in zip(names[2:], point.bucket_counts, strict=True):
                    count += more
                    self._add(named, float(count), at)

    def _add(self, named: bytes, value: float, at: bytes) -> None:
        samples = self._samples.get(named)
        if samples is None:
            samples = self._samples[named] = bytearray()
        samples += remote_write.sample(value, at)

    def _number(self, metric: catalogue.Metric, attributes: Mapping[str, object]) -> bytes:
        key = (metric.name, *attributes, *attributes.values())
        named = self._named.get(key)
        if named is None:
            made = remote_write.labels(metric.prometheus, {**attributes, **self._identity})
            named = self._named[key] = (made,)
        return named[0]

    def _histogram(
        self, metric: catalogue.Metric, attributes: Mapping[str, object], bounds: Sequence[float]
    ) -> tuple[bytes, ...]:
        key = (metric.name, *attributes, *attributes.values())
        named = self._named.get(key)
        if named is None:
            every = {**attributes, **self._identity}
            name = metric.prometheus
            named = self._named[key] = (
                remote_write.labels(f"{name}_count", every),
                remote_write.labels(f"{name}_sum", every),
                *(
                    remote_write.labels(f"{name}_bucket", {**every, "le": remote_write.bound(one)})
                    for one in (*bounds, _INFINITE)
                ),
            )
        return named

    def flush(self) -> Iterator[bytes]:
        """Return what was kept since the last time, as series to be sent."""
        kept, self._samples = self._samples, {}
        for named, samples in kept.items():
            yield remote_write.series(named, samples)
