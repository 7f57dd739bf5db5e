"""Which kernels of a ``torch.profiler`` trace belong to which call.

A call is marked in the trace by ``record_function(PREFIX + operation)`` around it,
or around each of its parts. A kernel carries the correlation id of the driver call
that launched it, and that call lies within a mark; all kernels of a graph carry the
id of the graph's launch. Where a profiler gives no such ids, the marks that it draws
on the device itself are used instead.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from gpu_checks.kernels import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Begins the name of each mark.
PREFIX = "gputrace-check/"

#: ``activity_type`` of what runs on a device, in torch 2.6 or newer; older ones do not tell.
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel"})
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver"})
_LAUNCH_NAMES = ("cuda", "cu", "hip")
#: Rows of a device that are no work.
_NO_WORK = ("Context Sync", "Stream Sync", "Stream Wait Event", "Event Sync", "cudaEvent", "hipEvent")


def kernels_by_call(events: Iterable[Any]) -> dict[str, list[Kernel]]:
    """Return the kernels of each call.

    Args:
        events: ``prof.events()`` of a ``torch.profiler.profile`` that has ended.

    Returns:
        By operation, for each that is marked; empty where no kernel was found.
    """
    rows = list(events)
    marks = sorted(_interval(row) for row in rows if _is_mark(row) and not _on_device(row))
    found: dict[str, list[Kernel]] = {name: [] for _, _, name in marks}
    kernels = [row for row in rows if _is_kernel(row)]
    launched_ns = {row.id: _ns(row.time_range.start) for row in rows if _is_launch(row)}
    starts = [start for start, _, _ in marks]
    for row in kernels:
        launch_ns = launched_ns.get(row.id)
        if launch_ns is None:
            continue
        position = bisect_right(starts, launch_ns) - 1
        if position >= 0 and launch_ns <= marks[position][1]:
            found[marks[position][2]].append(Kernel(*_interval(row)))
    if not any(found.values()):
        _by_marks_of_the_device(rows, kernels, found)
    return found


def _by_marks_of_the_device(rows: list[Any], kernels: list[Any], found: dict[str, list[Kernel]]) -> None:
    for mark in rows:
        if not (_is_mark(mark) and _on_device(mark)):
            continue
        start_ns, end_ns, name = _interval(mark)
        found.setdefault(name, []).extend(
            Kernel(*_interval(row))
            for row in kernels
            if _stream(row) == _stream(mark)
            and start_ns <= _ns(row.time_range.start)
            and _ns(row.time_range.end) <= end_ns
        )


def _ns(us: float) -> int:
    # Relative to the trace's start, so that a float holds them to the nanosecond.
    return round(us * 1_000)


def _interval(row: Any) -> tuple[int, int, str]:
    return _ns(row.time_range.start), _ns(row.time_range.end), str(row.name).removeprefix(PREFIX)


def _on_device(row: Any) -> bool:
    return not str(row.device_type).endswith("CPU")


def _is_mark(row: Any) -> bool:
    return str(row.name).startswith(PREFIX)


def _is_kernel(row: Any) -> bool:
    if not _on_device(row) or _is_mark(row) or getattr(row, "is_user_annotation", False):
        return False
    activity = getattr(row, "activity_type", None)
    if activity:
        return activity in _ON_DEVICE
    return not str(row.name).startswith(_NO_WORK)


def _is_launch(row: Any) -> bool:
    if _on_device(row):
        return False
    activity = getattr(row, "activity_type", None)
    if activity:
        return activity in _LAUNCHES
    return str(row.name).startswith(_LAUNCH_NAMES)


def _stream(row: Any) -> tuple[Any, Any]:
    return getattr(row, "device_index", None), getattr(row, "device_resource_id", None)
