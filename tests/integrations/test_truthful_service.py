"""A real service, real servers and a real client: what was charged is what the GPU's own log says.

The split of the log is written here, by brute force, and shares nothing with gputrace.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.requires("fastapi", "httpx", "uvicorn")

HERE = Path(__file__).resolve().parent
ROUTES = (
    "/sync/1",
    "/async/2",
    "/tagged",
    "/extra",
    "/dependency?product=chat",
    "/dependency?product=search",
    "/yielding",
    "/stream",
    "/sync-stream",
    "/background",
    "/error",
    "/below/items/a",
    "/batched?product=chat&tokens=100",
    "/batched?product=search&tokens=50",
    "/batched?product=summary&tokens=25",
)
ROUNDS = 8
PERIOD_S = 1


class Service:
    """One server that runs the service in a folder of its own."""

    def __init__(self, folder: Path, port: int, *command: str, **variables: str) -> None:
        self.folder = folder
        self.port = port
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        environment |= {"PYTHONPATH": str(HERE), "GPUTRACE_NODE_DIR": str(folder / "node"), **variables}
        self._output = (folder / "output.txt").open("w+")
        self._errors = (folder / "errors.txt").open("w+")
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stderr=self._errors, stdout=self._output
        )

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self._output.close()
            self._errors.close()

    @property
    def errors(self) -> str:
        return (self.folder / "errors.txt").read_text()

    def truth(self) -> list[dict[str, Any]]:
        return [
            {**call, "process": path.name}
            for path in sorted(self.folder.glob("truth-*.json"))
            for call in json.loads(path.read_text())
        ]


async def drive(port: int, rounds: int = ROUNDS) -> None:
    """Requests of all kinds at once, several times; some clients leave early."""
    import httpx

    # A server closes the connection after an error, and a client may not have noticed when it uses it again.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits) as client:
        for _ in range(600):
            try:
                await client.get("/openapi.json")
                break
            except httpx.TransportError:
                await asyncio.sleep(0.05)

        async def leaves() -> None:
            async with client.stream("GET", "/stream") as answer:
                async for _ in answer.aiter_bytes():
                    return

        for _ in range(rounds):
            answers = await asyncio.gather(*(client.get(route) for route in ROUTES), leaves())
            codes = [answer.status_code for answer in answers if answer is not None]
            assert sorted(set(codes)) == [200, 500]
            assert codes.count(500) == 1


def intervals(truth: list[dict[str, Any]]) -> list[tuple[int, int, Any, dict[str, Any]]]:
    """(start, end, owner, call) of each call: from its first event to its last, in true time."""
    found = []
    for call in truth:
        events = [start for kind, start, _ in call["entries"] if kind == "event"]
        assert len(events) == 2, call
        found.append((events[0], events[1], (call["process"], call["owner"]), call))
    return found


def brute_force(found: list[tuple[int, int, Any, dict[str, Any]]]) -> dict[str, Fraction]:
    """Return what each call is charged, ns: owners share every moment alike, and so do the calls of one."""
    charged: dict[str, Fraction] = collections.defaultdict(Fraction)
    instants = sorted({at for start, end, *_ in found for at in (start, end)})
    ordered = sorted(found, key=lambda one: one[0])
    active: list[tuple[int, int, Any, dict[str, Any]]] = []
    following = 0
    for begin, end in itertools.pairwise(instants):
        while following < len(ordered) and ordered[following][0] <= begin:
            active.append(ordered[following])
            following += 1
        active = [one for one in active if one[1] > begin]
        owners = collections.Counter(one[2] for one in active)
        for _, _, owner, call in active:
            charged[call["id"]] += Fraction(end - begin, len(owners) * owners[owner])
    return charged


def by_feature(truth: list[dict[str, Any]], charged: dict[str, Fraction]) -> dict[str, float]:
    """Return s by feature; of a batch, by the tokens of its members."""
    summed: dict[str, Fraction] = collections.defaultdict(Fraction)
    for call in truth:
        members = call.get("members") or [[call.get("feature"), 1]]
        whole = sum(weight for _, weight in members)
        for feature, weight in members:
            summed[feature] += charged[call["id"]] * Fraction(weight, whole)
    return {feature: float(ns) / 1e9 for feature, ns in summed.items()}


def assert_true(service: Service, files: Any, *, named: bool = True) -> None:
    truth = service.truth()
    assert truth, service.errors
    expected = {}
    for name in {call["process"] for call in truth}:
        of_process = [call for call in truth if call["process"] == name]
        expected |= brute_force(intervals(of_process))
    spans = {
        span["attributes"]["gputrace.call.id"]: float(span["attributes"]["gputrace.call.device.time"]) * 1e9
        for span in files.spans
        if "gputrace.call.device.time" in span["attributes"]
        and "gputrace.call.held.time" in span["attributes"]
    }
    wrong = {
        call: (spans.get(call), float(ns))
        for call, ns in expected.items()
        # A microsecond, and what the map of the device's clock to the host's may bend by: 500 ppm.
        if call not in spans or abs(spans[call] - ns) > 1_000 + ns / 2_000
    }
    assert not wrong, (len(wrong), len(expected), list(wrong.items())[:5])
    if named:
        found: dict[str, float] = collections.defaultdict(float)
        for (_, attributes), values in files.values("gputrace.feature.time").items():
            found[dict(attributes)["gputrace.feature"]] += values[-1]
        assert {name for name, spent in found.items() if spent} == set(by_feature(truth, expected))
        for feature, seconds in by_feature(truth, expected).items():
            assert found[feature] == pytest.approx(seconds, rel=5e-4, abs=1e-6), feature
    # Every call exactly: no more, no fewer.
    counted = sum(
        values[-1]
        for (_, attributes), values in files.values("gputrace.calls").items()
        if dict(attributes)["gputrace.operation"].startswith(("run ", "batch"))
    )
    assert counted == len(truth)


def uvicorn(port: int, *more: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "uvicorn", "truthful_service:app", "--port", str(port), *more)


def test_charges_are_what_the_log_of_the_gpu_says(tmp_path: Path, free_port: int, read_files: Any) -> None:
    service = Service(tmp_path, free_port, *uvicorn(free_port))
    try:
        asyncio.run(drive(free_port))
    finally:
        service.stop()
    files = read_files(tmp_path / "data")
    assert_true(service, files)
    requests = {
        (dict(of)["http.route"], dict(of)["gputrace.status"]): values[-1]
        for (_, of), values in files.values("gputrace.requests").items()
    }
    assert requests["/sync/{number}", "ok"] == ROUNDS
    assert requests["/below/items/{item}", "ok"] == ROUNDS
    assert requests["/error", "error"] == ROUNDS
    assert requests["/stream", "ok"] + requests.get(("/stream", "cancelled"), 0) == 2 * ROUNDS
    calls = {
        dict(of)["http.route"]: values[-1]
        for (_, of), values in files.values("gputrace.request.calls").items()
    }
    assert calls["/sync/{number}"] == 2 * ROUNDS
    # What runs in the background is no part of its request.
    assert calls["/background"] == ROUNDS


def test_the_same_with_four_workers(tmp_path: Path, free_port: int, read_files: Any) -> None:
    service = Service(tmp_path, free_port, *uvicorn(free_port, "--workers", "4"))
    try:
        asyncio.run(drive(free_port))
    finally:
        service.stop()
    assert service.process.returncode in {0, -signal.SIGTERM}, service.errors
    files = read_files(tmp_path / "data")
    assert_true(service, files)
    assert len({call["process"] for call in service.truth()}) > 1


def test_the_same_under_gunicorn_that_forks_its_workers(
    tmp_path: Path, free_port: int, read_files: Any
) -> None:
    command = (sys.executable, "-m", "gunicorn", "truthful_service:app", "-k", "uvicorn_worker.UvicornWorker")
    service = Service(tmp_path, free_port, *command, "-w", "3", "-b", f"127.0.0.1:{free_port}")
    try:
        asyncio.run(drive(free_port))
    finally:
        service.stop()
    assert service.process.returncode == 0, service.errors
    assert_true(service, read_files(tmp_path / "data"))


ROUTE_OF_FEATURE = {
    "sync": "/sync/{number}",
    "tagged": "/tagged",
    "extra": "/extra",
    "chat": "/dependency",
    "search": "/dependency",
    "yielding": "/yielding",
    "stream": "/stream",
    "background": "/background",
    "/below/items/{item}": "/below/items/{item}",
}


def by_route(truth: list[dict[str, Any]], charged: dict[str, Fraction]) -> dict[str, tuple[int, float]]:
    """Return calls and s by route; what runs in the background is no part of a request."""
    calls: dict[str, int] = collections.defaultdict(int)
    spent: dict[str, Fraction] = collections.defaultdict(Fraction)
    for call in truth:
        if call["model"] == "later":
            continue
        members = len(call.get("members", ()))
        route = "/batched" if members else ROUTE_OF_FEATURE.get(call["feature"], call["feature"])
        calls[route] += members or 1
        spent[route] += charged[call["id"]]
    return {route: (calls[route], float(spent[route]) / 1e9) for route in calls}


def exported(text: str) -> dict[tuple[str, str], float]:
    """Return the last values that the console exporter wrote, by metric and route."""
    decoder = json.JSONDecoder()
    found: dict[tuple[str, str], dict[str, float]] = collections.defaultdict(dict)
    at = text.find("{")
    while at >= 0:
        entry, end = decoder.raw_decode(text, at)
        for resource in entry.get("resource_metrics", ()):
            for scope in resource["scope_metrics"]:
                for metric in scope["metrics"]:
                    for point in metric["data"]["data_points"]:
                        route = point["attributes"].get("http.route")
                        if route is not None and "value" in point:
                            key = json.dumps(point["attributes"], sort_keys=True)
                            found[metric["name"], route][key] = point["value"]
        at = text.find("{", end)
    return {key: sum(values.values()) for key, values in found.items()}


def test_opentelemetry_instrument_gives_the_same_numbers_by_route(tmp_path: Path, free_port: int) -> None:
    """The same service without a line of code that sets gputrace up."""
    program = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    options = ("--traces_exporter", "none", "--metrics_exporter", "console", "--logs_exporter", "none")
    options += ("--metric_export_interval", f"{1_000 * PERIOD_S}")
    service = Service(
        tmp_path, free_port, program, *options, *uvicorn(free_port), INSTRUMENTED="opentelemetry"
    )
    try:
        asyncio.run(drive(free_port))
        # A machine that is busy with other tests may not export it all in the time that an exit has.
        time.sleep(2 * PERIOD_S)
    finally:
        service.stop()
    truth = service.truth()
    expected = by_route(truth, brute_force(intervals(truth)))
    found = exported((tmp_path / "output.txt").read_text())
    for route, (calls, seconds) in expected.items():
        assert found["gputrace.request.calls", route] == calls, route
        assert found["gputrace.request.time", route] == pytest.approx(seconds, rel=5e-4, abs=1e-6), route
