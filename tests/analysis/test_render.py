from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis.formats import duration
from gputrace.analysis.render import print_report
from gputrace.prices_rows import Fleet
from gputrace.prices_timeline import PriceTable


def text(report, **options):
    stream = io.StringIO()
    print_report(report, Console(file=stream, highlight=False, **options))
    return stream.getvalue()


def words(output, label):
    """The cells of the line that begins with `label`."""
    line = next(line for line in output.splitlines() if line.strip().startswith(label))
    return re.split(r"\s{2,}", line.strip())


@pytest.fixture
def busy(program):
    """A priced GPU with two features and unnamed work."""
    one = program()
    one.device(charged=6.0, untracked=1.0, idle=2.5, unknown=0.5)
    one.call(4.0, wall=4.5, feature="support-answer", model="large")
    one.call(0.002, feature="semantic-search", model="small")
    one.call(0.998, feature="semantic-search", model="small", status="error")
    one.call(1.0, feature=catalogue.NO_FEATURE)
    family = {catalogue.FEATURE: "support-answer", catalogue.MODEL: "large"}
    one.add(catalogue.FEATURE_COST, 0.02, {**family, catalogue.CURRENCY: "EUR"})
    bill = {catalogue.HW_ID: "GPU-1", catalogue.PUBLISHER: "p1", catalogue.CURRENCY: "EUR"}
    for state, cost in (("charged", 0.02), ("untracked", 0.005), ("idle", 0.0125), ("unknown", 0.0025)):
        one.add(catalogue.DEVICE_COST, cost, {**bill, catalogue.DEVICE_STATE: state})
    one.export()
    return one


@pytest.mark.usefixtures("busy")
def test_rows_then_unnamed_then_what_nobody_used_then_the_total(report):
    output = text(report())
    labels = ("support-answer", "semantic-search", "__none__", "untracked", "idle", "unknown", "total")
    places = [output.index(f"\n{label}") for label in labels]
    assert places == sorted(places)
    assert words(output, "support-answer") == [
        "support-answer", "1", "0", "4.000", "40.0%", "0.0200", "20.0000", "4.50s", "4.50s", "4.00s", "4.00s",
    ]  # fmt: skip
    assert words(output, "semantic-search")[1:5] == ["2", "1", "1.000", "10.0%"]
    assert words(output, "__none__")[1:5] == ["1", "0", "1.000", "10.0%"]
    assert words(output, "untracked") == ["untracked", "1.000", "10.0%", "0.0050"]
    assert words(output, "idle") == ["idle", "2.500", "25.0%", "0.0125"]
    assert words(output, "unknown") == ["unknown", "0.500", "5.0%", "0.0025"]
    assert words(output, "total") == ["total", "4", "1", "10.000", "100.0%", "0.0400"]


@pytest.mark.usefixtures("busy")
def test_shares_sum_to_the_whole(report):
    output = text(report())
    labels = ("support-answer", "semantic-search", "__none__", "untracked", "idle", "unknown")
    shares = [float(re.search(r"([\d.]+)%", " ".join(words(output, label)))[1]) for label in labels]
    assert sum(shares) == pytest.approx(100.0)


@pytest.mark.usefixtures("busy")
def test_the_window_the_books_and_the_notes_are_stated(report):
    output = text(report())
    assert "UTC (10.0 s)" in output
    assert "The ledger balances: 6.000 charged + 1.000 untracked + 2.500 idle + 0.500 unknown" in output
    assert "1 × gpu, percentiles from 4 spans (100 % of all calls)" in output


def test_books_that_do_not_balance_cannot_be_overlooked(program, report):
    one = program()
    one.device(charged=1.0)
    one.call(2.0, feature="a")
    one.export()
    output = text(report())
    assert "THE LEDGER DOES NOT BALANCE" in output
    assert "off by +1 s" in output


def test_nothing_unnamed_is_no_row(program, report):
    one = program()
    one.device(charged=1.0)
    one.call(1.0, feature="a")
    one.export()
    assert "__none__" not in text(report())
    one.call(0.0, feature=catalogue.NO_FEATURE)
    one.export()
    assert words(text(report()), "__none__")[1:5] == ["1", "0", "0.000", "0.0%"]


def test_a_pipe_gets_plain_text_that_folds_no_name(busy, report):
    busy.call(0.1, feature="f" * 120)
    busy.export()
    output = text(report())
    assert "\x1b" not in output
    assert "f" * 120 in output


@pytest.mark.usefixtures("busy")
def test_at_100_columns_a_terminal_shows_every_number_whole(report):
    output = text(report(by=("feature", "model")), width=100, force_terminal=True, color_system=None)
    assert max(map(len, output.splitlines())) <= 100
    cells = " ".join(words(output, "support-answer")).split()
    assert cells[-4:] == ["4.50s", "4.50s", "4.00s", "4.00s"]
    assert "…" not in output


def test_without_percentiles_and_prices_their_columns_are_gone(program, report):
    one = program()
    one.device(charged=1.0)
    one.call(1.0, feature="a")
    one.export()
    output = text(report(percentiles=False))
    assert not {"p50", "p95", "cost", "busy"} & set(output.split("note:")[0].split())


def test_names_are_no_markup(program, report):
    one = program()
    one.device(charged=1.0)
    one.call(1.0, feature="[red]x[/]")
    one.export()
    assert "[red]x[/]" in text(report())


def test_time_counted_twice_that_no_feature_can_be_relieved_of_is_a_row_so_that_the_whole_is_right(
    program, report, lines
):
    one = program()
    one.device(charged=2.0, idle=2.0)
    # Features' time without the name of its device.
    one.call(3.0, feature="a")
    one.add(catalogue.DEVICE_OVERLAP_TIME, 1.0, lines.gpu)
    one.export()
    output = text(report())
    assert words(output, "counted twice") == ["counted twice", "-1.000", "-25.0%"]
    assert words(output, "total")[-2:] == ["4.000", "100.0%"]
    assert "3.000 charged - 1.000 counted twice" in output
    assert "1.000 s (gpu) were charged by several processes at once and could not be taken off" in " ".join(
        output.split()
    )


def test_types_have_totals_of_their_own(program, report):
    one = program()
    one.device(charged=1.0, idle=3.0)
    one.device({catalogue.HW_ID: "host/i1", catalogue.HW_TYPE: "cpu"}, charged=2.0)
    one.call(1.0, feature="a")
    one.call(2.0, feature="a", hw="cpu")
    one.export()
    output = text(report())
    assert words(output, "total (gpu)")[-2:] == ["4.000", "100.0%"]
    assert words(output, "total (cpu)")[-2:] == ["2.000", "100.0%"]
    assert words(output, "idle (gpu)")[1] == "3.000"
    assert words(output, "host/i1")[1:4] == ["cpu", "2.000", "2.000"]


def test_two_currencies_are_shown_with_their_names(program, report):
    one = program()
    one.device(charged=1.0)
    one.call(1.0, feature="a")
    for currency, cost in (("EUR", 1.0), ("USD", 250.0)):
        one.add(catalogue.FEATURE_COST, cost, {catalogue.FEATURE: "a", catalogue.CURRENCY: currency})
    one.export()
    output = text(report())
    assert "1.0000 EUR" in output
    assert "250.00 USD" in output


@pytest.mark.usefixtures("busy")
def test_idle_that_the_rows_bear_is_no_line_too(report):
    output = text(report(idle="even"))
    assert words(output, "support-answer")[5] == "0.0325"
    assert words(output, "idle") == ["idle", "2.500", "25.0%", "0.0000"]
    assert words(output, "total")[-1] == "0.0400"
    assert "The rows bear 0.0125 EUR of idle time, in equal parts" in " ".join(output.split())


@pytest.mark.usefixtures("busy")
def test_idle_that_is_left_out_is_in_no_sum(report):
    output = text(report(idle="none"))
    assert words(output, "idle") == ["idle", "2.500", "25.0%", "–"]
    assert words(output, "total")[-1] == "0.0275"


@pytest.mark.usefixtures("busy")
def test_what_nobody_read_is_no_device_of_the_heading(report):
    fleet = PriceTable("book", fleet=[Fleet("H100", "gpu", 3)])
    output = text(report(prices=fleet))
    assert "\n1 × gpu" in output
    assert words(output, "__uncovered__/H100")[1:3] == ["gpu", "20.000"]
    assert words(output, "total")[3] == "30.000"


def test_many_devices_are_cut_short(program, report):
    one = program()
    for number in range(20):
        one.device({catalogue.HW_ID: f"GPU-{number:02}", catalogue.HW_TYPE: "gpu"}, idle=1.0)
    one.export()
    output = text(report())
    assert "GPU-15" in output
    assert "GPU-16" not in output
    assert "and 4 more" in output


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0.0, "0.00µs"),
        (1.5e-6, "1.50µs"),
        (0.0021, "2.10ms"),
        (0.0999, "99.9ms"),
        (0.09999, "100ms"),
        (0.9996, "1.00s"),
        (12.345, "12.3s"),
        (1234.0, "1,234s"),
    ],
)
def test_durations_have_three_digits(seconds, shown):
    assert duration(seconds) == shown
