"""The result of a check as JSON, and the verdict on it: pure functions on plain dicts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpu_checks.comparison import worst

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1

_NUMBER = (int, float)
_CALL = {
    "operation": str,
    "kernels": int,
    "busy_ns": int,
    "gaps_ns": int,
    "span_ns": int,
    "held_ns": int,
    "charged_ns": int,
    "expected_ns": int,
    "error_ns": int,
    "allowed_ns": int,
    "kept": bool,
}
_CONSERVATION = {"calls_ns": _NUMBER, "features_ns": _NUMBER, "held_ns": int, "exact": bool}
_COST = {
    "work_ns": int,
    "plain_host_us": _NUMBER,
    "records_us": _NUMBER,
    "tracked_us": _NUMBER,
    "beyond_records_us": _NUMBER,
    "plain_wall_us": _NUMBER,
    "tracked_wall_us": _NUMBER,
    "wall_share": _NUMBER,
    "kept": bool,
}
_MAYBE_NUMBER = (int, float, type(None))
_ENERGY = {
    "readings": int,
    "source": (str, type(None)),
    "seconds": _NUMBER,
    "busy_share": _MAYBE_NUMBER,
    "sum_j": _MAYBE_NUMBER,
    "counter_j": _MAYBE_NUMBER,
    "allowed_j": _MAYBE_NUMBER,
    "kept": (bool, type(None)),
}
_MAPPING = {
    "devices": int,
    "found": [bool],
    "names": [bool],
    "by_environment": bool,
    "certain": bool,
    "kept": bool,
}


class Maybe:
    """Marks in a shape what may be None, where a part could not be measured.

    Args:
        shape: What it is otherwise.
    """

    def __init__(self, shape: Any) -> None:
        self.shape = shape


#: Name of each key: its type, several types, a dict of the same kind, or a list of one shape.
SHAPE: dict[str, Any] = {
    "schema": int,
    "gpu": str,
    "made": str,
    "versions": dict,
    "seconds": _NUMBER,
    "charges": Maybe(
        {
            "workloads": [
                {"key": str, "title": str, "judged": bool, "calls": [_CALL], "error": (str, type(None))}
            ],
            "conservation": _CONSERVATION,
            "unmeasured": dict,
        }
    ),
    "capture": Maybe(
        {
            "held": bool,
            "error": (str, type(None)),
            "queries": int,
            "in_background": bool,
            "calls": int,
            "unmeasured": dict,
            "conservation": _CONSERVATION,
        }
    ),
    "cost": Maybe({"rows": [_COST], "synchronisations": [str], "unmeasured": dict}),
    "driver": Maybe(
        {
            "up": bool,
            "trouble": (str, type(None)),
            "mapping": Maybe(_MAPPING),
            "energy": Maybe(_ENERGY),
            "held_ns": int,
            "split": (bool, type(None)),
        }
    ),
    "complaints": [str],
}


def misshapen(value: Any, shape: Any = SHAPE, where: str = "result") -> list[str]:
    """Return what is wrong with the form of a result, in words; empty where nothing is."""
    if isinstance(shape, Maybe):
        return [] if value is None else misshapen(value, shape.shape, where)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        odd = [f"{where} has no {key}" for key in shape if key not in value]
        odd += [f"{where} has an unknown {key}" for key in value if key not in shape]
        for key in shape.keys() & value.keys():
            odd += misshapen(value[key], shape[key], f"{where}.{key}")
        return sorted(odd)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [
            odd
            for position, one in enumerate(value)
            for odd in misshapen(one, shape[0], f"{where}[{position}]")
        ]
    # A bool is an int to Python, and means something else here.
    mistaken = isinstance(value, bool) and bool not in (shape if isinstance(shape, tuple) else (shape,))
    return [f"{where} is {value!r}"] if mistaken or not isinstance(value, shape) else []


def failures(result: dict[str, Any]) -> list[str]:
    """Return what a result says that must not be, in words; budgets of time are shown and not judged."""
    parts = ("charges", "capture", "cost", "driver")
    found = [f"{name}: could not be measured; see the complaints" for name in parts if result[name] is None]
    found += _wrong_charges(result["charges"] or {"workloads": []})
    found += _wrong_capture(result["capture"])
    found += [
        f"tracking waited for the device: {name}"
        for name in (result["cost"] or {}).get("synchronisations", ())
    ]
    found += _wrong_driver(result["driver"])
    for name in ("charges", "capture", "cost"):
        part = result[name] or {}
        found += [
            f"{name}: {count} calls unmeasured: {why}" for why, count in part.get("unmeasured", {}).items()
        ]
        if not part.get("conservation", {"exact": True})["exact"]:
            found.append(f"{name}: the charges do not sum to what was held")
    return found + [f"gputrace logged: {line}" for line in result["complaints"]]


def _wrong_charges(charges: dict[str, Any]) -> list[str]:
    found = []
    for workload in charges["workloads"]:
        if workload["error"] is not None:
            found.append(f"{workload['key']}: {workload['error']}")
            continue
        wrong = [call for call in workload["calls"] if not call["kept"]]
        if wrong and workload["judged"]:
            call = worst(wrong)
            found.append(
                f"{workload['key']}: {len(wrong)} of {len(workload['calls'])} charges are off; "
                f"{call['operation']} by {call['error_ns'] / 1_000:.1f} us of "
                f"{call['expected_ns'] / 1_000:.1f}, {call['allowed_ns'] / 1_000:.1f} allowed"
            )
    return found


def _wrong_capture(capture: dict[str, Any] | None) -> list[str]:
    if capture is None:
        return []
    if not capture["held"]:
        return [f"capture: broke while the settler polled: {capture['error']}"]
    if capture["in_background"] and not capture["queries"]:
        return ["capture: the settler asked for no event meanwhile, so that nothing is shown"]
    return []


def _wrong_driver(driver: dict[str, Any] | None) -> list[str]:
    if driver is None:
        return []
    if not driver["up"]:
        return [f"driver: NVML does not answer: {driver['trouble']}"]
    found = []
    if not (driver["mapping"] or {"kept": True})["kept"]:
        found.append("driver: torch's devices and NVML's are not the same")
    if not driver["held_ns"]:
        found.append("driver: calls were not charged under the UUID that NVML gives the device")
    energy = driver["energy"]
    if energy is not None and energy["kept"] is False:
        found.append(
            f"driver: readings sum to {energy['sum_j']:.1f} J, the counter to {energy['counter_j']:.1f} J; "
            f"{energy['allowed_j']:.1f} J allowed"
        )
    if driver["split"] is False:
        found.append("driver: the parts of the energy do not sum to it")
    return found


def file_name(gpu: str) -> str:
    """Return the name of the file for a GPU: ``gpu-nvidia-h200.json``."""
    return f"gpu-{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


def write(result: dict[str, Any], folder: Path) -> Path:
    """Write a result, and return where.

    Raises:
        ValueError: Its form is wrong; says how.
    """
    if odd := misshapen(result):
        raise ValueError(f"this result would be no valid file: {'; '.join(odd)}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(result["gpu"])
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all results of a folder, by the name of their GPU.

    Raises:
        ValueError: A file is no such result; names it.
    """
    results = []
    for path in sorted(folder.glob("gpu-*.json")):
        result = json.loads(path.read_text())
        if odd := misshapen(result):
            raise ValueError(f"{path} is no result of this check: {'; '.join(odd)}")
        results.append(result)
    return results
