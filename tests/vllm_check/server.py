"""A real vLLM server with gputrace in each of its processes, started and stopped by its process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
#: With which clients sign their baggage.
KEY = "serve-check-" * 3

_MIDDLEWARE = ("--middleware", "gputrace.integrations.vllm.Middleware")
_PATIENCE_S = 240.0
_STOPPING_S = 30.0


class Server(NamedTuple):
    """One that answers.

    Attributes:
        url: Where.
        data: Folder of the files that gputrace writes.
        steps: Folder of what the probe saw, one file a worker.
        process_id: Of the process that was started, the parent of all others.
    """

    url: str
    data: Path
    steps: Path
    process_id: int = 0


@contextmanager
def serving(
    model: Path,
    folder: Path,
    options: Sequence[str] = (),
    variables: dict[str, str] | None = None,
    *,
    middleware: bool = True,
) -> Iterator[Server]:
    """Run a server in the block.

    Args:
        model: Folder of the model.
        folder: For files of this run.
        options: More of vLLM's.
        variables: More of the environment.
        middleware: With that of gputrace.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    served = Server(f"http://127.0.0.1:{port}", folder / "data", folder / "steps")
    served.steps.mkdir(exist_ok=True)
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            _command(model, port, [*(_MIDDLEWARE if middleware else ()), *options]),
            env=_environment(served, variables or {}),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, served.url, folder / "server.log")
            yield served._replace(process_id=process.pid)
        finally:
            _stop(process)


def _command(model: Path, port: int, options: Sequence[str]) -> list[str]:
    # `vllm serve` asks for the metadata of a distribution named vllm, which the build for processors is not.
    return [
        sys.executable,
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", "tiny", "--load-format", "dummy"),
        *("--enforce-eager", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024"),
        *options,
    ]


def _environment(served: Server, variables: dict[str, str]) -> dict[str, str]:
    given = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "GPUTRACE_DATA_DIR": str(served.data),
        "GPUTRACE_NODE_DIR": str(served.data.parent / "node"),
        "GPUTRACE_METRIC_ATTRIBUTES": "tenant",
        "GPUTRACE_BAGGAGE_KEY": KEY,
        "OTEL_SERVICE_NAME": "vllm",
        "SERVE_CHECK_STEPS": str(served.steps),
    }
    # The probe is found as a plugin of vLLM's, by the metadata that lies beside it.
    path = os.pathsep.join([str(HERE), str(HERE / "plugin"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, **given, "PYTHONPATH": path.rstrip(os.pathsep), **variables}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = monotonic() + _PATIENCE_S
    while monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310 - started above
                if answer.status == 200:
                    return
        except (URLError, OSError):
            sleep(0.5)
    message = f"vLLM did not come up within {_PATIENCE_S:g} s:\n{log.read_text()[-4000:]}"
    raise RuntimeError(message)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOPPING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
