"""Which processes the driver names, and when it is not to be believed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gputrace.devices import nvml_processes
from gputrace.devices.nvml_library import RefusedError
from gputrace.devices.nvml_processes import ProcessActivity

if TYPE_CHECKING:
    from collections.abc import Iterator

# Test folders are no packages, so the file beside this one is loaded by its path.
_spec: Any = importlib.util.spec_from_file_location(
    "nvml_stand_in", Path(__file__).with_name("nvml_stand_in.py")
)
stand_in: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_in)
library, driver = stand_in.library, stand_in.driver


@pytest.fixture
def handle(driver: Any) -> Iterator[Any]:
    pynvml.nvmlInit()
    yield pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlShutdown()


def now_us(driver: Any) -> int:
    return driver.wall_ns() // 1_000


def test_not_found_means_that_none_was_active(driver: Any, handle: Any) -> None:
    driver.advance(1)
    assert nvml_processes.activity(handle, now_us(driver) - 1_000_000, now_us(driver)) == []


def test_hami_core_112_a_process_that_the_driver_does_not_name_is_unknown_not_idle(
    driver: Any, handle: Any
) -> None:
    """In a container the driver's ids are those of the host."""
    driver.script("process 0 4711 30")
    since = now_us(driver)
    driver.advance(1)
    seen = nvml_processes.activity(handle, since, now_us(driver))
    assert [(one.pid, one.percent) for one in seen] == [(4711, 30)]
    assert nvml_processes.own_activity(seen, 4711) == 30
    assert nvml_processes.own_activity(seen, 12) is None
    assert nvml_processes.own_activity(seen, None) is None


HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532911]"


@pytest.mark.parametrize(
    ("status", "namespace", "expected"),
    [
        pytest.param("Name:\tpython\nNSpid:\t4711\n", HOST, 4711, id="on the host"),
        pytest.param("NSpid:\t4711\t12\t1\n", CONTAINER, 4711, id="with the /proc of the host"),
        pytest.param("NSpid:\t12\n", CONTAINER, None, id="in a container, where 12 is somebody else"),
        pytest.param("NSpid:\n", HOST, None, id="empty"),
        pytest.param("Pid:\t12\n", HOST, None, id="an old kernel"),
    ],
)
def test_nvidia_docker_1483_the_id_on_the_host_is_the_outermost(
    driver: Any, handle: Any, status: str, namespace: str, expected: int | None
) -> None:
    """gpu-monitoring-tools#63, pynvml#36, open-gpu-kernel-modules#614."""
    assert nvml_processes.host_pid(status, namespace) == expected
    # What the driver tells of another process that has the inner id is never told of this one.
    driver.script("process 0 12 90", "process 0 4711 30")
    since = now_us(driver)
    driver.advance(1)
    seen = nvml_processes.activity(handle, since, now_us(driver))
    assert nvml_processes.own_activity(seen, expected) == {4711: 30, None: None}[expected]


def test_the_own_id_is_read_from_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml_processes.host_pid(namespace=HOST) == os.getpid()
    monkeypatch.setattr(nvml_processes, "Path", lambda _: Path("/nowhere"))
    assert nvml_processes.host_pid() is None


def test_go_nvml_51_each_process_has_instants_of_its_own(driver: Any, handle: Any) -> None:
    driver.script("process 0 100 30", "process 0 200 50")
    since = now_us(driver)
    driver.advance(1)
    one, other = nvml_processes.activity(handle, since, now_us(driver))
    assert one == ProcessActivity(100, since, now_us(driver), 30)
    assert other.until_us == one.until_us - 10
    # Nothing is told twice.
    assert nvml_processes.activity(handle, now_us(driver), now_us(driver)) == []


def test_go_nvml_11_a_list_that_has_grown_is_asked_for_again(driver: Any, handle: Any) -> None:
    """INSUFFICIENT_SIZE: more processes than there were when the driver was asked how many."""
    driver.script("process 0 100 30", "set 0 crowded 2")
    since = now_us(driver)
    driver.advance(1)
    assert [one.pid for one in nvml_processes.activity(handle, since, now_us(driver))] == [100]
    driver.script("set 0 crowded 2")
    assert nvml_processes.running(handle) == [100]
    # One that never fits is refused rather than asked for good.
    driver.script("set 0 crowded 1000")
    for ask in (
        lambda: nvml_processes.activity(handle, since, now_us(driver)),
        lambda: nvml_processes.running(handle),
    ):
        with pytest.raises(RefusedError, match="more to tell"):
            ask()


def test_nvtop_110_a_hundred_junk_processes_are_dropped(driver: Any, handle: Any) -> None:
    driver.script("process 0 100 30", "set 0 junk 1")
    since = now_us(driver)
    driver.advance(1)
    assert [one.pid for one in nvml_processes.activity(handle, since, now_us(driver))] == [100]
    driver.script("process 0 100 0")
    with pytest.raises(RefusedError, match="cannot be true"):
        nvml_processes.activity(handle, since, now_us(driver))


def test_slices_tell_no_processes(driver: Any, handle: Any) -> None:
    driver.script("mig 0 1")
    slice_ = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    with pytest.raises(RefusedError, match="does not offer"):
        nvml_processes.activity(slice_, 0, now_us(driver))


def test_nvitop_75_scrambled_ids_are_refused(driver: Any, handle: Any) -> None:
    """nvitop#181: the driver writes entries of another length than the binding reads."""
    driver.script("process 0 4711 30")
    assert nvml_processes.running(handle) == [4711]
    driver.script("process 0 4712 30", "process 0 4713 30")
    with contextlib.suppress(RefusedError):  # as the oldest binding is: see the next test
        assert nvml_processes.running(handle) == [4711, 4712, 4713]
    driver.script("set 0 stride 16")
    with pytest.raises(RefusedError, match=r"cannot be true|version"):
        nvml_processes.running(handle)


def test_nvitop_75_a_struct_of_one_driver_version_alone_is_refused(
    handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-ml-py 12.535 has it; beyond the first entry some of what it reads looks like an id."""
    process = types.SimpleNamespace(pid=1 << 20, usedGpuCcProtectedMemory=0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda _: [process, process])
    with pytest.raises(RefusedError, match="version"):
        nvml_processes.running(handle)


def test_pynvml_43_a_library_without_the_newest_function_is_an_old_driver(
    tmp_path: Path, handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """go-nvml#21: undefined symbol; the binding says so in one of two ways."""
    with stand_in.under_pynvml(stand_in.build(tmp_path, "-DOLD_DRIVER")) as driver:
        driver.start()
        pynvml.nvmlInit()
        with pytest.raises(RefusedError, match=r"does not have"):
            nvml_processes.running(pynvml.nvmlDeviceGetHandleByIndex(0))
        pynvml.nvmlShutdown()

    def undefined(_: object) -> None:
        # Older bindings have no class for it.
        raise getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError_FunctionNotFound)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", undefined)
    with pytest.raises(RefusedError, match="does not have"):
        nvml_processes.running(handle)


@pytest.mark.parametrize(
    "name", ["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetComputeRunningProcesses_v3"]
)
def test_every_error_of_a_list_is_refused_and_none_reads_as_idle(driver: Any, handle: Any, name: str) -> None:
    driver.script("process 0 4711 30")
    since = now_us(driver)
    driver.advance(1)
    for error in [name for name in dir(pynvml) if name.startswith("NVML_ERROR_")]:
        driver.script(f"fail {name} 0 {getattr(pynvml, error)}")
        seen = []
        with contextlib.suppress(RefusedError):
            seen = nvml_processes.activity(handle, since, now_us(driver))
        assert nvml_processes.own_activity(seen, 4711) in {None, 30}, error
        with contextlib.suppress(RefusedError):
            assert nvml_processes.running(handle) == [4711], error
