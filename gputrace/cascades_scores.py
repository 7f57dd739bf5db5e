"""Scores: how good an answer was, told later and perhaps by another process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import call_register, catalogue, clocks, faults
from gputrace.attribution import printable, tolerated_fields
from gputrace.cascades_policy import as_number, as_scalar
from gputrace.outcomes import LONGEST_REQUEST_ID
from gputrace.outcomes_values import checked_name
from gputrace.telemetry.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a score judges unless it says.
DEFAULT_NAME = "quality"
_MOST_WAITING = 65_536


class Score(NamedTuple):
    """One score.

    Attributes:
        at_ns: When, Unix time in ns.
        request_id: Identity of the request.
        value: The score.
        name: What it judges.
        stage: Stage whose answer it judges; None for the one that was served.
        label_propensity: Probability that the answer would be scored; None where nobody said.
        feature: Feature of the request, None where this process does not know it.
    """

    at_ns: int
    request_id: str
    value: float
    name: str
    stage: str | None
    label_propensity: float | None
    feature: str | None

    def event(self, feature: str | None, cascade: str | None) -> Event:
        """Return the log event that says all of it; what is not known is left out."""
        given: dict[str, Any] = {
            catalogue.REQUEST_ID: self.request_id,
            catalogue.SCORE_NAME: self.name,
            catalogue.SCORE_VALUE: self.value,
            catalogue.STAGE: self.stage,
            catalogue.SCORE_LABEL_PROPENSITY: self.label_propensity,
            catalogue.FEATURE: feature,
            catalogue.ESCALATION_CASCADE: cascade,
        }
        known = {name: value for name, value in given.items() if value is not None}
        return Event(catalogue.SCORE_EVENT, self.at_ns, known)


class Scores:
    """The scores of a process that wait to be told."""

    def __init__(self) -> None:
        self._waiting: deque[Score] = deque()

    def take(self) -> Iterator[Score]:
        """Yield those that wait, and forget them."""
        while self._waiting:
            try:
                yield self._waiting.popleft()
            except IndexError:
                # Another thread was faster.
                return

    def add(self, request_id: Any, value: Any, name: Any, stage: Any, label_propensity: Any) -> None:
        """Check a score, and keep it until it is told."""
        identity = "" if request_id is None else str(request_id)
        number = as_scalar(value)
        text = checked_name("score", name)
        if number is None:
            faults.log_once(
                "score:value", "gputrace.score: %s is no finite number; ignored", type(value).__name__
            )
            return
        if text is None:
            return
        if not identity or len(identity) > LONGEST_REQUEST_ID:
            faults.log_once(
                "score:request_id",
                "gputrace.score: a request_id of %d characters is none of gputrace's; ignored",
                len(identity),
            )
            return
        if len(self._waiting) >= _MOST_WAITING:
            faults.log_once("score:queue", "gputrace.score: scores come faster than they are told; ignored")
            return
        billed = call_register.attribution_of(identity)
        self._waiting.append(
            Score(
                clocks.wall_ns(),
                printable(identity),
                number,
                text,
                tolerated_fields({"stage": stage}, "score").get("stage"),
                _checked_propensity(label_propensity),
                None if billed is None else billed.feature,
            )
        )


def _checked_propensity(given: Any) -> float | None:
    if given is None:
        return None
    number = as_number(given)
    if number is not None and 0 < number <= 1:
        return number
    faults.log_once(
        "score:label_propensity",
        "gputrace.score: label_propensity must be a number above 0, at most 1; the score counts without it",
    )
    return None
