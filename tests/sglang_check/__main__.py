"""Runs a real SGLang server on a processor with gputrace in it, and checks what it says: `make sglang-check`.

    python tests/sglang_check [run ...]

SGLang's own engine, scheduler, overlapped scheduling, prefix cache and HTTP server; the model is tiny, its
weights are made up, and the kernels are torch's.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "vllm_check"))

import model
import readings

import gputrace

HERE = Path(__file__).resolve().parent
#: With which clients sign their baggage.
KEY = "serve-check-" * 3
RUNS: dict[str, tuple[list[str], dict[str, str]]] = {
    "overlap": ([], {}),
    "plain": (["--disable-overlap-schedule"], {}),
    "retracted": ([], {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "4"}),
}
FEATURES = ("rag", "chat", "classify")
#: Of which the server does not tell all: clients that go, and several answers to a prompt computed first.
OTHERS = ("gone", "several")
_PATIENCE_S = 300.0
_SHARED = 64


class Sent(NamedTuple):
    """One request of a client, and what the server said of it."""

    feature: str | None
    body: dict[str, Any]
    headers: dict[str, str]
    gone: bool = False


def main() -> int:
    """Run what was named, or everything; return 1 where something did not hold."""
    failed = 0
    # Clients say their tenant where it was opted in.
    os.environ.update(GPUTRACE_BAGGAGE_KEY=KEY, GPUTRACE_METRIC_ATTRIBUTES="tenant")
    for name in sys.argv[1:] or list(RUNS):
        folder = Path.cwd() / "build" / "sglang-check" / name
        shutil.rmtree(folder, ignore_errors=True)
        tiny = model.make(folder / "model")
        print(f"{name}:")
        planned = _plan()
        answers = _served(tiny, folder, *RUNS[name], planned)
        failed += not _checked(folder, planned, answers, retracted=bool(RUNS[name][1]))
    return 1 if failed else 0


def _plan(count: int = 30) -> list[Sent]:
    chance = random.Random(3)
    shared = [chance.randrange(3, model.WORDS) for _ in range(_SHARED)]
    planned = []
    for number in range(count):
        feature = None if number % 7 == 6 else FEATURES[number % 3]
        own = [chance.randrange(3, model.WORDS) for _ in range(chance.randint(4, 60))]
        gone, several = number % 10 == 8, number % 10 == 3
        if feature is not None:
            feature = "gone" if gone else "several" if several else feature
        params = {"max_new_tokens": 200 if gone else chance.randint(1, 20), "ignore_eos": True}
        if several:
            params["n"] = 2
        if number % 5 == 1:
            # As any client can.
            params["custom_params"] = {"gputrace": {"feature": "stolen", "tenant": "victim"}}
        headers: dict[str, str] = {"traceparent": f"00-{0x5EED_0000 + number:032x}-{1:016x}-01"}
        if feature is not None:
            with gputrace.attribute_to(feature=feature, tenant="acme"):
                gputrace.inject(headers)
        prompt = (shared if feature == "rag" else []) + own
        planned.append(Sent(feature, {"input_ids": prompt, "sampling_params": params}, headers, gone))
    return planned


def _served(
    tiny: Path, folder: Path, options: list[str], variables: dict[str, str], planned: list[Sent]
) -> list[Any]:
    """Start a server, send everything, stop it; return the answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "sglang.launch_server", "--model-path", str(tiny)),
                *("--served-model-name", "tiny", "--load-format", "dummy", "--device", "cpu"),
                *("--dtype", "float32", "--attention-backend", "torch_native"),
                *("--sampling-backend", "pytorch", "--grammar-backend", "none", "--disable-cuda-graph"),
                *("--max-total-tokens", "800", "--chunked-prefill-size", "64", "--enable-mixed-chunk"),
                *("--host", "127.0.0.1", "--port", str(port), *options),
            ],
            env={**os.environ, **_environment(folder), **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, url, folder / "server.log")
            answers = asyncio.run(_send_all(url, planned))
            # What is exported when work pauses.
            sleep(3)
            return answers
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _environment(folder: Path) -> dict[str, str]:
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE / "stand_ins"), os.environ.get("PYTHONPATH", "")]),
        "GPUTRACE_DATA_DIR": str(folder / "data"),
        "GPUTRACE_NODE_DIR": str(folder / "node"),
        "OTEL_SERVICE_NAME": "sglang",
    }


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = monotonic() + _PATIENCE_S
    while monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{url}/health_generate", timeout=30) as answer:  # noqa: S310 - started above
                if answer.status == 200:
                    return
        except (URLError, OSError):
            sleep(0.5)
    message = f"SGLang did not come up within {_PATIENCE_S:g} s:\n{log.read_text()[-4000:]}"
    raise RuntimeError(message)


async def _send_all(url: str, planned: list[Sent]) -> list[Any]:
    limit = asyncio.Semaphore(8)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:

        async def one(sent: Sent) -> Any:
            async with limit:
                body = {**sent.body, "stream": sent.gone}
                async with session.post(f"{url}/generate", json=body, headers=sent.headers) as answer:
                    answer.raise_for_status()
                    if not sent.gone:
                        return await answer.json()
                    async for line in answer.content:
                        if line.strip():
                            break
                    answer.close()
                    return None

        return await asyncio.gather(*(one(sent) for sent in planned))


def _checked(folder: Path, planned: list[Sent], answers: list[Any], *, retracted: bool) -> bool:
    found: list[bool] = []

    def check(holds: bool, what: str) -> None:
        print(f"  {'ok  ' if holds else 'FAIL'} {what}")
        found.append(holds)

    metrics = readings.Metrics(folder / "data")
    tokens = metrics.by("gputrace.step.tokens", "gputrace.feature", "gputrace.step.kind")
    for feature in FEATURES:
        check(*_tokens(tokens, feature, planned, answers))
    rows = set(metrics.by("gputrace.feature.time", "gputrace.feature", "gputrace.tenant"))
    known = {(one, "acme") for one in (*FEATURES, *OTHERS)} | {("__none__", "")}
    check(rows == known, f"time of {sorted(rows)}: nobody's is stolen")
    check(not metrics.by("gputrace.sdk.unmeasured", "gputrace.sdk.reason"), "nothing is unmeasured")
    again = sum(value for (_, kind), value in tokens.items() if kind == "recomputed")
    check(bool(again) == retracted, f"{again:.0f} tokens computed again")
    spans = [one for one in readings.spans(folder / "data") if one["name"] == "sglang generate"]
    ended = sum(one["attributes"].get("gputrace.status") == "cancelled" for one in spans)
    gone = sum(sent.gone for sent in planned)
    check(ended == gone, f"{ended} requests cancelled, of which {gone} clients went")
    own = {int(one["traceId"], 16) for one in spans}
    check(
        {0x5EED_0000 + number for number in range(len(planned))} <= own,
        f"{len(spans)} spans, in the trace of each request",
    )
    return all(found)


def _tokens(
    tokens: dict[tuple[str, ...], float], feature: str, planned: list[Sent], answers: list[Any]
) -> tuple[bool, str]:
    """Compare what was computed for a feature with what the server told its clients."""
    told = [
        answer["meta_info"] for sent, answer in zip(planned, answers, strict=True) if sent.feature == feature
    ]
    kinds = {kind: value for (name, kind), value in tokens.items() if name == feature}
    cached = sum(one["cached_tokens"] for one in told)
    expected = {
        "prefill": sum(one["prompt_tokens"] for one in told) - cached + kinds.get("recomputed", 0),
        "cached": cached,
        "decode": sum(one["completion_tokens"] - 1 for one in told),
    }
    seen = {kind: kinds.get(kind, 0) for kind in expected}
    return seen == expected, f"{feature}: {seen} in steps, {expected} told to clients"


if __name__ == "__main__":
    sys.exit(main())
