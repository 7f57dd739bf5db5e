"""Resident memory while 100 000 tenants call once each: what they are called is forgotten again."""

from __future__ import annotations

import pytest

MOST_MB = 20
PROGRAM = """
import gc, os, random
import gputrace
from gputrace import lifecycle
{provide}
gputrace.configure(export_interval=3_600, metric_attributes={attributes})

@gputrace.track(model="minilm")
def work():
    pass

@gputrace.track(hold="none")
def request():
    work()

def call(tenant, feature):
    with gputrace.attribute_to(feature, tenant=tenant):
        request()

def resident_mb():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def collect():
    gputrace.flush()
    if reader is not None:
        reader.get_metrics_data()

tenants = list(range(100_000))
random.Random(19).shuffle(tenants)
# Once over everything first, so that what is loaded on the way is not counted.
for number in range(200):
    call("first", f"feature-{{number % 3}}")
collect()
collect()
before = resident_mb()
for number, tenant in enumerate(tenants):
    call(f"tenant-{{tenant:06d}}", f"feature-{{number % 3}}")
    if not number % 200:
        # A process that serves is never behind by much; this one has nothing to wait for.
        lifecycle._process.settle(10)
    if not number % 20_000:
        collect()
collect()
print(resident_mb() - before)
"""
OWN = "reader = None"
USERS = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
"""


@pytest.mark.parametrize("attributes", [(), ("tenant",)], ids=["kept off metrics", "on metrics"])
@pytest.mark.parametrize("provide", [OWN, USERS], ids=["own provider", "user's provider"])
def test_100_000_tenants_take_less_than_20_mb(run_python, provide, attributes):
    program = PROGRAM.format(provide=provide, attributes=attributes)
    assert float(run_python(program, OTEL_TRACES_SAMPLER="always_off").stdout.split()[-1]) < MOST_MB
