"""Live cost: what is charged is billed at the price of that moment, and the twins agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gputrace
from gputrace import catalogue
from gputrace.costs import Costs
from gputrace.prices import PriceBook
from gputrace.telemetry import spans
from gputrace.testing import Recorder, VirtualClock

if TYPE_CHECKING:
    from pathlib import Path

HOUR_NS = 3_600 * 1_000_000_000
START_WALL_NS = 1_790_000_000 * 1_000_000_000
BOOK = """
[[price]]
name = "*"
type = "cpu"
per_hour = 3.0
currency = "USD"
kind = "on_demand"
source = "a test"
as_of = 2026-09-01
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    clock = VirtualClock()
    monkeypatch.setattr(spans, "wall_offset_ns", START_WALL_NS - clock())
    monkeypatch.setattr("gputrace.devices.host.process_time_ns", lambda: 0)
    return clock


def priced(recorder: Recorder, path: Path, book: str) -> None:
    path.write_text(book)
    recorder.settler.use_prices(Costs(PriceBook(path)))


def cost_by(rows: list[tuple[dict[str, str], float]], attribute: str) -> dict[str, float]:
    return {attributes[attribute]: round(value, 9) for attributes, value in rows}


def test_an_hour_at_three_dollars(clock: VirtualClock, tmp_path: Path) -> None:
    with Recorder(clock) as recorder:
        priced(recorder, tmp_path / "prices.toml", BOOK)
        with gputrace.span("a", feature="a"):
            clock.advance(HOUR_NS * 9 // 60)
        with gputrace.span("b", feature="b"):
            clock.advance(HOUR_NS * 3 // 60)
        clock.advance(HOUR_NS * 48 // 60)
        shown = recorder.snapshot()
    assert cost_by(shown.feature_cost, catalogue.FEATURE) == {"a": 0.45, "b": 0.15}
    states = cost_by(shown.device_cost, catalogue.DEVICE_STATE)
    assert states == {"charged": 0.6, "idle": 2.4, "untracked": 0.0, "unknown": 0.0}
    assert {attributes[catalogue.CURRENCY] for attributes, _ in shown.feature_cost} == {"USD"}
    assert [value for _, value in shown.device_price] == [3.0]
    assert shown.unpriced_s == []


def test_a_price_change_within_a_call_splits_its_cost(clock: VirtualClock, tmp_path: Path) -> None:
    # 2026-09-21 14:13:20 UTC is the start; the price doubles at 15:00.
    changed = BOOK + "valid_until = 2026-09-21T15:00:00Z\n" + BOOK.replace("3.0", "6.0")
    changed += "valid_from = 2026-09-21T15:00:00Z\n"
    with Recorder(clock) as recorder:
        priced(recorder, tmp_path / "prices.toml", changed)
        with gputrace.span("a", feature="a"):
            clock.advance(HOUR_NS)
        shown = recorder.snapshot()
    before_s = 46 * 60 + 40
    expected = round((before_s * 3 + (3_600 - before_s) * 6) / 3_600, 9)
    assert cost_by(shown.feature_cost, catalogue.FEATURE) == {"a": expected}
    assert cost_by(shown.device_cost, catalogue.DEVICE_STATE)["charged"] == expected


def test_a_second_currency_makes_no_more_sets_than_an_instrument_may_have(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """It doubles the sets of the cost: those that were shown keep their names, the others are summed."""
    changed = BOOK + "valid_until = 2026-09-21T15:00:00Z\n" + BOOK.replace("USD", "EUR")
    changed += "valid_from = 2026-09-21T15:00:00Z\n"
    with Recorder(clock) as recorder:
        recorder.settler.totals.apply((), 200, 60)
        priced(recorder, tmp_path / "prices.toml", changed)
        shown = []
        for _ in range(2):
            for number in range(30):
                with gputrace.span("work", feature=f"feature-{number}"):
                    clock.advance(HOUR_NS // 40)
            shown.append(recorder.snapshot().feature_cost)
    before, after = ({tuple(attributes.items()): value for attributes, value in rows} for rows in shown)
    assert all(after[key] >= value for key, value in before.items())
    assert len(before) < len(after) <= 60
    dollars, euros = (
        sum(value for key, value in after.items() if (catalogue.CURRENCY, currency) in key)
        for currency in ("USD", "EUR")
    )
    assert dollars + euros == pytest.approx(1.5 * 3)
    assert dollars == pytest.approx(3 * (46 * 60 + 40) / 3_600)
    assert any((catalogue.FEATURE, catalogue.OTHER) in key for key in after)


def test_without_a_price_there_is_time_and_no_cost(clock: VirtualClock, tmp_path: Path) -> None:
    with Recorder(clock) as recorder:
        priced(recorder, tmp_path / "prices.toml", BOOK.replace('"*"', '"another device"'))
        with gputrace.span("a", feature="a"):
            clock.advance(HOUR_NS)
        shown = recorder.snapshot()
    assert shown.feature_cost == shown.device_cost == shown.device_price == []
    assert [round(seconds, 6) for _, seconds in shown.unpriced_s] == [3_600.0]


def test_prices_that_come_later_bill_from_then_on(clock: VirtualClock, tmp_path: Path) -> None:
    with Recorder(clock) as recorder, gputrace.span("a", feature="a"):
        clock.advance(HOUR_NS)
        recorder.settle()
        priced(recorder, tmp_path / "prices.toml", BOOK)
        clock.advance(HOUR_NS)
        shown = recorder.snapshot()
        assert cost_by(shown.feature_cost, catalogue.FEATURE) == {"a": 3.0}
        assert cost_by(shown.device_cost, catalogue.DEVICE_STATE)["charged"] == 3.0


def test_a_wrong_price_book_is_told_at_configure(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text("[[price]]\nname = 3\n")
    with pytest.raises(ValueError, match=r"prices\.toml"):
        gputrace.configure(prices=path)
