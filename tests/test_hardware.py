"""The devices of a node as one process holds, bills and leaves them; of several: ``test_hardware_roles``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputrace import catalogue
from gputrace.accounts import Totals
from gputrace.costs import Costs
from gputrace.hardware_published import PATIENCE_NS
from gputrace.prices import PriceBook
from gputrace.settler import Settler
from gputrace.telemetry import spans
from tests import hardware_programs as programs
from tests.devices import nvml_stand_in as stand_in

S, MS, T0, GPU0, GPU1, H100 = (
    programs.S,
    programs.MS,
    programs.T0,
    programs.GPU0,
    programs.GPU1,
    programs.H100,
)
start, word = programs.start, programs.word
library, driver, sampler = stand_in.library, stand_in.driver, stand_in.sampler


def test_what_is_held_is_charged_and_the_rest_is_told_by_readings(start):
    program = start()
    program.tick(T0 + S, (T0 + 200 * MS, T0 + 700 * MS))
    program.read(T0, T0 + S, 800 * MS)
    program.tick(T0 + S + 50 * MS)
    assert program.states() == {
        "charged": 500 * MS,
        "untracked": 300 * MS,
        "idle": 200 * MS,
        "unknown": 0,
    }
    assert program.rows(catalogue.DEVICE_UNTRACKED_UPPER_TIME) == {(GPU0, None): 0.5}
    assert program.rows(catalogue.DEVICE_OVERLAP_TIME) == {(GPU0, None): 0.0}


def test_a_device_that_is_never_named_or_read_is_unknown_from_its_first_holder_on(start):
    """Wherever in its first increment that held."""
    program = start()
    program.tick(T0 + S, (T0 + 200 * MS, T0 + 300 * MS))
    program.tick(T0 + S + PATIENCE_NS)
    program.tick(T0 + S + PATIENCE_NS + 7)
    assert program.states() == {"charged": 100 * MS, "untracked": 0, "idle": 0, "unknown": 700 * MS + 7}
    program.close(T0 + S + PATIENCE_NS + 7)
    assert program.spent_ns() == 800 * MS + PATIENCE_NS + 7


def test_at_the_end_everything_that_is_known_is_told(start):
    """A reading that came after the last tick, too."""
    program = start()
    program.tick(T0 + S, (T0 + 100 * MS, T0 + 300 * MS))
    program.read(T0, T0 + S)
    program.tick(T0 + S)
    program.read(T0 + S, T0 + S + 40 * MS)
    program.tick(T0 + S + 20 * MS)
    program.hardware.frontier(program.account, T0 + S + 40 * MS)
    program.close(T0 + S + 40 * MS)
    assert program.states()["idle"] == 840 * MS


def test_energy_and_busy_share_of_the_publisher(start):
    program = start()
    at = T0
    for _ in range(12):
        at += S
        program.tick(at, (at - S, at))
        program.read(at - S, at, 400 * MS, energy_uj=700, energy_source="counter")
        program.tick(at)
    charged = program.rows(catalogue.DEVICE_ENERGY)[GPU0, "charged"]
    assert charged == 12 * 700 / 1e6
    ((_, of_feature),) = program.hardware.rows("a")[catalogue.FEATURE_ENERGY.name]
    assert of_feature == pytest.approx(charged, rel=1e-12)
    ((_, periods),) = program.hardware.rows("a")[catalogue.FEATURE_ALONE_PERIODS.name]
    assert periods == 12


def test_readings_that_nobody_distributes_are_bounded(start):
    """Between the end of the settler and that of the sampler, or while a tick hangs."""
    program = start()
    for place in range(70_000):
        program.read(T0 + place, T0 + place + 1)
    assert len(program.hardware._readings) == 65_536


def a_price(folder, per_hour):
    path = folder / "prices.toml"
    path.write_text(
        f'[[price]]\nname = "NVIDIA H100*"\nper_hour = {per_hour}\ncurrency = "USD"\nkind = "on_demand"\n'
        'sku = "h100-80"\nsource = "a test"\nas_of = 2026-09-01\n'
    )
    return Costs(PriceBook(path))


@pytest.fixture(autouse=True)
def _wall_clock(monkeypatch):
    monkeypatch.setattr(spans, "wall_offset_ns", 1_790_000_000 * S)


def of(program):
    return {account: account.attributes(program.name) for account in program.hardware.accounts()}


def cost(costs, program, state):
    return sum(
        value
        for attributes, value in costs.by_state(of(program))
        if attributes[catalogue.DEVICE_STATE] == state
    )


def test_every_state_costs_its_time(start, tmp_path):
    costs = a_price(tmp_path, 3.6)
    program = start(costs=costs)
    program.tick(T0 + S, (T0 + 100 * MS, T0 + 300 * MS))
    program.read(T0, T0 + S, 500 * MS)
    program.read(T0 + 2 * S, T0 + 3 * S, 0)
    program.tick(T0 + 3 * S)
    for state, spent_ns in program.states().items():
        assert cost(costs, program, state) == pytest.approx(spent_ns / 1e9 * 0.001, rel=1e-12), state
    assert costs.unpriced_s(of(program)) == []


def test_what_is_charged_after_a_change_of_roles_is_billed(start, tmp_path):
    costs = a_price(tmp_path, 3.6)
    program = start("program", costs=costs)
    program.tick(T0 + S, (T0, T0 + 100 * MS))
    agent = start("agent", T0 + S, agent=True)
    program.tick(T0 + S + MS)
    agent.hardware.tick(T0 + S + 2 * MS, None, {})
    agent.hardware.close(T0 + S + 3 * MS, None)
    program.tick(T0 + 2 * S, (T0 + S + 100 * MS, T0 + 2 * S))
    assert program.states()["charged"] == S
    assert cost(costs, program, "charged") == pytest.approx(0.001, rel=1e-12)


def test_what_a_process_that_stalled_held_is_billed(start, driver, sampler, tmp_path):
    """It becomes final after the device was named, and lies before."""
    costs = a_price(tmp_path, 3.6)
    program, other = start(sampler=sampler, costs=costs), start("other")
    sampler.sample_once()
    program.tick(T0 + S)
    other.tick(T0 + 500 * MS, (T0 + 100 * MS, T0 + 200 * MS))
    program.tick(T0 + S + MS)
    assert program.states()["charged"] == 100 * MS
    assert cost(costs, program, "charged") == pytest.approx(0.0001, rel=1e-12)


def test_the_price_in_force_says_where_it_is_from(start, tmp_path):
    costs = a_price(tmp_path, 3.0)
    program = start(costs=costs)
    other = start("other", device=GPU1, named="NVIDIA L4", costs=costs)
    other.tick(T0 + S, (T0, T0 + S))
    program.tick(T0 + S, (T0, T0 + S))
    assert len(program.hardware.accounts()) == 2
    assert costs.price_info(of(program)) == [
        (
            {
                catalogue.HW_ID: GPU0,
                catalogue.HW_NAME: H100,
                catalogue.CURRENCY: "USD",
                catalogue.PRICE_SKU: "h100-80",
                catalogue.PRICE_KIND: "on_demand",
                catalogue.PRICE_SOURCE: "a test",
                catalogue.PRICE_DATE: "2026-09-01",
            },
            1.0,
        )
    ]


def test_a_driver_that_names_devices_late(start, driver, sampler, tmp_path):
    """Another process held before: what it costs goes by the name as soon as that is known."""
    costs = a_price(tmp_path, 3.0)
    program = start(sampler=sampler, costs=costs)
    other = start("other", named=None)
    other.tick(T0 + S, (T0, T0 + S))
    program.tick(T0 + S)
    (nameless,) = program.hardware.accounts()
    assert nameless.device.name is None
    sampler.sample_once()
    other.tick(T0 + 2 * S, (T0 + S, T0 + 2 * S))
    program.tick(T0 + 2 * S)
    other.tick(T0 + 3 * S, (T0 + 2 * S, T0 + 3 * S))
    program.tick(T0 + 3 * S)
    assert {account.device.name for account in program.hardware.accounts()} == {H100}
    assert len(program.hardware.accounts()) == 2
    # By name from the first tick on that knew it.
    assert cost(costs, program, "charged") == pytest.approx(3.0 / 3_600, rel=1e-6)


def test_what_is_closed_counts_nothing_more(start, tmp_path):
    """A settler that still ticks, a reader that still collects."""
    program = start()
    program.tick(T0 + S, (T0, T0 + S))
    program.close(T0 + S)
    before, left = program.states(), word(tmp_path)
    settler = Settler(Totals(), hardware=program.hardware)
    settler.tick()
    settler.snapshot()
    settler.stop()
    program.close(T0 + 2 * S)
    assert program.states() == before
    assert word(tmp_path) == left
    assert settler.snapshot().device_time_s


def test_after_the_end_it_can_begin_anew(start, tmp_path):
    program = start()
    program.tick(T0 + S, (T0, T0 + 100 * MS))
    program.hardware.start(program.account, T0 + 900 * MS)
    program.hardware.frontier(program.account, T0 + S)
    program.close(T0 + S)
    charged_ns = program.states()["charged"]
    # The number of a closed file goes to the next that is opened: closing it again would close that one.
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    device = Path(os.devnull).stat()
    program.hardware.run("b", T0 + 60 * S)
    program.hardware.sampler.stop()
    assert [os.path.samestat(os.fstat(number), device) for number in opened] == [True] * 8
    for number in opened:
        os.close(number)
    assert program.publishes
    # A call that went on meanwhile holds still.
    program.hardware.frontier(program.account, T0 + 61 * S)
    program.hardware.tick(T0 + 61 * S, None, {})
    assert program.states()["charged"] == charged_ns + S
    program.hardware.stop(program.account, T0 + 61 * S)
    program.hardware.frontier(program.account, T0 + 62 * S)
    program.read(T0 + 61 * S, T0 + 62 * S)
    program.hardware.tick(T0 + 62 * S, None, {})
    # Of the time between, nobody speaks.
    assert program.states()["idle"] == S
    assert program.spent_ns() == 3 * S


def test_a_forked_child_leaves_everything_to_its_parent(start, tmp_path):
    program = start()
    program.tick(T0 + S, (T0, T0 + 100 * MS))
    program.hardware.rows("a")
    left = word(tmp_path)
    child = os.fork()
    if not child:
        status = 1
        try:
            hardware = program.hardware
            hardware.forget()
            hardware.close(T0 + 9 * S, None)
            hardware.rows("child")
            # It is free to begin anew, beside its parent.
            hardware.run("child", T0 + 2 * S)
            hardware.tick(T0 + 3 * S, None, {})
            status = 0 if not hardware.node.is_publisher and hardware.node.publisher_id() == "a" else 2
            hardware.sampler.stop()
            hardware.close(T0 + 3 * S, None)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert word(tmp_path) == left
    program.tick(T0 + 2 * S, (T0 + S, T0 + S + 100 * MS))
    assert program.publishes
    assert program.states()["charged"] == 200 * MS


def test_the_calls_of_the_dead_are_counted_once(start):
    program, other = start(), start("other")
    other.hardware.count(7, 4)
    other.tick(T0 + S)
    program.tick(T0 + S)
    # Ended without a word, its ring read to the end.
    other.hardware.node.ring.close()
    other.hardware.node.forget()
    for at in (2, 3, 4):
        program.tick(T0 + at * S)
    assert program.hardware.lost == 3
    program.close(T0 + 5 * S)
    assert program.hardware.lost == 3
