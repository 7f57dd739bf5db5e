"""One device as its publisher shows it: exact arithmetic on hand-made readings and holders."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, strategies as st

from gputrace import catalogue
from gputrace.devices.energy import split_energy
from gputrace.devices.readings import Reading
from gputrace.hardware_published import PATIENCE_NS, NodeDevice, PublishedDevice
from gputrace.node import Shared

S = 1_000_000_000
MS = 1_000_000
#: What holders did, one character a stretch of this length: h held, m maybe held, anything else not held.
STRETCH_NS = S // 4


class Holders:
    """Answers as a node does, from a line such as ``..hh.m``."""

    def __init__(self, line="", stretch_ns=STRETCH_NS):
        self.line = line
        self.stretch_ns = stretch_ns

    def measure(self, kind, start_ns, end_ns):
        return sum(
            max(0, min(end_ns, (place + 1) * self.stretch_ns) - max(start_ns, place * self.stretch_ns))
            for place, found in enumerate(self.line)
            if found == kind
        )

    def __call__(self, start_ns, end_ns):
        return self.measure("h", start_ns, end_ns), self.measure("m", start_ns, end_ns)


def a_device(begins_ns=0, not_before_ns=0):
    return PublishedDevice(NodeDevice("GPU-1", "NVIDIA H100"), begins_ns, not_before_ns)


def read(device, start_ns, end_ns, busy_ns=0, **others):
    device.read(Reading("GPU-1", start_ns, end_ns, busy_ns, **others))


def tell(device, final_ns, holders=None):
    return list(device.tell(final_ns, holders or Holders()))


def rest(device):
    """Untracked, idle and unknown time."""
    states = device.states_ns()
    return states["untracked"], states["idle"], states["unknown"]


readings = st.lists(
    st.tuples(
        # Late and in disorder too: whoever reads the driver may be wrong.
        st.integers(-3 * S, 8 * S),
        st.integers(1, 3 * S),
        st.none() | st.integers(0, 4 * S),
        st.none() | st.tuples(st.integers(0, 10**9), st.sampled_from(["counter", "power"])),
        st.booleans(),
    ),
    max_size=12,
)


def run(device, given_readings, holders):
    """Hand readings over, some of them after their time was told; return all that was told."""
    at_ns, told = S, []
    for gap_ns, wall_ns, busy_ns, energy, is_late in given_readings:
        start_ns = max(0, at_ns + gap_ns)
        at_ns = start_ns + wall_ns
        if is_late:
            told += tell(device, at_ns + PATIENCE_NS + S, holders)
        energy_uj, source = energy or (None, None)
        read(device, start_ns, at_ns, busy_ns, energy_uj=energy_uj, energy_source=source)
        told += tell(device, at_ns, holders)
    return told + tell(device, at_ns + 3 * PATIENCE_NS, holders)


@given(readings, st.text("hm.", max_size=200))
def test_the_states_sum_to_the_time_that_was_told(given_readings, line):
    device, holders = a_device(), Holders(line)
    told = run(device, given_readings, holders)
    # One stretch after the other, from the begin of the window.
    edges = [device.begins_ns, *(one.end_ns for one in told)]
    assert [one.start_ns for one in told] == edges[:-1]
    wall_ns, held_ns = device.told_ns
    assert wall_ns == edges[-1] - edges[0]
    assert held_ns == holders.measure("h", edges[0], edges[-1])
    assert sum(rest(device)) + held_ns == wall_ns
    for one in told:
        split, (held_there_ns, missed_ns) = one.split, holders(one.start_ns, one.end_ns)
        parts = (split.charged_ns, split.untracked_ns, split.idle_ns, split.unknown_ns)
        assert min(parts) >= 0
        assert sum(parts) == one.end_ns - one.start_ns
        assert split.charged_ns == held_there_ns
        assert one.any_missed is (missed_ns > 0)
        assert split.untracked_ns <= split.untracked_upper_ns
        if one.reading is None or one.reading.busy_ns is None:
            assert split.idle_ns == split.untracked_ns == 0
        else:
            assert split.unknown_ns <= missed_ns


@given(readings, st.text("hm.", max_size=200))
def test_the_energy_sums_to_the_measurement_by_source(given_readings, line):
    device = a_device()
    told = run(device, given_readings, Holders(line))
    measured, split = defaultdict(int), defaultdict(int)
    for one in told:
        if one.energy is not None:
            measured[one.reading.energy_source] += one.reading.energy_uj
    assert device.drawn_uj == measured
    for attributes, drawn_j in device.energy_j():
        split[attributes[catalogue.ENERGY_SOURCE]] += round(drawn_j * 1_000_000)
        assert drawn_j >= 0
    assert split == measured


@pytest.mark.parametrize(
    ("line", "busy_ns", "split"),
    [
        # Busy beyond what was held, at the least and at the most; the rest is idle.
        ("....", 400 * MS, (0, 400 * MS, 600 * MS, 400 * MS)),
        ("hh..", 800 * MS, (500 * MS, 300 * MS, 200 * MS, 500 * MS)),
        ("hh..", 300 * MS, (500 * MS, 0, 500 * MS, 300 * MS)),
        ("hhhh", 1_000 * MS, (1_000 * MS, 0, 0, 0)),
        # More than there is time for cannot be true.
        ("h...", 5_000 * MS, (250 * MS, 750 * MS, 0, 750 * MS)),
    ],
)
def test_untracked_time_has_a_lower_and_an_upper_bound(line, busy_ns, split):
    device = a_device()
    read(device, 0, S, busy_ns)
    (told,) = tell(device, S, Holders(line))
    found = told.split
    assert (found.charged_ns, found.untracked_ns, found.idle_ns, found.untracked_upper_ns) == split
    assert device.untracked_upper_ns == split[3]
    assert rest(device) == (split[1], split[2], 0)


def test_nothing_is_told_before_its_holders_are_final():
    device = a_device()
    read(device, 0, S, 0)
    assert tell(device, S - 1) == []
    assert len(tell(device, S)) == 1


def test_the_window_begins_with_the_first_reading():
    device = a_device(begins_ns=3 * S)
    read(device, 4 * S, 5 * S)
    tell(device, 5 * S)
    assert (device.begins_ns, rest(device)) == (4 * S, (0, S, 0))


def test_the_window_begins_with_a_reading_that_began_before_the_device_was_named():
    device = a_device(begins_ns=3 * S)
    read(device, 2 * S, 4 * S)
    tell(device, 4 * S)
    assert (device.begins_ns, rest(device)) == (2 * S, (0, 2 * S, 0))


@pytest.mark.parametrize("named_ns", [0, 2 * S, 3 * S])
def test_the_window_begins_with_a_holder_before_the_first_reading(named_ns):
    """Whenever it was named: a hold becomes final some time after it began."""
    device, holders = a_device(begins_ns=named_ns), Holders("........h")
    device.held(Shared(STRETCH_NS, 0, 0), 3 * S, first_ns=2 * S)
    read(device, 4 * S, 5 * S)
    tell(device, 5 * S, holders)
    assert (device.begins_ns, rest(device)) == (2 * S, (0, S, 2 * S - STRETCH_NS))


def test_the_window_begins_with_a_reading_that_began_before_the_first_holder():
    device, holders = a_device(begins_ns=3 * S), Holders("........h")
    device.held(Shared(STRETCH_NS, 0, 0), 3 * S, first_ns=2 * S)
    read(device, S, 3 * S)
    tell(device, 3 * S, holders)
    assert (device.begins_ns, rest(device)) == (S, (0, 2 * S - STRETCH_NS, 0))


def test_the_window_cannot_begin_before_its_holders_are_known():
    """The rest of such a period was read, but nobody can say of which part of it that is true."""
    device = a_device(begins_ns=2 * S, not_before_ns=2 * S + 400 * MS)
    read(device, 2 * S, 3 * S, 600 * MS)
    tell(device, 3 * S)
    assert (device.begins_ns, rest(device)) == (2 * S + 400 * MS, (0, 0, 600 * MS))


def test_time_between_two_readings_is_unknown_unless_it_was_held():
    device = a_device()
    read(device, 0, S)
    read(device, 2 * S, 3 * S)
    tell(device, 3 * S, Holders("....hh......"))
    assert rest(device) == (0, 2 * S, S // 2)
    assert device.told_ns == (3 * S, S // 2)


def test_without_a_reading_time_is_unknown_once_it_was_waited_for():
    device = a_device()
    read(device, 0, S)
    tell(device, S)
    assert tell(device, S + PATIENCE_NS) == []
    tell(device, S + PATIENCE_NS + 7)
    assert rest(device) == (0, S, 7)
    # From then on, as it becomes final.
    tell(device, S + PATIENCE_NS + 10)
    assert rest(device) == (0, S, 10)


def test_a_reading_whose_end_is_not_final_is_waited_for():
    device = a_device()
    read(device, 0, S)
    tell(device, S)
    read(device, S, 20 * S)
    assert tell(device, 10 * S) == []
    assert rest(device) == (0, S, 0)


def test_a_reading_that_comes_too_late_for_a_part_says_nothing_of_the_rest():
    device = a_device()
    read(device, 0, S)
    tell(device, 2 * S + PATIENCE_NS)
    read(device, S + 500 * MS, 3 * S, 100 * MS, energy_uj=5, energy_source="counter")
    (told,) = tell(device, 3 * S)
    assert (told.start_ns, told.end_ns, told.reading, told.energy) == (2 * S, 3 * S, None, None)
    assert rest(device) == (0, S, 2 * S)
    assert device.drawn_uj == {}


def test_a_reading_of_what_was_told_already_is_dropped():
    device = a_device()
    read(device, 0, S)
    tell(device, S)
    read(device, 0, S, S)
    assert tell(device, S) == []
    assert rest(device) == (0, S, 0)


def test_readings_beyond_the_number_that_may_wait_are_unknown():
    """While another process stalls, nothing becomes final, and the oldest are forgotten."""
    device = a_device()
    for place in range(1_100):
        read(device, place * S, (place + 1) * S)
        if not place:
            tell(device, S)
    tell(device, 1_100 * S)
    assert rest(device) == (0, 1_025 * S, 75 * S)


def test_what_may_have_been_held_is_unknown_and_never_idle():
    device = a_device()
    read(device, 0, S, 300 * MS)
    (told,) = tell(device, S, Holders("hm.."))
    assert rest(device) == (50 * MS, 450 * MS, 250 * MS)
    assert told.any_missed
    # There is no more of it than there is idle time.
    busy = a_device()
    read(busy, 0, S, 900 * MS)
    tell(busy, S, Holders("mmmm"))
    assert rest(busy) == (900 * MS, 0, 100 * MS)


def test_after_a_time_in_which_another_process_published_it_goes_on_from_there():
    device = a_device()
    device.held(Shared(100, 20, 0), S, first_ns=0)
    read(device, 0, S)
    tell(device, S)
    read(device, S, 2 * S)
    device.begin_anew(10 * S)
    assert device.frontier_ns == 10 * S
    # A reading that began before is another's for a part, those that waited are another's altogether.
    read(device, 9 * S, 11 * S, S)
    read(device, 11 * S, 12 * S)
    told = tell(device, 12 * S)
    assert [(one.start_ns, one.end_ns) for one in told] == [(10 * S, 11 * S), (11 * S, 12 * S)]
    assert rest(device) == (0, 2 * S, S)
    assert device.states_ns()["charged"] == 100
    assert device.overlap_ns == 20


def test_a_publisher_that_goes_on_has_no_window_to_begin():
    """Else the time from where the last one ended to the first reading would be nobody's."""
    device = a_device(begins_ns=2 * S, not_before_ns=2 * S)
    device.begin_anew(2 * S)
    read(device, 3 * S, 4 * S)
    tell(device, 4 * S)
    assert rest(device) == (0, S, S)


def test_after_a_time_in_which_nobody_spoke_for_it_another_window_begins():
    device = a_device()
    device.held(Shared(S, 0, 0), S, first_ns=0)
    read(device, 0, S)
    tell(device, S, Holders("hhhh"))
    device.begin_anew(10 * S, not_before_ns=8 * S)
    read(device, 11 * S, 12 * S)
    tell(device, 12 * S)
    assert rest(device) == (0, S, 0)
    device.begin_anew(20 * S, not_before_ns=18 * S)
    device.held(Shared(MS, 0, 0), 20 * S, first_ns=19 * S)
    read(device, 20 * S, 21 * S)
    tell(device, 21 * S)
    assert rest(device) == (0, 2 * S, S)


def test_what_was_left_untold_is_unknown():
    device, holders = a_device(), Holders("....hh")
    assert device.untold_ns(S, holders) == 0
    read(device, 0, S)
    tell(device, S, holders)
    assert device.untold_ns(3 * S, holders) == 2 * S - 2 * STRETCH_NS
    after = a_device(begins_ns=3 * S)
    after.begin_anew(3 * S)
    told = after.inherit(1_500 * MS)
    assert (told.start_ns, told.end_ns, told.split.unknown_ns) == (1_500 * MS, 3 * S, 1_500 * MS)
    assert rest(after) == (0, 0, 1_500 * MS)
    assert after.told_ns == (1_500 * MS, 0)


def test_a_window_that_has_not_begun_leaves_nothing_untold():
    device = a_device(begins_ns=S)
    assert device.untold_ns(3 * S, Holders()) == 0
    device.held(Shared(STRETCH_NS, 0, 0), 3 * S, first_ns=2 * S)
    assert device.untold_ns(3 * S, Holders("........h")) == S - STRETCH_NS


def test_at_the_end_only_a_device_that_was_never_read_is_told_to_the_end():
    device = a_device(begins_ns=S)
    (told,) = device.tell_all(3 * S, Holders("....h"))
    assert (told.start_ns, told.end_ns) == (S, 3 * S)
    assert rest(device) == (0, 0, 2 * S - STRETCH_NS)
    read_once = a_device()
    read(read_once, 0, S)
    tell(read_once, S)
    assert list(read_once.tell_all(3 * S, Holders())) == []


def test_time_whose_holders_were_forgotten_is_not_told():
    device = a_device()
    read(device, 0, S)
    assert list(device.tell(S, lambda *_: None)) == []
    assert rest(device) == (0, 0, 0)
    read(device, S, 2 * S)
    assert [one.start_ns for one in tell(device, 2 * S)] == [S]


def test_energy_is_split_by_time_until_idle_power_was_seen_and_the_two_are_never_mixed():
    device = a_device()
    read(device, 0, S, 500 * MS, energy_uj=1_000, energy_source="counter")
    read(device, S, 2 * S, 0, energy_uj=100, energy_source="counter")
    read(device, 2 * S, 3 * S, 500 * MS, energy_uj=1_000, energy_source="counter")
    read(device, 3 * S, 4 * S, 500 * MS, energy_uj=7, energy_source="power")
    told = tell(device, 4 * S)
    assert [one.energy.estimated for one in told] == [True, True, False, False]
    by = defaultdict(dict)
    for attributes, drawn_j in device.energy_j():
        key = (attributes[catalogue.ENERGY_SOURCE], attributes[catalogue.ENERGY_SPLIT])
        by[key][attributes[catalogue.DEVICE_STATE]] = round(drawn_j * 1_000_000)
    # 100 µJ of idle power through half a second is 50; the other 950 are of what ran.
    assert by == {
        ("counter", "estimated"): {"charged": 0, "untracked": 500, "idle": 600, "unknown": 0},
        ("counter", "idle_power"): {"charged": 0, "untracked": 950, "idle": 50, "unknown": 0},
        ("power", "idle_power"): {"charged": 0, "untracked": 4, "idle": 3, "unknown": 0},
    }
    assert device.drawn_uj == {"counter": 2_100, "power": 7}


def test_energy_without_its_source_or_of_time_without_its_reading_is_nobodys():
    device = a_device()
    read(device, 0, S, 0, energy_source="counter", energy_flag="frozen")
    read(device, S, 2 * S, 0, energy_uj=5)
    assert [one.energy for one in tell(device, 2 * S)] == [None, None]
    assert device.energy_j() == []


def test_energy_of_a_period_whose_utilisation_is_missing_is_unknown_beyond_the_holders():
    device = a_device()
    read(device, 0, S, None, energy_uj=1_000, energy_source="power")
    (told,) = tell(device, S, Holders("h..."))
    expected = split_energy(1_000, {"charged": 1}, held_ns=1, untracked_ns=0, idle_ns=0, unknown_ns=3)
    assert (told.energy, told.energy.unknown_uj) == (expected, 750)
    assert device.utilisation is None


def test_utilisation_is_that_of_the_last_period_that_was_read():
    device = a_device()
    read(device, 0, 2 * S, S)
    read(device, 2 * S, 3 * S, None)
    tell(device, 3 * S)
    assert device.utilisation == (2 * S, 0.5)


def test_a_name_that_is_told_late_counts_until_the_device_was_shown():
    """A series that took on another attribute would be another series, with all the time of the first."""
    early, late = (PublishedDevice(NodeDevice("MIG-1"), 0) for _ in range(2))
    early.named("NVIDIA H100", "GPU-1")
    assert early.attributes("me") == {
        catalogue.HW_ID: "MIG-1",
        catalogue.HW_TYPE: "gpu",
        catalogue.HW_NAME: "NVIDIA H100",
        catalogue.HW_PARENT: "GPU-1",
        catalogue.PUBLISHER: "me",
    }
    before = late.attributes("me")
    late.named("NVIDIA H100", "GPU-1")
    assert late.attributes("me") == before
    # What it costs goes by its name from here on.
    assert late.device.name == "NVIDIA H100"
    late.named("another", None)
    assert late.device.name == "NVIDIA H100"
