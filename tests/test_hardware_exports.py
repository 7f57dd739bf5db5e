"""Real processes on real time, the real binding on the stand-in for the driver: what is exported of a node.

CUDA is a virtual GPU with the UUID of one that the driver shows.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from gputrace import catalogue
from gputrace.telemetry import metrics as instruments
from tests.devices import nvml_stand_in as driver

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
GPU0, GPU1 = driver.GPU0, driver.GPU1
PROGRAM = """
import sys, time
import gputrace
from gputrace.devices.virtual import VirtualGpu

gpu = VirtualGpu(1, tied_to_real_time=True)
gpu.devices[0].uuid = "00000000-1111-2222-3333-444444444444"
gpu.install()
gpu.init()
gputrace.configure(data_dir="data", export_interval=0.2)

def work(feature, seconds, share=0.5):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with gputrace.span("work", feature=feature):
            gpu.launch(round(40_000_000 * share))
            time.sleep(0.04 * share)
        time.sleep(0.04 * (1 - share))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return driver.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def node(library, tmp_path):
    """The variables of every process on the node."""
    return {**driver.variables(library), "GPUTRACE_NODE_DIR": str(tmp_path / "node")}


def by(files, name, attribute, **where):
    """The last values of a metric, summed by one attribute."""
    summed = defaultdict(float)
    for (_, attributes), values in files.values(name, **where).items():
        summed[dict(attributes)[attribute]] += values[-1]
    return dict(summed)


def states(files, device):
    return by(files, "gputrace.device.time", catalogue.DEVICE_STATE, id=device)


def script(folder: Path, *lines: str) -> dict[str, str]:
    """What the driver is told, for every process that reads it."""
    path = folder / "driver.txt"
    path.write_text("\n".join(lines))
    return {"NVML_STAND_IN": str(path)}


def finished(process):
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output, errors


def test_one_process_publishes_every_device_of_the_node(run_python, read_files, tmp_path, node):
    run_python(PROGRAM + 'work("search", 5)', **node)
    files = read_files(tmp_path / "data")
    charged, used = states(files, GPU0), states(files, GPU1)
    features = by(files, "gputrace.feature.time", catalogue.FEATURE)
    # The twins agree, but for the rounding of what is written.
    assert charged["charged"] == pytest.approx(features["search"], abs=1e-8)
    assert files.total("gputrace.device.overlap.time") == 0
    # 40 % busy, and nobody holds the second one.
    assert used["charged"] == 0
    assert used["untracked"] / (used["untracked"] + used["idle"]) == pytest.approx(0.4, abs=0.001)
    assert files.total("gputrace.nvml.up") == 1
    assert files.processes() == {next(iter(files.processes()))}


def test_energy_sums_to_what_was_measured(run_python, read_files, tmp_path, node):
    run_python(PROGRAM + 'work("search", 5)', **node)
    files = read_files(tmp_path / "data")
    for device in (GPU0, GPU1):
        parts = by(files, "gputrace.device.energy", catalogue.DEVICE_STATE, id=device)
        measured = files.total("hw.energy", id=device)
        assert sum(parts.values()) == pytest.approx(measured, rel=1e-9)
        assert measured > 500
    charged = by(files, "gputrace.device.energy", catalogue.DEVICE_STATE, id=GPU0)["charged"]
    assert files.total("gputrace.feature.energy") == pytest.approx(charged, rel=1e-9)


def test_the_energy_of_a_cascade_is_that_of_its_feature(run_python, read_files, tmp_path, node):
    cascaded = """
# Until there was a first reading, and so a first period.
work("warm", 2.5)
cascade = gputrace.Cascade("answer", threshold=0.5)
for number in range(4):
    with cascade.request(feature="search") as request:
        with request.stage("light", hold="none"):
            work(None, 0.3)
        if request.escalate(number % 2):
            with request.stage("heavy", hold="none"):
                work(None, 0.3)
# Until the last period is read, and told.
time.sleep(3)
gputrace.flush()
"""
    run_python(PROGRAM + cascaded, **node)
    files = read_files(tmp_path / "data")
    told = [record["attributes"] for record in files.logs]
    assert len(told) == 4
    spent = sum(
        record.get(name, 0.0)
        for record in told
        for name in (catalogue.ESCALATION_LIGHT_ENERGY, catalogue.ESCALATION_HEAVY_ENERGY)
    )
    assert spent > 10
    assert spent == pytest.approx(files.total("gputrace.feature.energy", feature="search"), rel=1e-6)
    heavy = [record.get(catalogue.ESCALATION_HEAVY_ENERGY) for record in told]
    assert sorted(one is None for one in heavy) == [False, False, True, True]


def test_what_is_read_is_what_the_catalogue_says(run_python, read_files, tmp_path, node):
    """Every metric that comes from readings, in one node: a GPU lost on the way for ``hw.errors``."""
    told = script(tmp_path, "gpus 2")
    lost = "\n".join(["gpus 2", *(f"fail {call} 1 15" for call in driver.DEVICE_CALLS)])
    lose = f'work("search", 12, 1.0)\nopen("driver.txt", "w").write({lost!r})\nwork("search", 3, 1.0)\n'
    run_python(PROGRAM + lose, **node, **told)
    files = read_files(tmp_path / "data")
    missing = {metric.name for metric in instruments._OF_READINGS} - files.names()
    assert missing == set()
    allowed = {metric.name: set(metric.attributes) for metric in catalogue.METRICS}
    for metric in instruments._OF_READINGS:
        for _, attributes in files.values(metric.name):
            assert {name for name, _ in attributes} <= allowed[metric.name]
    # Ten periods and more in which the feature alone held the device: 40 % busy.
    assert files.total("gputrace.feature.alone.periods") >= 10
    share = files.total("gputrace.feature.alone.busy.time") / files.total("gputrace.feature.alone.time")
    assert share == pytest.approx(0.4, abs=0.01)


def test_hardware_metrics_are_switched_off_where_another_exporter_has_them(
    run_python, read_files, tmp_path, node
):
    run_python(PROGRAM + 'work("search", 3)', GPUTRACE_HARDWARE_METRICS="false", **node)
    names = read_files(tmp_path / "data").names()
    assert not {name for name in names if name.startswith("hw.")}
    assert "gputrace.device.energy" in names


def test_a_driver_that_mismatches_stops_nothing_and_nothing_is_idle(run_python, read_files, tmp_path, node):
    told = script(tmp_path, "gpus 2", "fail nvmlInitWithFlags - 18")
    run_python(PROGRAM + 'work("search", 2)', **node, **told)
    files = read_files(tmp_path / "data")
    found = states(files, GPU0)
    assert found["charged"] == pytest.approx(files.total("gputrace.feature.time"), abs=1e-8)
    assert found["unknown"] > 0
    assert found["idle"] == found["untracked"] == 0
    assert files.total("gputrace.nvml.up") == 0


def test_two_processes_on_one_device_are_counted_together(run_python, read_files, tmp_path, node):
    both = [run_python.start(PROGRAM + 'work("search", 4, 1.0)', **node) for _ in range(2)]
    for process in both:
        finished(process)
    files = read_files(tmp_path / "data")
    assert len(files.processes()) == 2
    features = files.total("gputrace.feature.time")
    charged = states(files, GPU0)["charged"]
    overlap = files.total("gputrace.device.overlap.time")
    assert overlap > 1
    assert features - overlap == pytest.approx(charged, abs=1e-6)
    publishers = by(files, "gputrace.device.time", catalogue.PUBLISHER, id=GPU1)
    assert len([spent for spent in publishers.values() if spent > 1]) == 1


def test_processes_that_share_no_folder_publish_each_for_itself(run_python, read_files, tmp_path, node):
    apart = [{**node, "GPUTRACE_NODE_DIR": str(tmp_path / name)} for name in ("one", "other")]
    both = [run_python.start(PROGRAM + 'work("search", 2)', **variables) for variables in apart]
    for process in both:
        finished(process)
    files = read_files(tmp_path / "data")
    publishers = by(files, "gputrace.device.time", catalogue.PUBLISHER, id=GPU0)
    assert set(publishers) == files.processes()
    assert files.total("gputrace.device.overlap.time") == 0


def test_the_agent_alone_sees_what_nothing_uses(run_python, read_files, tmp_path, node):
    """All idle, at price times time."""
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[[price]]\nname = "NVIDIA H100*"\nper_hour = 3.0\ncurrency = "USD"\nkind = "on_demand"\n'
        'source = "a test"\nas_of = 2026-09-01\n'
    )
    told = script(tmp_path, "gpus 2", "set 0 util 0", "set 1 util 0")
    agent = start_agent(run_python, node | told | {"GPUTRACE_PRICES": str(prices)})
    time.sleep(4)
    agent.send_signal(signal.SIGTERM)
    output, _ = finished(agent)
    assert GPU0 in output
    files = read_files(tmp_path / "data")
    for device in (GPU0, GPU1):
        found = states(files, device)
        assert found["idle"] > 0
        assert found["charged"] == found["untracked"] == found["unknown"] == 0
        cost = by(files, "gputrace.device.cost", catalogue.DEVICE_STATE, id=device)
        assert cost["idle"] == pytest.approx(3.0 * found["idle"] / 3600)
    assert {
        dict(attributes)[catalogue.HW_TYPE] for _, attributes in files.values("gputrace.device.time")
    } == {"gpu"}


def start_agent(run_python, variables):
    """A module has no file to run: its arguments are set in a program."""
    return run_python.start(
        "import sys\nfrom gputrace.cli import main\nsys.exit(main(['agent', '--data', 'data']))",
        GPUTRACE_EXPORT_INTERVAL="0.2",
        **variables,
    )


def test_the_agent_publishes_for_programs_and_they_take_over_when_it_is_killed(
    run_python, read_files, tmp_path, node
):
    agent = start_agent(run_python, node)
    time.sleep(2)
    program = run_python.start(PROGRAM + 'work("search", 6)', **node)
    time.sleep(3.5)
    agent.kill()
    agent.communicate()
    finished(program)
    files = read_files(tmp_path / "data")
    published = by(files, "gputrace.device.time", catalogue.PUBLISHER, id=GPU0)
    assert len(published) == 2
    features = by(files, "gputrace.feature.time", catalogue.FEATURE)["search"]
    # The program goes on where the agent was last seen: nothing is missing, and nothing is charged twice.
    assert states(files, GPU0)["charged"] == pytest.approx(features, abs=1e-6)


@pytest.mark.parametrize("calls", [1, 40, 137])
def test_what_a_killed_process_accepted_and_did_not_export_is_lost_to_the_call(
    run_python, read_files, tmp_path, node, calls
):
    """Killed at once, wherever that falls between its ticks and exports."""
    survivor = run_python.start(PROGRAM + 'work("search", 4)', **node)
    time.sleep(1)
    killed = run_python.start(
        PROGRAM
        + f"""
import os, signal
for number in range({calls}):
    with gputrace.span("work", feature="chat"):
        time.sleep(0.007)
        if number == {calls} - 1:
            os.kill(os.getpid(), signal.SIGKILL)
""",
        **node,
    )
    killed.communicate()
    finished(survivor)
    files = read_files(tmp_path / "data")
    lost = by(files, "gputrace.sdk.lost", catalogue.LOSS_REASON)["process_died"]
    exported = by(files, "gputrace.calls", catalogue.FEATURE).get("chat", 0)
    assert exported + lost == calls, (exported, lost)
    assert lost >= 1, "the one that was open"


def test_a_fork_exports_the_calls_of_parent_and_child(run_python, read_files, tmp_path, node):
    """Ten calls and one make eleven, in counters and in histograms; the node outlives the fork."""
    program = """
import os
for _ in range(10):
    with gputrace.span("work", feature="parent"):
        gpu.launch(1_000_000)
        time.sleep(0.005)
pid = os.fork()
if pid == 0:
    gpu.uninstall()
    with gputrace.span("work", feature="child"):
        time.sleep(0.005)
    gputrace.shutdown()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
work("parent-goes-on", 2)
"""
    run_python(PROGRAM + program, **node)
    files = read_files(tmp_path / "data")
    for name in ("gputrace.calls", "gputrace.call.duration"):
        calls = by(files, name, catalogue.FEATURE)
        assert calls["parent"] + calls["child"] == 11, name
    assert states(files, GPU0)["charged"] > 0.9
