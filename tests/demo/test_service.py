from __future__ import annotations

import gc
import json
import os
import pty
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.demo.hosting import Hosting
    from gputrace.demo.models import Models
    from gputrace.demo.truth import Stopwatch

pytestmark = pytest.mark.requires("torch", "sklearn", "fastapi", "uvicorn", "httpx")


@pytest.fixture(scope="module")
def stopwatches() -> dict[str, Stopwatch]:
    from gputrace.demo.service import FEATURES
    from gputrace.demo.truth import Stopwatch

    return {feature: Stopwatch() for feature in FEATURES}


@pytest.fixture(scope="module")
def hosting(models: Models, stopwatches: dict[str, Stopwatch]) -> Iterator[Hosting]:
    from gputrace.demo.escalation import Desk
    from gputrace.demo.hosting import Hosting
    from gputrace.demo.service import create_service
    from gputrace.demo.truth import Stopwatch

    desk = Desk.over(models, 0, Stopwatch())
    with Hosting(create_service(models, stopwatches, desk)) as running:
        yield running


def clients(url: str, requests: int, errors: int = subprocess.PIPE) -> subprocess.Popen[str]:
    from gputrace.demo.service import FEATURES

    command = [sys.executable, "-m", "gputrace.demo.load", "--url", url, "--requests", str(requests)]
    for feature in FEATURES:
        command += ["--feature", feature]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)


def examples(models: Models) -> str:
    return json.dumps([(one.pixels, one.label) for one in models.unseen])


def test_load_against_the_service(
    models: Models, hosting: Hosting, stopwatches: dict[str, Stopwatch]
) -> None:
    before = {feature: watch.total_s for feature, watch in stopwatches.items()}
    with clients(hosting.url, 300) as sending:
        answer, errors = sending.communicate(examples(models), timeout=60)
    assert sending.returncode == 0, errors
    assert errors == "", "no bar where nobody looks"
    tallies: dict[str, dict[str, int]] = json.loads(answer)
    assert {tally["answered"] for tally in tallies.values()} == {100}
    assert {tally["failed"] for tally in tallies.values()} == {0}
    assert tallies["scan-preview"]["escalated"] == tallies["archive-audit"]["escalated"] == 0
    assert 0 < tallies["form-entry"]["escalated"] < 60
    assert tallies["archive-audit"]["correct"] >= 95
    assert tallies["form-entry"]["correct"] > tallies["scan-preview"]["correct"]
    spent = {feature: watch.total_s - before[feature] for feature, watch in stopwatches.items()}
    assert all(seconds > 0 for seconds in spent.values())


def test_load_shows_a_bar_on_a_terminal(models: Models, hosting: Hosting) -> None:
    terminal, its_end = pty.openpty()
    with clients(hosting.url, 30, errors=its_end) as sending:
        sending.communicate(examples(models), timeout=60)
    os.close(its_end)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "30/30" in shown


def test_load_stopped_early_says_what_it_got(
    models: Models, hosting: Hosting, stopwatches: dict[str, Stopwatch]
) -> None:
    before = stopwatches["form-entry"].total_s
    with clients(hosting.url, 100_000) as sending:
        assert sending.stdin is not None
        sending.stdin.write(examples(models))
        sending.stdin.close()
        sending.stdin = None
        while stopwatches["form-entry"].total_s == before:
            time.sleep(0.01)
        sending.terminate()
        answer, errors = sending.communicate(timeout=60)
    assert sending.returncode == 0, errors
    tallies: dict[str, dict[str, int]] = json.loads(answer)
    assert 0 < sum(tally["answered"] for tally in tallies.values()) < 100_000


def test_load_ends_when_the_service_is_gone(models: Models, free_port: int) -> None:
    with clients(f"http://127.0.0.1:{free_port}", 10_000) as sending:
        answer, errors = sending.communicate(examples(models), timeout=60)
    assert sending.returncode == 0, errors
    assert 0 < sum(tally["failed"] for tally in json.loads(answer).values()) < 100


@pytest.mark.parametrize("body", [{}, {"pixels": [0] * 63}, {"pixels": ["ink"] * 64}, [0] * 64])
def test_what_is_no_scan_is_refused(hosting: Hosting, body: Any) -> None:
    import httpx

    assert httpx.post(f"{hosting.url}/scan-preview", json=body, trust_env=False).status_code == 422


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_does_not_start_is_no_riddle() -> None:
    from gputrace.demo import hosting

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "on purpose"})

    served = hosting.Hosting(broken)
    with pytest.raises(RuntimeError, match="did not start"):
        served.__enter__()
    # uvicorn leaves its thread by SystemExit, which belongs to this test and to no later one.
    served._thread.join(10)
    gc.collect()
