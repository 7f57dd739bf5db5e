"""The history of a small company, as its services and its agent would have exported it.

Two services on six GPUs, four features and a cascade, over hours or days: day and night, a launch that
doubles one feature, a process that is restarted, a GPU that nobody reads for a while. Every number is made
of the same few rates, so that what boards should show is known.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from gputrace.catalogue import Metric

Labels = frozenset[tuple[str, str]]

PRICES = {"NVIDIA H100 80GB HBM3": 2.8, "NVIDIA L4": 0.7}
GPUS = {
    **{f"GPU-h100-{number}": "NVIDIA H100 80GB HBM3" for number in range(4)},
    **{f"GPU-l4-{number}": "NVIDIA L4" for number in range(2)},
}


@dataclass(frozen=True)
class Load:
    """What a feature does: GPU-seconds a second at noon, and requests a second."""

    job: str
    model: str
    devices: tuple[str, ...]
    share: float
    requests: float
    failing: float = 0.01
    budget: float | None = None


H100 = tuple(name for name in GPUS if "h100" in name)
L4 = tuple(name for name in GPUS if "l4" in name)
LOADS = {
    "support-answer": Load("support-api", "llama-70b", H100, 0.30, 3.0, budget=2500.0),
    "doc-summaries": Load("support-api", "llama-70b", H100, 0.14, 0.4, 0.03, budget=1500.0),
    "semantic-search": Load("search-api", "bge-large", L4, 0.35, 25.0, 0.002, budget=600.0),
    catalogue.NO_FEATURE: Load("search-api", "bge-large", L4, 0.05, 2.0),
}
UNTRACKED = {"GPU-h100-3": 0.18}


@dataclass
class History:
    """Counters that grow step by step.

    Attributes:
        start_s: Unix time of the first sample.
        end_s: Of the last.
        step_s: Between two exports.
        series: What was exported.
        loads: By feature.
    """

    start_s: int
    end_s: int
    step_s: int = 60
    loads: dict[str, Load] = field(default_factory=lambda: dict(LOADS))
    currency: str = "USD"
    series: dict[Labels, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._values: dict[Labels, float] = {}
        self._random = random.Random(7)
        self._restart_s = self.start_s + (self.end_s - self.start_s) * 0.6

    def play(self) -> History:
        """Export everything from the start to the end."""
        for now in range(self.start_s, self.end_s + 1, self.step_s):
            self._touched: set[Labels] = set()
            for gpu, name in GPUS.items():
                self._device(now, gpu, name)
            for job in {load.job for load in self.loads.values()}:
                self._process(now, job)
            self._cascade(now)
            for labels in self._touched:
                self.series[labels].append((now * 1000, self._values[labels]))
        return self

    def total(self, metric: Metric, **where: str) -> float:
        """What a counter grew to over all processes: resets do not count backwards."""
        found = 0.0
        for labels, samples in self.series.items():
            named = dict(labels)
            if named["__name__"] == metric.prometheus and where.items() <= named.items():
                found += samples[-1][1]
        return found

    def _busy(self, now: int, feature: str) -> float:
        hour = now / 3600 % 24
        day = 0.55 + 0.45 * math.sin((hour - 8) / 24 * 2 * math.pi)
        launched = feature == "doc-summaries" and now > self.start_s + (self.end_s - self.start_s) * 0.7
        noise = self._random.uniform(0.85, 1.15)
        return self.loads[feature].share * day * noise * (2.2 if launched else 1.0)

    def _device(self, now: int, gpu: str, name: str) -> None:
        charged = sum(self._busy(now, feature) for feature, load in self.loads.items() if gpu in load.devices)
        unread = gpu == "GPU-l4-1" and 0.30 < (now - self.start_s) / (self.end_s - self.start_s) < 0.36
        charged = min(charged, 0.97)
        states = {"charged": charged, "untracked": min(UNTRACKED.get(gpu, 0.0), 1 - charged), "unknown": 0.0}
        states["idle"] = 1 - sum(states.values())
        if unread:
            states |= {"unknown": states["idle"], "idle": 0.0}
        device = {"hw.id": gpu, "hw.type": "gpu", "hw.name": name}
        agent = {"job": "gputrace-agent", "instance": "node-1", **device}
        published = {**agent, "gputrace.publisher": "node-1"}
        for state, share in states.items():
            labels = {**published, "gputrace.device.state": state}
            self._grow(catalogue.DEVICE_TIME, share * self.step_s, **labels)
            cost = share * self.step_s * PRICES[name] / 3600
            self._grow(catalogue.DEVICE_COST, cost, **labels, **{"gputrace.currency": self.currency})
            watts = {"idle": 90, "unknown": 0}.get(state, 600 if "H100" in name else 65)
            sources = {"gputrace.energy.source": "counter", "gputrace.energy.split": "idle_power"}
            self._grow(catalogue.DEVICE_ENERGY, share * self.step_s * watts, **labels, **sources)
        self._grow(catalogue.DEVICE_OVERLAP_TIME, 0.0, **published)
        self._grow(catalogue.DEVICE_UNTRACKED_UPPER_TIME, (1 - charged) * 0.3 * self.step_s, **published)
        self._set(catalogue.DEVICE_PRICE, PRICES[name], **published, **{"gputrace.currency": self.currency})
        self._set(
            catalogue.PRICE_INFO, 1.0, **{k: v for k, v in agent.items() if k != "hw.type"},
            **{"gputrace.currency": self.currency, "gputrace.price.sku": "reserved-8x",
               "gputrace.price.kind": "reserved", "gputrace.price.source": "contract",
               "gputrace.price.date": "2025-01-15"},
        )  # fmt: skip
        busy = states["charged"] + states["untracked"]
        if not unread:
            self._set(catalogue.HW_GPU_UTILIZATION, busy, **agent)
            self._set(catalogue.HW_POWER, 90 + 500 * busy if "H100" in name else 25 + 45 * busy, **agent)
            self._set(catalogue.HW_TEMPERATURE, 35 + 30 * busy, **agent)
        limit = 80e9 if "H100" in name else 24e9
        self._set(catalogue.HW_GPU_MEMORY_LIMIT, limit, **agent)
        self._set(catalogue.HW_GPU_MEMORY_USAGE, limit * (0.2 + 0.6 * busy), **agent)
        self._grow(catalogue.HW_ERRORS, 0.0, **agent, **{"error.type": "TimedOut"})
        self._grow(catalogue.HW_ENERGY, 300 * self.step_s, **agent, **{"gputrace.energy.source": "counter"})

    def _process(self, now: int, job: str) -> None:
        life = "b" if now >= self._restart_s and job == "support-api" else "a"
        process = {"job": job, "instance": f"{job}-{life}"}
        self._set(catalogue.SDK_QUEUE_LENGTH, self._random.randint(0, 6), **process)
        self._set(catalogue.BUILD_INFO, 1.0, **process, **{"gputrace.build.version": "0.1.0"})
        self._grow(catalogue.SDK_FAULTS, 0.0, **process)
        self._grow(catalogue.SDK_FOLDED, 0.0, **process)
        labels = {"__name__": "target_info", **process, "service_version": "1.4" if life == "a" else "1.5"}
        self._keep(labels, 1.0)
        for feature, load in self.loads.items():
            if load.job == job:
                self._feature(now, feature, load, process)

    def _feature(self, now: int, feature: str, load: Load, process: dict[str, str]) -> None:
        busy = self._busy(now, feature)
        named = {**process, "gputrace.feature": feature}
        served = load.requests * self.step_s * busy / load.share
        costs = 0.0
        for gpu in load.devices:
            work = {
                **named, "gputrace.operation": "generate", "gputrace.model": load.model,
                "gputrace.time.source": "cuda_event", "hw.type": "gpu", "hw.name": GPUS[gpu],
            }  # fmt: skip
        seconds = busy * self.step_s * len(load.devices)
        costs = seconds * PRICES[GPUS[load.devices[0]]] / 3600
        currency = {"gputrace.currency": self.currency}
        self._grow(catalogue.FEATURE_TIME, seconds, **work)
        self._grow(catalogue.FEATURE_COST, costs, **work, **currency)
        sources = {"gputrace.energy.source": "counter", "gputrace.energy.split": "idle_power"}
        self._grow(catalogue.FEATURE_ENERGY, seconds * 500, **work, **sources)
        self._grow(
            catalogue.FEATURE_ALONE_TIME, seconds / 2, **_of(catalogue.FEATURE_ALONE_TIME, work, process)
        )
        self._grow(
            catalogue.FEATURE_ALONE_BUSY_TIME, seconds / 3, **_of(catalogue.FEATURE_ALONE_TIME, work, process)
        )
        self._grow(catalogue.FEATURE_ALONE_PERIODS, 12.0, **_of(catalogue.FEATURE_ALONE_TIME, work, process))
        route = {"http.route": f"/{feature.strip('_')}"}
        for status, share in (("ok", 1 - load.failing), ("error", load.failing)):
            ended = {"gputrace.status": status}
            self._grow(catalogue.CALLS, served * share, **work, **ended)
            self._grow(catalogue.REQUESTS, served * share, **named, **route, **ended)
            self._histogram(catalogue.CALL_DURATION, served * share, 0.2 + busy, {**work, **ended})
            each = seconds / served if served else 0.0
            self._histogram(catalogue.CALL_DEVICE_TIME_HISTOGRAM, served * share, each, {**work, **ended})
        self._grow(catalogue.REQUEST_CALLS, served * 1.2, **named, **route)
        self._grow(catalogue.REQUEST_TIME, seconds, **named, **route)
        self._grow(catalogue.REQUEST_COST, costs, **named, **route, **currency)
        batched = {**named, "gputrace.operation": "generate", "gputrace.model": load.model}
        self._grow(catalogue.BATCH_MEMBERS, served, **batched)
        self._grow(catalogue.UNITS, served * 800, **named, **{"gputrace.unit.name": "tokens"})
        if feature != catalogue.NO_FEATURE:
            self._grow(catalogue.OUTCOMES, served * 0.3, **named, **{"gputrace.outcome.name": "accepted"})
        if load.budget is not None:
            self._set(catalogue.BUDGET, load.budget, **named, **currency)

    def _cascade(self, now: int) -> None:
        load = self.loads["support-answer"]
        life = "b" if now >= self._restart_s else "a"
        labels = {
            "job": load.job, "instance": f"{load.job}-{life}",
            "gputrace.feature": "support-answer", "gputrace.escalation.cascade": "answer",
        }  # fmt: skip
        served = (
            load.requests * self.step_s * (0.55 + 0.45 * math.sin((now / 3600 % 24 - 8) / 24 * 2 * math.pi))
        )
        escalated = 0.22 + 0.08 * math.sin(now / 9000)
        shares = {"kept": 0.95 - escalated, "escalated": escalated, "audited": 0.05}
        for decision, share in shares.items():
            why = {"gputrace.escalation.decision": decision, "gputrace.escalation.reason": "confidence"}
            self._grow(catalogue.ESCALATION_REQUESTS, served * share, **labels, **why)
        stages = {"small": 0.0002, "large": 0.003 * escalated, "audit": 0.003 * 0.05}
        for stage, cost in stages.items():
            spent = {**labels, "gputrace.stage": stage}
            self._grow(
                catalogue.ESCALATION_COST, served * cost, **spent, **{"gputrace.currency": self.currency}
            )
            self._grow(catalogue.ESCALATION_TIME, served * cost * 1200, **spent)
        policy = {"gputrace.escalation.policy": "threshold", "gputrace.stage": "small"}
        judged = {name: value for name, value in labels.items() if name != "gputrace.feature"}
        self._set(catalogue.ESCALATION_THRESHOLD, 0.8, **judged, **policy)
        estimates = {"savings_frac": (0.51, 0.58, 0.66), "quality_delta": (-0.03, -0.012, 0.004)}
        for quantity, bounds in estimates.items():
            for bound, value in zip(("low", "value", "high"), bounds, strict=True):
                about = {"gputrace.escalation.quantity": quantity, "gputrace.escalation.bound": bound}
                self._set(catalogue.ESCALATION_ESTIMATE, value, **labels, **about)
        for stage, good in (("small", 0.86), ("large", 0.93)):
            judged = {**labels, "gputrace.score.name": "correct", "gputrace.stage": stage}
            self._histogram(catalogue.SCORE, served * 0.1, good, judged)

    def _histogram(self, metric: Metric, count: float, typical: float, labels: dict[str, str]) -> None:
        bounds = catalogue.SCORE_BUCKETS if metric is catalogue.SCORE else catalogue.DURATION_BUCKETS_S
        for bound in (*bounds, math.inf):
            # Log-normal enough.
            below = 1 / (1 + (typical / bound) ** 3) if bound else 0.0
            le = "+Inf" if math.isinf(bound) else f"{bound:g}"
            self._grow(metric, count * below, suffix="_bucket", le=le, **labels)
        self._grow(metric, count, suffix="_count", **labels)
        self._grow(metric, count * typical, suffix="_sum", **labels)

    def _grow(self, metric: Metric, amount: float, suffix: str = "", **labels: str) -> None:
        key = _key(metric.prometheus + suffix, labels)
        # A new series is shown as 0 first, as the SDK does.
        self._values[key] = self._values[key] + amount if key in self._values else 0.0
        self._touched.add(key)

    def _set(self, metric: Metric, value: float, **labels: str) -> None:
        key = _key(metric.prometheus, labels)
        self._values[key] = value
        self._touched.add(key)

    def _keep(self, labels: dict[str, str], value: float) -> None:
        key = frozenset(labels.items())
        self._values[key] = value
        self._touched.add(key)


def _of(metric: Metric, work: dict[str, str], process: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in work.items() if name in metric.attributes or name in process}


def _key(name: str, labels: dict[str, str]) -> Labels:
    return frozenset(
        {"__name__": name, **{key.replace(".", "_"): value for key, value in labels.items()}}.items()
    )
