"""A real BentoML service: its batches are split among the requests that were put into them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import gputrace
from gputrace import baggage

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.serve, pytest.mark.requires("bentoml")]

KEY = "a-key-that-services-share"
PROGRAM = Path(__file__).with_name("bentoml_program.py")
READY_S = 60
FEATURES = ("search", "chat", "mail")
REQUESTS = 60


def wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{address}/readyz", timeout=2).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    pytest.fail(f"not ready\n{log.read_text()[-4_000:]}")


@pytest.fixture
def server(tmp_path: Path, free_port: int) -> Iterator[tuple[str, Path]]:
    log, data = tmp_path / "log", tmp_path / "data"
    environment = {
        **os.environ,
        "GPUTRACE_BAGGAGE_KEY": KEY,
        "DOUBLER_DATA": str(data),
        "BENTOML_HOME": str(tmp_path / "home"),
        "BENTOML_DO_NOT_TRACK": "true",
    }
    command = [sys.executable, "-m", "bentoml", "serve", f"{PROGRAM.stem}:Doubler"]
    options = [f"--port={free_port}", "--host=127.0.0.1", f"--working-dir={PROGRAM.parent}"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, *options], env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{free_port}", process, log)
        yield f"http://127.0.0.1:{free_port}", data
    finally:
        # Its workers are in groups of their own: it ends them, where it is let.
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def ask(address: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        waiting = []
        for number in range(REQUESTS):
            headers: dict[str, str] = {}
            with gputrace.attribute_to(feature=FEATURES[number % 3]):
                gputrace.inject(headers)
            waiting.append(client.post(path, json={"values": [number, 1.0]}, headers=headers))
        for number, response in enumerate(await asyncio.gather(*waiting)):
            assert response.raise_for_status().json() == [2.0 * number, 2.0]


@pytest.mark.parametrize(("method", "operation"), [("threaded", "Doubler.threaded"), ("awaited", "multiply")])
def test_batches_are_split_among_their_requests(
    method: str, operation: str, server: Any, read_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data = server
    monkeypatch.setenv("GPUTRACE_BAGGAGE_KEY", KEY)
    monkeypatch.setattr(baggage, "_policy", None)
    asyncio.run(ask(address, f"/{method}"))
    batch = f"batch Doubler.{method}"
    end = time.monotonic() + 30
    while time.monotonic() < end:
        files = read_files(data)
        if sum(files.total("gputrace.request.calls", feature=feature) for feature in FEATURES) == REQUESTS:
            break
        time.sleep(0.2)
    batches = files.total("gputrace.calls", operation=batch)
    # One of two rows is split where a batch has room for one.
    assert files.total("gputrace.batch.members") >= REQUESTS
    assert batches < REQUESTS
    # All that was computed is billed, to those who asked alone.
    whole = files.total("gputrace.feature.time", operation=operation)
    by_feature = [files.total("gputrace.feature.time", operation=operation, feature=one) for one in FEATURES]
    assert whole >= batches * 0.01
    assert sum(by_feature) == pytest.approx(whole)
    assert min(by_feature) > 0
    # A container, and what waits in it holds nothing.
    assert files.total("gputrace.feature.time", operation=batch) == 0
