"""What a test may need beyond Python, and what happens where that is missing.

`@pytest.mark.requires("prometheus", "torch")` names what a test needs. Without it the test is skipped and
says what is missing; with `GPUTRACE_REQUIRE=all`, as in CI, the same skip is a failure, so that nothing goes
untested unseen. Only a GPU may be missing there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
SERVERS = ("prometheus", "promtool", "victoria-metrics")
PROGRAMS = ("chromium",)
MODULES = ("fastapi", "httpx", "ray", "sklearn", "torch", "uvicorn")

# What gputrace would contain in a user's program must fail its own tests, in their subprocesses too.
os.environ["GPUTRACE_RAISE_FAULTS"] = "1"

# A slow machine is no failure: no test judges time, hypothesis neither. CI tries the same examples each time,
# so that it judges the change; new ones are tried wherever else the tests run.
hypothesis.settings.register_profile("gputrace", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("gputrace")


def everything_required() -> bool:
    return os.environ.get("GPUTRACE_REQUIRE") == "all"


def program(name: str) -> str | None:
    """The path of a server or another program: as `make servers` leaves them, else from PATH."""
    folder = Path(os.environ.get("GPUTRACE_SERVERS", ROOT / ".servers"))
    return shutil.which(name, path=os.pathsep.join([str(folder / "bin"), str(folder)])) or shutil.which(name)


def missing(name: str) -> str | None:
    """Why a test that needs `name` cannot run here, or None."""
    if name in SERVERS:
        return None if program(name) else f"no {name}: `make servers`, or put it on PATH"
    if name in PROGRAMS:
        return None if program(name) else f"no {name} on PATH"
    if name in MODULES:
        return None if importlib.util.find_spec(name) else f"no module {name}: install gputrace[all]"
    if name == "shared":
        return None if SHARED.is_dir() else "no ../shared beside the checkout"
    if name == "gpu":
        found = shutil.which("nvidia-smi") and importlib.util.find_spec("torch")
        return None if found else "no GPU: needs an NVIDIA driver and torch"
    msg = f"unknown requirement {name!r}: tests/conftest.py lists them"
    raise pytest.UsageError(msg)


def need(*names: str) -> None:
    """Skip the running test, or fail it where everything is required, unless all of `names` are here."""
    reasons = [reason for name in names if (reason := missing(name))]
    if not reasons:
        return
    if everything_required() and "gpu" not in names:
        pytest.fail(f"GPUTRACE_REQUIRE=all: {'; '.join(reasons)}", pytrace=False)
    pytest.skip("; ".join(reasons))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        need("gpu")
    for marker in item.iter_markers("requires"):
        need(*marker.args)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole file that skips itself (`importorskip` at its top) would escape the rule above."""
    report = yield
    if report.skipped and everything_required() and "gpu" not in collector.path.parts:
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """So would `pytest.skip()` inside a test; `skipif` stays free to name a platform or a Python version."""
    report = yield
    excused = any(item.get_closest_marker(name) for name in ("skipif", "gpu"))
    if report.skipped and not hasattr(report, "wasxfail") and everything_required() and not excused:
        report.outcome = "failed"
    return report


class Servers:
    """Paths of server programs, by name; asking for one that is missing skips the test."""

    def __getitem__(self, name: str) -> str:
        need(name)
        path = program(name)
        assert path is not None
        return path


@pytest.fixture(scope="session")
def servers() -> Servers:
    """`servers["prometheus"]` is the path of that program."""
    return Servers()


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """`needs("torch")` is the `requires` marker for a test that learns only on the way what it needs."""
    return need


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measured data beside the checkout."""
    need("shared")
    return SHARED


@pytest.fixture
def free_port() -> int:
    """A loopback port that nobody listens on; `unused_tcp_port_factory` gives several."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
