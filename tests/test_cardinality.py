"""Which names there are on metrics: the first so many, for good; what folds, and in which order."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, strategies as st

import gputrace
from gputrace import call_site, catalogue
from gputrace.accounts import Totals
from gputrace.cardinality import CLOSED, Cap
from gputrace.testing import Recorder, VirtualClock

OTHER = catalogue.OTHER
OPEN = (catalogue.FEATURE, catalogue.OPERATION, catalogue.MODEL, catalogue.VARIANT, catalogue.STAGE)
STATUS = {catalogue.STATUS: "ok"}


def counted(cap, metric=catalogue.CALLS, **fields):
    """The attributes of a set, in the order of the catalogue."""
    names = {name.rpartition(".")[2]: name for name in metric.attributes}
    given_ = {names[field]: value for field, value in fields.items()}
    ordered = {name: given_[name] for name in metric.attributes if name in given_}
    return cap.series(metric, ordered).attributes


def folded(attributes):
    return {name.rpartition(".")[2] for name, value in attributes.items() if value == OTHER}


def test_the_first_values_of_an_attribute_keep_their_names():
    cap = Cap(value_limit=2)
    assert [cap.value(catalogue.TENANT, value) for value in "abcab"] == ["a", "b", OTHER, "a", "b"]
    assert cap.value(catalogue.FEATURE, "c") == "c"


def test_what_was_folded_stays_folded_whatever_the_limit_is_by_then():
    cap = Cap(value_limit=1, set_limit=14)
    for tenant in "ab":
        counted(cap, feature="f", tenant=cap.value(catalogue.TENANT, tenant), status="ok")
    for number in range(40):
        counted(cap, feature="f", operation=str(number), status="ok")
    cap.apply(value_limit=10, set_limit=1_500)
    assert cap.value(catalogue.TENANT, "b") == OTHER
    assert cap.value(catalogue.TENANT, "c") == OTHER
    assert folded(counted(cap, feature="f", operation="39", status="ok")) >= {"operation"}


def test_what_has_a_name_keeps_it_when_the_limits_shrink():
    cap = Cap()
    attributes = counted(cap, feature="f", operation="o", tenant="t", status="ok")
    cap.apply(value_limit=1, set_limit=1)
    assert counted(cap, feature="f", operation="o", tenant="t", status="ok") is attributes


def test_tenants_fold_first_then_operations_then_variants():
    cap = Cap(set_limit=200)
    seen = []
    for number in range(600):
        fields = {"feature": "f", "operation": f"o{number}", "variant": f"v{number}", "tenant": f"t{number}"}
        now = folded(counted(cap, **fields, status="ok"))
        if now not in seen:
            seen.append(now)
    assert seen == [
        set(),
        {"tenant"},
        {"tenant", "operation"},
        {"tenant", "operation", "variant"},
    ]


def test_a_new_feature_is_told_from_the_rest_after_tenants_took_their_share():
    cap = Cap(set_limit=300)
    for number in range(5_000):
        counted(cap, feature="old", operation="o", tenant=str(number), status="ok")
    attributes = counted(cap, feature="new", operation="o", tenant="late", status="ok")
    assert attributes[catalogue.FEATURE] == "new"
    assert attributes[catalogue.OPERATION] == "o"
    assert attributes[catalogue.TENANT] == OTHER


def test_every_instrument_has_sets_of_its_own():
    cap = Cap(set_limit=40)
    for number in range(100):
        counted(cap, feature="f", operation=str(number), status="ok")
    assert folded(counted(cap, catalogue.FEATURE_TIME, feature="f", operation="99")) == set()


@given(
    st.integers(14, 60),
    st.lists(
        st.tuples(*[st.sampled_from((None, *"abcdef"))] * 6, st.sampled_from(catalogue.CALL_STATUSES)),
        min_size=30,
        max_size=300,
    ),
)
def test_no_set_moves_and_an_instrument_has_no_more_than_its_limit(limit, sets):
    cap = Cap(set_limit=limit, features=("a",), models=("a", "b"))
    where: dict[tuple[str | None, ...], int] = {}
    series = {}
    for *fields, status in sets:
        names = (*OPEN, catalogue.TENANT)
        attributes = {name: value for name, value in zip(names, fields, strict=True) if value is not None}
        found = cap.series(catalogue.CALLS, {**attributes, catalogue.STATUS: status})
        series[id(found)] = found
        assert where.setdefault((*fields, status), id(found)) == id(found)
        # Folding says less, and nothing wrong.
        told = found.attributes
        assert told[catalogue.STATUS] == status
        assert all(told[name] in {value, OTHER} for name, value in attributes.items())
    assert len(series) <= limit
    assert len({frozenset(one.attributes.items()) for one in series.values()}) == len(series)


def test_what_is_closed_by_nature_never_folds():
    cap = Cap(set_limit=1)
    closed = {"status": "error", "source": "host", "type": "cpu", "name": "EPYC"}
    attributes = cap.series(
        catalogue.CALLS,
        {
            catalogue.FEATURE: "f",
            catalogue.OPERATION: "o",
            catalogue.STATUS: closed["status"],
            catalogue.TIME_SOURCE: closed["source"],
            catalogue.HW_TYPE: closed["type"],
            catalogue.HW_NAME: closed["name"],
        },
    ).attributes
    assert {name for name, value in attributes.items() if value == OTHER} == set(OPEN)
    assert {name: attributes[name] for name in attributes if name in CLOSED} == {
        catalogue.STATUS: "error",
        catalogue.TIME_SOURCE: "host",
        catalogue.HW_TYPE: "cpu",
        catalogue.HW_NAME: "EPYC",
    }


OF_FEATURES = [metric for metric in catalogue.METRICS if catalogue.FEATURE in metric.attributes]


@pytest.mark.parametrize("metric", OF_FEATURES, ids=lambda metric: metric.name)
def test_rows_that_fold_to_the_end_have_the_attributes_of_their_metric(metric):
    attributes = dict.fromkeys(metric.attributes, "x")
    assert set(Cap(set_limit=1).series(metric, attributes).attributes) == set(metric.attributes)


def test_rows_that_fold_are_summed():
    cap = Cap(set_limit=14)
    rows = [({catalogue.FEATURE: "f", catalogue.OPERATION: str(number)}, 1) for number in range(50)]
    shown = cap.rows(catalogue.FEATURE_ENERGY, rows)
    assert sum(value for _, value in shown) == 50
    assert len(shown) <= 14
    assert cap.rows(catalogue.FEATURE_ENERGY, rows) == shown


# --- declared up front ---------------------------------------------------------


def test_declared_values_keep_their_names_whatever_comes_before():
    cap = Cap(value_limit=3, features=("search", "chat"), models=("minilm",))
    for number in range(10):
        cap.value(catalogue.FEATURE, f"other-{number}")
    assert cap.value(catalogue.FEATURE, "search") == "search"
    assert cap.value(catalogue.FEATURE, "chat") == "chat"
    assert cap.value(catalogue.MODEL, "minilm") == "minilm"
    assert cap.value(catalogue.FEATURE, "other-0") == "other-0"
    assert cap.value(catalogue.FEATURE, "other-9") == OTHER


def test_more_values_may_be_declared_than_are_kept_of_others():
    cap = Cap(value_limit=2, features=tuple("abcd"))
    assert [cap.value(catalogue.FEATURE, value) for value in "abcde"] == [*"abcd", OTHER]


@pytest.mark.parametrize("status", catalogue.CALL_STATUSES)
def test_a_declared_feature_keeps_its_name_when_all_sets_are_taken(status):
    features = tuple(f"declared-{number}" for number in range(50))
    cap = Cap(set_limit=500, features=features, models=("minilm",))
    fill = itertools.product(*[range(12)] * 4)
    for feature, model, operation, variant in fill:
        counted(
            cap,
            feature=f"f{feature}",
            model=f"m{model}",
            operation=str(operation),
            variant=str(variant),
            status="ok",
        )
    for feature in (*features, catalogue.NO_FEATURE):
        attributes = counted(cap, feature=feature, operation="new", model="new", status=status)
        assert attributes[catalogue.FEATURE] == feature
    assert counted(cap, feature="late", operation="new", status=status)[catalogue.FEATURE] == OTHER


def test_declared_features_and_models_are_shown_from_the_start_as_0():
    shown = Totals(features=("search", "chat"), models=("minilm",)).snapshot([], "publisher", 0)
    expected = [
        ({catalogue.FEATURE: "search"}, 0),
        ({catalogue.FEATURE: "chat"}, 0),
        ({catalogue.FEATURE: catalogue.NO_FEATURE, catalogue.MODEL: "minilm"}, 0),
    ]
    assert shown.calls == expected
    assert shown.feature_time_s == expected


def test_what_is_declared_later_is_shown_from_then_on():
    totals = Totals()
    totals.apply((), 200, features=("search",))
    assert totals.snapshot([], "publisher", 0).calls == [({catalogue.FEATURE: "search"}, 0)]


# --- calls ---------------------------------------------------------------------


def test_work_that_nobody_named_keeps_its_row_beside_any_number_of_features():
    with Recorder(VirtualClock(step_ns=1)) as recorder:
        for number in range(250):
            with gputrace.span("work", feature=f"feature-{number}"):
                pass
        with gputrace.span("work"):
            pass
        by_feature = recorder.time_by()
    assert {catalogue.NO_FEATURE, "feature-0", OTHER} <= set(by_feature)
    assert len(by_feature) == 202


def test_each_folded_value_of_a_finished_call_is_counted():
    """Whatever is remembered: a tenant that calls twice is folded twice."""
    with Recorder(VirtualClock(step_ns=1), metric_attributes=("tenant",)) as recorder:
        for number in (*range(300), 0, 299):
            with gputrace.attribute_to(f"feature-{number}", tenant=str(number)), gputrace.span("work"):
                pass
        # 100 late features and as many tenants; then one early of each, and one late.
        assert recorder.snapshot().folded == 100 + 100 + 1 + 1


def test_nothing_is_folded_while_there_is_room():
    with Recorder(VirtualClock(step_ns=1), metric_attributes=("tenant",)) as recorder:
        for number in range(200):
            with gputrace.attribute_to("search", tenant=str(number)), gputrace.span("work"):
                pass
        assert recorder.snapshot().folded == 0
        assert len(recorder.time_by(catalogue.TENANT)) == 200


def test_attributions_that_requests_make_are_forgotten_however_many_sites_there_are():
    """What sites remember is bounded for all of them together, not for each."""
    call_site._merged.clear()
    sites = [gputrace.track(operation=str(number), model="minilm")(lambda: None) for number in range(50)]
    rng = random.Random(4)
    with Recorder(VirtualClock(step_ns=1)) as recorder:
        for number in range(10_000):
            with gputrace.attribute_to(tenant=str(number)):
                sites[rng.randrange(50)]()
        # The last so many, no more and no less: what is used all the time is not forgotten with the rest.
        assert sum(len(site.__gputrace__.site.merged) for site in sites) == 4_096
        assert len(recorder.settled()) == 10_000


def test_series_that_requests_bring_are_forgotten():
    with Recorder(VirtualClock(step_ns=1)) as recorder:
        for number in range(10_000):
            with gputrace.span("work", feature=str(number)):
                pass
            if not number % 1_000:
                recorder.settle()
        recorder.settle()
        assert len(recorder.settler.totals.names._remembered) <= 4_096
        assert sum(count for _, count in recorder.snapshot().calls) == 10_000


def test_outcomes_units_and_requests_have_no_more_sets_than_an_instrument_may_have():
    with Recorder(VirtualClock(step_ns=1)) as recorder:
        recorder.settler.totals.apply((), 200, 40)
        for feature, name in itertools.product("abcdefghij", repeat=2):
            with gputrace.attribute_to(feature), gputrace.request("GET", route=f"/{name}"):
                gputrace.outcome(name, feature=feature)
                gputrace.current().add_units(**{name: 2})
        shown = recorder.snapshot()
    for rows, expected in (
        (shown.outcomes, 100),
        (shown.units, 200),
        (shown.requests[catalogue.REQUESTS.name], 100),
        (shown.requests[catalogue.REQUEST_CALLS.name], 0),
    ):
        assert sum(value for _, value in rows) == expected
        assert 20 <= len(rows) <= 40
        assert len({tuple(attributes.items()) for attributes, _ in rows}) == len(rows)
