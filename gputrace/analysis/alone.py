"""How busy the device is while one feature alone holds it: what a feature pays for and does not use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis import readings
from gputrace.analysis.busy import Alone
from gputrace.analysis.store import FilesChangedError, Store
from gputrace.analysis.survey import NoDataError, survey

if TYPE_CHECKING:
    from pathlib import Path

_METRICS = (catalogue.FEATURE_ALONE_TIME, catalogue.FEATURE_ALONE_BUSY_TIME, catalogue.FEATURE_ALONE_PERIODS)
_ATTEMPTS = 3


@dataclass(slots=True)
class FeatureAlone:
    """A feature that alone held a device of one kind.

    Attributes:
        feature: The feature.
        name: `hw.name` of the devices.
        told: The sample periods in which it did.
    """

    feature: str
    name: str | None
    told: Alone = field(default_factory=Alone)


def alone(path: Path) -> list[FeatureAlone]:
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


def _read(store: Store) -> list[FeatureAlone]:
    if not store.rows("SELECT count(*) FROM point")[0][0]:
        return []
    found: dict[tuple[str, str | None], FeatureAlone] = {}
    for one in readings.read(store).series:
        key = (
            one.attributes.get(catalogue.FEATURE, catalogue.NO_FEATURE),
            one.attributes.get(catalogue.HW_NAME),
        )
        found.setdefault(key, FeatureAlone(*key)).told.add(one)
    return sorted(found.values(), key=lambda row: (row.told.share is None, row.told.share or 0, row.feature))
