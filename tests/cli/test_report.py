from __future__ import annotations

import io
import json
import subprocess
import sys
import time

import pytest

from gputrace import catalogue
from gputrace.cli import main, report

DEVICE = {catalogue.HW_ID: "GPU-1", catalogue.HW_TYPE: "gpu", catalogue.DEVICE_STATE: "charged"}
FEATURE = {catalogue.FEATURE: "search", catalogue.HW_TYPE: "gpu"}


NOW = time.time_ns()


def export(age_s: float, seconds: float) -> str:
    """One export of a process that charged `seconds` so far, `age_s` ago."""

    def metric(name, attributes, value):
        point = {
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()],
            "startTimeUnixNano": str(NOW - 7_200 * 10**9),
            "timeUnixNano": str(NOW - int(age_s * 1e9)),
            "asDouble": value,
        }
        return {
            "name": name,
            "sum": {"dataPoints": [point], "aggregationTemporality": 2, "isMonotonic": True},
        }

    metrics = [
        metric(catalogue.FEATURE_TIME.name, FEATURE, seconds),
        metric(catalogue.CALLS.name, {**FEATURE, catalogue.STATUS: "ok"}, seconds),
        metric(catalogue.DEVICE_TIME.name, DEVICE, seconds),
    ]
    resource = {"attributes": [{"key": "service.instance.id", "value": {"stringValue": "i1"}}]}
    scope = {"scope": {"name": catalogue.SCOPE_NAME}, "metrics": metrics}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}) + "\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "gputrace-data"
    path.mkdir()
    (path / "metrics.jsonl").write_text(export(7000, 0.0) + export(5000, 2000.0) + export(10, 6990.0))
    return path


def test_the_default_folder_is_the_one_that_programs_write_to(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    assert main(["report"]) == 0
    output = capsys.readouterr()
    assert "search" in output.out
    assert "The ledger balances" in output.out
    assert output.err == ""


def test_json_is_one_object_and_nothing_else(folder, capsys):
    assert main(["report", str(folder), "--json", "--by", "model,feature"]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["rows"][0]["feature"] == "search"
    assert "model" in found["rows"][0]
    assert output.err == ""


def test_since_an_age(folder, capsys):
    assert main(["report", str(folder), "--json", "--since", "1h"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["charged_s"] == 4990.0


def test_no_percentiles(folder, capsys):
    assert main(["report", str(folder), "--json", "--no-percentiles"]) == 0
    assert json.loads(capsys.readouterr().out)["sampled_share"] is None


PRICES = """
[[price]]
name = "*"
per_hour = 3.6
currency = "USD"
kind = "spot"
source = "a list"
as_of = 2026-01-01
"""


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "other.toml"
    path.write_text(PRICES)
    return path


def test_prices_recompute_history(folder, prices, capsys):
    assert main(["report", str(folder), "--json", "--prices", str(prices)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["cost"] == pytest.approx(6.99)
    assert (found["rows"][0]["currency"], found["totals"]["currency"]) == ("USD", "USD")
    assert found["rows"][0]["cost_per_1000_calls"] == pytest.approx(1.0)
    assert found["devices"][0]["cost"] == found["totals"]["device_cost"] == pytest.approx(6.99)
    assert found["totals"]["idle_policy"] == "separate"


def test_the_price_book_of_the_environment_changes_no_history(folder, prices, capsys, monkeypatch):
    monkeypatch.setenv("GPUTRACE_PRICES", str(prices))
    monkeypatch.setenv("GPUTRACE_NODE_PRICE", "1 USD")
    assert main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["cost"] is None
    assert main(["report", str(folder), "--json", "--prices", str(prices)]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["cost"] == pytest.approx(6.99)


def test_prices_in_words(folder, prices, capsys):
    assert main(["report", str(folder), "--prices", str(prices), "--idle", "none"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "6.9900" in output
    assert f"Costs are those of {prices}" in output
    assert "(--idle none)" in output


def test_an_unknown_idle_policy_is_refused(folder, capsys):
    assert main(["report", str(folder), "--idle", "all"]) == 2
    assert "'separate', 'even', 'weighted', 'none'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "gputrace report: --prices: "),
        (PRICES.replace("USD", "dollars"), "price 1 (*): currency: 'dollars' must be a code of ISO 4217"),
        (PRICES + PRICES, "are for the same devices from the same moment"),
    ],
)
def test_a_wrong_price_book_is_one_line(folder, prices, capsys, text, says):
    prices.unlink() if text is None else prices.write_text(text)
    status = main(["report", str(folder), "--prices", str(prices)])
    output = capsys.readouterr()
    assert status == 2
    assert output.out == ""
    assert output.err.startswith("gputrace report: ")
    assert says in output.err
    assert len(output.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda _: None, "no such file or folder"),
        (lambda path: path.mkdir(), "holds no *.jsonl file"),
        (lambda path: path.write_bytes(b"\xff\xfe binary"), "holds no gputrace data"),
        (lambda path: path.write_text('{"foreign": true}\n'), "holds no gputrace data"),
        (lambda path: path.write_text(""), "is empty"),
        (lambda path: path.write_text('{"resourceSpans":[]}\n'), "no metric of gputrace"),
    ],
)
def test_where_there_is_nothing_to_report_one_line_says_so(tmp_path, capsys, make, says):
    path = tmp_path / "data.jsonl"
    make(path)
    assert main(["report", str(path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gputrace report: ")
    assert says in output.err
    assert len(output.err.splitlines()) == 1


def test_nothing_after_since_is_said(folder, capsys):
    assert main(["report", str(folder), "--since", "1s"]) == 2
    assert "No reading after" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "colour"], "colour is no field to group by"),
        (["--by", ","], "nothing is no field"),
        (["--since", "yesterday"], "'yesterday' is neither an age"),
    ],
)
def test_wrong_arguments_are_named(folder, capsys, arguments, says):
    assert main(["report", str(folder), *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("package", ["duckdb", "rich"])
def test_a_missing_extra_is_one_line_that_says_what_to_install(folder, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None; from gputrace.cli import main\n"
        f"sys.exit(main(['report', {str(folder)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'gputrace report needs {package}: pip install "gputrace[report]"\n'


def test_another_missing_module_is_not_hidden(folder, monkeypatch):
    def broken(*_, **__):
        raise ModuleNotFoundError("No module named 'x'", name="x")

    monkeypatch.setattr("gputrace.analysis.reporting.spend_report", broken)
    with pytest.raises(ModuleNotFoundError):
        main(["report", str(folder)])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("size", "shown"), [(0, True), (10**9, False)])
def test_a_bar_is_drawn_on_a_terminal_for_long_reads_only(folder, monkeypatch, size, shown):
    monkeypatch.setattr(report, "_LONG_READ_BYTES", size)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["report", str(folder)]) == 0
    assert bool(sys.stderr.getvalue()) is shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00.25Z", 1_769_860_800_250_000_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000_000_000),
        ("2026-01-31T12:00", 1_769_860_800_000_000_000),
        ("2026-01-31", 1_769_817_600_000_000_000),
    ],
)
def test_iso_times_are_utc_unless_they_say_otherwise(text, expected):
    if text.endswith("25Z") and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 reads three or six decimals only")
    assert report._since(text) == expected


@pytest.mark.parametrize(
    ("text", "age_s"), [("45s", 45), ("30m", 1800), ("1.5h", 5400), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_ages_count_back_from_now(text, age_s):
    assert time.time_ns() - report._since(text) == pytest.approx(age_s * 10**9, abs=10**10)
