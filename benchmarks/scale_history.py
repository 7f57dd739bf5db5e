"""Fills a Prometheus with as much history as a large fleet has, to see how long boards take over it.

    python benchmarks/scale_history.py --remote-write URL raw [--hours 24] [--gpus 100] [--processes 20]
    python benchmarks/scale_history.py --remote-write URL recorded --rules FILE… [--days 30] [--gpus 1000]

``raw`` are the series of the catalogue that processes export, at 60 s. ``recorded`` are those that the
recording rules in the given files would have made, at 300 s, so that boards of long ranges can be timed
without a month of evaluating them. The numbers are noise on the rhythm of a day; those of `gputrace simulate`
mean something. Needs numpy, and a Prometheus as docs/simulate.md describes it, with none of this in it.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gputrace import catalogue
from gputrace.exporters import remote_write
from gputrace.exporters.remote_write import RemoteWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

RAW_STEP_S, RECORDED_STEP_S = 60, 300
DAY_S = 86_400
#: Bytes of one sample in a message: its head, a double, and its time.
SAMPLE_BYTES, VALUE_AT, TIME_AT = 18, 3, 11
JOB, ENVIRONMENT, INSTANCE = "job", "deployment_environment_name", "instance"
STATES = {"gputrace_device_state": catalogue.DEVICE_STATES, "gputrace_status": catalogue.CALL_STATUSES}
RULE = re.compile(r"record: *(\S+)\s+expr: *\"?sum by \(([^)]*)\)")
FEATURE_METRICS = (
    catalogue.FEATURE_TIME,
    catalogue.FEATURE_COST,
    catalogue.FEATURE_ENERGY,
    catalogue.CALLS,
    catalogue.REQUESTS,
    catalogue.OUTCOMES,
    catalogue.UNITS,
)
DEVICE_METRICS = (
    catalogue.DEVICE_TIME,
    catalogue.DEVICE_COST,
    catalogue.DEVICE_ENERGY,
    catalogue.DEVICE_PRICE,
    catalogue.PRICE_INFO,
    catalogue.HW_GPU_UTILIZATION,
    catalogue.HW_POWER,
)


class Size(NamedTuple):
    """How large the fleet is.

    Attributes:
        gpus: GPUs, of two models.
        processes: Processes, among which the GPUs are shared out.
        features: Features, each with two models.
    """

    gpus: int
    processes: int
    features: int


class Grid:
    """Moments at which series have samples, and how busy each is.

    Args:
        end_s: The last, Unix time.
        span_s: How long before it the first is.
        step_s: Time between two.
    """

    def __init__(self, end_s: int, span_s: int, step_s: int) -> None:
        moments_s = np.arange(end_s - span_s, end_s + 1, step_s, dtype=np.int64)
        self.step_s = step_s
        self.rhythm = 0.6 + 0.4 * np.sin(2 * np.pi * moments_s / DAY_S)
        self._bytes = np.zeros((len(moments_s), SAMPLE_BYTES), dtype=np.uint8)
        for at, moment_s in enumerate(moments_s.tolist()):
            whole = remote_write.sample(0.0, remote_write.moment(moment_s * 1_000_000_000))
            self._bytes[at] = np.frombuffer(whole, dtype=np.uint8)

    @property
    def samples(self) -> int:
        """Samples of each series."""
        return len(self.rhythm)

    def series(self, name: str, labels: dict[str, str], values: NDArray[np.float64]) -> bytes:
        """Return one series, as remote write sends it."""
        self._bytes[:, VALUE_AT:TIME_AT] = values.astype("<f8").view(np.uint8).reshape(-1, TIME_AT - VALUE_AT)
        marked = {**labels, catalogue.SIMULATED: "true"}
        return remote_write.series(remote_write.labels(name, marked), self._bytes.tobytes())


class Values:
    """Noise on the rhythm of a day; the same each time."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._dice = np.random.default_rng(1)

    def gauge(self) -> NDArray[np.float64]:
        """Return what goes up and down."""
        return (
            self._dice.uniform(0.2, 1.0)
            * self._grid.rhythm
            * self._dice.uniform(0.8, 1.2, self._grid.samples)
        )

    def counter(self) -> NDArray[np.float64]:
        """Return what only grows, from 0 on."""
        grown = np.cumsum(self.gauge()) * self._grid.step_s
        return grown - grown[0]


# --- who there is ------------------------------------------------------------


def features_of(size: Size) -> Iterator[dict[str, str]]:
    """Yield the labels of each feature on each of its models."""
    for number, model in itertools.product(range(size.features), range(2)):
        yield {
            "gputrace_feature": f"feature-{number:03d}",
            "gputrace_model": f"model-{(number + model) % 12}",
            "gputrace_operation": f"operation-{model}",
            "gputrace_time_source": "cuda_event",
            "gputrace_currency": "USD",
            "gputrace_energy_source": "counter",
            "gputrace_energy_split": "idle_power",
            "gputrace_outcome_name": f"outcome-{number}",
            "gputrace_unit_name": "tokens",
            "http_route": f"POST /{number}",
            "gputrace_escalation_cascade": f"cascade-{number % 10}",
            "hw_type": "gpu",
            "hw_name": f"GPU {number % 2}",
        }


def devices_of(size: Size) -> Iterator[dict[str, str]]:
    """Yield the labels of each GPU."""
    for number in range(size.gpus):
        yield {
            "hw_id": f"GPU-{number:08d}",
            "hw_type": "gpu",
            "hw_name": f"GPU {number % 2}",
            "gputrace_publisher": f"process-{number % size.processes:03d}",
            "gputrace_currency": "USD",
            "gputrace_energy_source": "counter",
            "gputrace_energy_split": "idle_power",
            "gputrace_price_source": "made up",
            "gputrace_price_kind": "on_demand",
            "gputrace_price_date": "2026-01-01",
        }


def spread(wanted: Sequence[str], entity: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield the sets of labels that an entity has of those that are wanted."""
    choices: list[list[tuple[str, str]]] = []
    for label in wanted:
        if label in STATES:
            choices.append([(label, value) for value in STATES[label]])
        elif label == "gputrace_escalation_decision":
            choices.append([(label, value) for value in catalogue.ESCALATION_DECISIONS])
        elif label == "gputrace_stage":
            choices.append([(label, value) for value in ("light", "heavy", "audit")])
        elif label in entity:
            choices.append([(label, entity[label])])
    yield from (dict(chosen) for chosen in itertools.product(*choices))


def each_once(wanted: Sequence[str], entities: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the sets of labels that many entities have, each once."""
    written: set[tuple[tuple[str, str], ...]] = set()
    for entity in entities:
        for labels in spread(wanted, entity):
            key = tuple(labels.items())
            if key not in written:
                written.add(key)
                yield labels


# --- what is written ---------------------------------------------------------


def labels_of(metric: catalogue.Metric) -> list[str]:
    """Return the labels of a metric as Prometheus has them."""
    return [name.replace(".", "_") for name in metric.attributes]


def raw(size: Size, grid: Grid) -> Iterator[bytes]:
    """Yield the series that the processes of a fleet export."""
    values = Values(grid)
    for process in range(size.processes):
        instance = {JOB: "scale", INSTANCE: f"process-{process:03d}", ENVIRONMENT: "simulation"}
        for metric in FEATURE_METRICS:
            wanted = [one for one in labels_of(metric) if one != "gputrace_stage"]
            for labels in each_once(wanted, features_of(size)):
                yield grid.series(metric.prometheus, {**labels, **instance}, values.counter())
        yield from _histograms(size, grid, values, instance)
    for metric, device in itertools.product(DEVICE_METRICS, devices_of(size)):
        instance = {JOB: "scale", INSTANCE: device["gputrace_publisher"], ENVIRONMENT: "simulation"}
        counts = metric.kind is catalogue.Kind.COUNTER
        for labels in spread(labels_of(metric), device):
            found = values.counter() if counts else values.gauge()
            yield grid.series(metric.prometheus, {**labels, **instance}, found)


def _histograms(size: Size, grid: Grid, values: Values, instance: dict[str, str]) -> Iterator[bytes]:
    metric = catalogue.CALL_DURATION
    wanted = [one for one in labels_of(metric) if one not in {"gputrace_stage", "gputrace_status"}]
    for feature in features_of(size):
        (labels,) = spread(wanted, feature)
        every = {**labels, **instance, "gputrace_status": "ok"}
        whole = values.counter()
        yield grid.series(f"{metric.prometheus}_count", every, whole)
        yield grid.series(f"{metric.prometheus}_sum", every, whole / 2)
        bounds = (*catalogue.DURATION_BUCKETS_S, float("inf"))
        for number, bound in enumerate(bounds, 1):
            bucket = {**every, "le": remote_write.bound(bound)}
            yield grid.series(f"{metric.prometheus}_bucket", bucket, whole * (number / len(bounds)))


def rules_in(files: Sequence[Path]) -> dict[str, list[str]]:
    """Return the labels of each series that rules record as a sum by labels."""
    found = {}
    for file in files:
        for name, labels in RULE.findall(file.read_text()):
            found[name] = [one.strip() for one in labels.split(",")]
    # Sums over an hour are made of rates, and have their labels.
    for file in files:
        for name in re.findall(r"record: *(\S+:increase1h|\S+:month_to_date)", file.read_text()):
            rate = f"{name.rpartition(':')[0]}:rate5m"
            if rate in found:
                found[name] = found[rate]
    return found


def recorded(size: Size, grid: Grid, rules: dict[str, list[str]]) -> Iterator[bytes]:
    """Yield the series that recording rules would have made of a fleet."""
    values = Values(grid)
    for name, wanted in rules.items():
        entities = devices_of(size) if "hw_id" in wanted else features_of(size)
        known = {ENVIRONMENT: "simulation", **({JOB: "scale"} if JOB in wanted else {})}
        for labels in each_once(wanted, entities):
            yield grid.series(name, {**labels, **known}, values.gauge())


def main() -> None:
    """Write, and say how much and how fast."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=("raw", "recorded"))
    parser.add_argument("--remote-write", required=True, metavar="URL")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--days", type=float)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--features", type=int)
    parser.add_argument("--rules", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    is_raw = arguments.what == "raw"
    size = Size(
        arguments.gpus or (100 if is_raw else 1_000),
        arguments.processes,
        arguments.features or (20 if is_raw else 50),
    )
    days = arguments.days or (arguments.hours / 24 if is_raw else 30.0)
    step_s = RAW_STEP_S if is_raw else RECORDED_STEP_S
    grid = Grid(int(time.time()) // step_s * step_s, round(days * DAY_S), step_s)
    everything = raw(size, grid) if is_raw else recorded(size, grid, rules_in(arguments.rules))
    began_s, count = time.monotonic(), 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for one in everything:
            count += 1
            yield one

    RemoteWriter(arguments.remote_write).send(counted())
    took_s = time.monotonic() - began_s
    samples = count * grid.samples
    print(f"{count} series, {samples / 1e6:.1f} million samples in {took_s:.0f} s: {size}, {days:g} days")


if __name__ == "__main__":
    main()
