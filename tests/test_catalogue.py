"""The catalogue: valid names and units, closed sets of attributes, Prometheus names by the rules."""

from __future__ import annotations

import re

import pytest

from gputrace import catalogue
from gputrace.catalogue import Kind

# Semantic conventions 1.44: general naming.
NAME = re.compile(r"[a-z][a-z0-9]*(?:[._][a-z0-9]+)*")
UNITS = {"s": "seconds", "J": "joules", "By": "bytes", "W": "watts", "Cel": "celsius", "1": "ratio"}
#: Reused from the semantic conventions as they are: name -> unit.
STANDARD = {
    "hw.energy": "J",
    "hw.errors": "{error}",
    "hw.gpu.memory.limit": "By",
    "hw.gpu.memory.usage": "By",
    "hw.gpu.utilization": "1",
    "hw.power": "W",
    "hw.temperature": "Cel",
}
METRICS = {metric.name: metric for metric in catalogue.METRICS}
ATTRIBUTES = {attribute.name: attribute for attribute in catalogue.ATTRIBUTES}


def prometheus_name(metric: catalogue.Metric) -> str:
    """As otlptranslator builds it: words, the unit's word where it is absent, `_total` on counters."""
    words = [word for word in re.split(r"[^a-zA-Z0-9]+", metric.name) if word]
    unit, _, per = metric.unit.partition("/")
    for word in (UNITS.get(unit), f"per_{ {'h': 'hour', 's': 'second'}[per] }" if per else None):
        if word is not None and word not in words:
            words.append(word)
    if metric.kind is Kind.COUNTER:
        words = [word for word in words if word != "total"] + ["total"]
    return "_".join(words)


def test_names_are_unique():
    assert len(METRICS) == len(catalogue.METRICS)
    assert len(ATTRIBUTES) == len(catalogue.ATTRIBUTES)
    assert len({metric.prometheus for metric in catalogue.METRICS}) == len(METRICS)


def test_every_name_in_the_module_is_in_the_tables():
    """A constant that is in no table would be emitted undescribed."""
    constants = {name: value for name, value in vars(catalogue).items() if name.isupper()}
    metrics = {value.name for value in constants.values() if isinstance(value, catalogue.Metric)}
    assert metrics == set(METRICS)
    names = {
        value for value in constants.values() if isinstance(value, str) and "." in value and "/" not in value
    }
    assert names == {*ATTRIBUTES, catalogue.OUTCOME_SPAN, catalogue.DECISION_EVENT, catalogue.SCORE_EVENT}


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_and_described_by_the_rules(metric):
    assert NAME.fullmatch(metric.name)
    assert len(metric.name) <= 63
    if metric.name in STANDARD:
        assert metric.unit == STANDARD[metric.name]
    else:
        assert metric.name.startswith("gputrace.")
        assert re.fullmatch(r"(s|J|By|W|\{[a-z]+\})(/(h|s))?", metric.unit), "UCUM, and never 1"
    assert metric.description.endswith(".")
    assert metric.description[0].isupper() or metric.description[0] == "1"
    # A unit or `total` in a name would be there twice in Prometheus.
    assert not {"seconds", "joules", "bytes", "total"} & set(re.split(r"[._]", metric.name))


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_a_metrics_attributes_are_known_and_few(metric):
    assert len(set(metric.attributes)) == len(metric.attributes)
    assert set(metric.attributes) <= set(ATTRIBUTES)


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_a_prometheus_name_follows(metric):
    """Proven against real servers in tests/integration."""
    assert metric.prometheus == prometheus_name(metric)
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", metric.prometheus)


@pytest.mark.parametrize("attribute", catalogue.ATTRIBUTES, ids=lambda attribute: attribute.name)
def test_an_attribute_is_named_and_described(attribute):
    assert NAME.fullmatch(attribute.name)
    assert attribute.description.endswith(".")
    # Nothing is invented inside the namespaces of others.
    if not attribute.name.startswith("gputrace."):
        assert attribute.name in {"error.type", "http.route", "hw.id", "hw.name", "hw.parent", "hw.type"}


def test_no_name_is_the_beginning_of_another():
    """`a.b` beside `a.b.c` cannot be told apart where names become nested objects."""
    for names in (METRICS, ATTRIBUTES):
        clashes = {(name, other) for name in names for other in names if other.startswith(f"{name}.")}
        assert clashes == set()


def test_only_the_tenant_is_opt_in():
    assert [attribute.name for attribute in catalogue.ATTRIBUTES if attribute.opt_in] == ["gputrace.tenant"]


def test_the_families_are_twins():
    """Time by feature and time by device are told apart, and joined, by the same attributes."""
    features = set(catalogue.FEATURE_TIME.attributes)
    devices = set(catalogue.DEVICE_TIME.attributes)
    assert features & devices == {catalogue.HW_TYPE, catalogue.HW_NAME}
    assert set(catalogue.CALLS.attributes) == features | {catalogue.STATUS}
    assert set(catalogue.CALL_DURATION.attributes) == set(catalogue.CALLS.attributes)
    for metric in catalogue.METRICS:
        if metric.name.endswith(".cost"):
            assert catalogue.CURRENCY in metric.attributes


def test_reserved_values_cannot_be_a_users():
    assert catalogue.NO_FEATURE.startswith(catalogue.RESERVED_PREFIX)
    assert catalogue.OTHER.startswith(catalogue.RESERVED_PREFIX)


def test_buckets_grow_from_100_us_to_100_s():
    buckets = catalogue.DURATION_BUCKETS_S
    assert buckets[0] == 0.0001
    assert buckets[-1] == 100.0
    assert list(buckets) == sorted(set(buckets))
    assert all(isinstance(bound, float) for bound in buckets)
