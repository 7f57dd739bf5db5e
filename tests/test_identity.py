"""Who a process is: as its providers say, else a name of its own; a child is somebody else."""

from __future__ import annotations

import uuid

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from gputrace import identity


@pytest.fixture(autouse=True)
def nobody_yet(monkeypatch):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", None)
    identity.reset()
    yield
    identity.reset()


def resource(name: str) -> Resource:
    return Resource({"service.instance.id": name})


def test_without_providers_it_is_new_and_stays():
    assert identity.settled() is None
    first = identity.instance_id()
    assert uuid.UUID(first).version == 4
    assert identity.instance_id() == first == identity.settled()
    identity.reset()
    assert identity.instance_id() != first


def test_a_tracer_provider_says_who_this_is(monkeypatch):
    provider = TracerProvider(resource=resource("pod-1"), shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    assert identity.settled() == "pod-1"
    assert identity.instance_id() == "pod-1"


def test_a_meter_provider_does_where_there_is_no_other(monkeypatch):
    provider = MeterProvider(resource=resource("pod-2"), shutdown_on_exit=False)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", provider)
    assert identity.instance_id() == "pod-2"


def test_what_was_published_under_one_name_does_not_get_another(monkeypatch):
    first = identity.instance_id()
    provider = TracerProvider(resource=resource("pod-3"), shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    assert identity.instance_id() == first


@pytest.mark.parametrize(
    "provider", [object(), TracerProvider(resource=Resource({}), shutdown_on_exit=False)]
)
def test_providers_that_do_not_say_leave_it_to_us(monkeypatch, provider):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    assert uuid.UUID(identity.instance_id()).version == 4


def test_the_host_has_a_name():
    assert identity.host_name()
