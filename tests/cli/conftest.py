"""`gputrace doctor` as a user runs it, on machines that stand-ins for the driver's libraries make up."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Test folders are no packages, so what is shared is loaded by its path.
_spec: Any = importlib.util.spec_from_file_location("nvml_stand_in", ROOT / "devices" / "nvml_stand_in.py")
stand_in: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stand_in)
CUDA_SOURCE = ROOT / "devices" / "cuda_stand_in.c"

PROGRAM = """
import sys
from pathlib import Path
from gputrace.cli import doctor_hardware, main
from gputrace.devices import cuda_runtime

cuda_runtime.DEVICE_FILES, doctor_hardware.BUS = map(Path, sys.argv[1:3])
sys.exit(main(["doctor", *sys.argv[3:]]))
"""
TORCH = "__version__ = '2.9.1+cu128'\ndebug = False\ncuda: Optional[str] = {}\nhip: Optional[str] = None\n"
FOREIGN = ("OTEL_", "GPUTRACE_", "CUDA_", "NVIDIA_")


class Report:
    """What one run of the command said.

    Attributes:
        status: Its exit status.
        text: The text, on one line.
        json: The same run's JSON, where that was asked for.
    """

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.stderr == ""
        self.status = done.returncode
        self.text = " ".join(done.stdout.split())
        self.json: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}

    def texts(self, section: str, level: str) -> list[str]:
        found = self.json["sections"][section]["findings"]
        return [one["text"] for one in found if one["level"] == level]

    def finding(self, section: str, part: str) -> dict[str, Any]:
        """The only one that says `part`."""
        found = [one for one in self.json["sections"][section]["findings"] if part in one["text"]]
        assert len(found) == 1, (part, self.json["sections"][section]["findings"])
        return found[0]


class Machine:
    """A machine that is made up.

    Attributes:
        folder: Where the command runs.
        variables: Its environment, beside this one's.
    """

    def __init__(self, folder: Path, libraries: Path) -> None:
        self.folder = folder
        self.devices, self.bus = folder / "made-up" / "dev", folder / "made-up" / "pci"
        self.devices.mkdir(parents=True)
        self.bus.mkdir()
        self.script = folder / "made-up" / "nvml"
        self.torch("'12.8'")
        self.variables = {
            "GPUTRACE_NODE_DIR": str(folder / "node"),
            "GPUTRACE_RAISE_FAULTS": "1",
            "LD_LIBRARY_PATH": str(libraries),
            "NVML_STAND_IN": str(self.script),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(folder / "made-up" / "site"), os.environ.get("PYTHONPATH")])
            ),
        }
        self.device_files("nvidiactl", "nvidia0", "nvidia1")
        self.nvml("gpus 2")
        self.cuda(f"{stand_in.GPU0},{stand_in.GPU1}")

    def device_files(self, *names: str) -> None:
        for path in self.devices.iterdir():
            path.unlink()
        for name in names:
            (self.devices / name).touch()

    def on_bus(self, *found: tuple[str, str]) -> None:
        """Vendor and class of what is on the PCI bus."""
        for number, (vendor, kind) in enumerate(found):
            (self.bus / str(number)).mkdir()
            (self.bus / str(number) / "vendor").write_text(f"{vendor}\n")
            (self.bus / str(number) / "class").write_text(f"{kind}\n")

    def nvml(self, *lines: str) -> None:
        self.script.write_text("\n".join(lines) + "\n")

    def cuda(self, says: str) -> None:
        self.variables["CUDA_STAND_IN"] = says

    def torch(self, built_for: str) -> None:
        """A torch that may be looked at, and not imported."""
        package = self.folder / "made-up" / "site" / "torch"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("raise SystemExit('torch was imported')")
        (package / "version.py").write_text(TORCH.format(built_for))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(self.devices), str(self.bus), *arguments],
            cwd=self.folder,
            env={**mine, **self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def words(self, *arguments: str, **variables: str) -> Report:
        return Report(self.run(*arguments, **variables))

    def doctor(self, *arguments: str, **variables: str) -> Report:
        return Report(self.run("--json", *arguments, **variables))


@pytest.fixture(scope="session")
def driver_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    stand_in.build(folder)
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(CUDA_SOURCE)], check=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, driver_libraries: Path) -> Machine:
    """Two healthy GPUs, and a torch for CUDA."""
    return Machine(tmp_path, driver_libraries)


@pytest.fixture
def without_driver(machine: Machine) -> Machine:
    """Neither a driver nor a GPU, whatever the machine that runs the tests has."""
    machine.device_files()
    folder = machine.folder / "made-up" / "broken"
    folder.mkdir()
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        (folder / name).write_text("no library")
    machine.variables["LD_LIBRARY_PATH"] = str(folder)
    return machine
