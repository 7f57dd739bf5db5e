"""A real Triton with Python models: what it batches is split among its requests, to the nanosecond."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import gputrace
from gputrace import baggage, ledger
from gputrace.integrations import triton
from tests.integrations import triton_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.serve, pytest.mark.requires("pytriton", "tritonclient")]

KEY = "a-key-that-services-share"
FEATURES = ("search", "chat", "mail")
LARGEST = 8
READY_S = 60


class Triton(NamedTuple):
    """What runs. `stop()` unloads all models, and returns what they have left in `folder`."""

    http: str
    grpc: str
    folder: Path
    stop: Callable[[], Path]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def backends(home: Path, folder: Path) -> Path:
    """The Python backend with what runs models of this version of Python, which the wheel keeps apart."""
    made = shutil.copytree(home / "backends", folder / "backends")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, made / "python" / stub.name)
    return made


def repository(folder: Path, output: Path) -> Path:
    paths = [path for path in sys.path if path]
    for name, (program, configuration) in triton_programs.MODELS.items():
        model = folder / "models" / name / "1" / "model.py"
        model.parent.mkdir(parents=True)
        prologue = triton_programs.PROLOGUE.format(paths=paths)
        model.write_text(prologue + program.replace("{output!r}", repr(str(output / name))))
        text = configuration.format(name=name, largest=LARGEST)
        (model.parent.parent / "config.pbtxt").write_text(text)
    return folder / "models"


def wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/v2/health/ready", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    process.kill()
    pytest.fail(f"Triton is not ready\n{log.read_text()[-4_000:]}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[Triton]:
    spec = importlib.util.find_spec("pytriton")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    home = Path(spec.submodule_search_locations[0]) / "tritonserver"
    folder, output = tmp_path_factory.mktemp("triton"), tmp_path_factory.mktemp("recorded")
    http, grpc, log = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", folder / "log"
    command = [
        home / "bin" / "tritonserver",
        f"--model-repository={repository(folder, output)}",
        f"--backend-directory={backends(home, folder)}",
        "--http-address=127.0.0.1",
        f"--http-port={http.rpartition(':')[2]}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc.rpartition(':')[2]}",
        "--allow-metrics=false",
        "--http-header-forward-pattern=(?i)baggage|traceparent",
        "--grpc-header-forward-pattern=(?i)baggage|traceparent",
    ]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(home.parent.parent / "nvidia_pytriton.libs"),
        # The interpreter of a model looks for its packages where the first `python3` has them.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "GPUTRACE_BAGGAGE_KEY": KEY,
    }
    with log.open("wb") as file:
        process = subprocess.Popen(list(map(str, command)), env=environment, stdout=file, stderr=file)
    wait_until_ready(http, process, log)

    def stop() -> Path:
        process.terminate()
        process.wait(READY_S)
        return output

    yield Triton(http, grpc, output, stop)
    process.kill()
    process.wait()


@pytest.fixture(autouse=True)
def _signing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTRACE_BAGGAGE_KEY", KEY)
    monkeypatch.setattr(baggage, "_policy", None)


def rows(module: Any, number: int, value: float = 1.0) -> Any:
    import numpy as np

    given = module.InferInput("ROWS", [number, 2], "FP32")
    given.set_data_from_numpy(np.full((number, 2), value, dtype=np.float32))
    return given


def keep(answer: queue.SimpleQueue[Any], result: Any, error: Any) -> None:
    answer.put((result, error))


def ask_twelve_times(address: str) -> None:
    """Twelve at once, by turns for each feature; the last is one that fails."""
    import tritonclient.grpc as client

    answers: list[queue.SimpleQueue[Any]] = []
    with client.InferenceServerClient(address) as asking:
        asking.register_plugin(triton.ClientPlugin())
        for number in range(12):
            answers.append(queue.SimpleQueue())
            with gputrace.attribute_to(feature=FEATURES[number % len(FEATURES)]):
                given = [rows(client, 1, -1.0 if number == 11 else 1.0)]
                asking.async_infer("encoder", given, functools.partial(keep, answers[-1]))
        results = [answer.get(timeout=20) for answer in answers]
    assert [error is None for _, error in results] == [True] * 11 + [False]
    assert {str(result.as_numpy("DOUBLED").tolist()) for result, error in results if error is None} == {
        "[[2.0, 2.0]]"
    }


def ask_by_http(address: str) -> None:
    import tritonclient.http as client

    with client.InferenceServerClient(address) as asking:
        asking.register_plugin(triton.ClientPlugin())
        with gputrace.attribute_to(feature="by-http"):
            asking.infer("encoder", [rows(client, 1)])
        with gputrace.attribute_to(feature="by-parameters"):
            asking.async_infer("encoder", [rows(client, 1)], parameters=triton.carrier()).get_result()
        asking.unregister_plugin()
        # Not signed: nobody has to believe it.
        asking.infer("encoder", [rows(client, 1)], parameters={"baggage": "gputrace.feature=spoofed"})


def ask_others(address: str) -> None:
    import tritonclient.grpc as client

    with gputrace.attribute_to(feature="chained"), client.InferenceServerClient(address) as asking:
        asking.register_plugin(triton.ClientPlugin())
        asking.infer("chain", [rows(client, 1)])
    answers: list[Any] = []
    with gputrace.attribute_to(feature="streamed"), client.InferenceServerClient(address) as asking:
        asking.start_stream(lambda result, error: answers.append(error or result))
        asking.async_stream_infer("tokens", [rows(client, 1)], parameters=triton.carrier())
        asking.stop_stream()
    assert len(answers) == 3


def test_batches_are_split_among_their_requests(server: Triton, read_files: Any) -> None:
    ask_twelve_times(server.grpc)
    ask_by_http(server.http)
    ask_others(server.grpc)
    folder = server.stop()
    recorded = json.loads((folder / "encoder").read_text())

    # The last four have come one by one.
    assert [size for size, _ in recorded["walls"]] == [8, 4, 1, 1, 1, 1]
    executes = [one["duration_ns"] for one in recorded["executes"]]
    assert sum(recorded["charged"].values()) == sum(executes) * ledger.SCALE
    assert all(own <= wall for (_, own), wall in zip(recorded["walls"], executes, strict=True))
    assert {(one["operation"], one["model"]) for one in recorded["executes"]} == {
        ("execute encoder", "encoder")
    }

    requests = recorded["requests"]
    features = [one["feature"] for one in requests]
    assert {name: features.count(name) for name in set(features)} == {
        **dict.fromkeys(FEATURES, 4),
        "by-http": 1,
        "by-parameters": 1,
        # A model that asks another passes on whom it is for.
        "chained": 1,
        # The one that is not signed.
        "__none__": 1,
    }
    assert all(one["calls"] == 1 for one in requests)
    assert [one["status"] for one in requests].count("error") == 1
    assert sum(one["charged_ns"] for one in requests) == pytest.approx(sum(executes), abs=len(requests))

    # Models that ask others, and those that answer in parts, hold nothing themselves.
    for name, operation, feature, calls in (
        ("chain", "after", "chained", 1),
        ("tokens", "token", "streamed", 3),
    ):
        files = read_files(folder / name)
        assert files.total("gputrace.calls", operation=operation, feature=feature) == calls
        assert files.total("gputrace.calls", operation=f"execute {name}") == 1
        assert files.total("gputrace.feature.time", operation=f"execute {name}") == 0
        assert files.total("gputrace.request.calls", route=name, feature=feature) == 1
