"""The driver's clocks against the report: do they agree?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.demo.truth import Truth

WALL_TOLERANCE = 0.001
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """One quantity, measured twice.

    Attributes:
        name: What was measured.
        driver_s: By the driver's own clock.
        report_s: In the report; None where nothing read it.
        tolerance: The difference that is allowed, as a share of the driver's value.
    """

    name: str
    driver_s: float
    report_s: float | None
    tolerance: float = TOLERANCE

    @property
    def difference(self) -> float | None:
        """By how much the report exceeds the driver, as a share of the driver's value."""
        if self.report_s is None:
            return None
        if not self.driver_s:
            return 0.0 if not self.report_s else float("inf")
        return self.report_s / self.driver_s - 1

    @property
    def agrees(self) -> bool:
        """Whether the difference is allowed; what nothing read agrees with nothing."""
        return self.difference is not None and abs(self.difference) <= self.tolerance

    @property
    def verdict(self) -> str:
        """The outcome in a word."""
        if self.report_s is None:
            return "not read"
        return "agrees" if self.agrees else "DIFFERS"


def compare(truth: Truth, report: Mapping[str, Any]) -> list[Check]:
    """Set each of the driver's quantities beside the report's.

    Args:
        truth: The driver's measurement.
        report: The object that ``gputrace report --json`` prints.
    """
    charged = charged_by_feature(report)
    totals = report["totals"]
    # Where nothing reads a GPU, its time is unknown: then 0 untracked is no measurement.
    read = totals["unknown_s"] <= TOLERANCE * totals["wall_s"]
    return [
        Check("wall", truth.wall_s, totals["wall_s"], WALL_TOLERANCE),
        *(Check(feature, spent, charged.get(feature, 0.0)) for feature, spent in truth.features.items()),
        Check("untracked", truth.untracked_s, totals["untracked_s"] if read else None),
        Check("idle", truth.idle_s, totals["idle_s"] if read else None),
    ]


def charged_by_feature(report: Mapping[str, Any]) -> dict[str, float]:
    """Charged seconds of each feature, over all rows that name it."""
    charged: dict[str, float] = {}
    for row in report["rows"]:
        charged[row["feature"]] = charged.get(row["feature"], 0.0) + row["charged_s"]
    return charged
