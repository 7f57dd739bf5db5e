"""The series of a large fleet, as noise on the rhythm of a day, to see how long boards take over them.

Raw series are those of the catalogue that processes export, each minute. Recorded ones are those that the
recording rules would have made, as often as they are evaluated: so that boards of long ranges can be timed
without a month of evaluating. The numbers of `gputrace simulate` mean something; these do not.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gputrace import catalogue
from gputrace.exporters import remote_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

HOUR_S, DAY_S = 3_600, 86_400
EVERY_MINUTE_S, EVERY_WINDOW_S = 60, 300
#: Bytes of one sample in a message: its head, a double, and its time.
SAMPLE_BYTES, VALUE_AT, TIME_AT = 18, 3, 11
JOB, ENVIRONMENT, INSTANCE = "job", "deployment_environment_name", "instance"
STATES = {"gputrace_device_state": catalogue.DEVICE_STATES, "gputrace_status": catalogue.CALL_STATUSES}
RULE = re.compile(r"record: *(\S+)\s+expr: *\"?sum by \(([^)]*)\)")
NO_LABELS = re.compile(r"record: *(gputrace:\S+)")
FEATURE_METRICS = (
    catalogue.FEATURE_TIME,
    catalogue.FEATURE_COST,
    catalogue.FEATURE_ENERGY,
    catalogue.CALLS,
    catalogue.REQUESTS,
    catalogue.OUTCOMES,
    catalogue.UNITS,
    catalogue.BUDGET,
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


class Flow:
    """Series that all have samples at the same moments.

    Args:
        named: Labels of each, as remote write sends them.
        step_s: Time between two samples, which an hour holds whole.
        counts: They only grow.
    """

    def __init__(self, named: Sequence[bytes], step_s: int, *, counts: bool) -> None:
        self._named = named
        self._step_s = step_s
        self._counts = counts
        self._dice = np.random.default_rng(1)
        self._level = self._dice.uniform(0.2, 1.0, (len(named), 1))
        self._grown: NDArray[np.float64] = np.zeros((len(named), 1))

    def __len__(self) -> int:
        """Return how many series there are."""
        return len(self._named)

    @property
    def a_day(self) -> int:
        """How many samples all series have in a day."""
        return len(self._named) * DAY_S // self._step_s

    def hour(self, end_s: int) -> Iterator[bytes]:
        """Yield each series' samples of an hour.

        A Prometheus takes samples in order if all that it has are younger by an hour at most.

        Args:
            end_s: The last moment, Unix time.
        """
        moments_s = np.arange(end_s - HOUR_S + self._step_s, end_s + 1, self._step_s, dtype=np.int64)
        noise = self._dice.uniform(0.8, 1.2, (len(self._named), len(moments_s)))
        values = self._level * (0.6 + 0.4 * np.sin(2 * np.pi * moments_s / DAY_S)) * noise
        if self._counts:
            values = self._grown + np.cumsum(values, axis=1) * self._step_s
            self._grown = values[:, -1:]
        whole = np.tile(_empty(moments_s), (len(self._named), 1, 1))
        whole[:, :, VALUE_AT:TIME_AT] = values.astype("<f8").view(np.uint8).reshape(*values.shape, -1)
        sent, size = whole.tobytes(), len(moments_s) * SAMPLE_BYTES
        for at, named in enumerate(self._named):
            yield remote_write.series(named, sent[at * size : (at + 1) * size])


def _empty(moments_s: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return samples of 0."""
    samples = b"".join(
        remote_write.sample(0.0, remote_write.moment(at_s * 1_000_000_000)) for at_s in moments_s.tolist()
    )
    return np.frombuffer(samples, dtype=np.uint8).reshape(-1, SAMPLE_BYTES)


def _named(name: str, labels: dict[str, str]) -> bytes:
    return remote_write.labels(name, {**labels, catalogue.SIMULATED: "true"})


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


def raw(size: Size) -> list[Flow]:
    """Return the series that the processes of a fleet export."""
    counters, gauges = [], []
    for process in range(size.processes):
        instance = {JOB: "scale", INSTANCE: f"process-{process:03d}", ENVIRONMENT: "simulation"}
        for metric in FEATURE_METRICS:
            wanted = [one for one in labels_of(metric) if one != "gputrace_stage"]
            found = counters if metric.kind is catalogue.Kind.COUNTER else gauges
            for labels in each_once(wanted, features_of(size)):
                found.append(_named(metric.prometheus, {**labels, **instance}))
        counters += _histograms(size, instance)
    for metric, device in itertools.product(DEVICE_METRICS, devices_of(size)):
        instance = {JOB: "scale", INSTANCE: device["gputrace_publisher"], ENVIRONMENT: "simulation"}
        found = counters if metric.kind is catalogue.Kind.COUNTER else gauges
        for labels in spread(labels_of(metric), device):
            found.append(_named(metric.prometheus, {**labels, **instance}))
    return [Flow(counters, EVERY_MINUTE_S, counts=True), Flow(gauges, EVERY_MINUTE_S, counts=False)]


def labels_of(metric: catalogue.Metric) -> list[str]:
    """Return the labels of a metric as Prometheus has them."""
    return [name.replace(".", "_") for name in metric.attributes]


def _histograms(size: Size, instance: dict[str, str]) -> Iterator[bytes]:
    metric = catalogue.CALL_DURATION
    wanted = [one for one in labels_of(metric) if one not in {"gputrace_stage", "gputrace_status"}]
    for feature in features_of(size):
        (labels,) = spread(wanted, feature)
        every = {**labels, **instance, "gputrace_status": "ok"}
        yield _named(f"{metric.prometheus}_count", every)
        yield _named(f"{metric.prometheus}_sum", every)
        for bound in (*catalogue.DURATION_BUCKETS_S, float("inf")):
            yield _named(f"{metric.prometheus}_bucket", {**every, "le": remote_write.bound(bound)})


def rules_in(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the labels of each series that rules record, as far as they record sums by labels."""
    found: dict[str, list[str]] = {}
    texts = [file.read_text(encoding="utf-8") for file in files]
    for text in texts:
        found |= {name: [] for name in NO_LABELS.findall(text)}
        found |= {name: labels.split(", ") for name, labels in RULE.findall(text)}
    # Sums over an hour are made of rates, those over a month of them: they have their labels.
    for source, made in ((":rate5m", ":increase1h"), (":increase1h", ":month_to_date")):
        for name in itertools.chain(*(re.findall(rf"record: *(\S+{made})\n", text) for text in texts)):
            labels = found.get(name.removesuffix(made) + source)
            if labels is not None:
                found.setdefault(name, labels)
    return found


def recorded(size: Size, rules: dict[str, list[str]]) -> list[Flow]:
    """Return the series that recording rules would have made of a fleet.

    Rates of single devices come every five minutes, though rules record them each minute: four thousand
    series a metric, which the overview does not read.
    """
    by_step: dict[int, list[bytes]] = {EVERY_MINUTE_S: [], EVERY_WINDOW_S: []}
    for name, wanted in rules.items():
        entities = devices_of(size) if "hw_id" in wanted else features_of(size)
        known = {ENVIRONMENT: "simulation", JOB: "scale"}
        known = {label: value for label, value in known.items() if label in wanted}
        seldom = "hw_id" in wanted or name.endswith(":increase5m")
        named = by_step[EVERY_WINDOW_S if seldom else EVERY_MINUTE_S]
        named += (_named(name, {**labels, **known}) for labels in each_once(wanted, entities))
    return [Flow(named, step_s, counts=False) for step_s, named in by_step.items()]


def hours(flows: dict[int, list[Flow]], end_s: int, last_s: int) -> Iterator[bytes]:
    """Yield all series, hour by hour.

    Args:
        flows: Series, by how many seconds before the end they begin.
        end_s: Until then all of them go on, Unix time.
        last_s: Until then those that begin last do, that rules find something while they are timed.
    """
    shortest = min(flows)
    for at_s in range(end_s - max(flows) + HOUR_S, last_s + 1, HOUR_S):
        for span_s, several in flows.items():
            if end_s - span_s < at_s and (at_s <= end_s or span_s == shortest):
                for flow in several:
                    yield from flow.hour(at_s)
