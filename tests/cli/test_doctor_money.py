"""`gputrace doctor` on prices, and on what features let wait."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gputrace import catalogue

GPU0, GPU1 = (f"GPU-{index:08d}-1111-2222-3333-444444444444" for index in (0, 1))
ROW = """
[[price]]
{selects}
per_hour = 2.5
currency = "USD"
kind = "on_demand"
source = "a list"
as_of = 2026-01-31
"""
NAMED = ROW.format(selects='name = "NVIDIA H100 80GB HBM3"')
START_NS = 1_769_860_800 * 10**9


def book(machine, text):
    path = machine.folder / "prices.toml"
    path.write_text(text)
    return str(path)


def test_no_price_book_is_no_failure(machine):
    report = machine.doctor()
    assert report.status == 0
    assert "GPUTRACE_PRICES" in report.finding("prices", "no price book")["remedy"]


def test_every_device_has_a_price(machine):
    report = machine.doctor(GPUTRACE_PRICES=book(machine, NAMED))
    assert report.status == 0
    assert report.json["sections"]["prices"]["prices"][GPU1] == {
        "per_hour": 2.5,
        "currency": "USD",
        "kind": "on_demand",
        "source": "a list",
        "as_of": "2026-01-31",
    }
    assert "2.5 USD/h, on_demand, from a list as of 2026-01-31" in report.finding("prices", "GPU 0")["text"]


def test_a_book_that_leaves_a_device_out(machine):
    report = machine.doctor("--prices", book(machine, ROW.format(selects=f'id = "{GPU0}"')))
    assert report.status == 0
    assert report.finding("prices", "GPU 0")["level"] == "ok"
    found = report.finding("prices", "GPU 1")
    assert (found["level"], "no price at this moment" in found["text"]) == ("warning", True)
    assert 'name = "NVIDIA H100 80GB HBM3"' in found["remedy"]
    assert report.json["sections"]["prices"]["prices"][GPU1] is None


def test_a_broken_book_fails(machine):
    report = machine.doctor(GPUTRACE_PRICES=book(machine, NAMED.replace('"USD"', '"dollars"')))
    assert report.status == 1
    assert "'dollars' must be a code of ISO 4217" in report.finding("prices", "cannot be used")["text"]


def test_a_book_that_is_not_there_fails(machine):
    report = machine.doctor(GPUTRACE_PRICES="nowhere.toml")
    assert report.status == 1
    assert "nowhere.toml: No such file" in report.finding("prices", "cannot be used")["text"]


def test_the_host_has_a_price_too(machine):
    report = machine.doctor(CUDA_VISIBLE_DEVICES="", GPUTRACE_NODE_PRICE="0.5 USD")
    assert report.finding("prices", "the process on the host")


def test_slices_are_priced_and_not_the_gpu_that_they_are_cut_from(machine):
    machine.nvml("gpus 1", "mig 0 1")
    report = machine.doctor(GPUTRACE_PRICES=book(machine, NAMED + 'mig = { by = "slices", of = 7 }\n'))
    prices = report.json["sections"]["prices"]["prices"]
    assert list(prices) == ["MIG-00000000-0000-5555-6666-777777777777"]
    assert next(iter(prices.values()))["per_hour"] == pytest.approx(2.5 / 7)


def export(second, values):
    """One export of a program: by feature the time alone, the busy time in it, and the periods."""
    metrics = []
    names = (catalogue.FEATURE_ALONE_TIME, catalogue.FEATURE_ALONE_BUSY_TIME, catalogue.FEATURE_ALONE_PERIODS)
    for number, metric in enumerate(names):
        points = [
            {
                "attributes": [
                    {"key": catalogue.FEATURE, "value": {"stringValue": feature}},
                    {"key": catalogue.HW_TYPE, "value": {"stringValue": "gpu"}},
                    {"key": catalogue.HW_NAME, "value": {"stringValue": "H100"}},
                ],
                "startTimeUnixNano": str(START_NS),
                "timeUnixNano": str(START_NS + second * 10**9),
                "asDouble": row[number],
            }
            for feature, row in values.items()
        ]
        total = {"dataPoints": points, "aggregationTemporality": 2, "isMonotonic": True}
        metrics.append({"name": metric.name, "sum": total})
    resource = {"attributes": [{"key": "service.instance.id", "value": {"stringValue": "i1"}}]}
    scope = {"scope": {"name": catalogue.SCOPE_NAME}, "metrics": metrics}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}) + "\n"


@pytest.fixture
def data(machine):
    folder = machine.folder / "gputrace-data"
    folder.mkdir()
    zero = dict.fromkeys(("waits", "works", "rare"), (0, 0, 0))
    last = {"waits": (20, 3, 20), "works": (30, 24, 30), "rare": (9, 0, 9)}
    (folder / "metrics.jsonl").write_text(export(0, zero) + export(30, last))
    return folder


def test_features_that_hold_and_let_the_device_wait(machine, data):
    report = machine.doctor()
    assert report.status == 0
    found = report.finding("busy", "waits")
    assert found["level"] == "warning"
    assert "waits kept H100 busy for 15% of the time" in found["text"]
    assert "(20 s in 20 periods)" in found["text"]
    assert 'hold="steps"' in found["remedy"]
    assert "batch more" in found["remedy"]
    assert len(report.texts("busy", "warning")) == 1
    shares = {one["feature"]: one["busy_share"] for one in report.json["sections"]["busy"]["features"]}
    # Nine periods are too few to tell.
    assert shares == {"waits": 0.15, "works": 0.8, "rare": None}


def test_features_that_keep_the_device_busy(machine, data):
    path = data / "metrics.jsonl"
    path.write_text(export(0, {"works": (0, 0, 0)}) + export(30, {"works": (30, 24, 30)}))
    assert machine.doctor("--data", str(path)).finding("busy", "none of 1 feature")["level"] == "ok"


def test_without_data_nothing_is_said_of_features(machine, data):
    (data / "metrics.jsonl").unlink()
    assert machine.doctor().finding("busy", "no *.jsonl file")["level"] == "note"
    assert machine.doctor("--data", "nowhere").finding("busy", "no such file or folder")["level"] == "note"
    data.rmdir()
    assert machine.doctor().finding("busy", "no data folder")["level"] == "note"


def test_data_of_a_program_without_a_busy_share(machine, data):
    line = (data / "metrics.jsonl").read_text().replace(".alone.", ".other.")
    (data / "metrics.jsonl").write_text(line)
    assert machine.doctor().finding("busy", "no feature held a device alone for 10 sample periods")


def test_without_duckdb_the_rest_is_said(machine, data):
    (machine.folder / "made-up" / "site" / "duckdb.py").write_text(
        "raise ModuleNotFoundError('none', name='duckdb')"
    )
    report = machine.doctor()
    assert report.status == 0
    assert "gputrace[report]" in report.finding("busy", "needs duckdb")["text"]


def test_describing_the_command_imports_none_of_its_checks():
    code = (
        "import sys, gputrace.cli as cli; cli._parser()\n"
        "print([name for name in sys.modules if name.startswith('gputrace.cli.doctor_')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
