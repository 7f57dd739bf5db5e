"""A real uvicorn, stopped by SIGTERM as in production, with and without code for gputrace."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.requires("fastapi", "httpx", "uvicorn")

SERVICE = """
import asyncio, sys, time
import uvicorn
import gputrace
from fastapi import BackgroundTasks, FastAPI
from fastapi.responses import StreamingResponse

{configured}
app = FastAPI()

@gputrace.track
def work():
    time.sleep(0.001)

@app.get("/plain/{{number}}")
def plain(number: int, background: BackgroundTasks):
    work()
    background.add_task(work)

@app.get("/stream")
@gputrace.feature("stream")
async def stream():
    async def parts():
        for number in range(10_000):
            work()
            yield "x" * 10_000
            await asyncio.sleep(0.01)
    return StreamingResponse(parts())

{instrumented}
uvicorn.run(app, port=int(sys.argv[1]) if sys.argv[1:] else {port}, log_level="info")
"""


def drive(process: Any, port: int) -> tuple[str, str]:
    """Three requests that end and one that the client leaves, then SIGTERM."""
    import httpx

    url = f"http://127.0.0.1:{port}"
    for line in process.stderr:
        if "Uvicorn running" in line:
            break
    else:
        pytest.fail("did not start")
    try:
        with httpx.Client(base_url=url, timeout=20) as client:
            for number in range(3):
                assert client.get(f"/plain/{number}").status_code == 200
            with client.stream("GET", "/stream") as answer:
                next(answer.iter_bytes())
    finally:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
    return output, errors


def test_a_server_that_is_stopped_loses_nothing(run_python: Any, read_files: Any, free_port: int) -> None:
    source = SERVICE.format(
        configured="gputrace.configure()", instrumented="gputrace.instrument(app)", port=free_port
    )
    process = run_python.start(source, OTEL_SERVICE_NAME="shop")
    _, errors = drive(process, free_port)
    assert "Traceback" not in errors, errors
    files = read_files(run_python.folder / "gputrace-data")
    assert files.total("gputrace.requests", route="/plain/{number}", status="ok") == 3
    assert files.total("gputrace.requests", route="/stream", status="cancelled") == 1
    assert files.total("gputrace.request.calls", route="/plain/{number}") == 3
    assert files.total("gputrace.calls", feature="/plain/{number}", operation="work") == 6
    assert files.total("gputrace.calls", feature="stream", operation="work") >= 1
    servers = [span for span in files.spans if span["kind"] == 2]
    ours = [span for span in files.spans if "gputrace.request.call.count" in span["attributes"]]
    assert len(ours) == 4
    # FastAPI has telemetry of its own from 0.165 on, and then one span for each request.
    assert len(servers) in {0, 4}
    assert {span.get("parentSpanId", "") for span in ours} <= {span["spanId"] for span in servers} | {""}


def test_opentelemetry_instrument_needs_no_code(run_python: Any, free_port: int) -> None:
    program = shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent))
    assert program is not None
    options = ["--traces_exporter", "none", "--metrics_exporter", "console", "--logs_exporter", "none"]
    source = SERVICE.format(configured="", instrumented="", port=free_port)
    process = run_python.start(source, program, *options, sys.executable)
    output, errors = drive(process, free_port)
    assert "Traceback" not in errors, errors
    routes = re.findall(r'"http.route": "([^"]*)",\s*"gputrace.feature": "([^"]*)"', output)
    assert set(routes) == {("/plain/{number}", "/plain/{number}"), ("/stream", "stream")}
