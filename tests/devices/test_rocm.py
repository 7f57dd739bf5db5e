"""A ROCm build of torch: the same names, another driver library."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest

import gputrace
from gputrace import faults
from gputrace.devices import cuda_runtime
from gputrace.testing import Recorder, VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MS = 1_000_000

DRIVER = """
static __thread int mode = 0;
int exchanges = 0;
int PREFIXThreadExchangeStreamCaptureMode(int *other) {
    int before = mode;
    mode = *other; *other = before; exchanges++;
    return 0;
}
int current_mode(void) { return mode; }
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) { *active = 0; return 0; }
"""

USE_DRIVER = """
import ctypes, sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.version = types.SimpleNamespace(cuda=None, hip=sys.argv[3] or None)
from gputrace.devices import cuda, cuda_runtime
from gputrace.devices.virtual import VirtualGpu
torch.cuda = VirtualGpu(exchangeable=False)
torch.cuda.init()
nvidia, amd = map(ctypes.CDLL, sys.argv[1:3])
torchs, other = (amd, nvidia) if torch.version.hip else (nvidia, amd)
with cuda.relaxed_capture() as safe:
    assert safe and torchs.current_mode() == 2
assert torchs.current_mode() == 0
assert ctypes.c_int.in_dll(torchs, "exchanges").value == 2
assert ctypes.c_int.in_dll(other, "exchanges").value == 0
assert cuda_runtime.has_context(0) is bool(torch.version.hip)
"""


def built(folder: Path, name: str, prefix: str) -> str:
    library = folder / name
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(library), "-xc", "-"],
        input=DRIVER.replace("PREFIX", prefix).encode(),
        check=True,
    )
    return str(library)


@pytest.mark.parametrize("hip", ["", "6.4.43484"])
@pytest.mark.parametrize("amd_name", ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"])
def test_the_capture_mode_is_exchanged_in_the_library_that_torch_uses(
    hip: str, amd_name: str, tmp_path: Path
) -> None:
    """Both may be loaded in one process: only one of them knows of torch's captures."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: needed to build the stand-ins for the driver libraries")
    libraries = (built(tmp_path, "libcuda.so.1", "cu"), built(tmp_path, amd_name, "hip"))
    subprocess.run(
        [sys.executable, "-c", USE_DRIVER, *libraries, hip], check=True, env=os.environ, timeout=60
    )


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualGpu]:
    """A ROCm build of torch whose library offers no exchange."""
    torch = types.ModuleType("torch")
    torch.version = types.SimpleNamespace(cuda=None, hip="6.4.43484")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with VirtualGpu(exchangeable=False) as gpu:
        gpu.init()
        yield gpu


def test_a_rocm_build_is_known_by_its_version(rocm: VirtualGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda_runtime.rocm_version() == "6.4.43484"
    monkeypatch.setattr(sys.modules["torch"], "version", types.SimpleNamespace(cuda="13.0", hip=None))
    assert cuda_runtime.rocm_version() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert cuda_runtime.rocm_version() is None


def test_without_an_exchange_it_says_so_once_and_a_flush_settles(
    rocm: VirtualGpu, caplog: pytest.LogCaptureFixture
) -> None:
    faults.reset()
    with Recorder(clock=rocm.host_ns) as recorder, caplog.at_level(logging.WARNING, "gputrace"):
        with gputrace.span("rerank", feature="search"):
            rocm.launch(2 * MS)
        rocm.advance(5 * MS)
        recorder.settler.tick()
        recorder.settler.tick()
        assert recorder.settler.snapshot().calls == []
        (line,) = caplog.messages
        assert "torch for ROCm 6.4.43484" in line
        assert "gputrace.flush()" in line
        assert recorder.settled()[0].charged_ns == 2 * MS
    faults.reset()


def test_where_it_can_be_exchanged_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    faults.reset()
    with VirtualGpu() as gpu, Recorder(clock=gpu.host_ns) as recorder, caplog.at_level(logging.WARNING):
        gpu.init()
        with gputrace.span("rerank"):
            gpu.launch(2 * MS)
        gpu.advance(5 * MS)
        recorder.settler.tick()
        assert [count for _, count in recorder.settler.snapshot().calls] == [1]
    assert caplog.messages == []


def test_without_an_exchange_the_threads_that_make_calls_settle_them(rocm: VirtualGpu) -> None:
    """As a service does that never flushes: each call reads what earlier ones left, twenty times a second."""
    faults.reset()
    with Recorder(clock=rocm.host_ns) as recorder:
        for _ in range(3):
            with gputrace.span("rerank", feature="search"):
                rocm.launch(2 * MS)
            rocm.advance(60 * MS)
            recorder.settler.tick()
        counted = sum(recorder.settler.totals.calls.values())
    assert counted == 2


def test_another_settler_is_polled_once_the_first_has_stopped(rocm: VirtualGpu) -> None:
    faults.reset()
    counted = []
    for _ in range(2):
        with Recorder(clock=rocm.host_ns) as recorder:
            recorder.settler.tick()
            for _ in range(2):
                with gputrace.span("rerank"):
                    rocm.launch(2 * MS)
                rocm.advance(60 * MS)
                recorder.settler.tick()
            counted.append(sum(recorder.settler.totals.calls.values()))
            recorder.settler.stop()
    assert counted == [1, 1]
