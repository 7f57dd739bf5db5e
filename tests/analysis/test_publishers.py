from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from gputrace import catalogue
from gputrace.analysis.publishers import choose
from gputrace.analysis.stretches import NS, SAME_MOMENT_NS, Run


def run(publisher="p1", start=0, end=60, device="GPU-1", wall=None):
    length = end - start
    return Run(
        publisher, publisher, device, start * NS, end * NS, length if wall is None else wall, length, length
    )


def chosen_of(runs):
    choice = choose(runs)
    return choice.runs, choice.notes


def test_of_publishers_at_once_the_one_that_read_most_is_used_and_the_other_named():
    longer, shorter = run("p1", 0, 60), run("p2", 10, 60)
    chosen, notes = chosen_of([shorter, longer])
    assert chosen == (longer,)
    (note,) = notes
    assert "GPU-1 was read by more than one process at once" in note
    assert "publisher p1 are used, those of publisher p2 are not" in note


def test_publishers_one_after_another_are_all_used_and_the_gap_is_named():
    chosen, notes = chosen_of([run("p2", 100, 160), run("p1", 0, 60)])
    assert [one.publisher for one in chosen] == ["p1", "p2"]
    assert notes == ("Nobody read device GPU-1 for 40.0 s between two publishers; that time is in no row.",)


def test_a_hand_over_within_a_second_is_neither_rivalry_nor_gap():
    chosen, notes = chosen_of([run("p1", 0, 60), run("p2", 60, 120)])
    assert len(chosen) == 2
    assert notes == ()


def test_devices_do_not_compete_with_each_other():
    chosen, notes = chosen_of([run(device="GPU-1"), run("p2", device="GPU-2")])
    assert len(chosen) == 2
    assert notes == ()


def test_a_rival_is_used_where_it_is_alone():
    chosen, notes = chosen_of([run("p1", 0, 100), run("p2", 50, 200)])
    assert [(one.publisher, one.start_ns // NS, one.end_ns // NS, one.wall_s) for one in chosen] == [
        ("p1", 0, 50, 50.0),
        ("p2", 50, 200, 150.0),
    ]
    (note,) = notes
    assert "the readings of publisher p2 are used, those of publisher p1 are not for 50.0 s of them." in note


def test_the_publisher_that_covers_most_wins_whatever_its_stretches():
    chosen, notes = chosen_of([run("p1", 0, 40), run("p1", 60, 100), run("p2", 30, 80)])
    assert [(one.publisher, one.start_ns // NS, one.end_ns // NS) for one in chosen] == [
        ("p1", 0, 40),
        ("p2", 40, 60),
        ("p1", 60, 100),
    ]
    assert len(notes) == 1


def test_a_publisher_that_exports_no_more_states_leaves_a_gap_at_the_end():
    (one,) = [run("p1", 0, 60)]
    silent = Run(one.process, one.publisher, one.device, 0, 60 * NS, 60.0, 60.0, 60.0, exported_ns=90 * NS)
    (note,) = chosen_of([silent])[1]
    assert "Device GPU-1 has no state in the last 30.0 s, in which its publisher went on exporting" in note
    # Somebody else had the role meanwhile.
    assert chosen_of([silent, run("p2", 60, 90)])[1] == ()


@given(
    st.lists(
        st.tuples(st.sampled_from(["p1", "p2", "p3"]), st.integers(0, 300), st.integers(2, 100)), max_size=8
    )
)
def test_no_moment_is_taken_twice_and_none_is_lost(parts):
    taken_by = {}
    for publisher, start, length in parts:
        spans = taken_by.setdefault(publisher, [])
        if all(start >= end or start + length <= begin for begin, end in spans):
            spans.append((start, start + length))
    runs = [run(publisher, *span) for publisher, spans in taken_by.items() for span in spans]
    choice = choose(runs)
    ordered = sorted(choice.runs, key=lambda one: one.start_ns)
    for one, other in itertools.combinations(ordered, 2):
        assert min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns) <= SAME_MOMENT_NS
    seconds = set()
    for one in runs:
        seconds |= set(range(one.start_ns // NS, one.end_ns // NS))
    covered = math.fsum(one.wall_s for one in choice.runs)
    # Fragments of a second and hand-overs within one are nobody's.
    assert abs(covered - len(seconds)) <= 2 * len(runs) ** 2


DEVICE_TIME = catalogue.DEVICE_TIME.name


@pytest.fixture
def published(write, lines):
    """Write the exports of publishers: times, idle and charged seconds that each shows."""

    def of(**publishers):
        texts = []
        for publisher, exports in publishers.items():
            device = {**lines.gpu, catalogue.PUBLISHER: publisher}
            for at, idle, charged in exports:
                texts.append(
                    lines.metrics(
                        at,
                        [
                            (DEVICE_TIME, {**device, catalogue.DEVICE_STATE: "idle"}, float(idle)),
                            (DEVICE_TIME, {**device, catalogue.DEVICE_STATE: "charged"}, float(charged)),
                        ],
                        publisher,
                    )
                )
        return write(*texts)

    return of


def walls(found):
    (device,) = found.devices
    return device.idle_s, device.charged_s


def test_publishers_that_cannot_see_each_other_are_not_added(published, report):
    published(
        p1=[(at, at, 0) for at in range(0, 121, 10)],
        p2=[(at, at - 30, 10) for at in range(40, 101, 10)],
    )
    found = report()
    assert walls(found) == (120.0, 0.0)
    (note,) = [note for note in found.notes if "more than one process" in note]
    assert "publisher p1 are used, those of publisher p2 are not." in note
    assert not any("Nobody read" in note for note in found.notes)


def test_a_killed_publisher_and_its_successor_add_up(published, report):
    published(
        p1=[(at, at, 0) for at in range(0, 61, 10)],
        p2=[(at, 0, at - 63) for at in range(70, 131, 10)],
    )
    found = report()
    assert walls(found) == (60.0, 67.0)
    assert any("Nobody read device GPU-1 for 3.0 s between two publishers" in note for note in found.notes)
    assert not any("more than one process" in note for note in found.notes)


def test_a_publisher_whose_role_was_taken_over_goes_on_exporting_and_is_no_rival(published, report):
    published(
        # The agent takes over at 55.
        p1=[(at, min(at, 55), 0) for at in range(0, 301, 10)],
        agent=[(at, 0, max(0, at - 55)) for at in range(53, 304, 10)],
    )
    found = report()
    assert walls(found) == (55.0, 248.0)
    assert (found.end_ns - found.start_ns) / NS == pytest.approx(303.0)
    assert found.totals.times.wall_s == pytest.approx(303.0)
    assert not any("GPU-1" in note for note in found.notes), found.notes


def test_a_role_that_comes_back_is_taken_up_where_it_was_left(published, report):
    published(
        p1=[(at, min(at, 50) + max(0, at - 200), 0) for at in range(0, 301, 10)],
        agent=[(at, 0, at - 50) for at in range(60, 201, 10)],
    )
    found = report()
    assert walls(found) == (150.0, 150.0)
    assert not any("GPU-1" in note for note in found.notes), found.notes
    # In a part of it too.
    assert walls(report(since=100)) == (100.0, 100.0)


def test_only_the_time_that_publishers_share_is_left_out(published, report):
    published(
        p1=[(at, at, 0) for at in range(0, 101, 10)],
        p2=[(at, 0, at - 50) for at in range(60, 301, 10)],
    )
    found = report()
    assert walls(found) == (50.0, 250.0)
    assert found.totals.times.wall_s == 300.0
    assert any("those of publisher p1 are not for 50.0 s of them" in note for note in found.notes)


def test_all_that_a_publisher_says_of_a_device_goes_with_its_time(write, lines, report):
    texts = []
    for publisher, begin, end in (("p1", 0, 100), ("p2", 50, 300)):
        device = {**lines.gpu, catalogue.PUBLISHER: publisher}
        state = {**device, catalogue.DEVICE_STATE: "idle"}
        energy = {**state, catalogue.ENERGY_SOURCE: "counter", catalogue.ENERGY_SPLIT: "idle_power"}
        for at in range(begin, end + 1, 10):
            read = float(at - begin)
            texts.append(
                lines.metrics(
                    at,
                    [
                        (DEVICE_TIME, state, read),
                        (catalogue.DEVICE_COST.name, {**state, catalogue.CURRENCY: "EUR"}, 2 * read),
                        (catalogue.DEVICE_ENERGY.name, energy, 70 * read),
                        (catalogue.DEVICE_UNTRACKED_UPPER_TIME.name, device, read / 4),
                    ],
                    publisher,
                )
            )
    write(*texts)
    (device,) = report().devices
    assert device.wall_s == pytest.approx(300.0)
    assert device.costs["EUR"]["idle"] == pytest.approx(600.0)
    assert device.energy["idle"].joules == pytest.approx(21_000.0)
    assert device.untracked_upper_s == pytest.approx(75.0)


def test_a_price_book_prices_the_readings_that_are_used(published, report):
    from gputrace.prices_file import read_table

    row = '[[price]]\nname = "H100"\nper_hour = 3600\ncurrency = "EUR"\nkind = "spot"\nsource = "s"\n'
    published(
        p1=[(at, at, 0) for at in range(0, 101, 10)],
        p2=[(at, 0, at - 50) for at in range(60, 301, 10)],
    )
    found = report(prices=read_table(f"{row}as_of = 2026-01-01\n".encode(), "book.toml"))
    assert found.totals.device_costs == pytest.approx({"idle": 50.0, "charged": 250.0})


def test_features_of_a_publisher_that_was_left_out_bear_the_prices_of_their_time(write, lines, report):
    from gputrace.prices_file import read_table

    row = '[[price]]\nname = "H100"\ncurrency = "EUR"\nkind = "spot"\nsource = "s"\nas_of = 2026-01-01\n'
    later = f"{row}per_hour = 36000\nvalid_from = 2026-01-31T12:00:20Z\n"
    book = read_table(f"{row}per_hour = 3600\n{later}".encode(), "book.toml")
    charged = {**lines.gpu, catalogue.DEVICE_STATE: "charged"}
    rival = {**charged, catalogue.PUBLISHER: "p2"}
    family = {catalogue.FEATURE: "a", catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "H100"}
    write(
        *(lines.metrics(at, [(DEVICE_TIME, charged, float(at))], "i1") for at in range(0, 121, 10)),
        # Its first export covers what it read from the first second on.
        lines.metrics(40, [(catalogue.FEATURE_TIME.name, family, 40.0), (DEVICE_TIME, rival, 40.0)], "i2"),
    )
    found = report(prices=book)
    assert found.rows[0].cost == pytest.approx(20 * 1 + 20 * 10)
