"""How long each kind of token takes in a step of one model on one kind of device, learnt from its steps.

A step that computes many prompt tokens is bound by arithmetic, one that only decodes by memory, and no line
holds for both: there is a fit for each of four regimes, by prompt tokens of the step. A member's share is
what it adds to a step that grows from nothing to what it is (Aumann and Shapley), so a large step has the
prices of each regime that it grows through, for the part of it that lies there.
"""

from __future__ import annotations

import bisect
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gputrace import catalogue
from gputrace.steps_fit import Solution, Sums
from gputrace.steps_work import COEFFICIENTS, weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.steps_work import Vector

#: Until there is a fit, in the time of one prompt token. From data sheets and the sizes of a model of 8
#: billion parameters in 16 bits (32 layers, width 4096, 8 key/value heads of 128), which is read whole once a
#: step. That takes as long as computing FLOPS / (bytes/s) tokens: 153 on an A100 (312 TFLOPS, 2.04 TB/s),
#: 203 on a T4 (65, 0.32), 295 on an H100 (989, 3.35), so 200. A token of context is 131 kB of keys and values
#: against 16 GB of weights. A pair costs 4 x 4096 x 32 operations against the 16 billion of a token, a
#: thousand of them 0.033.
CONSTANTS: Vector = (200.0, 1.0, 1.0, 0.0016, 0.033)

#: The first number of prompt tokens of each regime but the first.
_BOUNDS = (1, 128, 512)
_PREFILL, _PAIRS = COEFFICIENTS.index("prefill"), COEFFICIENTS.index("pairs")
_WHOLE: Vector = (1.0, 1.0, 1.0, 1.0, 1.0)

#: A fit is used from so many steps on,
LEAST_STEPS = 500
#: and while half of the steps are predicted to within this part of their time.
WORST_RESIDUAL = 0.25
#: Each step is looked at until there are so many, then one in eight.
_ENOUGH = 2_000
_EVERY = 8
#: Steps of a regime after which one is forgotten.
MEMORY = 20_000
#: They are forgotten in blocks of so many.
_BLOCK = MEMORY // 10
#: Steps that are looked at between two solutions, and before the first.
_PATIENCE = 50
_FIRST = LEAST_STEPS // 2
#: A step that is farther off than by this part counts as if it were so far off.
_FARTHEST = 1.0
#: The latest residuals, of which the median is taken.
_RECENT = 512


def regime_of(prefill: float) -> int:
    """Return the number of the regime of a step.

    Args:
        prefill: Prompt tokens that it computes.
    """
    return bisect.bisect_right(_BOUNDS, prefill)


class Fit(NamedTuple):
    """What is in force for one regime.

    Attributes:
        version: How many there were before it in this process; 0 for the constants.
        solution: How long each kind of token takes, s; None for the constants.
    """

    version: int
    solution: Solution | None

    @property
    def theta(self) -> Vector:
        """How long each kind of token takes, s; the constants in a unit of their own."""
        return CONSTANTS if self.solution is None else self.solution.theta


class Regime:
    """What is known of the steps of one regime.

    Attributes:
        fit: What is in force.
        residual: Median of how far the latest steps were off what was expected, as a part of that;
            None until something was.
    """

    __slots__ = ("_blocks", "_candidate", "_looked", "_residuals", "_seen", "_version", "fit", "residual")

    def __init__(self) -> None:
        self.fit = Fit(0, None)
        self.residual: float | None = None
        self._version = 0
        self._seen = 0
        self._begin()

    def _begin(self) -> None:
        self._looked = 0
        self._candidate: Solution | None = None
        self._residuals: deque[float] = deque(maxlen=_RECENT)
        self._clear()

    def _clear(self) -> None:
        self._blocks: deque[tuple[int, Sums]] = deque([(self._seen, Sums())])

    @property
    def steps(self) -> int:
        """How many steps the fit is made of."""
        return sum(sums.steps for _, sums in self._blocks)

    def learn(self, x: Vector, took_s: float) -> None:
        """Learn from a step.

        Args:
            x: What its members did, summed, in the order of ``steps_work.COEFFICIENTS``.
            took_s: How long it held its device.
        """
        self._seen += 1
        if took_s <= 0 or (self._looked >= _ENOUGH and self._seen % _EVERY):
            return
        self._looked += 1
        self._forget()
        # Errors grow with the step: by what it should have taken, since the quick ones would else count more.
        residual = None
        if self._candidate is None:
            scale = weight(CONSTANTS, x)
        else:
            expected = weight(self._candidate.theta, x)
            off = (took_s - expected) / expected if expected > 0 else _FARTHEST
            self._residuals.append(abs(off))
            residual = min(_FARTHEST, max(-_FARTHEST, off))
            scale = max(expected, took_s / (1 + _FARTHEST))
        self._blocks[-1][1].add([one / scale for one in x], took_s / scale, residual)
        if self._looked % _PATIENCE == 0:
            self._solve()

    def _forget(self) -> None:
        if self._seen - self._blocks[-1][0] >= _BLOCK:
            self._blocks.append((self._seen, Sums()))
        while self._seen - self._blocks[0][0] >= MEMORY + _BLOCK:
            self._blocks.popleft()

    def _solve(self) -> None:
        if self._candidate is None:
            if self._looked >= _FIRST:
                self._candidate = Sums.total(sums for _, sums in self._blocks).solve(CONSTANTS)
                # They were scaled by guess.
                self._clear()
            return
        self._candidate = Sums.total(sums for _, sums in self._blocks).solve(CONSTANTS)
        self.residual = sorted(self._residuals)[len(self._residuals) // 2]
        if self._looked >= LEAST_STEPS and self.residual <= WORST_RESIDUAL:
            self._version += 1
            self.fit = Fit(self._version, self._candidate)
        elif self.fit.solution is not None:
            # What held once does so no more: the model, its engine or its neighbours are others.
            self.fit = Fit(0, None)
            self._begin()


class Prices(NamedTuple):
    """What the tokens of one step cost its members.

    Attributes:
        theta: By coefficient; s, or the unit of the constants.
        parts: Which regimes it is from, by number, and how much of each coefficient; none for the constants.
    """

    theta: Vector
    parts: tuple[tuple[int, Vector], ...]


#: Those of the constants.
NO_PRICES = Prices(CONSTANTS, ())


class Weights:
    """What is known of the steps of one model on one kind of device.

    Attributes:
        regimes: In the order of ``catalogue.STEP_REGIMES``: the last is of all steps.
    """

    __slots__ = ("regimes",)

    def __init__(self) -> None:
        self.regimes = tuple(Regime() for _ in catalogue.STEP_REGIMES)

    def learn(self, x: Vector, took_s: float) -> None:
        """Learn from a step; see ``Regime.learn``."""
        self.regimes[regime_of(x[_PREFILL])].learn(x, took_s)
        self.regimes[-1].learn(x, took_s)

    def prices(self, x: Sequence[float]) -> Prices:
        """Return what the tokens of a step cost its members.

        Args:
            x: What its members do, summed.
        """
        prefill = x[_PREFILL]
        # The fixed part is there from the first token on, when nothing is yet computed of prompts.
        lowest = self._known(0, prefill)
        if lowest is None:
            return NO_PRICES
        if not prefill:
            solution = self.regimes[lowest].fit.solution
            return NO_PRICES if solution is None else Prices(solution.theta, ((lowest, _WHOLE),))
        portions = {lowest: [1.0, 0.0, 0.0, 0.0, 0.0]}
        for regime, portion in _way(prefill):
            known = self._known(regime, prefill)
            if known is None:
                return NO_PRICES
            before = portions.setdefault(known, [0.0] * len(COEFFICIENTS))
            portions[known] = [before[0], *(one + portion for one in before[1:])]
        return self._blended(portions)

    def _blended(self, portions: dict[int, list[float]]) -> Prices:
        theta = [0.0] * len(COEFFICIENTS)
        parts = []
        for regime, much in portions.items():
            solved = self.regimes[regime].fit.theta
            theta = [so_far + part * one for so_far, part, one in zip(theta, much, solved, strict=True)]
            parts.append((regime, _vector(much)))
        return Prices(_vector(theta), tuple(parts))

    def _known(self, regime: int, prefill: float) -> int | None:
        """Return a regime that is learnt: itself, or that of all steps, if it is rarely seen."""
        if self.regimes[regime].fit.solution is not None:
            return regime
        every = self.regimes[-1].fit.solution
        # One that has never seen a prompt would take it for free.
        if every is None or (prefill and not (every.theta[_PREFILL] or every.theta[_PAIRS])):
            return None
        return len(self.regimes) - 1


def _way(prefill: float) -> list[tuple[int, float]]:
    """Return the regimes that a step grows through, and the part of the way that lies in each."""
    found, below = [], 0.0
    for regime, bound in enumerate((*_BOUNDS[1:], prefill), 1):
        upto = min(prefill, bound)
        if upto > below:
            found.append((regime, (upto - below) / prefill))
            below = upto
    return found


def _vector(values: Sequence[float]) -> Vector:
    one, two, three, four, five = values
    return (one, two, three, four, five)
