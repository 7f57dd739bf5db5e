"""What the estimators answer with."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_AUDITS = 30
"""Below it an interval would promise more than it can hold."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number, and how sure it is.

    Attributes:
        value: The number; `None` where the log cannot tell it, and `reason` says why.
        low: Lower bound; `None` where there is none, and `reason` says why.
        high: Upper bound.
        method: How it was obtained.
        n: Requests that it speaks of.
        effective_n: Observations that it rests on, once unequal weights are allowed for.
        reason: Why there is no value, or no bounds.
        needs: How many more audits (graded ones, for quality) give bounds; `None` where audits are not what
            is missing.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""
    n: int = 0
    effective_n: float = 0.0
    reason: str | None = None
    needs: int | None = None

    def __post_init__(self) -> None:
        """Keep the number within its bounds, which rounding can leave by a last digit."""
        if self.value is not None and self.low is not None and self.high is not None:
            object.__setattr__(self, "low", min(self.low, self.value))
            object.__setattr__(self, "high", max(self.high, self.value))

    @property
    def half_width(self) -> float | None:
        """Half the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What another threshold would have done to the same requests.

    Attributes:
        threshold: Escalate what is below it.
        savings_frac: Saved of always-heavy; its bounds hold for all thresholds of a sweep at once.
        quality_delta: Quality served less that of always-heavy; bounds likewise.
        supported: The log has audits and grades wherever this threshold needs them.
    """

    threshold: float
    savings_frac: Estimate
    quality_delta: Estimate
    supported: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """Which threshold to use.

    Attributes:
        guaranteed: Cheapest threshold whose loss is within the target with the asked confidence, if any.
        point: Cheapest threshold whose estimated loss is within the target. Not guaranteed: it is the one
            whose noise looked best.
        reason: What this rests on, and what the log cannot tell, in words.
    """

    guaranteed: float | None
    point: float | None
    reason: str


def absent(reason: str, n: int, needs: int | None = None) -> Estimate:
    """Return that the log cannot tell.

    Args:
        reason: Why.
        n: Requests that were asked about.
        needs: Audits that would help.
    """
    return Estimate(None, method="not identified", n=n, reason=reason, needs=needs)
