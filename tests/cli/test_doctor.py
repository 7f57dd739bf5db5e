"""`gputrace doctor` on devices: what is seen, what can be measured, and why not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pynvml
import pytest

from gputrace.cli import main
from gputrace.cli.doctor_apart import Answer
from gputrace.cli.doctor_devices import devices_section
from gputrace.cli.doctor_findings import Level
from gputrace.cli.doctor_hardware import Hardware
from gputrace.cli.doctor_nvml import Look
from gputrace.devices.nvml import State

GPU0, GPU1 = (f"GPU-{index:08d}-1111-2222-3333-444444444444" for index in (0, 1))
NO_PERMISSION, GPU_IS_LOST, MISMATCH, DRIVER_NOT_LOADED = 4, 15, 18, 9


def test_two_healthy_gpus(machine):
    report = machine.doctor()
    assert report.status == 0
    assert report.json["healthy"] is True
    assert report.texts("devices", "warning") == []
    first, second = report.json["sections"]["devices"]["devices"]
    assert (first["uuid"], second["uuid"]) == (GPU0, GPU1)
    assert first["missing"] == {}
    measured = first["measured"]
    assert measured["busy_ns"] * 100 == pytest.approx(measured["wall_ns"] * 40, rel=0.02)
    assert (measured["busy_source"], measured["energy_source"]) == ("samples", "counter")
    assert (measured["power_w"], measured["temperature_c"]) == (300, 55)
    timing = report.json["sections"]["timing"]
    assert [(one["ordinal"], one["uuid"]) for one in timing["cuda"]] == [(0, GPU0), (1, GPU1)]
    assert timing["timed_on"] == "gpu"
    assert report.json["sections"]["versions"]["versions"]["NVIDIA driver"] == "570.00"


def test_the_text_says_what_the_json_says(machine):
    machine.nvml("gpus 2", f"fail nvmlDeviceGetTemperature 1 {NO_PERMISSION}")
    text, json = machine.words(), machine.doctor()
    assert text.status == json.status == 0
    for name, section in json.json["sections"].items():
        for one in section["findings"]:
            # What is in use of the processor's time and the disk may differ between two runs.
            assert f"{one['level']} {' '.join(one['text'].split())}" in text.text, name
            assert one["remedy"] is None or f"→ {one['remedy']}" in text.text
    assert text.text.endswith("The essentials work.")


def test_cuda_numbers_the_devices_in_its_own_order(machine):
    machine.cuda(f"{GPU1},{GPU0}")
    report = machine.doctor()
    assert [one["uuid"] for one in report.json["sections"]["timing"]["cuda"]] == [GPU1, GPU0]
    assert report.finding("timing", "cuda:0 is GPU 1")["level"] == "ok"
    assert report.status == 0


def test_cuda_visible_devices(machine):
    machine.cuda(GPU1)
    report = machine.doctor(CUDA_VISIBLE_DEVICES="1,7")
    assert report.status == 0
    assert report.finding("timing", "cuda:0 is GPU 1")["level"] == "ok"
    assert report.finding("timing", "GPU 0 is not among those that CUDA shows")["level"] == "note"
    assert report.finding("timing", "'7' is no device: there are 2")["level"] == "warning"


def test_cuda_visible_devices_that_names_nothing_fails(machine):
    machine.cuda("error 100")
    report = machine.doctor(CUDA_VISIBLE_DEVICES="7")
    assert report.status == 1
    assert "CUDA_VISIBLE_DEVICES" in report.finding("timing", "CUDA shows no device")["remedy"]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_are_hidden_on_purpose_leave_the_host(machine, hidden):
    report = machine.doctor(CUDA_VISIBLE_DEVICES=hidden)
    assert report.status == 0
    assert report.finding("timing", "hides every GPU")["level"] == "warning"
    assert report.json["sections"]["timing"]["timed_on"] == "host"


def test_no_torch_that_could_time(machine):
    machine.torch("None")
    report = machine.doctor()
    assert report.status == 1
    assert "gputrace[torch]" in report.finding("timing", "built for processors alone")["remedy"]
    assert report.json["sections"]["timing"]["timed_on"] is None


def test_torch_is_imported_where_that_is_asked_for(machine):
    (machine.folder / "made-up" / "site" / "torch" / "__init__.py").write_text(
        "import os\nfrom torch import version\n__version__ = '2.9.1+cu128'\n"
        "assert os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] == '1'\n"
        "class cuda:\n    device_count = staticmethod(lambda: 2)\n"
    )
    version = machine.folder / "made-up" / "site" / "torch" / "version.py"
    version.write_text("cuda = '12.8'\nhip = None\n")
    report = machine.doctor("--torch")
    assert report.status == 0
    assert report.finding("timing", "torch 2.9.1+cu128, built for cuda 12.8, counts 2 device(s)")


def test_a_torch_that_cannot_be_imported_is_no_traceback(machine):
    (machine.folder / "made-up" / "site" / "torch" / "__init__.py").write_text(
        "raise OSError('libcudart.so.12: cannot open shared object file')"
    )
    report = machine.doctor("--torch")
    assert report.status == 1
    assert "libcudart.so.12" in report.finding("timing", "it cannot be imported")["text"]


@pytest.mark.parametrize(
    ("says", "words", "remedy"),
    [
        ("error 802", "not ready", "fabric manager"),
        ("error 803", "differ in version", "reboot"),
        ("error 12345", "error 12345", "cuda.h"),
        ("crash", "SIGABRT", "dmesg"),
    ],
)
def test_why_cuda_does_not_work(machine, says, words, remedy):
    machine.cuda(says)
    report = machine.doctor()
    assert report.status == 1
    assert remedy in report.finding("timing", words)["remedy"]
    # The order of CUDA is then inferred.
    assert [one["uuid"] for one in report.json["sections"]["timing"]["cuda"]] == [GPU0, GPU1]


def test_a_cuda_that_hangs_holds_nothing_up(machine):
    machine.cuda("hang")
    report = machine.doctor("--patience", "1")
    assert report.status == 1
    assert report.finding("timing", "no answer within 2 s")["level"] == "failure"


def test_driver_mismatch(machine):
    machine.nvml("gpus 2", f"fail nvmlInitWithFlags * {MISMATCH}")
    report = machine.doctor()
    assert report.status == 1
    found = report.finding("devices", "differ in version")
    assert found["level"] == "failure"
    assert "reboot" in found["remedy"]
    assert "stay unknown" in found["text"]


def test_no_permission_on_one_call(machine):
    machine.nvml("gpus 2", f"fail nvmlDeviceGetTotalEnergyConsumption 0 {NO_PERMISSION}")
    report = machine.doctor()
    assert report.status == 0
    found = report.finding("devices", "GPU 0: no energy counter: the driver refuses access")
    assert found["level"] == "note"
    assert "energy (from power) serves instead" in found["text"]
    assert "/dev/nvidia" in found["remedy"]
    assert report.json["sections"]["devices"]["devices"][1]["missing"] == {}


def test_no_permission_to_see_how_busy_it_is(machine):
    calls = ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates")
    machine.nvml("gpus 1", *[f"fail {call} 0 {NO_PERMISSION}" for call in calls])
    report = machine.doctor()
    assert report.status == 0
    found = report.finding("devices", "no utilisation rate: the driver refuses access")
    assert found["level"] == "warning"
    assert "untracked and idle time stay unknown" in found["text"]


def test_no_permission_to_list_processes(machine):
    machine.nvml("gpus 1", f"fail nvmlDeviceGetComputeRunningProcesses_v3 0 {NO_PERMISSION}")
    found = machine.doctor().finding("processes", "no list of processes")
    assert (found["level"], "refuses access" in found["text"]) == ("warning", True)


@pytest.mark.skipif(
    any(name == "usedGpuCcProtectedMemory" for name, _ in pynvml.c_nvmlProcessInfo_t._fields_),
    reason="nvidia-ml-py 12.535 reads lists of several processes wrongly, and they are refused",
)
def test_other_processes(machine):
    machine.nvml("gpus 2", f"process 0 {os.getpid()} 30", "process 0 4000000 10", "set 1 used 0")
    report = machine.doctor()
    assert report.json["sections"]["processes"]["processes"] == {
        GPU0: sorted([os.getpid(), 4_000_000]),
        GPU1: [],
    }
    assert "4000000 (not visible from here)" in report.finding("processes", "GPU 0")["text"]
    assert report.finding("processes", "GPU 1: no process uses it")["level"] == "ok"


def test_processes_that_are_invisible_although_memory_is_in_use(machine):
    assert machine.doctor().finding("processes", "GPU 1: the driver shows no process, though 20.0 GiB")


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetSamples"])
def test_one_gpu_is_lost(machine, call):
    machine.nvml("gpus 2", f"fail {call} 0 {GPU_IS_LOST}")
    machine.cuda(GPU1)
    report = machine.doctor()
    assert report.status == 0
    found = report.finding("devices", "fallen off the bus")
    assert (found["level"], "Xid 79" in found["remedy"]) == ("warning", True)
    assert report.finding("timing", "cuda:0 is GPU 1")


def test_all_gpus_are_lost(machine):
    machine.nvml("gpus 2", f"fail nvmlDeviceGetSamples * {GPU_IS_LOST}")
    report = machine.doctor()
    assert report.status == 1
    assert report.texts("devices", "failure") == ["no device can be read"]


def test_a_call_that_hangs_holds_up_neither_doctor_nor_the_other_gpu(machine):
    machine.nvml("gpus 2", "hang nvmlDeviceGetSamples 0")
    report = machine.doctor("--patience", "2")
    assert report.status == 0
    assert "dmesg" in report.finding("devices", "does not return")["remedy"]
    assert report.finding("devices", "GPU 1: NVIDIA H100")["level"] == "ok"
    assert report.finding("processes", "not asked for")


def test_a_library_that_hangs(machine):
    machine.nvml("gpus 2", "hang nvmlInitWithFlags *")
    report = machine.doctor("--patience", "1")
    assert report.status == 1
    assert report.finding("devices", "does not return")["level"] == "failure"


def test_slices(machine):
    machine.nvml("gpus 1", "mig 0 2")
    slices = [f"MIG-00000000-000{number}-5555-6666-777777777777" for number in (0, 1)]
    machine.cuda(slices[0])
    report = machine.doctor()
    assert report.status == 0
    devices = report.json["sections"]["devices"]["devices"]
    assert [one["uuid"] for one in devices] == [GPU0, *slices]
    assert [one["parent"] for one in devices] == [None, GPU0, GPU0]
    assert (
        report.finding("devices", "GPU 0, slice 7/0: no utilisation samples, no utilisation rate")["level"]
        == "warning"
    )
    assert report.finding("devices", "GPU 0: no utilisation samples, no utilisation rate")["level"] == "note"
    assert report.finding("timing", f"cuda:0 is GPU 0, slice 7/0, {slices[0]}")
    assert report.finding("timing", "GPU 0, slice 8/0 is not among those")


def test_no_library_at_all_is_a_machine_without_a_gpu(without_driver):
    report = without_driver.doctor()
    assert report.status == 0
    assert report.finding("devices", "there is no GPU on this machine")["level"] == "ok"
    assert report.finding("timing", "charged by wall time")["level"] == "ok"
    assert report.json["sections"]["timing"]["timed_on"] == "host"
    assert "processes" not in report.json["sections"]


def test_a_gpu_on_the_bus_without_a_driver_fails(without_driver):
    without_driver.on_bus(("0x8086", "0x030000"), ("0x10de", "0x040300"))
    assert without_driver.doctor().status == 0
    (without_driver.bus / "1" / "class").write_text("0x030200\n")
    report = without_driver.doctor()
    assert report.status == 1
    found = report.finding("devices", "though 1 of NVIDIA's GPUs are in this machine")
    assert (found["level"], "install the driver" in found["remedy"]) == ("failure", True)


def test_a_gpu_of_amds_is_timed_and_not_read(without_driver):
    without_driver.device_files("kfd")
    path = without_driver.folder / "made-up" / "site" / "torch" / "version.py"
    path.write_text("cuda = None\nhip: Optional[str] = '7.2'\n")
    report = without_driver.doctor()
    assert report.status == 0
    assert report.finding("devices", "the GPUs are AMD's")["level"] == "warning"
    assert report.finding("timing", "built for hip 7.2")["level"] == "ok"
    assert report.json["sections"]["timing"]["timed_on"] == "gpu"


@pytest.mark.parametrize(("files", "status"), [((), 0), (("nvidia0",), 1)])
def test_a_driver_that_is_not_loaded(machine, files, status):
    machine.device_files(*files)
    machine.nvml("gpus 2", f"fail nvmlInitWithFlags * {DRIVER_NOT_LOADED}")
    report = machine.doctor()
    assert report.status == status
    assert report.finding("devices", "driver is not loaded")


@pytest.mark.parametrize(
    ("files", "level", "says"),
    [
        ((), Level.OK, "there is no GPU on this machine"),
        (("/dev/nvidia0",), Level.FAILURE, "though there are GPUs in this machine"),
    ],
)
def test_a_driver_that_shows_no_device(files, level, says):
    nothing = Look(State(up=True, trouble=None, devices=()))
    (found,) = devices_section(Answer(nothing), Hardware(files, 0, amd=False)).findings
    assert (found.level, says in found.text) == (level, True)


def test_without_device_files_calls_would_be_charged_by_time_of_the_host(machine):
    machine.device_files("nvidiactl")
    report = machine.doctor()
    assert report.status == 1
    assert report.finding("timing", "takes this for a machine without a GPU")["level"] == "failure"
    assert report.json["sections"]["timing"]["timed_on"] == "host"


def test_a_machine_without_a_driver_runs_on_the_host_where_gpus_are_hidden(without_driver):
    assert without_driver.doctor(CUDA_VISIBLE_DEVICES="").json["sections"]["timing"]["timed_on"] == "host"


def test_the_machine_that_runs_the_tests(tmp_path):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-m", "gputrace", "doctor", "--json"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0 if report["healthy"] else 1, "")
    assert set(report["sections"]) >= {"versions", "devices", "timing", "prices", "exporters", "node", "busy"}


@pytest.mark.parametrize("text", ["abc", "0", "inf"])
def test_a_patience_that_is_none_is_refused_in_words(capsys, text):
    assert main(["doctor", "--patience", text]) == 2
    assert f"'{text}' is no number of seconds above 0" in capsys.readouterr().err
