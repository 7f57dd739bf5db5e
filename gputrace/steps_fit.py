"""Least squares in five unknowns, none of them negative: how long each kind of token takes. Pure arithmetic.

Steps may leave open how a sum is made up: a server that fills each step to the same number of tokens never
shows a prompt token more without one less of another kind. What they leave open is taken from a prior, and is
as uncertain as that; what they tell outweighs it. That is a ridge towards the prior, the mode of a normal
posterior.

Plain Python, since numpy is no dependency: some 10 microseconds a step that is looked at,
and a fraction of a millisecond whenever the equations are solved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputrace.steps_work import Vector

    Matrix = list[list[float]]

_SIZE = 5
_UPPER = tuple((row, column) for row in range(_SIZE) for column in range(row, _SIZE))
#: Below this, a column of the scaled equations is a sum of others.
_SINGULAR = 1e-10
#: Standard deviation of the prior, as a part of what it expects.
_PRIOR_WIDTH = 1.0
#: Standard deviation of one step, as a part of it: as a first guess, and at least.
_FIRST_NOISE, _LEAST_NOISE = 0.1, 1e-3
#: The prior is weighed anew, by how noisy steps have turned out to be, so often.
_REWEIGHED = 4
#: Steps of the solver; each tries one more unknown.
_MOST_STEPS = 3 * _SIZE


class Solution(NamedTuple):
    """What the equations say.

    Attributes:
        theta: The unknowns; 0 for those that would be negative, or that are in no step.
        covariance: Of their errors, 0 where an unknown is held at 0.
    """

    theta: Vector
    covariance: Matrix

    def variance(self, gradient: Sequence[float]) -> float:
        """Return the variance of what changes with the unknowns by ``gradient``: the delta method."""
        return max(
            0.0,
            sum(
                one * self.covariance[row][column] * other
                for row, one in enumerate(gradient)
                for column, other in enumerate(gradient)
            ),
        )


class Sums:
    """The normal equations of some steps.

    Attributes:
        steps: How many.
    """

    __slots__ = ("_judged", "_meat", "_outer", "_right", "_targets", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self._outer = [0.0] * len(_UPPER)
        self._right = [0.0] * _SIZE
        # Of the outer products, each times its squared residual, where there was a solution to judge by.
        self._meat = [0.0] * len(_UPPER)
        self._judged = 0
        self._targets = 0.0

    def add(self, row: Sequence[float], target: float, residual: float | None) -> None:
        """Add one step.

        Args:
            row: How much of each unknown is in it.
            target: Their sum, as measured; both over the scale of its error.
            residual: What the last solution leaves of the target.
        """
        one, two, three, four, five = row
        products = (
            one * one, one * two, one * three, one * four, one * five,
            two * two, two * three, two * four, two * five,
            three * three, three * four, three * five,
            four * four, four * five,
            five * five,
        )  # fmt: skip
        self.steps += 1
        self._outer = [a + b for a, b in zip(self._outer, products, strict=True)]
        self._right = [a + b * target for a, b in zip(self._right, row, strict=True)]
        self._targets += target * target
        if residual is not None:
            square = residual * residual
            self._judged += 1
            self._meat = [a + b * square for a, b in zip(self._meat, products, strict=True)]

    @staticmethod
    def total(parts: Iterable[Sums]) -> Sums:
        """Return the equations of several parts together."""
        whole = Sums()
        for part in parts:
            whole.steps += part.steps
            whole._judged += part._judged  # noqa: SLF001 - its own class
            whole._targets += part._targets  # noqa: SLF001
            whole._outer = [a + b for a, b in zip(whole._outer, part._outer, strict=True)]  # noqa: SLF001
            whole._right = [a + b for a, b in zip(whole._right, part._right, strict=True)]  # noqa: SLF001
            whole._meat = [a + b for a, b in zip(whole._meat, part._meat, strict=True)]  # noqa: SLF001
        return whole

    def solve(self, prior: Vector) -> Solution:
        """Return the unknowns that fit best, and how far they may be off.

        The covariance is the sandwich estimate, which needs no errors of equal size, and what the prior
        leaves open.

        Args:
            prior: How the unknowns stand to each other where nothing is known, in any unit; above 0.
        """
        noise = _FIRST_NOISE**2
        for _ in range(_REWEIGHED):
            solution = self._solve(prior, noise)
            before, noise = noise, self._noise(solution)
            if noise > before / 2:
                break
        return self._solve(prior, noise, judged=True)

    def _solve(self, prior: Vector, noise: float, *, judged: bool = False) -> Solution:
        outer = _full(self._outer)
        seen = [at for at in range(_SIZE) if outer[at][at] > 0]
        expected = self._expected(outer, prior)
        # How sure the prior is, in steps.
        sure = [noise / (_PRIOR_WIDTH * one) ** 2 if one > 0 else 0.0 for one in expected]
        for at in seen:
            outer[at][at] += sure[at]
        # Each unknown in a unit of its own, since a context token takes a millionth of a step.
        inverse = [outer[at][at] ** -0.5 if at in seen else 0.0 for at in range(_SIZE)]
        scaled = [[outer[i][j] * inverse[i] * inverse[j] for j in range(_SIZE)] for i in range(_SIZE)]
        right = [(self._right[at] + sure[at] * expected[at]) * inverse[at] for at in range(_SIZE)]
        found = nonnegative(scaled, right, seen)
        theta = [found.get(at, 0.0) * inverse[at] for at in range(_SIZE)]
        of_prior = [noise * one for one in sure]
        covariance = self._sandwich(scaled, inverse, list(found), of_prior) if judged else []
        return Solution((theta[0], theta[1], theta[2], theta[3], theta[4]), covariance)

    def _noise(self, solution: Solution) -> float:
        """Return the mean square of what a solution leaves of a step, as a part of it."""
        theta, outer = solution.theta, _full(self._outer)
        explained = sum(theta[i] * outer[i][j] * theta[j] for i in range(_SIZE) for j in range(_SIZE))
        met = sum(one * other for one, other in zip(theta, self._right, strict=True))
        left = self._targets - 2 * met + explained
        return max(_LEAST_NOISE**2, left / max(1, self.steps))

    def _expected(self, outer: Matrix, prior: Vector) -> list[float]:
        """Return the prior in the unit in which it fits the steps best."""
        square = sum(prior[i] * outer[i][j] * prior[j] for i in range(_SIZE) for j in range(_SIZE))
        product = sum(one * other for one, other in zip(prior, self._right, strict=True))
        unit = product / square if square > 0 and product > 0 else 0.0
        return [unit * one for one in prior]

    def _sandwich(
        self, scaled: Matrix, inverse: list[float], free: list[int], of_prior: list[float]
    ) -> Matrix:
        covariance = [[0.0] * _SIZE for _ in range(_SIZE)]
        if self._judged <= len(free):
            return covariance
        meat = _full(self._meat)
        bread = [solved(scaled, [float(at == other) for other in range(_SIZE)], free) or {} for at in free]
        # As many as were solved for, less what the unknowns themselves take up.
        growth = self.steps / self._judged * self.steps / max(1, self.steps - len(free))
        for at, left in zip(free, bread, strict=True):
            for other, right in zip(free, bread, strict=True):
                total = sum(
                    left[i]
                    * (growth * meat[i][j] + (of_prior[i] if i == j else 0.0))
                    * inverse[i]
                    * inverse[j]
                    * right[j]
                    for i in left
                    for j in right
                )
                covariance[at][other] = total * inverse[at] * inverse[other]
        return covariance


def _full(upper: Sequence[float]) -> Matrix:
    matrix = [[0.0] * _SIZE for _ in range(_SIZE)]
    for (row, column), value in zip(_UPPER, upper, strict=True):
        matrix[row][column] = matrix[column][row] = value
    return matrix


def nonnegative(matrix: Matrix, right: Sequence[float], seen: Sequence[int]) -> dict[int, float]:
    """Solve least squares, given as normal equations, for unknowns that are not negative.

    By the active set of Lawson and Hanson: one unknown after another leaves 0, those that
    would turn negative go back.

    Args:
        matrix: With ones on its diagonal.
        right: The right side.
        seen: The unknowns that are in any equation.

    Returns:
        Those that are above 0.
    """
    found: dict[int, float] = {}
    refused: set[int] = set()
    for _ in range(_MOST_STEPS):
        gains = {
            at: right[at] - sum(matrix[at][other] * value for other, value in found.items())
            for at in seen
            if at not in found and at not in refused
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= _SINGULAR * max(map(abs, right)):
            break
        tried = _freed(matrix, right, found, best)
        if best in tried:
            # What could not be told from others before may be told from these.
            refused.clear()
            found = tried
        else:
            refused.add(best)
    return found


def _freed(matrix: Matrix, right: Sequence[float], found: dict[int, float], best: int) -> dict[int, float]:
    """Return the solution with one more unknown; without it where it cannot be told from the others."""
    values = {**found, best: 0.0}
    while values:
        solution = solved(matrix, right, list(values))
        if solution is None:
            return found
        negative = [at for at, value in solution.items() if value <= 0]
        if not negative:
            return solution
        # As far towards the solution as all stay at 0 or above.
        part = min(values[at] / (values[at] - solution[at]) if values[at] > 0 else 0.0 for at in negative)
        moved = {at: value + part * (solution[at] - value) for at, value in values.items()}
        values = {at: value for at, value in moved.items() if at not in negative or value > _SINGULAR}
        if best not in values:
            return found
    return values


def solved(matrix: Matrix, right: Sequence[float], unknowns: Sequence[int]) -> dict[int, float] | None:
    """Solve for some of the unknowns, the others being 0.

    Returns:
        Their values, None where one cannot be told from the others.
    """
    rows = [[*(matrix[at][other] for other in unknowns), right[at]] for at in unknowns]
    size = len(rows)
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        if abs(rows[pivot][at]) < _SINGULAR:
            return None
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for below in range(at + 1, size):
            factor = rows[below][at] / rows[at][at]
            rows[below] = [a - factor * b for a, b in zip(rows[below], rows[at], strict=True)]
    values = [0.0] * size
    for at in reversed(range(size)):
        known = sum(rows[at][after] * values[after] for after in range(at + 1, size))
        values[at] = (rows[at][size] - known) / rows[at][at]
    return dict(zip(unknowns, values, strict=True))
