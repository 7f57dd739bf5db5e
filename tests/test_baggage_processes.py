"""Two real services and an HTTP hop: the model server bills what its caller works for."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.requires("uvicorn", "httpx")

KEY = "a-key-that-services-share"
HANG_S = 60.0

SERVICE = """
import json
import os

import gputrace
import httpx
import uvicorn
from gputrace import baggage
from opentelemetry import propagate

TRUST = {
    "nobody": {},
    "key": {"baggage_key": os.environ.get("KEY")},
    "predicate": {
        "trusted_baggage": ("gputrace.feature",),
        "trust": lambda scope: (b"x-mesh-peer", b"front") in scope["headers"],
    },
}
gputrace.configure(data_dir=os.environ["FOLDER"], **TRUST[os.environ["TRUST"]])


@gputrace.track(model="minilm")
def model():
    return gputrace.current().feature, gputrace.current().tenant


async def propagated(request):
    # What instrumentations of HTTP clients do.
    propagate.inject(request.headers)


async def ask_model_server():
    headers, hooks = {"x-mesh-peer": "front", "baggage": "user=7,gputrace.tenant=evil"}, {}
    if os.environ["SENDS"] == "inject":
        gputrace.inject(headers)
    else:
        hooks = {"request": [propagated]}
    async with httpx.AsyncClient(event_hooks=hooks) as client:
        return (await client.get(os.environ["MODEL_SERVER"], headers=headers)).json()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for stage in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{stage}"
            if stage == "shutdown":
                gputrace.shutdown()
            await send({"type": f"lifespan.{stage}.complete"})
        return
    with gputrace.attribute_to(**baggage.incoming(scope["headers"], scope)):
        if scope["path"] == "/answer":
            with gputrace.attribute_to(feature="support answer", tenant="acme"):
                found = await ask_model_server()
        else:
            found = model()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(found).encode()})


uvicorn.run(app, port=int(os.environ["PORT"]), log_level="warning")
"""


class Services:
    """Real servers, each a process."""

    def __init__(self, program: Any, free_port: Callable[[], int]) -> None:
        self._program = program
        self._free_port = free_port
        self._started: list[Any] = []

    def start(self, **variables: str) -> str:
        """Its URL, once it answers."""
        import httpx

        port = self._free_port()
        process = self._program.start(SERVICE, PORT=str(port), **variables)
        self._started.append(process)
        deadline = time.monotonic() + HANG_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/health")
                return f"http://127.0.0.1:{port}"
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> list[str]:
        """End them as servers are, by SIGTERM; returns what each wrote to its error output."""
        for process in self._started:
            process.send_signal(signal.SIGTERM)
        return [process.communicate(timeout=HANG_S)[1] for process in self._started]

    def kill(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def services(run_python: Any, unused_tcp_port_factory: Callable[[], int]) -> Iterator[Services]:
    found = Services(run_python, unused_tcp_port_factory)
    yield found
    found.kill()


@pytest.mark.parametrize(
    ("sends", "trusts", "reason"),
    [
        ("inject", "key", "unsigned"),
        ("propagator", "key", "unsigned"),
        ("inject", "predicate", "refused"),
    ],
)
def test_a_model_server_behind_an_http_hop_bills_its_callers_feature(  # noqa: PLR0913 - three are one case
    sends: str, trusts: str, reason: str, services: Services, tmp_path: Path, read_files: Any
) -> None:
    import httpx

    key = {"KEY": KEY} if trusts == "key" else {}
    behind = services.start(FOLDER="behind", TRUST=trusts, **key)
    front = services.start(
        FOLDER="front",
        TRUST=trusts if key else "nobody",
        SENDS=sends,
        MODEL_SERVER=behind,
        OTEL_PROPAGATORS="tracecontext,gputrace",
        **key,
    )
    # A client's word is worth nothing, at either door.
    forged = {"baggage": "gputrace.feature=evil,gputrace.tenant=evil"}
    for _ in range(3):
        assert httpx.get(f"{front}/answer", headers=forged).json() == ["support answer", None]
    for _ in range(2):
        assert httpx.get(behind, headers=forged).json() == ["__none__", None]
    said = services.stop()
    found = read_files(tmp_path / "behind")
    calls = {name: found.total("gputrace.calls", feature=name) for name in ("support answer", "evil")}
    assert calls == {"support answer": 3, "evil": 0}
    # The two forged ones, and the one that asked whether the service is there.
    assert found.total("gputrace.calls", feature="__none__") == 3
    assert found.total("gputrace.sdk.untrusted", reason=reason) == 2
    assert said[0].count("ignored the baggage of a request") == 1
    assert "evil" not in "".join(said)
