"""Energy and busy share of what this process charged on a device, from periods that were read."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import given, strategies as st

from gputrace import catalogue, ledger
from gputrace.accounts import Totals
from gputrace.cardinality import Series
from gputrace.devices.energy import EnergySplit
from gputrace.devices.readings import Reading, split_time
from gputrace.hardware import Hardware
from gputrace.hardware_features import FeatureReadings, Stretch, _within
from gputrace.hardware_published import NodeDevice, PublishedDevice, Told
from gputrace.settler import Settler

S = 1_000_000_000
MS = 1_000_000
GPU = "GPU-1"


def series(feature, **others):
    return Series({catalogue.FEATURE: feature, catalogue.HW_TYPE: "gpu", **others})


SEARCH, CHAT = series("search"), series("chat")
SERIES = (SEARCH, CHAT, series("search", **{catalogue.MODEL: "large"}))


def energy_uj(features):
    """By series, as it is shown: what was shown is exact."""
    found = defaultdict(int)
    for attributes, drawn_j in features.rows()[catalogue.FEATURE_ENERGY.name]:
        found[attributes[catalogue.FEATURE], attributes.get(catalogue.MODEL)] += round(drawn_j * 1_000_000)
    return dict(found)


def alone(features):
    """Periods, time and busy time by feature."""
    shown = features.rows()
    names = (catalogue.FEATURE_ALONE_PERIODS, catalogue.FEATURE_ALONE_TIME, catalogue.FEATURE_ALONE_BUSY_TIME)
    found = defaultdict(tuple)
    for metric in names:
        for attributes, value in shown[metric.name]:
            found[attributes[catalogue.FEATURE]] += (value,)
    return dict(found)


def hold(features, start_ns, end_ns, *shares):
    """Let this process hold the device, and be charged for it in equal parts or as (series, ns)."""
    features.start(GPU, start_ns)
    features.stop(GPU, end_ns)
    charges = tuple((one, held_ns * ledger.SCALE) for one, held_ns in shares)
    features.charged(GPU, Stretch(start_ns, end_ns, charges))


def a_period(  # noqa: PLR0913 - what a period is told by
    start_ns, end_ns, charged_ns, busy_ns=S, *, drawn_uj=None, any_missed=False, estimated=False
):
    """What is told of a period in which the processes of the node together held so much."""
    reading = Reading(GPU, start_ns, end_ns, busy_ns, energy_uj=drawn_uj, energy_source="counter")
    energy = None
    if drawn_uj is not None:
        energy = EnergySplit({"charged": drawn_uj}, 0, 0, 0, estimated=estimated)
    split = split_time(end_ns - start_ns, charged_ns, busy_ns)
    return Told(start_ns, end_ns, split, reading, energy, any_missed=any_missed)


stretches = st.lists(
    st.tuples(
        st.integers(1, 150),  # its length, ms
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=3),  # holds of it, ms
    ),
    max_size=40,
)
periods = st.lists(
    st.tuples(st.integers(1, 1_500), st.none() | st.integers(0, 1_500), st.none() | st.integers(0, 10**8)),
    max_size=8,
)


@given(stretches, periods)
def test_where_this_process_alone_holds_its_features_bear_what_the_device_bears(
    given_stretches, given_periods
):
    features, device = FeatureReadings(), PublishedDevice(NodeDevice(GPU), 0)
    at = 0
    for length, holds in given_stretches:
        begins, charges = at, []
        for which, held in holds:
            until = min(at + held, begins + length)
            if until > at:
                features.start(GPU, at * MS)
                features.stop(GPU, until * MS)
                charges.append((SERIES[which], (until - at) * MS * ledger.SCALE))
                at = until
        at = begins + length
        features.charged(GPU, Stretch(begins * MS, at * MS, tuple(charges)))
    final_ns, start_ns = at * MS, 0
    for length, busy, drawn_uj in given_periods:
        end_ns = start_ns + length * MS
        busy_ns = None if busy is None else busy * MS
        device.read(Reading(GPU, start_ns, end_ns, busy_ns, energy_uj=drawn_uj, energy_source="counter"))
        start_ns = end_ns
    for told in device.tell(final_ns, lambda *period: features.held_between(GPU, *period)):
        features.told(GPU, told, alone=True)
    charged_uj = sum(
        round(drawn_j * 1_000_000)
        for attributes, drawn_j in device.energy_j()
        if attributes[catalogue.DEVICE_STATE] == "charged"
    )
    assert sum(energy_uj(features).values()) == charged_uj


def test_energy_goes_by_what_was_charged_and_says_how_it_was_had():
    features = FeatureReadings()
    hold(features, 0, S, (SEARCH, 3 * S // 4), (CHAT, S // 4))
    features.told(GPU, a_period(0, S, S, drawn_uj=1_000), alone=True)
    assert energy_uj(features) == {("search", None): 750, ("chat", None): 250}
    for attributes, _ in features.rows()[catalogue.FEATURE_ENERGY.name]:
        assert attributes[catalogue.ENERGY_SOURCE] == "counter"
        assert attributes[catalogue.ENERGY_SPLIT] == "idle_power"
        assert attributes[catalogue.HW_TYPE] == "gpu"


def test_another_process_bears_its_part_in_proportion_to_what_it_held():
    features = FeatureReadings()
    hold(features, 0, 200 * MS, (SEARCH, 200 * MS))
    features.told(GPU, a_period(0, S, 800 * MS, drawn_uj=1_000), alone=True)
    assert energy_uj(features) == {("search", None): 250}


def test_a_hold_that_came_too_late_for_the_device_bears_no_more_than_that_did():
    features = FeatureReadings()
    hold(features, 0, 400 * MS, (SEARCH, 400 * MS))
    features.told(GPU, a_period(0, S, 300 * MS, drawn_uj=900), alone=True)
    assert energy_uj(features) == {("search", None): 900}


def test_without_energy_or_a_holder_there_is_none_to_share():
    features = FeatureReadings()
    hold(features, 0, S, (SEARCH, S))
    features.told(GPU, a_period(0, S, S), alone=True)
    features.told(GPU, a_period(S, 2 * S, 0, drawn_uj=1_000), alone=True)
    # Charged, but nobody on the node is known to have held.
    hold(features, 2 * S, 3 * S, (SEARCH, S))
    features.told(GPU, a_period(2 * S, 3 * S, 0, drawn_uj=1_000), alone=True)
    assert energy_uj(features) == {}


@pytest.mark.parametrize(("held_ms", "periods_told"), [(1_000, 1), (950, 1), (949, 0)])
def test_a_busy_share_is_told_from_periods_that_the_feature_held_by_95_percent(held_ms, periods_told):
    features = FeatureReadings()
    hold(features, 0, held_ms * MS, (SEARCH, held_ms * MS))
    features.told(GPU, a_period(0, S, held_ms * MS, 400 * MS), alone=True)
    assert alone(features) == ({"search": (1, 1.0, 0.4)} if periods_told else {})


def test_periods_are_counted_and_their_time_is_summed():
    features = FeatureReadings()
    for place in range(12):
        hold(features, place * S, (place + 1) * S, (SEARCH, S))
        features.told(GPU, a_period(place * S, (place + 1) * S, S, 400 * MS), alone=True)
    assert alone(features) == {"search": (12, 12.0, pytest.approx(4.8))}


def test_two_operations_of_one_feature_are_one_feature():
    features = FeatureReadings()
    hold(features, 0, S, (SEARCH, S // 2), (SERIES[2], S // 2))
    features.told(GPU, a_period(0, S, S, 400 * MS), alone=True)
    assert alone(features) == {"search": (1, 1.0, 0.4)}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"charged_ns": S - 40 * MS, "own_ns": S - 50 * MS},
        {"any_missed": True},
        {"alone": False},
        {"overlapped": 1},
        {"busy_ns": None},
        {"shares": (S // 2, S // 2)},
    ],
    ids=["another held too", "somebody may have", "others may hold", "held at once", "not read", "shared"],
)
def test_a_period_that_others_may_have_had_a_part_in_tells_no_busy_share(spoilt):
    features = FeatureReadings()
    own_ns = spoilt.get("own_ns", S)
    shares = spoilt.get("shares", (own_ns, 0))
    hold(features, 0, own_ns, (SEARCH, shares[0]), (CHAT, shares[1]))
    if "overlapped" in spoilt:
        features.overlapped(GPU, spoilt["overlapped"])
    told = a_period(
        0, S, spoilt.get("charged_ns", S), spoilt.get("busy_ns", S), any_missed="any_missed" in spoilt
    )
    features.told(GPU, told, alone=spoilt.get("alone", True))
    assert alone(features) == {}


def test_an_overlap_before_a_period_is_no_matter():
    features = FeatureReadings()
    features.overlapped(GPU, S)
    hold(features, S, 2 * S, (SEARCH, S))
    features.told(GPU, a_period(S, 2 * S, S), alone=True)
    assert alone(features) == {"search": (1, 1.0, 1.0)}


def test_a_call_that_goes_on_is_held_up_to_where_it_was_charged():
    features = FeatureReadings()
    features.start(GPU, 0)
    features.charged(GPU, Stretch(0, S // 2, ((SEARCH, S // 2 * ledger.SCALE),)))
    # Another one within it adds nothing.
    features.start(GPU, S // 4)
    assert features.holders(GPU) == 2
    assert features.held_between(GPU, 0, S) == (S // 2, 0)
    features.charged(GPU, Stretch(S // 2, S, ((SEARCH, S // 2 * ledger.SCALE),)))
    features.stop(GPU, S)
    features.stop(GPU, S + 10)
    assert features.holders(GPU) == 0
    assert features.held_between(GPU, 0, 2 * S) == (S + 10, 0)
    assert features.held_between(GPU, S, 2 * S) == (10, 0)


@given(
    st.lists(
        st.tuples(st.integers(1, 100), st.integers(0, 10**30), st.integers(0, 50)), min_size=1, max_size=30
    ),
    st.lists(st.integers(1, 90), min_size=1, max_size=60),
)
def test_periods_that_follow_each_other_lose_nothing_of_a_stretch(given_stretches, lengths):
    waiting, at, charged = deque(), 0, 0
    for length, amount, gap in given_stretches:
        at += gap
        waiting.append(Stretch(at, at + length, ((SEARCH, amount),)))
        at, charged = at + length, charged + amount
    start, found = 0, 0
    for length in [*lengths, at + 1]:
        found += _within(waiting, start, start + length).get(SEARCH, 0)
        start += length
    assert found == charged
    assert not waiting


def test_what_was_charged_before_a_period_is_not_of_it():
    """A publisher that begins anew, or readings that came too late."""
    waiting = deque([Stretch(0, 10, ((SEARCH, 100),)), Stretch(10, 20, ((SEARCH, 100),))])
    assert _within(waiting, 15, 18) == {SEARCH: 30}
    assert _within(waiting, 18, 20) == {SEARCH: 20}
    assert not waiting


def test_what_waits_for_a_reading_is_bounded():
    """Where the driver is never read: minutes of stretches, and no more."""
    features = FeatureReadings()
    for place in range(9_000):
        hold(features, place * MS, (place + 1) * MS, (SEARCH, MS))
    assert len(features._devices[GPU].stretches) == 8_192
    # Of a period of which only the end is remembered, the end is what counts.
    features.told(GPU, a_period(0, 9_000 * MS, 9_000 * MS, drawn_uj=1_000), alone=True)
    assert energy_uj(features) == {("search", None): 1_000}


def test_energy_has_no_more_sets_than_an_instrument_may_have(tmp_path):
    """It is told apart further than time is: by how it was shared."""
    hardware = Hardware("a", 0, environment={"GPUTRACE_NODE_DIR": str(tmp_path)})
    settler = Settler(Totals(set_limit=60), hardware=hardware)
    features = hardware._features
    many = [series(f"feature-{number}", **{catalogue.OPERATION: "work"}) for number in range(30)]
    shown = []
    for number, estimated in enumerate((True, False)):
        start_ns = number * S
        hold(features, start_ns, start_ns + S, *[(one, S // 30) for one in many])
        features.told(
            GPU, a_period(start_ns, start_ns + S, S, drawn_uj=30_000_000, estimated=estimated), alone=True
        )
        shown.append(settler.snapshot().readings[catalogue.FEATURE_ENERGY.name])
    before, after = ({tuple(attributes.items()): value for attributes, value in rows} for rows in shown)
    assert sum(before.values()) == pytest.approx(30)
    assert sum(after.values()) == pytest.approx(60)
    assert len(before) < len(after) <= 60
    assert len(features.rows()[catalogue.FEATURE_ENERGY.name]) == 60
    assert all(after[key] >= value for key, value in before.items())
    assert any((catalogue.FEATURE, catalogue.OTHER) in key for key in after)
    hardware.node.forget()
