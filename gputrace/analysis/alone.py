"""How busy the device is while one feature alone holds it: what a feature pays for and does not use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import readings
from gputrace.analysis.store import FilesChangedError, Store
from gputrace.analysis.survey import NoDataError, survey

if TYPE_CHECKING:
    from pathlib import Path

_METRICS = (catalogue.FEATURE_ALONE_TIME, catalogue.FEATURE_ALONE_BUSY_TIME, catalogue.FEATURE_ALONE_PERIODS)
_ATTEMPTS = 3


@dataclass(slots=True)
class Alone:
    """The sample periods in which one feature alone held a device of one kind.

    Attributes:
        feature: The feature.
        name: `hw.name` of the devices.
        periods: How many periods.
        time_s: Their length.
        busy_s: How much of it the device was busy.
    """

    feature: str
    name: str | None
    periods: float = 0.0
    time_s: float = 0.0
    busy_s: float = 0.0

    @property
    def share(self) -> float | None:
        """Busy time over time, `None` where there is none."""
        return self.busy_s / self.time_s if self.time_s > 0 else None


def alone(path: Path) -> list[Alone]:
    """Return what the files say of features that held a device alone, the least busy first.

    Args:
        path: Folder that gputrace wrote to, or one file of it.

    Raises:
        NoDataError: The path is missing, or nothing there is OTLP/JSON.
    """
    for _ in range(_ATTEMPTS):
        store = Store(survey(path))
        try:
            store.load_points(_METRICS)
            return _read(store)
        except FilesChangedError:
            continue
        finally:
            store.close()
    raise NoDataError(f"{path}: files kept going away while they were read. Try again.")


def _read(store: Store) -> list[Alone]:
    if not store.rows("SELECT count(*) FROM point")[0][0]:
        return []
    found: dict[tuple[str, str | None], Alone] = {}
    for one in readings.read(store).series:
        key = (
            one.attributes.get(catalogue.FEATURE, catalogue.NO_FEATURE),
            one.attributes.get(catalogue.HW_NAME),
        )
        row = found.setdefault(key, Alone(*key))
        if one.metric == catalogue.FEATURE_ALONE_TIME.name:
            row.time_s += one.value
        elif one.metric == catalogue.FEATURE_ALONE_BUSY_TIME.name:
            row.busy_s += one.value
        else:
            row.periods += one.value
    return sorted(found.values(), key=lambda row: (row.share is None, row.share, row.feature))
