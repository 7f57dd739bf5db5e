"""Queries cannot be made of what nothing emits."""

from __future__ import annotations

import dataclasses

import pytest

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.promql import Scope, match, ratio, select
from gputrace.grafana.sources import UnknownNameError


def test_a_metric_that_the_catalogue_does_not_hold_is_refused():
    renamed = dataclasses.replace(catalogue.CALLS, prometheus="gputrace_call_count_total")
    with pytest.raises(UnknownNameError, match=r"gputrace\.calls is not in gputrace\.catalogue"):
        select(renamed)


@pytest.mark.parametrize("source", [catalogue.FEATURE_COST, recorded.FEATURE_COST])
def test_a_label_that_a_series_does_not_have_is_refused(source):
    with pytest.raises(UnknownNameError, match="has no label for gputrace_status"):
        select(source, match(catalogue.STATUS, "ok"))


def test_what_is_no_matcher_is_refused():
    with pytest.raises(UnknownNameError):
        select(catalogue.CALLS, "gputrace_status=ok")


def test_variables_narrow_the_labels_that_a_source_has():
    scope = Scope(("currency", "job", "feature"))
    assert scope.select(catalogue.CALLS) == 'gputrace_calls_total{job=~"$job", gputrace_feature=~"$feature"}'
    # Devices are published by an agent, whose job is its own.
    assert scope.select(catalogue.DEVICE_COST) == 'gputrace_device_cost_total{gputrace_currency="$currency"}'


def test_a_ratio_is_nothing_where_there_is_nothing_to_divide_by():
    assert ratio("a", "b") == "a / (b > 0)"
