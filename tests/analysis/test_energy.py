from __future__ import annotations

import io
import math

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis import energy
from gputrace.analysis.energy import Energy
from gputrace.analysis.render import print_report

COUNTER = {catalogue.ENERGY_SOURCE: "counter", catalogue.ENERGY_SPLIT: "idle_power"}
ESTIMATED = {catalogue.ENERGY_SOURCE: "counter", catalogue.ENERGY_SPLIT: "estimated"}
POWER = {catalogue.ENERGY_SOURCE: "power", catalogue.ENERGY_SPLIT: "idle_power"}

ENERGIES = st.builds(
    Energy,
    st.dictionaries(st.sampled_from(["counter", "power"]), st.integers(0, 10**9), min_size=1),
    st.just(0),
)


@pytest.fixture
def gpu(program, lines):
    """A GPU whose energy was read, and a feature that was charged for a part of it."""
    one = program()
    one.device(charged=6.0, idle=4.0)
    one.call(6.0, feature="a")
    draw(one, lines, "charged", 3600.0)
    draw(one, lines, "idle", 720.0)
    bill(one, "a", 3600.0)
    return one


def draw(one, lines, state, joules, how=COUNTER, **of):
    one.add(catalogue.DEVICE_ENERGY, joules, {**lines.gpu, **of, catalogue.DEVICE_STATE: state, **how})


def bill(one, name, joules, how=COUNTER):
    one.add(catalogue.FEATURE_ENERGY, joules, {catalogue.FEATURE: name, catalogue.HW_TYPE: "gpu", **how})


def shown(one, report, **arguments):
    one.export()
    stream = io.StringIO()
    found = report(**arguments)
    print_report(found, Console(file=stream, highlight=False))
    return found, " ".join(stream.getvalue().split())


def test_energy_by_feature_and_state(gpu, report):
    found, text = shown(gpu, report)
    data = found.to_json()
    (row,) = data["rows"]
    assert (row["energy_j"], row["energy_by_source"]) == (3600.0, {"counter": 3600.0})
    assert row["energy_estimated_share"] == 0.0
    (device,) = data["devices"]
    assert device["energy_j"] == 4320.0
    assert device["energy_by_source"] == {"counter": {"charged": 3600.0, "idle": 720.0}}
    totals = data["totals"]
    assert (totals["energy_j"], totals["device_energy_j"], totals["idle_energy_j"]) == (3600.0, 4320.0, 720.0)
    # Nobody read any: absent, not 0.
    assert (totals["untracked_energy_j"], totals["unknown_energy_j"]) == (None, None)
    assert (data["energy_balanced"], data["energy_imbalance_j"]) == (True, 0.0)
    assert (
        "The energy balances: 1.0000 charged + 0.2000 idle = 1.2000 Wh drawn; off by less than a microjoule"
        in text
    )
    assert "idle 4.000 40.0% 0.2000" in text
    assert "total 1 0 10.000 100.0% 1.2000" in text
    assert "1.200 Wh from the driver's counter; shared above the idle power that was seen." in text


def test_large_energies_are_in_kilowatt_hours(gpu, lines, report):
    draw(gpu, lines, "charged", 3.6e9)
    bill(gpu, "a", 3.6e9)
    _, text = shown(gpu, report)
    assert "kWh" in text
    assert "= 1,000.00 kWh drawn" in text


def test_without_energy_there_is_no_column_and_no_sentence(program, report):
    one = program()
    one.device(charged=1.0)
    one.call(1.0, feature="a")
    found, text = shown(one, report)
    assert "nergy" not in text
    assert "Wh" not in text
    data = found.to_json()
    assert (data["energy_balanced"], data["energy_imbalance_j"]) == (None, None)
    assert data["rows"][0]["energy_j"] is None
    assert data["devices"][0]["energy_by_source"] is None
    assert data["totals"]["device_energy_j"] is None


def test_a_feature_whose_energy_nobody_read_has_none(gpu, report):
    gpu.device(charged=1.0)
    gpu.call(1.0, feature="b")
    found, _ = shown(gpu, report)
    assert [(row.key["feature"], row.energy_j) for row in found.rows] == [("a", 3600.0), ("b", None)]


def test_two_sources_are_told_apart_and_their_sum_says_so(gpu, lines, report):
    draw(gpu, lines, "charged", 100.0, POWER)
    bill(gpu, "a", 100.0, POWER)
    found, text = shown(gpu, report)
    data = found.to_json()
    assert data["rows"][0]["energy_by_source"] == {"counter": 3600.0, "power": 100.0}
    assert data["devices"][0]["energy_by_source"] == {
        "counter": {"charged": 3600.0, "idle": 720.0},
        "power": {"charged": 100.0, "idle": 0.0},
    }
    assert "1.200 Wh from the driver's counter, 0.028 Wh from power over time" in text
    assert "Sums of energy are over 2 sources, which --json tells apart. Both were used on GPU-1." in text


def test_what_is_estimated_is_stated(gpu, lines, report):
    draw(gpu, lines, "charged", 1080.0, ESTIMATED)
    bill(gpu, "a", 1080.0, ESTIMATED)
    found, text = shown(gpu, report)
    assert found.rows[0].energy.estimated_share == pytest.approx(1080 / 4680)
    assert found.to_json()["devices"][0]["energy_estimated_share"] == pytest.approx(0.2)
    assert "20.0% of it was shared by time alone, before idle power had been seen" in text


@pytest.mark.parametrize(("joules", "word"), [(1.0, "more"), (-1.0, "less")])
def test_a_joule_too_much_or_too_little_is_seen(gpu, report, joules, word):
    bill(gpu, "a", joules)
    found, text = shown(gpu, report)
    assert not found.energy_balance.balanced
    assert found.energy_balance.imbalance_j == pytest.approx(joules)
    assert "THE ENERGY DOES NOT BALANCE" in text
    assert f"Features were charged 1.000 J {word} than their devices drew" in text
    # Time has books of its own.
    assert found.balance.balanced


def test_energy_of_one_side_alone_is_no_balance(program, lines, report):
    one = program()
    one.device(idle=1.0)
    one.call(0.0, feature="a")
    draw(one, lines, "idle", 70.0)
    found, text = shown(one, report)
    assert found.energy_balance is None
    assert "No feature has energy: it was read by a process that charged none of them." in text


def test_a_device_whose_energy_nobody_read_is_named(gpu, lines, report):
    gpu.device({**lines.gpu, catalogue.HW_ID: "GPU-2"}, idle=10.0)
    found, text = shown(gpu, report)
    assert [bool(device.energy) for device in found.devices] == [True, False]
    assert "No energy was read of GPU-2: absent, not 0." in text


def test_time_of_which_nothing_is_known_has_no_energy_rather_than_none_drawn(gpu, lines, report):
    """The publisher counts all states from 0, those too in which it then reads nothing."""
    gpu.device(unknown=90.0)
    draw(gpu, lines, "unknown", 0.0)
    draw(gpu, lines, "untracked", 0.0)
    found, text = shown(gpu, report)
    data = found.to_json()
    assert data["totals"]["unknown_energy_j"] is None
    assert "unknown" not in data["devices"][0]["energy_by_source"]["counter"]
    assert "unknown 90.000 90.0% –" in text
    # There was no untracked time, and none is what it drew.
    assert data["totals"]["untracked_energy_j"] == 0.0
    assert "0.0000 untracked + 0.2000 idle = 1.2000 Wh drawn" in text
    assert "drawn in 10.000 s of 100.000: what the rest drew nobody measured; off by less" in text


def test_time_that_was_read_without_its_energy_has_none_either(gpu, lines, report):
    gpu.device(untracked=5.0)
    draw(gpu, lines, "untracked", 0.0)
    gpu.device({**lines.gpu, catalogue.HW_ID: "GPU-2"}, idle=10.0)
    found, text = shown(gpu, report)
    assert found.to_json()["totals"]["untracked_energy_j"] is None
    assert "untracked 5.000 20.0% –" in text
    assert "drawn in 10.000 s of 25.000: what the rest drew nobody measured" in text


def test_a_second_device_without_such_time_does_not_make_it_0(gpu, lines, report):
    gpu.device(unknown=90.0)
    draw(gpu, lines, "unknown", 0.0)
    other = {catalogue.HW_ID: "GPU-2"}
    gpu.device({**lines.gpu, **other}, idle=10.0)
    draw(gpu, lines, "idle", 720.0, **other)
    draw(gpu, lines, "unknown", 0.0, **other)
    found, text = shown(gpu, report)
    assert found.to_json()["totals"]["unknown_energy_j"] is None
    assert "unknown 90.000 81.8% –" in text
    assert "unknown" not in text[text.index("The energy balances") :].partition("note:")[0]


def test_energy_is_clipped_to_the_window_like_time(write, lines, report):
    def points(at):
        state = {**lines.gpu, catalogue.DEVICE_STATE: "idle"}
        return [
            (catalogue.DEVICE_TIME.name, state, float(at)),
            (catalogue.DEVICE_ENERGY.name, {**state, **COUNTER}, 70.0 * at),
        ]

    write(*(lines.metrics(at, points(at)) for at in range(0, 101, 10)))
    assert report().devices[0].energy["idle"].joules == 7000.0
    assert report(since=40).devices[0].energy["idle"].joules == 4200.0


@given(st.lists(st.none() | ENERGIES, max_size=8))
def test_sums_keep_sources_apart_and_lose_nothing(parts):
    whole = energy.total(parts)
    known = [part for part in parts if part is not None]
    if not known:
        assert whole is None
        return
    for source in ("counter", "power"):
        found = [part.by_source[source] for part in known if source in part.by_source]
        assert whole.by_source.get(source) == (math.fsum(found) if found else None)
    assert whole.joules == math.fsum(part.joules for part in known)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=1))
def test_the_estimated_share_is_that_of_the_joules(parts):
    whole = energy.total(Energy({"counter": joules}, joules if guess else 0) for joules, guess in parts)
    guessed = sum(joules for joules, guess in parts if guess)
    assert whole.estimated_j == guessed
    if whole.joules:
        assert whole.estimated_share == guessed / whole.joules
        assert 0 <= whole.estimated_share <= 1
    else:
        assert whole.estimated_share is None
