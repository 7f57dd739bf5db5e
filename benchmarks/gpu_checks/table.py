"""Results as Markdown, and their place in the documentation."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from gpu_checks.comparison import worst
from gpu_checks.result import failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BEGIN = "<!-- written by `make gpu-check`: begin -->"
END = "<!-- written by `make gpu-check`: end -->"
NOTHING = "No GPU has been measured yet: nothing below this line is known on a real device."


def section(results: Sequence[dict[str, Any]]) -> str:
    """Return what the documentation says of all GPUs that were measured."""
    if not results:
        return NOTHING
    return "\n\n".join("\n\n".join(_of_one(result)) for result in results)


def replaced(document: str, text: str) -> str:
    """Put a text between the markers of a document.

    Raises:
        ValueError: The markers are not there, once each and in order.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in after:
        raise ValueError(f"the document must hold {BEGIN!r} and, after it, {END!r}, once each")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _of_one(result: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    wrong = failures(result)
    verdict = "Everything held." if not wrong else "**Not everything held:** " + "; ".join(wrong) + "."
    parts = [f"### {result['gpu']}", f"{result['made']}; {versions}. {verdict}"]
    if result["charges"] is not None:
        parts += [_charges(result["charges"]["workloads"]), _conservation(result["charges"]["conservation"])]
    if result["cost"] is not None:
        parts += [_cost(result["cost"]["rows"]), _waits(result["cost"]["synchronisations"])]
    if result["capture"] is not None:
        parts.append(_capture(result["capture"]))
    if result["driver"] is not None:
        parts.append(_driver(result["driver"]))
    return parts


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3f}"


def _charges(workloads: Iterable[dict[str, Any]]) -> str:
    heads = (
        "medians of the calls, ms",
        "calls",
        "kernels",
        "busy",
        "gaps",
        "held",
        "should be charged",
        "charged",
    )
    return _table((*heads, "largest error, µs (allowed)"), map(_charge_row, workloads))


def _charge_row(workload: dict[str, Any]) -> list[str]:
    calls = workload["calls"]
    if not calls:
        return [workload["title"], "0", *["–"] * 7]
    middle = {
        name: statistics.median(call[name] for call in calls)
        for name in ("kernels", "busy_ns", "gaps_ns", "held_ns", "expected_ns", "charged_ns")
    }
    furthest = worst(calls)
    error = f"{furthest['error_ns'] / 1e3:+.1f} ({furthest['allowed_ns'] / 1e3:.1f})"
    return [
        workload["title"],
        str(len(calls)),
        f"{middle.pop('kernels'):.0f}",
        *map(_ms, middle.values()),
        error if workload["judged"] else f"{error}, not judged",
    ]


def _conservation(found: dict[str, Any]) -> str:
    exact = "exactly" if found["exact"] else "**not**"
    return f"The charges of all calls are {exact} what the device was held: {_ms(found['held_ns'])} ms."


def _cost(rows: Iterable[dict[str, Any]]) -> str:
    heads = ("work of a call, ms", "untracked, µs of CPU", "two event records", "tracking with them")
    return _table(
        (*heads, "beyond the records (budget 4)", "until the device is done"),
        (
            [
                f"{row['work_ns'] / 1e6:g}",
                f"{row['plain_host_us']:.2f}",
                f"+{row['records_us']:.2f}",
                f"+{row['tracked_us']:.2f}",
                f"{row['beyond_records_us']:.2f}, {'kept' if row['kept'] else 'NOT kept'}",
                f"{100 * row['wall_share']:+.2f} %",
            ]
            for row in rows
        ),
    )


def _waits(called: Sequence[str]) -> str:
    which = f" {', '.join(sorted(set(called)))}." if called else ""
    return f"Synchronisations while tracking: {len(called)}.{which}"


def _capture(found: dict[str, Any]) -> str:
    held = "held" if found["held"] else f"**broke**: {found['error']}"
    asked = f"the settler asked for events {found['queries']} times"
    return f"A graph capture in the default mode {held} while {asked}."


def _driver(found: dict[str, Any]) -> str:
    if not found["up"]:
        return f"NVML did not answer: {found['trouble']}."
    mapped, energy = found["mapping"], found["energy"]
    said = ""
    if mapped is not None:
        are = "are" if mapped["kept"] else "are **not**"
        said = f"torch's devices {are} those that NVML shows under the same UUIDs. "
    if energy is None or energy["counter_j"] is None or energy["source"] != "counter":
        return said + "The device has no energy counter to compare with."
    off = 100 * (energy["sum_j"] - energy["counter_j"]) / energy["counter_j"]
    busy = "" if energy["busy_share"] is None else f", busy {100 * energy['busy_share']:.0f} %"
    return (
        f"{said}Energy over {energy['seconds']:.1f} s{busy}: readings {energy['sum_j']:.1f} J, counter "
        f"{energy['counter_j']:.1f} J, {off:+.2f} %."
    )
