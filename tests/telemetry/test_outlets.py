"""What reaches the exporter of one destination, and in what order."""

from __future__ import annotations

import itertools
import threading

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from gputrace.telemetry.outlets import MetricOutlet

NEVER_S = 3_600.0


class Kept(MetricExporter):
    """Keeps the value of the only point of each export."""

    def __init__(self):
        super().__init__({}, {})
        self.values = []

    def export(self, metrics_data, timeout_millis=10_000, **_):
        [resource] = metrics_data.resource_metrics
        [point] = resource.scope_metrics[0].metrics[0].data.data_points
        self.values.append(point.value)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **_):
        pass


def test_a_collection_is_exported_before_the_next_begins(monkeypatch):
    exporter, counted = Kept(), itertools.count(1)
    outlet = MetricOutlet(lambda: exporter, NEVER_S)
    provider = MeterProvider([outlet.reader], shutdown_on_exit=False)
    provider.get_meter("test").create_observable_counter("counted", [lambda _: [Observation(next(counted))]])
    receive, reached, overtaken = outlet.reader._receive_metrics, threading.Event(), threading.Event()

    def slowly(*arguments, **named):
        if not reached.is_set():
            reached.set()
            overtaken.wait(0.2)
        receive(*arguments, **named)

    def later():
        outlet.reader.collect()
        overtaken.set()

    monkeypatch.setattr(outlet.reader, "_receive_metrics", slowly)
    first, second = (threading.Thread(target=one, daemon=True) for one in (outlet.reader.collect, later))
    first.start()
    assert reached.wait(10)
    second.start()
    first.join()
    second.join()
    assert exporter.values == [1, 2]
    provider.shutdown()
