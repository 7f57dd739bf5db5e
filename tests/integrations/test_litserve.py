"""A real LitServe: a batch that a worker predicts is split among the requests that another process got."""

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

pytestmark = [pytest.mark.serve, pytest.mark.requires("litserve")]

KEY = "a-key-that-services-share"
PROGRAM = Path(__file__).with_name("litserve_program.py")
READY_S = 60
FEATURES = ("search", "chat", "mail")


def wait_until(address: str, path: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(address + path, timeout=2).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    pytest.fail(f"not ready\n{log.read_text()[-4_000:]}")


@pytest.fixture
def server(tmp_path: Path, free_port: int) -> Iterator[tuple[str, Path]]:
    log, data = tmp_path / "log", tmp_path / "data"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(free_port), str(data)],
            env={**os.environ, "GPUTRACE_BAGGAGE_KEY": KEY},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_until(f"http://127.0.0.1:{free_port}", "/health", process, log)
        yield f"http://127.0.0.1:{free_port}", data
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def ask(address: str) -> list[dict[str, int]]:
    """Twelve at once, by turns for each feature, of which one writes into the JSON whom it would bill."""
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        waiting = []
        for number in range(12):
            headers: dict[str, str] = {}
            with gputrace.attribute_to(feature=FEATURES[number % 3]):
                gputrace.inject(headers)
            body = {"value": 1 + number % 3}
            if number == 0:
                body["__gputrace__"] = {"feature": "spoofed"}  # type: ignore[assignment]
            waiting.append(client.post("/predict", json=body, headers=headers))
        return [response.raise_for_status().json() for response in await asyncio.gather(*waiting)]


def test_a_batch_is_split_among_its_requests(
    server: tuple[str, Path], read_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data = server
    monkeypatch.setenv("GPUTRACE_BAGGAGE_KEY", KEY)
    monkeypatch.setattr(baggage, "_policy", None)
    assert sorted(one["doubled"] for one in asyncio.run(ask(address))) == sorted([2, 4, 6] * 4)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        files = read_files(data)
        if files.total("gputrace.batch.members") == 12 and files.total(
            "gputrace.calls", operation="multiply"
        ):
            break
        time.sleep(0.2)
    # By what each weighs: 1, 2 and 3.
    whole = files.total("gputrace.feature.time")
    assert whole > 0
    for number, feature in enumerate(FEATURES):
        charged = files.total("gputrace.feature.time", feature=feature)
        assert charged == pytest.approx(whole * (number + 1) / 6, abs=1e-8)
    assert files.total("gputrace.feature.time", feature="spoofed") == 0
    assert files.total("gputrace.feature.time", operation="multiply", feature="mail") > 0
