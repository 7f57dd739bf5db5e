from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from gputrace.prices_billing import IDLE_POLICIES, Bill, spread_idle
from gputrace.prices_rows import Price
from gputrace.prices_timeline import Ambiguity, Timeline

HOUR_NS = 3600 * 10**9
USD = Price(Fraction(3), "USD", "on_demand", "a list", None)
DEARER = Price(Fraction(5), "USD", "on_demand", "a list", None)
EUR = Price(Fraction(7, 3), "EUR", "spot", "a list", None)
HELD = (None, USD, DEARER, EUR, Ambiguity(("price 1", "price 2")))


@st.composite
def timelines(draw) -> Timeline:
    changes = sorted(draw(st.sets(st.integers(-50, 150), max_size=6)))
    held = draw(st.lists(st.sampled_from(HELD), min_size=len(changes) + 1, max_size=len(changes) + 1))
    return Timeline(tuple(changes), tuple(held))


def billed(timeline: Timeline, *spans) -> Bill:
    bill = Bill()
    for span in spans:
        bill.add(timeline.split(*span))
    return bill


def money(bill: Bill):
    return {currency: cost for currency, cost in bill.costs(HOUR_NS).items() if cost}, bill.unpriced


SPANS = st.tuples(st.integers(0, 100), st.integers(1, 100), st.integers(0, 10**30)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2])
)


@given(timelines(), SPANS)
def test_parts_sum_to_the_whole_exactly(timeline, span):
    assert sum(part for _, part in timeline.split(*span)) == span[2]


@given(timelines(), SPANS, st.data())
def test_a_span_costs_the_same_wherever_it_is_split(timeline, span, data):
    start, end, amount = span
    middle = data.draw(st.integers(start, end))
    left = Fraction(amount * (middle - start), end - start)
    halves = billed(timeline, (start, middle, left), (middle, end, amount - left))
    assert money(halves) == money(billed(timeline, span))


@given(timelines(), SPANS)
def test_each_moment_is_billed_at_its_own_price(timeline, span):
    start, end, amount = span
    rate = Fraction(amount, end - start)
    moments = [(moment, moment + 1, rate) for moment in range(start, end)]
    assert money(billed(timeline, span)) == money(billed(timeline, *moments))


@given(st.lists(st.tuples(st.sampled_from((USD, DEARER, EUR)), st.integers(0, 10**25))))
def test_two_currencies_are_never_added(parts):
    bill = Bill()
    bill.add(parts)
    costs = bill.costs(HOUR_NS)
    for currency in ("USD", "EUR"):
        expected = sum(amount * price.per_hour for price, amount in parts if price.currency == currency)
        assert costs.get(currency, 0) * HOUR_NS == expected


def test_an_hour_across_a_change_costs_half_of_each():
    timeline = Timeline((HOUR_NS,), (USD, DEARER))
    assert money(billed(timeline, (HOUR_NS // 2, HOUR_NS * 3 // 2, HOUR_NS))) == ({"USD": Fraction(4)}, 0)


def test_time_that_shared_the_device_costs_its_share():
    assert money(billed(Timeline((), (USD,)), (0, HOUR_NS, HOUR_NS // 4)))[0] == {"USD": Fraction(3, 4)}


def test_a_price_holds_from_its_first_instant_and_ends_before_its_last():
    timeline = Timeline((10, 20), (None, USD, None))
    assert [timeline.at(moment) for moment in (9, 10, 19, 20)] == [None, USD, USD, None]
    assert timeline.changes_between(10, 20) == ()
    assert timeline.changes_between(9, 21) == (10, 20)
    # What takes no time is billed at its moment.
    assert timeline.split(10, 10, 5) == ((USD, 5),)


def test_where_no_price_changes_integers_stay_integers():
    ((_, part),) = Timeline((500,), (USD, EUR)).split(0, 100, 2**70)
    assert type(part) is int


def test_time_without_a_price_is_kept_apart():
    bill = Bill()
    bill.add([(None, 3), (Ambiguity(("a", "b")), 4), (USD, 5)])
    assert bill.unpriced == 7
    assert bill.costs(1) == {"USD": 15}


def test_equal_prices_of_two_readings_of_a_file_are_one():
    again = Price(Fraction(3), "USD", "on_demand", "a list", None)
    bill = Bill()
    bill.add([(USD, 1), (again, 1), (DEARER, 1)])
    assert len(bill._by_price) == 2
    assert bill.costs(1) == {"USD": 11}


# One hour of one device at $3, of which A held nine minutes and B three.
BUSY = {"A": Fraction("0.45"), "B": Fraction("0.15")}
IDLE = Fraction("2.40")


@pytest.mark.parametrize(
    ("policy", "a", "b", "left"),
    [
        ("separate", "0.45", "0.15", "2.40"),
        ("even", "1.65", "1.35", "0"),
        ("weighted", "2.25", "0.75", "0"),
        ("none", "0.45", "0.15", "0"),
    ],
)
def test_idle_policies(policy, a, b, left):
    assert spread_idle(policy, BUSY, IDLE) == ({"A": Fraction(a), "B": Fraction(b)}, Fraction(left))


def test_idle_that_nobody_is_there_to_bear_stays_in_sight():
    assert spread_idle("even", {}, IDLE) == ({}, IDLE)
    assert spread_idle("weighted", {}, IDLE) == ({}, IDLE)
    assert spread_idle("weighted", {"A": Fraction(0)}, IDLE) == ({"A": 0}, IDLE)


MONEY = st.fractions(min_value=0, max_value=10**6)


@given(st.sampled_from(IDLE_POLICIES), st.dictionaries(st.text(max_size=3), MONEY), MONEY)
def test_all_policies_but_none_sum_to_what_the_device_costs(policy, busy, idle):
    costs, left = spread_idle(policy, busy, idle)
    assert costs.keys() == busy.keys()
    assert sum(costs.values()) + left == sum(busy.values()) + (0 if policy == "none" else idle)
