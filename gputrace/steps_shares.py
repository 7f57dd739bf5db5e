"""How far the features' shares of learnt steps may be off, because the weights may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace.steps_work import COEFFICIENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.steps_weights import Prices, Weights
    from gputrace.steps_work import Vector

    #: By number of the regime whose prices held.
    Sums = dict[int, list[float]]

_SIZE = len(COEFFICIENTS)


class Shares:
    """What features did in the steps of one model on one kind of device, five numbers for each regime."""

    __slots__ = ("_all", "_features")

    def __init__(self) -> None:
        self._all: Sums = {}
        self._features: dict[str, Sums] = {}

    def add(self, done: Iterable[tuple[str, Vector]], prices: Prices) -> None:
        """Add a step.

        Args:
            done: Features and what they did in it.
            prices: What its tokens cost.
        """
        for feature, x in done:
            sums = self._features.setdefault(feature, {})
            for regime, parts in prices.parts:
                much = [part * one for part, one in zip(parts, x, strict=True)]
                for to in (sums, self._all):
                    before = to.get(regime)
                    to[regime] = (
                        much if before is None else [a + b for a, b in zip(before, much, strict=True)]
                    )

    def of(self, weights: Weights) -> dict[str, tuple[float, float]]:
        """Return the share of each feature by the weights in force, and its standard error, 0 to 1.

        By the delta method. It is the error of the weights alone; how far a line is from the
        truth at all, their residual tells.
        """
        solutions = [regime.fit.solution for regime in weights.regimes]
        # Of what was learnt once and has been forgotten since, no error is known.
        known = {number: found for number, found in enumerate(solutions) if found is not None}
        if not known or not set(self._all) <= set(known):
            return {}
        whole = sum(_dot(known[regime].theta, much) for regime, much in self._all.items())
        if whole <= 0:
            return {}
        found = {}
        for feature, sums in self._features.items():
            share = sum(_dot(known[regime].theta, much) for regime, much in sums.items()) / whole
            variance = 0.0
            for regime, much in self._all.items():
                own = sums.get(regime, [0.0] * _SIZE)
                gradient = [(one - share * other) / whole for one, other in zip(own, much, strict=True)]
                variance += known[regime].variance(gradient)
            found[feature] = (share, variance**0.5)
        return found


def _dot(theta: Iterable[float], much: Iterable[float]) -> float:
    return sum(a * b for a, b in zip(theta, much, strict=True))
