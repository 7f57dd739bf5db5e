"""What gputrace charges on a real GPU, held against torch's profiler and the driver.

    python benchmarks/gpu_check.py [--results FOLDER] [--docs FILE] [--tables]

Fails where there is no GPU. Writes one JSON file a GPU, prints it as tables and puts
the tables of all files into the documentation; ``--tables`` does only that, for files
that were brought from elsewhere. ``make gpu-check`` sets up what it needs.
"""

from __future__ import annotations

import argparse
import datetime as dt
import faulthandler
import importlib.metadata
import logging
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_checks import capturing, charging, driver, result, table, tracking_cost
from gpu_checks.torch_machine import TorchMachine

from gputrace import faults
from gputrace.devices import cuda

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_checks.machine import Machine

ROOT = Path(__file__).resolve().parent.parent
#: All of it must fit into five minutes; whatever hangs says where.
LIMIT_S = 290

PARTS: dict[str, Callable[[Machine], dict[str, Any]]] = {
    "charges": charging.check,
    "capture": capturing.check,
    "cost": tracking_cost.check,
    "driver": driver.check,
}


class Complaints(logging.Handler):
    """Keeps what gputrace logs: on a healthy GPU that is nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line, with the error behind it; its traceback is shown at once."""
        print(self.format(record), file=sys.stderr, flush=True)
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(record.getMessage() + (f": {error!r}" if error is not None else ""))


def why_not() -> str | None:
    """Return why nothing can be measured here, None where something can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        found = f"torch {torch.__version__} finds none"
        return found if built else f"{found}, and is built without CUDA"
    if not cuda.gpu_expected():
        return "there is no /dev/nvidia0 or /dev/kfd, so that gputrace would time calls on the host"
    return None


def measure(
    machine: Machine,
    gpu: str,
    versions: dict[str, str],
    parts: dict[str, Callable[[Machine], dict[str, Any]]],
) -> dict[str, Any]:
    """Run all parts; one that fails does not take the others along."""
    complaints = Complaints()
    faults.logger.addHandler(complaints)
    began = time.monotonic()
    found: dict[str, Any] = dict.fromkeys(PARTS)
    try:
        for name, part in parts.items():
            print(f"gpu-check: {name} …", flush=True)
            with faults.contained(f"measure {name}"):
                found[name] = part(machine)
    finally:
        faults.logger.removeHandler(complaints)
    return {
        "schema": result.SCHEMA,
        "gpu": gpu,
        "made": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "versions": versions,
        "seconds": round(time.monotonic() - began, 1),
        **found,
        "complaints": complaints.lines,
    }


def versions_here() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import torch

    rocm = getattr(torch.version, "hip", None)
    return {
        "gputrace": importlib.metadata.version("gputrace"),
        "torch": str(torch.__version__),
        "ROCm" if rocm else "CUDA": str(rocm or torch.version.cuda),
        "Python": platform.python_version(),
    }


def write_tables(results: Path, docs: Path) -> None:
    """Put the tables of all results into the documentation."""
    docs.write_text(table.replaced(docs.read_text(), table.section(result.read(results))))


def main(arguments: list[str] | None = None) -> int:
    """Measure, write and judge."""
    parser = argparse.ArgumentParser(
        description="What gputrace charges on a real GPU, against other instruments."
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the JSON files"
    )
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs" / "gpu-check.md", help="where the tables go"
    )
    parser.add_argument(
        "--tables", action="store_true", help="measure nothing, write the tables of the files anew"
    )
    chosen = parser.parse_args(arguments)
    if chosen.tables:
        write_tables(chosen.results, chosen.docs)
        return 0
    if (reason := why_not()) is not None:
        print(f"gpu-check: no GPU: {reason}; nothing was measured", file=sys.stderr)
        return 1
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    import torch

    found = measure(TorchMachine(torch), torch.cuda.get_device_name(), versions_here(), PARTS)
    faulthandler.cancel_dump_traceback_later()
    path = result.write(found, chosen.results)
    write_tables(chosen.results, chosen.docs)
    print("\n" + table.section([found]) + "\n")
    wrong = result.failures(found)
    for line in wrong:
        print(f"gpu-check: FAILED: {line}", file=sys.stderr)
    print(f"gpu-check: {'failed' if wrong else 'passed'} in {found['seconds']:.0f} s; {path}, {chosen.docs}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
