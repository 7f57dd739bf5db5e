"""What metric readers see while names fold: no point decreases, no sum changes, the SDK folds nothing."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings as hypothesis_settings, strategies as st
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

import gputrace
from gputrace import call as calls, catalogue, settings
from gputrace.cardinality import Cap
from gputrace.lifecycle_runtime import Runtime
from gputrace.telemetry.users import UsersProviders
from gputrace.testing import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

NS_PER_S = 1_000_000_000
DELTA = dict.fromkeys((ObservableCounter, Histogram), AggregationTemporality.DELTA)
#: The instruments whose sets a user's values make.
CAPPED = ("gputrace.calls", "gputrace.feature.time", "gputrace.call.duration", "gputrace.call.device.time")
#: The SDK's own limit, above which it shows `otel.metric.overflow`.
LIMIT_OF_SDK = 2_000


def value_of(point):
    """Of a histogram its count: what must add up."""
    return point.value if hasattr(point, "value") else point.count


class Reader:
    """Collects from one reader and checks each collection against the one before it."""

    def __init__(self, *, delta: bool) -> None:
        self.delta = delta
        self.reader = InMemoryMetricReader(preferred_temporality=DELTA if delta else {})
        self.totals: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()

    def collect(self) -> None:
        data = self.reader.get_metrics_data()
        before = dict(self.totals)
        seen = set()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            points = list(metric.data.data_points)
            assert all("otel.metric.overflow" not in point.attributes for point in points)
            if metric.name not in CAPPED:
                continue
            for point in points:
                key = (metric.name, frozenset(point.attributes.items()))
                assert key not in seen
                seen.add(key)
                if self.delta:
                    assert value_of(point) >= 0
                    self.totals[key] += value_of(point)
                else:
                    assert value_of(point) >= self.totals[key]
                    self.totals[key] = value_of(point)
        if not self.delta:
            assert seen >= set(before)

    def sum_of(self, name):
        return sum(value for (metric, _), value in self.totals.items() if metric == name)

    def sets_of(self, name):
        return sum(metric == name for metric, _ in self.totals)

    def by(self, name, attribute):
        found: Counter[str] = Counter()
        for (metric, attributes), value in self.totals.items():
            if metric == name:
                found[dict(attributes).get(attribute, "")] += value
        return found


class Service:
    """A process with a meter provider of the user's, on a clock that stands still between calls.

    Attributes:
        where: By what a call was billed to, the sets that such calls were counted under.
        folded: How many values of these calls are `__other__`.
    """

    def __init__(self, clock: VirtualClock, runtime: Runtime, readers: list[Reader]) -> None:
        self.clock = clock
        self.runtime = runtime
        self.readers = readers
        self.calls = self.ns = self.folded = 0
        self.where: dict[tuple[object, ...], set[frozenset[tuple[str, str]]]] = {}
        settled = runtime.settler.on_settled
        assert settled is not None

        def keep(followed, measured):
            billed, status = followed.call.attribution, followed.call.status or "ok"
            fields = (billed.feature, billed.model, billed.variant, billed.stage, billed.tenant)
            key = (*fields, followed.call.site.operation, status)
            counted = followed.series.attributes
            self.where.setdefault(key, set()).add(frozenset(counted.items()))
            given_ = {
                catalogue.FEATURE: billed.feature or catalogue.NO_FEATURE,
                catalogue.VARIANT: billed.variant,
                catalogue.TENANT: billed.tenant,
                catalogue.OPERATION: followed.call.site.operation,
            }
            self.folded += sum(
                counted.get(name) == catalogue.OTHER for name, value in given_.items() if value is not None
            )
            settled(followed, measured)

        runtime.settler.on_settled = keep

    def call(self, operation="work", ns=1, *, fails=False, **fields):
        with suppress(RuntimeError), gputrace.attribute_to(**fields), gputrace.span(operation):
            self.clock.advance(ns)
            if fails:
                raise RuntimeError
        self.calls += 1
        self.ns += ns

    def collect(self):
        self.runtime.settler.tick()
        for reader in self.readers:
            reader.collect()

    def check(self):
        """Collect until all was shown, and compare the sums."""
        self.collect()
        self.collect()
        for reader in self.readers:
            assert reader.sum_of("gputrace.calls") == self.calls
            assert reader.sum_of("gputrace.call.duration") == self.calls
            assert reader.sum_of("gputrace.call.device.time") == self.calls
            assert reader.sum_of("gputrace.feature.time") == pytest.approx(self.ns / NS_PER_S)
        assert all(len(sets) == 1 for sets in self.where.values()), "a call was counted elsewhere than before"
        assert self.runtime.settler.snapshot().folded == self.folded


@contextmanager
def service(cap: Cap | None = None, **chosen) -> Iterator[Service]:
    """What `gputrace.configure` starts, but for the thread: everything is settled when it is asked for."""
    clock, clock_before = VirtualClock(), calls.clock
    readers = [Reader(delta=False), Reader(delta=True)]
    provider = MeterProvider([reader.reader for reader in readers], shutdown_on_exit=False)
    metrics_internal._METER_PROVIDER = provider
    calls.clock = clock
    try:
        told = dataclasses.replace(settings.read(environment={}), metric_attributes=("tenant",), **chosen)
        runtime = Runtime(told, UsersProviders(lambda _: None), None, None, cap or Cap())
        calls.record(runtime.settler.queue)
        yield Service(clock, runtime, readers)
    finally:
        calls.clock = clock_before
        calls.stop_recording()
        provider.shutdown()


#: What calls say, for all combinations; more features and tenants than are kept.
CALLS = [
    {"operation": operation, "feature": feature, "variant": variant, "tenant": tenant, "fails": fails}
    for operation in ("rank", "embed", "answer")
    for feature in (None, *(f"feature-{number}" for number in range(7)))
    for variant in (None, "fp16", "int8")
    for tenant in (None, *(f"tenant-{number}" for number in range(20)))
    for fails in (False, True)
]
#: One step in so many collects.
COLLECTS = 16


@given(
    st.integers(14, 60),
    st.integers(1, 12),
    st.lists(st.integers(0, len(CALLS) * COLLECTS - 1), min_size=40, max_size=200),
)
@hypothesis_settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    # An example takes a tenth of a second: to find a shorter one would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_no_point_decreases_and_no_sum_changes_whatever_folds(users, set_limit, value_limit, steps):
    """Calls, and collections in between, of a cumulative reader and a delta reader."""
    del users  # begins as if nobody had set up OpenTelemetry, and cleans up
    with service(set_limit=set_limit, value_limit=value_limit) as process:
        for step in steps:
            collects, kind = divmod(step, len(CALLS))
            process.call(ns=step % 1_000, **CALLS[kind])
            if not collects:
                process.collect()
        process.check()
        for reader, name in itertools.product(process.readers, CAPPED):
            assert reader.sets_of(name) <= set_limit


def test_hindsight_850_opentelemetry_python_2700_100_000_tenants_in_random_order(users):
    """A user's id as an attribute cost a program 3 GB: the first keep their names, the rest are one row."""
    del users
    rng = random.Random(850)
    tenants = [f"tenant-{number:06d}" for number in range(100_000)]
    rng.shuffle(tenants)
    truth: Counter[str] = Counter()
    with service() as process:
        for number, tenant in enumerate(tenants):
            # Now and then one that called before, under any of sixty features: sets run out as well.
            again = [tenants[rng.randrange(min(number + 1, 190))]] if number % 10 < number // 10_000 else []
            for one in (tenant, *again):
                feature = f"feature-{rng.randrange(60)}"
                process.call(ns=rng.randrange(1, 1_000), feature=feature, tenant=one, fails=not number % 9)
                truth[one] += 1
            if not number % 10_000:
                process.collect()
        process.check()
        for reader in process.readers:
            by_tenant = reader.by("gputrace.calls", catalogue.TENANT)
            assert len(by_tenant) == 201
            assert set(by_tenant) - {catalogue.OTHER} == set(tenants[:200])
            # Where sets ran out, a tenant's calls under later features are in the common row too.
            assert all(by_tenant[tenant] <= truth[tenant] for tenant in tenants[:200])
            assert len(reader.by("gputrace.calls", catalogue.FEATURE)) == 60
            assert all(900 <= reader.sets_of(name) <= 1_500 < LIMIT_OF_SDK for name in CAPPED)


def test_declared_features_are_exported_from_the_start(users):
    del users
    with service(features=("search", "chat"), models=("minilm",), value_limit=2) as process:
        process.collect()
        for reader in process.readers:
            assert reader.by("gputrace.calls", catalogue.FEATURE) == {"search": 0, "chat": 0, "__none__": 0}
            assert {"search", "chat"} < set(reader.by("gputrace.feature.time", catalogue.FEATURE))
        for feature in ("a", "b", "c", "chat"):
            process.call(feature=feature, tenant="t")
        process.check()
        for reader in process.readers:
            assert reader.by("gputrace.calls", catalogue.FEATURE) == {
                "search": 0,
                "__none__": 0,
                "chat": 1,
                catalogue.OTHER: 3,
            }


def test_other_settings_take_hold_without_moving_what_was_counted(users):
    del users
    with service(value_limit=2) as process:
        for number in range(4):
            process.call(feature=f"feature-{number}", tenant="t")
        process.collect()
        more = dataclasses.replace(process.runtime.settings, value_limit=9, features=("declared",))
        process.runtime.apply(more)
        for number in range(6):
            process.call(feature=f"feature-{number}", tenant="t")
        process.call(feature="declared", tenant="t")
        process.check()
        for reader in process.readers:
            assert reader.by("gputrace.calls", catalogue.FEATURE) == {
                "feature-0": 2,
                "feature-1": 2,
                catalogue.OTHER: 6,
                "declared": 1,
            }


def test_every_process_of_one_cap_gives_the_same_names(users):
    """A forked child goes on with the readers of its parent: names of its own would come on top."""
    del users
    cap = Cap()
    with service(cap, value_limit=2) as parent:
        for tenant in "abc":
            parent.call(feature="search", tenant=tenant)
        parent.check()
    with service(cap, value_limit=2) as child:
        for tenant in "cba":
            child.call(feature="search", tenant=tenant)
        child.check()
        for reader in child.readers:
            assert reader.by("gputrace.calls", catalogue.TENANT) == {"a": 1, "b": 1, catalogue.OTHER: 1}
