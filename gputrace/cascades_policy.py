"""When a cascade escalates: a threshold for each step, or a rule of the user's."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import faults
from gputrace.attribution import checked_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Reasons of a decision.
CONFIDENCE, RULE, INVALID_CONFIDENCE = "confidence", "rule", "invalid_confidence"

#: The stage that shadow work is billed to.
AUDIT_STAGE = "audit"


class Step(NamedTuple):
    """One decision: is the answer of a stage good enough?

    Attributes:
        confidence: What was judged; None where it is no number.
        threshold: In force; None where a rule decided.
        escalated: The next stage is to run.
        reason: Why.
    """

    confidence: float | None
    threshold: float | None
    escalated: bool
    reason: str


class Policy:
    """One version of the rule of a cascade; never changed, only replaced.

    Args:
        cascade: Name of the cascade, for messages.
        thresholds: One for each stage but the last; None where ``rule`` decides.
        rule: Told the confidence; returns whether to escalate.
        higher_is_better: Which confidence is the surer.
        name: Identity of this version; made from the thresholds by default.
    """

    def __init__(
        self,
        cascade: str,
        thresholds: tuple[float, ...] | None,
        rule: Callable[[Any], object] | None,
        *,
        higher_is_better: bool,
        name: str | None,
    ) -> None:
        self.cascade = cascade
        self.thresholds = thresholds
        self.rule = rule
        self.higher_is_better = higher_is_better
        self.given_name = name
        self.name = name or _name(thresholds, rule, higher_is_better=higher_is_better)

    def judge(self, confidence: Any, step: int) -> Step:
        """Decide whether a stage's answer is good enough: a tie is kept.

        Args:
            confidence: How sure that stage is. Where it is no number, and no rule knows
                better, the request is escalated.
            step: Number of the stage, from 0.
        """
        number = as_scalar(confidence)
        if self.rule is not None:
            return self._ruled(confidence, number)
        threshold = self.thresholds[step] if self.thresholds else 0.0
        if number is None:
            faults.log_once(
                f"cascade:{self.cascade}:confidence",
                "gputrace: cascade %r was given a %s for a confidence, which is no finite number; such "
                "requests are escalated",
                self.cascade,
                type(confidence).__name__,
            )
            return Step(None, threshold, escalated=True, reason=INVALID_CONFIDENCE)
        escalated = number < threshold if self.higher_is_better else number > threshold
        return Step(number, threshold, escalated, CONFIDENCE)

    def _ruled(self, confidence: Any, number: float | None) -> Step:
        escalated = True
        with faults.tolerated(f"the rule of cascade {self.cascade!r}"):
            escalated = bool(self.rule(confidence))  # type: ignore[misc] # not None here
        return Step(number, None, escalated, RULE)

    def with_thresholds(self, thresholds: tuple[float, ...]) -> Policy:
        """Return the same policy with other thresholds."""
        return Policy(
            self.cascade,
            thresholds,
            None,
            higher_is_better=self.higher_is_better,
            name=self.given_name,
        )


def _name(
    thresholds: tuple[float, ...] | None, rule: Callable[[Any], object] | None, *, higher_is_better: bool
) -> str:
    if thresholds is None:
        return f"rule:{getattr(rule, '__qualname__', type(rule).__qualname__)}"
    return ("<" if higher_is_better else ">") + "/".join(f"{threshold:.12g}" for threshold in thresholds)


def as_number(value: Any) -> float | None:
    """Return a finite number as a float, None for anything else.

    Not by ``float()``: a tensor could be made a number too, and would wait for its device.
    """
    if value.__class__ is not float:
        if not isinstance(value, numbers.Real):
            return None
        try:
            value = float(value)
        except (OverflowError, ValueError, TypeError):
            return None
    return value if math.isfinite(value) else None


def as_scalar(value: Any) -> float | None:
    """Return a finite number as a float, a tensor or array of one element too; None for anything else.

    It waits for the device of a tensor, as a decision by it must.
    """
    if value.__class__ is not float and not isinstance(value, (numbers.Real, str, bytes)):
        try:
            # Of arrays and tensors; `float()` warns of those that have one element, and a dimension.
            item = getattr(value, "item", None)
            value = item() if callable(item) else value.__float__()
        except (AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError):
            return None
    return as_number(value)


def checked_policy(  # noqa: PLR0913 - the arguments of Cascade()
    cascade: str,
    stages: Sequence[str],
    threshold: Any,
    rule: Any,
    *,
    higher_is_better: bool,
    name: str | None,
) -> Policy:
    """Return the policy that the arguments of a cascade describe.

    Raises:
        ValueError: One cannot be used; names it.
    """
    if (threshold is None) == (rule is None):
        message = f"Cascade({cascade!r}): give either threshold= or rule=, a function of the confidence"
        raise ValueError(message)
    if rule is not None and not callable(rule):
        message = f"Cascade({cascade!r}): rule={rule!r} cannot be called; give a function of the confidence"
        raise ValueError(message)
    thresholds = None if rule is not None else checked_thresholds(cascade, threshold, len(stages) - 1)
    text = None if name is None else checked_fields({"policy": name}, f"Cascade({cascade!r})")["policy"]
    return Policy(cascade, thresholds, rule, higher_is_better=bool(higher_is_better), name=text)


def checked_thresholds(cascade: str, threshold: Any, steps: int) -> tuple[float, ...]:
    """Return a threshold for each step; a single one stands for all.

    Raises:
        ValueError: They are no finite numbers, or too few or too many.
    """
    given = list(threshold) if isinstance(threshold, (list, tuple)) else [threshold] * steps
    found = tuple(number for one in given if (number := as_number(one)) is not None)
    if len(found) != len(given) or len(found) != steps:
        message = (
            f"Cascade({cascade!r}): threshold={threshold!r} must be a finite number, or one for each stage "
            f"but the last ({steps})"
        )
        raise ValueError(message)
    return found


def checked_stages(cascade: str, stages: Any) -> tuple[str, ...]:
    """Return the names of the stages, the lightest first.

    Raises:
        ValueError: They are fewer than two, not distinct, or one is no name.
    """
    where = f"Cascade({cascade!r}): stages"
    given = [stages] if isinstance(stages, str) else list(stages)
    names = tuple(checked_fields({"stage": one}, where).get("stage", "") for one in given)
    if len(names) < 2 or len(set(names)) < len(names) or "" in names or AUDIT_STAGE in names:  # noqa: PLR2004
        message = (
            f"{where}={stages!r} must name at least two distinct stages, the lightest first, and none "
            f"{AUDIT_STAGE!r}"
        )
        raise ValueError(message)
    return names
