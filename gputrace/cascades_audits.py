"""Which kept requests are audited: drawn with a probability that is known before the draw, within a budget.

What a budget allows is decided by chance as well: it falls as the budget runs
down, instead of shutting a door. So the probability that a request is audited
is known for every kept request, whether one was drawn or not, and estimates
can weigh by it.
"""

from __future__ import annotations

import itertools
import random
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import faults
from gputrace.cascades_policy import as_number

if TYPE_CHECKING:
    from collections.abc import Callable

#: Why an audit that was drawn does not run.
BUDGET, LOAD, QUEUE, NO_CALLBACK = "budget", "load", "queue", "no_callback"

_SECONDS_AN_HOUR = 3_600.0
#: What of an hour's budget may be spent at once.
_BURST_PART = 0.1
#: Audits by which a share may be ahead of its requests.
_BURST_AUDITS = 10.0
#: Weight of the last audit in the mean of what audits take.
_SMOOTHING = 0.1


class Draw(NamedTuple):
    """Whether a kept request is audited.

    Attributes:
        drawn: The rate said so.
        runs: And the rest allows it.
        propensity: Probability, before the draw, that it would run.
        reason: Why it does not although it was drawn.
    """

    drawn: bool
    runs: bool
    propensity: float
    reason: str | None = None


NO_DRAW = Draw(drawn=False, runs=False, propensity=0.0)


class Budget:
    """A budget that fills up steadily, and of which less is let through the emptier it is.

    Args:
        capacity: How much it holds at most.
        level: How much it holds at first.
    """

    def __init__(self, capacity: float, level: float) -> None:
        self._capacity = capacity
        self.level = level

    def fill(self, amount: float) -> None:
        """Add to it."""
        self.level = min(self._capacity, self.level + amount)

    def probability(self) -> float:
        """Return with which probability something may be spent: 1 while it is at least half full."""
        return min(1.0, max(0.0, 2.0 * self.level / self._capacity))


class Audits:
    """Draws the audits of one cascade.

    Args:
        name: Of the cascade, for messages.
        rate: Probability that a kept request is audited, or a function of its confidence.
        share: Budget: audits as a share of all requests; None for no limit.
        seconds_per_hour: Budget: device time of audits; None for no limit.
        load: Above so many open requests, or where it returns True, none is drawn.
        seed: Of the draws; None for one that nobody knows.

    Raises:
        ValueError: An argument cannot be used; names it.
    """

    def __init__(  # noqa: PLR0913 - one argument a limit
        self,
        name: str,
        rate: float | Callable[[Any], float],
        *,
        share: float | None,
        seconds_per_hour: float | None,
        load: int | Callable[[], object] | None,
        seed: float | str | None,
    ) -> None:
        self._name = name
        self._rate = rate if callable(rate) else _checked(name, "audit_rate", rate, at_most=1.0)
        self._share = None if share is None else _checked(name, "audit_share", share, at_most=1.0)
        self._per_hour = (
            None if seconds_per_hour is None else _checked(name, "audit_seconds_per_hour", seconds_per_hour)
        )
        if load is not None and not callable(load):
            _checked(name, "audit_load", load)
        self._load = load
        self._seed = seed
        self.random = random.Random(seed)  # noqa: S311 - a sample, no secret
        self._audits = Budget(_BURST_AUDITS, _BURST_AUDITS / 2) if self._share is not None else None
        burst = 0.0 if self._per_hour is None else self._per_hour * _BURST_PART
        self._seconds = Budget(burst, burst) if burst else None
        self._filled_s = monotonic()
        self._mean_s = 0.0

    def after_fork(self, lineage: str) -> None:
        """Draw other numbers than the parent, the same each time where the seed is the same.

        Args:
            lineage: Tells this process from its siblings.
        """
        self.random = random.Random(  # noqa: S311 - a sample, no secret
            None if self._seed is None else f"{self._seed}/{lineage}"
        )

    def begun(self) -> None:
        """Take note of a request."""
        if self._audits is not None and self._share:
            self._audits.fill(self._share)

    def draw(self, confidence: Any, *, impossible: str | None, open_requests: int) -> Draw:
        """Draw for a kept request.

        Args:
            confidence: Of its answer.
            impossible: Why no audit could run; None where one could.
            open_requests: How many requests of the cascade are open, this one included.
        """
        rate = self._rate_for(confidence)
        if not rate:
            return NO_DRAW
        chance, reason = (0.0, impossible) if impossible else self._chance(open_requests)
        drawn = self.random.random() < rate
        runs = drawn and (chance >= 1.0 or self.random.random() < chance)
        if runs:
            self._reserve()
        return Draw(drawn, runs, rate * chance, reason if drawn and not runs else None)

    def _rate_for(self, confidence: Any) -> float:
        if not callable(self._rate):
            return self._rate
        rate: float | None = None
        with faults.tolerated(f"audit_rate of cascade {self._name!r}"):
            rate = as_number(self._rate(confidence))
            if rate is None or not 0 <= rate <= 1:
                faults.log_once(
                    f"cascade:{self._name}:audit_rate",
                    "gputrace: audit_rate of cascade %r returned no number from 0 to 1; no audit is drawn",
                    self._name,
                )
        return rate if rate is not None and 0 <= rate <= 1 else 0.0

    def _chance(self, open_requests: int) -> tuple[float, str]:
        if self._is_loaded(open_requests):
            return 0.0, LOAD
        chance = 1.0
        if self._audits is not None:
            chance *= self._audits.probability()
        if self._per_hour is not None:
            chance *= self._seconds_probability()
        return chance, BUDGET

    def _seconds_probability(self) -> float:
        if self._seconds is None or self._per_hour is None:
            return 0.0
        now_s = monotonic()
        self._seconds.fill((now_s - self._filled_s) * self._per_hour / _SECONDS_AN_HOUR)
        self._filled_s = now_s
        return self._seconds.probability()

    def _is_loaded(self, open_requests: int) -> bool:
        if self._load is None:
            return False
        if not callable(self._load):
            return open_requests > self._load
        with faults.tolerated(f"audit_load of cascade {self._name!r}"):
            return bool(self._load())
        return True

    def _reserve(self) -> None:
        if self._audits is not None:
            self._audits.level -= 1.0
        if self._seconds is not None:
            self._seconds.level -= self._mean_s

    def spent(self, seconds: float | None) -> None:
        """Take note of what an audit took in the end.

        Args:
            seconds: Charged device time; None where it was not measured, or did not run.
        """
        reserved = self._mean_s
        if seconds is None:
            seconds = 0.0
        elif not self._mean_s:
            self._mean_s = seconds
        else:
            self._mean_s += _SMOOTHING * (seconds - self._mean_s)
        if self._seconds is not None:
            # About what was reserved: several may have been under way.
            self._seconds.level -= seconds - reserved


def _checked(name: str, argument: str, value: Any, *, at_most: float = float("inf")) -> float:
    number = as_number(value)
    if number is None or not 0 <= number <= at_most or isinstance(value, bool):
        limits = f"from 0 to {at_most:g}" if at_most < float("inf") else "not below 0"
        message = f"Cascade({name!r}): {argument}={value!r} must be a number {limits}"
        raise ValueError(message)
    return number


# --- forks --------------------------------------------------------------------

_lineage = ""
_forks = itertools.count(1)


def before_fork() -> None:
    """Number the child that is about to be made; parent and child both know the number then."""
    global _fork  # noqa: PLW0603 - state of a process
    _fork = next(_forks)


def after_fork_in_child() -> str:
    """Return what tells this process from its parent and its siblings, the same in every run."""
    global _lineage, _forks  # noqa: PLW0603 - state of a process
    _lineage = f"{_lineage}.{_fork}"
    _forks = itertools.count(1)
    return _lineage


_fork = 0
