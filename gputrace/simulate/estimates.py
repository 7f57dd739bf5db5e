"""What a watcher of the simulated cascades would publish: `gputrace.escalation.estimate`, with its bounds.

In production `gputrace payoff` estimates, from the log events of all processes. Here each process knows
its own requests, and the estimates are plain: a share that was counted, and a mean over audits with a normal
interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from gputrace.simulate.demand import Asked

#: Quality is not estimated from fewer audits.
_FEWEST = 30
_NORMAL_95 = 1.96

Rows = list[tuple[dict[str, str], float]]


@dataclass
class _Seen:
    """What was seen of one feature's requests to one cascade.

    Attributes:
        light: Cost of the light answers.
        heavy: What the heavy answers did cost.
        always: What they would have, had all requests had one.
        requests: How many there were.
        kept: Of these, answered by the light model.
        audits: Of these, audited.
        differences: Light less heavy quality, summed over audits; and of its squares.
    """

    light: float = 0.0
    heavy: float = 0.0
    always: float = 0.0
    requests: int = 0
    kept: int = 0
    audits: int = 0
    differences: tuple[float, float] = (0.0, 0.0)


class Estimates:
    """Estimates of one process."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def decided(self, one: Asked, decision: str) -> None:
        """Take note of a request to a cascade.

        Args:
            one: The request.
            decision: ``kept``, ``escalated`` or ``audited``.
        """
        ladder = one.feature.kind.ladder
        if ladder is None:
            return
        seen = self._seen.setdefault((ladder.name, one.feature.name), _Seen())
        seen.requests += 1
        seen.light += one.size * ladder.light.cost
        seen.always += one.size * ladder.heavy.cost
        if decision == "escalated":
            seen.heavy += one.size * ladder.heavy.cost
            return
        seen.kept += 1
        if decision == "audited":
            difference = float(one.light_right) - float(one.heavy_right)
            seen.audits += 1
            total, squares = seen.differences
            seen.differences = (total + difference, squares + difference * difference)

    def rows(self) -> Rows:
        """Return the rows of ``gputrace.escalation.estimate``."""
        found: Rows = []
        for (cascade, feature), seen in self._seen.items():
            of = {catalogue.ESCALATION_CASCADE: cascade, catalogue.FEATURE: feature}
            for quantity, bounds in _estimated(seen).items():
                for bound, value in bounds.items():
                    named = {catalogue.ESCALATION_QUANTITY: quantity, catalogue.ESCALATION_BOUND: bound}
                    found.append(({**of, **named}, value))
        return found


def _estimated(seen: _Seen) -> dict[str, dict[str, float]]:
    """Return the estimates by quantity and bound; of quality only what enough audits tell."""
    saved = 1 - (seen.light + seen.heavy) / seen.always
    found = {
        "savings_frac": {"low": saved, "value": saved, "high": saved},
        "audits_needed": {"value": float(max(0, _FEWEST - seen.audits))},
    }
    if seen.audits >= _FEWEST:
        middle, half = _quality(seen)
        found["quality_delta"] = {"low": middle - half, "value": middle, "high": middle + half}
    return found


def _quality(seen: _Seen) -> tuple[float, float]:
    """Return by how much the quality served differs from always-heavy, and half of its interval."""
    total, squares = seen.differences
    mean = total / seen.audits
    variance = max(0.0, squares / seen.audits - mean * mean)
    kept = seen.kept / seen.requests
    return kept * mean, kept * _NORMAL_95 * math.sqrt(variance / seen.audits)
