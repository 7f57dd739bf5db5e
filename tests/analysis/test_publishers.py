from __future__ import annotations

from gputrace.analysis.publishers import choose
from gputrace.analysis.stretches import NS, Run


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
