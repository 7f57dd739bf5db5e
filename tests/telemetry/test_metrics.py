"""What metric readers see: new series from 0, balanced collections, closed sets of attributes, exemplars."""

from __future__ import annotations

import contextvars
import datetime as dt
import gc
import signal
import threading
import time

import prometheus_client
import pytest
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import Counter, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import DropAggregation, View
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import gputrace
from gputrace import baggage, cascades_counting, catalogue, faults, lifecycle
from gputrace.telemetry import metrics as instruments


def work(feature="search", times=1):
    for _ in range(times):
        with gputrace.span("work", feature=feature):
            pass


def values(points):
    return [point.value for point in points]


class Kept(MetricExporter):
    """Keeps the values of one metric, collection by collection."""

    def __init__(self) -> None:
        super().__init__({}, {})
        self.calls: list[list[int]] = []

    def export(self, data, **_):
        for scope in data.resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                if metric.name == "gputrace.calls":
                    self.calls.append(values(metric.data.data_points))
        return MetricExportResult.SUCCESS

    def force_flush(self, **_):
        return True

    def shutdown(self, **_):
        pass


def test_every_reader_sees_a_new_series_as_0_first_and_then_its_value(users, shown):
    early, late = InMemoryMetricReader(), InMemoryMetricReader()
    users.set_meter_provider(early, late)
    work(times=3)
    assert values(shown(early, "gputrace.calls")) == [0]
    assert values(shown(early, "gputrace.calls")) == [3]
    assert values(shown(late, "gputrace.calls")) == [0]
    assert values(shown(early, "gputrace.calls")) == [3]
    work(feature="chat", times=2)
    assert sorted(values(shown(late, "gputrace.calls"))) == [0, 3]
    assert sorted(values(shown(early, "gputrace.calls"))) == [0, 3]
    assert sorted(values(shown(late, "gputrace.calls"))) == [2, 3]
    assert sorted(values(shown(early, "gputrace.calls"))) == [2, 3]


def test_a_reader_that_is_added_later_sees_0_first_too(users, shown):
    provider = users.set_meter_provider()
    work()
    shown(users.reader, "gputrace.calls")
    later = InMemoryMetricReader()
    provider.add_metric_reader(later)
    assert values(shown(later, "gputrace.calls")) == [0]
    assert values(shown(later, "gputrace.calls")) == [1]


def test_a_flush_leaves_no_reader_with_a_0_in_place_of_a_value(users):
    exporters = Kept(), Kept()
    users.set_meter_provider(*(PeriodicExportingMetricReader(one, 3_600_000) for one in exporters))
    work(times=2)
    assert gputrace.flush()
    assert [one.calls for one in exporters] == [[[0], [2]], [[0], [2]]]
    # Where nothing is new, once is enough.
    work()
    assert gputrace.flush()
    assert [one.calls[2:] for one in exporters] == [[[3]], [[3]]]
    lifecycle._process.stop(1)
    metrics.get_meter_provider().shutdown()


def test_a_flush_does_not_leave_a_value_to_another_thread_that_is_still_exporting_it(users):
    """The process may end as soon as the flush is over."""

    class Overtaken(Kept):
        def export(self, data, **arguments):
            if threading.current_thread() is others:
                time.sleep(0.2)
            elif not others.ident:
                others.start()
                while lifecycle._process.runtime.instruments._shown[reader].owed:
                    time.sleep(0.001)
            return super().export(data, **arguments)

    exporter = Overtaken()
    reader = PeriodicExportingMetricReader(exporter, 3_600_000)
    others = threading.Thread(target=reader.collect, daemon=True)
    users.set_meter_provider(reader)
    work(times=2)
    assert gputrace.flush()
    assert exporter.calls[-1] == [2]
    others.join()
    lifecycle._process.stop(1)
    metrics.get_meter_provider().shutdown()


def test_a_flush_leaves_scrapes_alone(users, shown):
    """The reader for Prometheus keeps what a flush collects, and would show it beside the next scrape."""
    registry = prometheus_client.CollectorRegistry()
    users.set_meter_provider(PrometheusMetricReader(registry=registry), users.reader)
    work()
    for _ in range(3):
        assert gputrace.flush()
    assert values(shown(users.reader, "gputrace.calls")) == [1]

    def scraped() -> list[float]:
        return [
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "gputrace_calls_total"
        ]

    assert [scraped(), scraped()] == [[0], [1]]
    assert gputrace.flush()
    assert scraped() == [1]


def test_deltas_come_from_0_too(users, shown):
    kinds = (Counter, ObservableCounter)
    reader = InMemoryMetricReader(dict.fromkeys(kinds, AggregationTemporality.DELTA))
    users.set_meter_provider(reader)
    work(times=3)
    seen = [values(shown(reader, "gputrace.calls"))]
    work(times=2)
    seen += [values(shown(reader, "gputrace.calls")) for _ in range(2)]
    assert seen == [[0], [5], [0]]


def test_a_reader_that_will_not_come_again_gets_the_value_at_once(users):
    """A total that is right is worth more than a first step that `increase()` could see."""
    exporter = Kept()
    provider = users.set_meter_provider(PeriodicExportingMetricReader(exporter, 3_600_000))
    work(times=2)
    provider.shutdown()
    assert exporter.calls == [[2]]


def test_where_the_reader_cannot_be_told_all_count_as_one(users, shown, monkeypatch):
    """A fall-back for an SDK that collects in another way: nothing worse than a missing first 0."""
    monkeypatch.setattr(instruments, "_collecting_reader", lambda: None)
    readers = InMemoryMetricReader(), InMemoryMetricReader()
    users.set_meter_provider(*readers)
    work()
    assert values(shown(readers[0], "gputrace.calls")) == [0]
    assert [values(shown(reader, "gputrace.calls")) for reader in readers] == [[1], [1]]


def test_the_reader_is_told_by_the_collection_that_runs_on_this_thread():
    class Consumer:
        def collect(self, metric_reader, depth):
            return self.deeper(depth) if depth else instruments._collecting_reader()

        def deeper(self, depth):
            return self.deeper(depth - 1) if depth else instruments._collecting_reader()

        def other(self, metric_reader):
            return instruments._collecting_reader()

    reader = InMemoryMetricReader()
    assert Consumer().collect(reader, 0) is reader
    assert Consumer().collect(reader, 4) is reader
    # Not from anywhere: frames that only look like a collection, or what cannot be kept as a key.
    assert Consumer().collect(reader, 30) is None
    assert Consumer().other(reader) is None
    assert Consumer().collect("a text has no weak references", 0) is None
    assert Consumer().collect(None, 0) is None


def test_readers_are_not_kept_alive(users, shown):
    users.set_meter_provider()
    work()
    shown(users.reader, "gputrace.calls")
    kept = lifecycle._process.instruments._shown
    assert len(kept) == 1
    # A meter provider of a user's holds its readers for good; so this one goes with its provider.
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    [reader] = provider._metric_readers
    kept[reader] = instruments._Shown()
    del provider, reader
    gc.collect()
    assert len(kept) == 1


def test_what_is_collected_together_balances(users, collect):
    """One snapshot a collection: time by feature equals time charged on devices, while calls run."""
    users.set_meter_provider()
    stop = threading.Event()

    def load():
        # Charged as it runs, so that no two instants have the same totals.
        with gputrace.span("long", feature="search"):
            stop.wait()

    thread = threading.Thread(target=load)
    thread.start()
    by_feature = 0.0
    try:
        for _ in range(20):
            time.sleep(0.005)
            found = collect(users.reader)
            if "gputrace.feature.time" not in found:
                continue
            by_feature = sum(values(found["gputrace.feature.time"].data.data_points))
            [charged] = [
                point.value
                for point in found["gputrace.device.time"].data.data_points
                if point.attributes[catalogue.DEVICE_STATE] == "charged"
            ]
            # The series of a feature comes after that of its device: its first 0 too.
            assert by_feature == pytest.approx(charged, abs=2e-9) or by_feature == 0
    finally:
        stop.set()
        thread.join()
    assert by_feature > 0


@pytest.mark.parametrize("dropped", ["gputrace.device.time", "gputrace.calls"])
def test_views_that_drop_an_instrument_leave_the_others_fresh(users, shown, dropped):
    users.set_meter_provider(views=[View(instrument_name=dropped, aggregation=DropAggregation())])
    other = {"gputrace.calls": "gputrace.feature.time"}.get(dropped, "gputrace.calls")
    work()
    assert gputrace.flush()
    [before] = values(shown(users.reader, other))
    work(times=5)
    [after] = values(shown(users.reader, other))
    assert after > before > 0


# --- names and attributes


def scenario():
    """Every metric that exists without energy readings, with all the attributes that there can be."""
    with gputrace.attribute_to(feature="f", tenant="t", model="m", variant="v", stage="s"):
        work(feature="g")
        gputrace.outcome("solved")
        gputrace.current().add_units(tokens=3)
        with pytest.raises(KeyError), gputrace.span("failed", attributes={"mine": 1}):
            raise KeyError
    with gputrace.span("container", hold="none"):
        work(feature=None)
    with gputrace.request("GET /answers", route="/answers"):
        # Long enough that some of it has a price.
        time.sleep(0.01)
        work()
        time.sleep(0.06)
        with gputrace.batch([gputrace.member()], model="m", variant="v", stage="s"):
            pass
    cascade = gputrace.Cascade("answer", threshold=0.5)
    with cascade.request(feature="f") as request:
        with request.stage("light", variant="v"):
            time.sleep(0.01)
        request.escalate(0.9)
    gputrace.flush()
    gputrace.score(request.id, 1.0)
    lifecycle._process.runtime.settler.totals.unmeasured["max_hold"] = 1
    lifecycle._process.count_lost(3)
    assert baggage.incoming([(b"baggage", b"gputrace.feature=theirs")]) == {}
    assert gputrace.flush()


# These come with energy readings and several processes on a device.
#: What comes from reading GPUs: tests/test_hardware_exports.py; and from steps: tests/test_settler_steps.py.
LATER = {*instruments._OF_READINGS, *catalogue.STEP_METRICS}
ESTIMATE = {
    "gputrace.escalation.cascade": "answer",
    "gputrace.feature": "f",
    "gputrace.escalation.quantity": "savings_frac",
    "gputrace.escalation.bound": "low",
}


@pytest.fixture
def price_book(tmp_path):
    """Prices that begin in a moment, so that there is time without and with one."""
    begins = dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=0.3)
    path = tmp_path / "prices.toml"
    path.write_text(
        f"""
        [[price]]
        sku = "a machine"
        name = "*"
        type = "cpu"
        per_hour = 3.0
        currency = "USD"
        kind = "on_demand"
        source = "a test"
        as_of = 2026-09-01
        valid_from = {begins.isoformat()}
        """
    )
    return path


@pytest.fixture
def budgets(tmp_path):
    path = tmp_path / "budgets.toml"
    path.write_text('[[budget]]\nfeature = "f"\ncurrency = "USD"\nper_month = 10\n')
    return path


def test_what_is_emitted_is_what_the_catalogue_says(users, collect, price_book, budgets, monkeypatch):
    monkeypatch.setattr(cascades_counting, "estimates", lambda: [(ESTIMATE, 0.2)])
    users.set_tracer_provider()
    users.set_meter_provider()
    gputrace.configure(metric_attributes=("tenant",), prices=price_book, budgets=budgets)
    scenario()
    time.sleep(0.5)
    scenario()
    found = collect(users.reader)
    assert set(found) == {metric.name for metric in catalogue.METRICS if metric not in LATER}
    used = set()
    for metric in catalogue.METRICS:
        if metric in LATER:
            continue
        emitted = found[metric.name]
        assert emitted.unit == metric.unit
        assert emitted.description == metric.description
        kind = {"Sum": catalogue.Kind.COUNTER, "Gauge": catalogue.Kind.GAUGE}
        assert kind.get(type(emitted.data).__name__, catalogue.Kind.HISTOGRAM) is metric.kind
        for point in emitted.data.data_points:
            assert set(point.attributes) <= set(metric.attributes), metric.name
            assert all(isinstance(value, str) for value in point.attributes.values())
            used |= set(point.attributes)
    # And the other way round: every attribute of these metrics is seen on some point.
    named = {name for metric in catalogue.METRICS if metric not in LATER for name in metric.attributes}
    # Only slices of GPUs have a parent.
    assert used == named - {catalogue.HW_PARENT}


def test_what_the_user_adds_and_who_the_tenant_is_stay_on_spans(users, collect):
    users.set_tracer_provider()
    users.set_meter_provider()
    scenario()
    names = {
        name
        for metric in collect(users.reader).values()
        for point in metric.data.data_points
        for name in point.attributes
    }
    assert "mine" not in names
    assert catalogue.TENANT not in names
    assert users.spans()["failed"].attributes["mine"] == 1
    assert users.spans()["failed"].attributes[catalogue.TENANT] == "t"


def test_values_are_strings_so_that_true_and_1_stay_apart(users, shown):
    users.set_meter_provider()
    for feature in (True, 1, 1.0, "1"):
        work(feature=feature)
    assert gputrace.flush()
    found = {
        point.attributes[catalogue.FEATURE]: point.value for point in shown(users.reader, "gputrace.calls")
    }
    assert found == {"True": 1, "1": 2, "1.0": 1}


def test_the_scope_is_ours(users):
    users.set_meter_provider()
    work()
    [scope] = users.reader.get_metrics_data().resource_metrics[0].scope_metrics
    assert scope.scope.name == "gputrace"
    assert scope.schema_url == catalogue.SCHEMA_URL


# --- histograms


def test_histograms_hold_durations_and_lead_to_the_trace(users, collect):
    users.set_tracer_provider()
    users.set_meter_provider()
    with gputrace.span("work", feature="search"):
        time.sleep(0.03)
    # A collection takes the exemplars with it: the first has to be ours.
    assert lifecycle._process.runtime.settler.flush(time.monotonic() + 5)
    found = collect(users.reader)
    span = users.spans()["work"]
    for name in ("gputrace.call.duration", "gputrace.call.device.time"):
        [point] = found[name].data.data_points
        assert point.count == 1
        assert 0.03 <= point.sum < 10
        assert tuple(point.explicit_bounds) == catalogue.DURATION_BUCKETS_S
        [exemplar] = point.exemplars
        assert exemplar.trace_id == span.context.trace_id
        assert exemplar.span_id == span.context.span_id


def test_an_unsampled_call_leaves_no_exemplar(users, shown):
    users.set_tracer_provider(ALWAYS_OFF)
    users.set_meter_provider()
    work()
    assert gputrace.flush()
    [point] = shown(users.reader, "gputrace.call.duration")
    assert point.count == 1
    assert list(point.exemplars) == []


def test_a_container_has_a_duration_and_no_device_time(users, shown):
    users.set_meter_provider()
    with gputrace.span("container", hold="none"):
        pass
    assert gputrace.flush()
    [point] = shown(users.reader, "gputrace.call.duration")
    assert catalogue.HW_TYPE not in point.attributes
    assert shown(users.reader, "gputrace.call.device.time") == []


# --- what happens in the midst of a collection


def test_a_collector_of_garbage_that_tracks_calls_does_not_block_a_collection(users, shown):
    users.set_meter_provider()
    work()
    calls = 0

    def callback(phase, _):
        nonlocal calls
        # Not for ever: what the settler allocates for these calls makes garbage too.
        if phase == "start" and calls < 2000:
            calls += 1
            # In a context of its own: before Python 3.12 a collection may come in the midst of a set, which
            # does not survive another one in the same context (https://github.com/python/cpython/issues/148891).
            contextvars.copy_context().run(work, feature="gc")

    gc.callbacks.append(callback)
    threshold = gc.get_threshold()
    try:
        gc.set_threshold(1)
        for _ in range(20):
            work()
            shown(users.reader, "gputrace.calls")
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
    assert gputrace.flush()
    found = {
        point.attributes[catalogue.FEATURE]: point.value for point in shown(users.reader, "gputrace.calls")
    }
    assert found == {"search": 21, "gc": calls}
    assert calls > 20


def test_a_signal_handler_that_tracks_calls_does_not_block_a_collection(users, shown):
    users.set_meter_provider()
    work()
    previous = signal.signal(signal.SIGALRM, lambda *_: work(feature="signal"))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for _ in range(100):
            shown(users.reader, "gputrace.calls")
            time.sleep(0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert gputrace.flush()
    found = {
        point.attributes[catalogue.FEATURE]: point.value for point in shown(users.reader, "gputrace.calls")
    }
    assert found["signal"] > 10


@pytest.mark.usefixtures("contained")
def test_a_fault_while_showing_is_counted_and_nothing_is_shown(users, shown, monkeypatch):
    users.set_meter_provider()
    work()
    runtime = lifecycle._process.runtime
    broken = runtime.instruments

    def fail():
        raise RuntimeError("no snapshot")

    monkeypatch.setattr(broken, "take_snapshot", fail)
    assert shown(users.reader, "gputrace.calls") == []
    assert faults.count() > 0
    monkeypatch.setattr(broken, "take_snapshot", runtime.settler.snapshot)
    shown(users.reader, "gputrace.sdk.faults")
    assert values(shown(users.reader, "gputrace.sdk.faults")) == [faults.count()]


def test_an_instrument_of_the_users_beside_ours_is_left_alone(users):
    users.set_meter_provider()
    counter = metrics.get_meter("mine").create_counter("mine")
    counter.add(2)
    work()
    data = users.reader.get_metrics_data()
    found = {
        metric.name: values(metric.data.data_points)
        for scope in data.resource_metrics[0].scope_metrics
        if scope.scope.name == "mine"
        for metric in scope.metrics
    }
    assert found == {"mine": [2]}
