"""``gputrace agent`` as a process: what it says, how it ends. ``test_hardware_exports``: what it exports."""

from __future__ import annotations

import signal
import time

import pytest

from gputrace.cli import agent as command
from tests.devices import nvml_stand_in as driver

PROGRAM = "import sys\nfrom gputrace.cli import main\nsys.exit(main(['agent', *{arguments!r}]))"


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return driver.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def node(library, tmp_path):
    """The variables of every process on the node."""
    return {**driver.variables(library), "GPUTRACE_NODE_DIR": str(tmp_path / "node")}


@pytest.fixture
def rings(tmp_path):
    """Waits until so many processes have joined the node."""

    def wait(count):
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "node").glob("*.ring"))) < count:
            assert time.monotonic() < deadline, "no agent joined the node"
            time.sleep(0.01)

    return wait


def program(*arguments):
    return PROGRAM.format(arguments=arguments)


def ended(process, how=signal.SIGTERM):
    """Its status, output and errors, once it was told to end."""
    process.send_signal(how)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(run_python, rings, tmp_path, node, how):
    process = run_python.start(program("--data", "data"), **node)
    rings(1)
    status, output, errors = ended(process, how)
    assert (status, errors) == (0, "")
    assert output.startswith("gputrace agent: ")
    # It leaves the node as it found it, and has written what it saw.
    assert list((tmp_path / "node").glob("*.ring")) == []
    assert list((tmp_path / "data").glob("*.jsonl"))


def test_what_it_publishes_and_that_another_one_does(run_python, rings, node):
    """The introduction comes once the driver had time to answer."""
    first = run_python.start(program("--data", "data"), **node)
    rings(1)
    second = run_python.start(program("--data", "data"), **node)
    lines = [process.stdout.readline() for process in (first, second)]
    for line in lines:
        assert line.startswith("gputrace agent: ")
        assert driver.GPU0 in line
        assert driver.GPU1 in line
        assert "NVIDIA H100" in line
    name = lines[0].removeprefix("gputrace agent: ").partition(" reads ")[0]
    status, _, errors = ended(second)
    assert status == 0
    assert errors == (
        f"gputrace agent: another one publishes this node ({name}); this one takes over when that ends\n"
    )
    assert ended(first)[::2] == (0, "")


def test_a_driver_that_mismatches_is_told_of_in_words(run_python, tmp_path, node):
    script = tmp_path / "driver.txt"
    script.write_text("gpus 2\nfail nvmlInitWithFlags - 18")
    process = run_python.start(program("--data", "data"), NVML_STAND_IN=str(script), **node)
    line = process.stdout.readline()
    status, _, errors = ended(process)
    assert status == 0
    assert line.endswith(" reads no device\n")
    assert errors.startswith("gputrace agent: the driver is not read: ")
    assert "version" in errors
    assert errors.endswith("It is asked again from time to time.\n")
    assert errors.count("\n") == 1


def test_where_the_node_cannot_be_shared_it_says_so(run_python, tmp_path, node):
    (tmp_path / "file").touch()
    process = run_python.start(
        program("--data", "data"), **{**node, "GPUTRACE_NODE_DIR": str(tmp_path / "file" / "node")}
    )
    process.stdout.readline()
    status, _, errors = ended(process)
    assert status == 0
    assert "gputrace agent: programs on this node are not seen: " in errors


@pytest.mark.parametrize(
    ("arguments", "variables", "names"),
    [
        ((), {"GPUTRACE_EXPORT_INTERVAL": "often"}, "GPUTRACE_EXPORT_INTERVAL"),
        (("--prices", "missing.toml"), {}, "missing.toml"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line(run_python, node, arguments, variables, names):
    ran = run_python(program(*arguments), code=command.FAILED, **node, **variables)
    assert ran.stdout == ""
    assert ran.stderr.startswith("gputrace agent: ")
    assert names in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_where_telemetry_is_disabled_it_says_so_and_publishes_nothing(run_python, tmp_path, node):
    ran = run_python(program("--data", "data"), code=command.FAILED, OTEL_SDK_DISABLED="true", **node)
    assert ran.stderr == "gputrace agent: OTEL_SDK_DISABLED is set: nothing is published\n"
    assert not (tmp_path / "node").exists()
    assert not (tmp_path / "data").exists()
