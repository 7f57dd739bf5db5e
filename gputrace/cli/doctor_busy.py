"""Features that hold a device long and keep it little busy, from the files of earlier runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputrace.cli.doctor_findings import Section
from gputrace.devices.readings import FEWEST_PERIODS

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.analysis.alone import FeatureAlone
    from gputrace.cli.doctor_apart import Answer

LOW_SHARE = 0.3
_REMEDY = (
    'let it hold the device for its own steps alone (hold="steps") rather than for the whole call, '
    "move what waits or computes on the processor out of it, and batch more"
)


class Alones(NamedTuple):
    """What the data folder says.

    Attributes:
        rows: By feature; `None` where it cannot be read.
        problem: Why not.
    """

    rows: tuple[FeatureAlone, ...] | None
    problem: str | None = None


def read_alones(path: Path) -> Alones:
    """Return which features held a device alone, and how busy it was."""
    try:
        from gputrace.analysis.alone import alone
        from gputrace.analysis.survey import NoDataError
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "duckdb":
            raise
        return Alones(None, 'reading it needs duckdb: pip install "gputrace[report]"')
    try:
        return Alones(tuple(alone(path)))
    except NoDataError as error:
        return Alones(None, str(error))


def busy_section(path: Path | None, answer: Answer) -> Section:
    """Say which features hold long and compute little.

    Args:
        path: The data folder; `None` where none is written or it is not there yet.
        answer: `Alones`, or why there are none.
    """
    section = Section("busy", "Features that hold a device and let it wait")
    section.facts = {"data": None if path is None else str(path), "features": []}
    if path is None:
        section.note("there is no data folder to look into", "name one with --data")
        return section
    found: Alones | None = answer.value
    if found is None or found.rows is None:
        section.note(f"{path}: {answer.problem if found is None else found.problem}")
        return section
    section.facts["features"] = [_facts(row) for row in found.rows]
    told = [(row, row.told.share) for row in found.rows if row.told.share is not None]
    low = [(row, share) for row, share in told if share < LOW_SHARE]
    for row, share in low:
        section.warn(
            f"{row.feature} kept {row.name or 'the device'} busy for {share:.0%} of the time "
            f"in which it alone held it ({row.told.time_s:.0f} s in {row.told.periods} periods)",
            _REMEDY,
        )
    if told and not low:
        section.ok(f"none of {len(told)} feature(s) under {LOW_SHARE:.0%} busy")
    if not told:
        section.note(f"{path}: no feature held a device alone for {FEWEST_PERIODS} sample periods")
    return section


def _facts(row: FeatureAlone) -> dict[str, str | float | None]:
    return {
        "feature": row.feature,
        "name": row.name,
        "periods": row.told.periods,
        "time_s": row.told.time_s,
        "busy_share": row.told.share,
    }
