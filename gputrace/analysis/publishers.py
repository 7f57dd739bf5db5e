"""One publisher per device at any moment.

Processes that cannot see each other (containers that do not share a folder) publish the same device at once,
and their readings must not be added. Those that follow each other must: a program that was started anew, or
one that took the role over.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import amending
from gputrace.analysis.stretches import NS, SAME_MOMENT_NS, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputrace.analysis.store import Store

_Owner = tuple[str, str]
_Span = tuple[int, int]

_METRICS = (
    catalogue.DEVICE_TIME.name,
    catalogue.DEVICE_COST.name,
    catalogue.DEVICE_ENERGY.name,
    catalogue.DEVICE_OVERLAP_TIME.name,
    catalogue.DEVICE_UNTRACKED_UPPER_TIME.name,
)

_LEFT_OUT = """
CREATE TEMP TABLE left_out AS
SELECT unnest(CAST($process AS VARCHAR[])) AS process, unnest(CAST($publisher AS VARCHAR[])) AS publisher,
    unnest(CAST($device AS VARCHAR[])) AS device, unnest(CAST($start AS BIGINT[])) AS start_ns,
    unnest(CAST($end AS BIGINT[])) AS end_ns
"""

# What an export adds without any growth of the states goes where the one before it went.
_SHARES = """
CREATE TEMP TABLE left_share AS
WITH covered AS (
    SELECT process, publisher, device, at_ns, CASE WHEN cover_from IS NOT NULL THEN coalesce(sum(
        greatest(0, least(cover_until, end_ns) - greatest(cover_from, left_out.start_ns))
        / (cover_until - cover_from)) FILTER (end_ns IS NOT NULL), 0) END AS share
    FROM reading LEFT JOIN left_out USING (process, publisher, device)
    GROUP BY process, publisher, device, at_ns, cover_from)
SELECT process, publisher, device, at_ns, least(1, coalesce(last_value(share IGNORE NULLS) OVER (
    PARTITION BY process, publisher, device ORDER BY at_ns), 0)) AS share
FROM covered
"""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of a run that is not used, since another publisher's readings are.

    Attributes:
        run: The run.
        start_ns: Where the part begins, Unix time.
        end_ns: Where it ends.
    """

    run: Run
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Whose readings a report uses.

    Attributes:
        runs: What is used; runs that compete in part are cut.
        left_out: What is not.
        notes: A sentence for every publisher that was left out and every gap between two.
    """

    runs: tuple[Run, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()


def choose(runs: Iterable[Run]) -> Choice:
    """Take one publisher per device at any moment: where several are, the one that read it longest.

    Args:
        runs: All there are.
    """
    by_device: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_device[run.device].append(run)
    chosen: list[Run] = []
    left: list[LeftOut] = []
    notes: list[str] = []
    for device, candidates in sorted(by_device.items()):
        taken, passed, said = _of_device(device, candidates)
        chosen.extend(taken)
        left.extend(passed)
        notes.extend((*said, *_gaps(device, taken)))
    return Choice(tuple(chosen), tuple(left), tuple(notes))


def leave_out(store: Store, parts: Sequence[LeftOut]) -> None:
    """Take what is not used out of the points of all metrics of devices.

    Args:
        store: A store whose table `reading` is filled, by `stretches.read`.
        parts: What to leave out, from `choose`.
    """
    if not parts:
        return
    columns = {
        "process": [part.run.process for part in parts],
        "publisher": [part.run.publisher for part in parts],
        "device": [part.run.device for part in parts],
        "start": [part.start_ns for part in parts],
        "end": [part.end_ns for part in parts],
    }
    store.rows(_LEFT_OUT, columns)
    store.rows(_SHARES)
    keys = {"publisher": catalogue.PUBLISHER, "device": catalogue.HW_ID}
    amending.reduce(store, _METRICS, keys, "left_share")


def _of_device(device: str, runs: Sequence[Run]) -> tuple[list[Run], list[LeftOut], list[str]]:
    """Return what is used of one device, what is not, and a sentence for every publisher left out."""
    by_owner: dict[_Owner, list[Run]] = defaultdict(list)
    for run in runs:
        by_owner[run.process, run.publisher].append(run)
    taken: list[Run] = []
    left: list[LeftOut] = []
    notes: list[str] = []
    for owned in sorted(by_owner.values(), key=_precedence):
        rivals: dict[str, None] = {}
        passed: list[LeftOut] = []
        kept: list[Run] = []
        for run in owned:
            for rival, span in _conflicts(run, taken):
                rivals[_who(rival)] = None
                passed.append(LeftOut(run, *span))
            kept.extend(_rest(run, [(part.start_ns, part.end_ns) for part in passed if part.run is run]))
        if passed:
            notes.append(_left_out_note(device, tuple(rivals), passed, whole=not kept))
        taken.extend(kept)
        left.extend(passed)
    return sorted(taken, key=lambda run: run.start_ns), left, notes


def _precedence(runs: Sequence[Run]) -> tuple[float, int, str, str]:
    return (
        -math.fsum(run.wall_s for run in runs),
        min(run.start_ns for run in runs),
        runs[0].process,
        runs[0].publisher,
    )


def _conflicts(run: Run, taken: Iterable[Run]) -> Iterable[tuple[Run, _Span]]:
    for other in taken:
        start_ns, end_ns = max(run.start_ns, other.start_ns), min(run.end_ns, other.end_ns)
        if end_ns - start_ns <= SAME_MOMENT_NS:
            continue
        # What is left within the same moment is no stretch of its own.
        begins = start_ns - run.start_ns <= SAME_MOMENT_NS
        ends = run.end_ns - end_ns <= SAME_MOMENT_NS
        yield other, (run.start_ns if begins else start_ns, run.end_ns if ends else end_ns)


def _rest(run: Run, spans: Sequence[_Span]) -> Iterable[Run]:
    """Yield what is left of a run beyond these spans; no clock can be compared with a part of it."""
    if not spans:
        yield run
        return
    edges = [run.start_ns, *itertools.chain.from_iterable(sorted(spans)), run.end_ns]
    for start_ns, end_ns in zip(edges[::2], edges[1::2], strict=True):
        if end_ns - start_ns > SAME_MOMENT_NS:
            wall_s = run.wall_s * (end_ns - start_ns) / (run.end_ns - run.start_ns)
            yield replace(run, start_ns=start_ns, end_ns=end_ns, wall_s=wall_s, elapsed_s=0.0, states_s=0.0)


def _left_out_note(device: str, rivals: Sequence[str], parts: Sequence[LeftOut], *, whole: bool) -> str:
    length_s = sum(part.end_ns - part.start_ns for part in parts) / NS
    how_long = "" if whole else f" for {length_s:,.1f} s of them"
    return (
        f"Device {device} was read by more than one process at once; the readings of "
        f"{' and '.join(rivals)} are used, those of {_who(parts[0].run)} are not{how_long}."
    )


def _who(run: Run) -> str:
    return f"publisher {run.publisher or run.process}"


def _gaps(device: str, runs: Sequence[Run]) -> Iterable[str]:
    reached_ns, missing_ns = None, 0
    for run in runs:
        if reached_ns is not None and run.start_ns - reached_ns > SAME_MOMENT_NS:
            missing_ns += run.start_ns - reached_ns
        reached_ns = max(run.end_ns, reached_ns or 0)
    if missing_ns:
        yield (
            f"Nobody read device {device} for {missing_ns / NS:,.1f} s between two publishers; "
            "that time is in no row."
        )
    silent_ns = max((run.exported_ns for run in runs), default=0) - (reached_ns or 0)
    # The last states are as old as the last tick.
    if silent_ns > SAME_MOMENT_NS:
        yield (
            f"Device {device} has no state in the last {silent_ns / NS:,.1f} s, in which its publisher "
            "went on exporting; that time is in no row."
        )
