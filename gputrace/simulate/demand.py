"""Who asks for what, and when: the requests of one process, all drawn before the first is played."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace.simulate import model_server, trace
from gputrace.simulate.features import TENANTS, features
from gputrace.simulate.plan import NS_PER_S, PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.simulate.features import Feature, Ladder
    from gputrace.simulate.plan import Plan

#: A token that is written costs about as much as so many that are read.
_WRITTEN = 4.0
#: The demand of a day is looked at in so many cells.
_CELLS_A_DAY = 288
_NIGHT = (0.0, 0.25)
_LAUNCHED_AFTER = 0.6
_LOST_AFTER = 0.75
_SHORTEST_S = 0.001
#: Share of the answers that somebody judges.
_SCORED = 0.5
#: Launches go on after the last request that is played; audits too.
_LONGEST_PART = 8.0
#: What a second of a model server costs, in the unit of all other work.
_UNITS_A_SERVED_S = 33.0
#: How much of a step's fixed part a request bears there, as others share it.
_FIXED_BORNE = 0.25
#: So many requests come to it together.
_TOGETHER = 8

OK, FAILS, CANCELLED = "ok", "error", "cancelled"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        at_ns: When it arrives, Unix time.
        feature: Whose it is.
        tenant: For which customer.
        input_tokens: How much is read.
        output_tokens: How much is written.
        cached_tokens: How much of what is read a model server has in its prefix cache.
        size: How much that is, 1 on average.
        fate: How it ends.
        confidence: Of the light answer.
        light_right: Whether the light answer is right.
        heavy_right: Whether the heavy one is.
        succeeds: Whether a right answer brings its outcome about.
        scored: Whether somebody says how good the answer was.
    """

    at_ns: int
    feature: Feature
    tenant: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    size: float
    fate: str
    confidence: float
    light_right: bool
    heavy_right: bool
    succeeds: bool
    scored: bool


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests of a process.

    Attributes:
        asked: In the order in which they arrive.
        second: How many seconds a unit of cost takes, so that they come to the load that is planned.
    """

    asked: tuple[Asked, ...]
    second: float


def lost_ns(plan: Plan) -> int | None:
    """Return when the last GPU of the fleet is lost, None where none is."""
    return plan.part_ns(_LOST_AFTER) if "loss" in plan.incidents and plan.gpus > 1 else None


def half_way_ns(plan: Plan) -> int:
    """Return when things change that change half-way."""
    return plan.part_ns(0.5)


def rhythm(plan: Plan, at_ns: int) -> float:
    """Return how busy a time of the day is, from 0 to 1."""
    day = plan.time_of_day(at_ns)
    if "night" not in plan.incidents:
        return 1.0
    if _NIGHT[0] <= day < _NIGHT[1]:
        return 0.0
    return 0.35 + 0.65 * math.sin(math.pi * (day - _NIGHT[1]) / (1 - _NIGHT[1])) ** 2


def draw(plan: Plan, process: int) -> Demand:
    """Draw the requests of one process.

    Raises:
        PlanError: The trace cannot be read; names the file, the line and what is wrong.
    """
    dice = random.Random(f"{plan.seed}/{process}/demand")  # noqa: S311 - a simulation
    arrivals = _arrivals(plan, dice) if plan.trace is None else _traced(plan, dice)
    asked = [_asked(plan, dice, arrival) for arrival in sorted(arrivals, key=lambda one: one[0])]
    whole = sum(_cost(one) for one in asked)
    seconds = plan.span_s * plan.load * plan.gpus / plan.processes
    return Demand(tuple(asked), seconds / whole if whole else 0.0)


def served_second(second: float) -> float:
    """Return how long the simulation takes over a second of a model server.

    Args:
        second: How many seconds a unit of cost takes.
    """
    return _UNITS_A_SERVED_S * second


def served_tokens(one: Asked) -> tuple[int, int, int]:
    """Return what a model server has of a request: prompt, what of it is cached, and answer, in tokens.

    One that fails, or whose client goes, ends half-way.
    """
    answer = one.output_tokens if one.fate == OK else one.output_tokens // 2
    return one.input_tokens, one.cached_tokens, answer


def longest_s(one: Asked, second: float) -> float:
    """Return how long a request computes at most, its audit included, s; where it is served, alone."""
    return _most(one) * second + _SHORTEST_S * _LONGEST_PART


def _most(one: Asked) -> float:
    kind = one.feature.kind
    if kind.served is not None:
        return _UNITS_A_SERVED_S * model_server.alone_s(*served_tokens(one))
    ladder = 0.0 if kind.ladder is None else kind.ladder.light.cost + kind.ladder.heavy.cost
    return one.size * (sum(work.cost for work in kind.works) + ladder)


def _cost(one: Asked) -> float:
    """Return what a request costs, without an audit."""
    kind, ladder = one.feature.kind, one.feature.kind.ladder
    if kind.served is not None:
        return _UNITS_A_SERVED_S * model_server.alone_s(*served_tokens(one), fixed=_FIXED_BORNE)
    cost = sum(work.cost for work in kind.works)
    if ladder is not None:
        cost += ladder.light.cost
        if one.confidence < ladder.threshold:
            cost += ladder.heavy.cost
    return one.size * cost * (1.0 if one.fate == OK else 0.5)


Arrival = tuple[int, int, int, "Feature"]


def _weight(plan: Plan, index: int, at_ns: int) -> float:
    """Return how much more than usual a feature is asked for."""
    launched = index == 0 and "launch" in plan.incidents and at_ns >= plan.part_ns(_LAUNCHED_AFTER)
    return 2.0 if launched else 1.0


def _arrivals(plan: Plan, dice: random.Random) -> list[Arrival]:
    number = max(2, round(_CELLS_A_DAY * plan.span_s / plan.day_s))
    cell_ns = plan.span_s * NS_PER_S / number
    cells = [plan.start_ns + round(cell * cell_ns) for cell in range(number)]
    busy = [rhythm(plan, at_ns) for at_ns in cells]
    demanded = []
    for index, feature in enumerate(features(plan.features)):
        weights = [
            feature.share * rate * _weight(plan, index, at) for rate, at in zip(busy, cells, strict=True)
        ]
        demanded.append((feature, weights, sum(weights)))
    whole = sum(total for _, _, total in demanded)
    moments = _Moments(plan, dice, cells, busy)
    found: list[Arrival] = []
    for feature, weights, total in demanded:
        share = plan.requests / plan.processes * total / whole / feature.kind.batched
        served = feature.kind.served
        longer, wordier = (1.0, 1.0) if served is None else (served.reads, served.writes)
        for begin_ns in dice.choices(cells, weights, k=max(1, round(share))):
            at_ns = begin_ns + int(dice.random() * cell_ns) if served is None else moments.draw()
            read = 1 + int(dice.lognormvariate(6.2, 0.9) * longer)
            written = 1 + int(dice.lognormvariate(4.8, 0.7) * wordier)
            found.append((at_ns, read, written, feature))
    return found


class _Moments:
    """When a model server is asked: requests come some at a time, as people work, and meet in its steps.

    Args:
        plan: What is simulated.
        dice: Draws them.
        cells: When the parts of the time begin, Unix time in ns.
        busy: How busy each is.
    """

    def __init__(self, plan: Plan, dice: random.Random, cells: Sequence[int], busy: Sequence[float]) -> None:
        number = max(1, round(plan.requests / plan.processes * _served_share(plan) / _TOGETHER))
        cell_ns = plan.span_s * NS_PER_S / len(cells)
        begun = dice.choices(cells, busy, k=number)
        self._bursts = [begin_ns + int(dice.random() * cell_ns) for begin_ns in begun]
        self._apart_ns = plan.span_s * plan.load * plan.gpus / plan.requests * NS_PER_S
        self._dice = dice
        self._last_ns = plan.end_ns - 1

    def draw(self) -> int:
        """Return when one comes, Unix time in ns."""
        at_ns = self._dice.choice(self._bursts) + int(self._dice.random() * self._apart_ns)
        return min(at_ns, self._last_ns)


def _served_share(plan: Plan) -> float:
    """Return the share of requests that a model server is asked for."""
    return sum(one.share for one in features(plan.features) if one.kind.served is not None)


def _traced(plan: Plan, dice: random.Random) -> list[Arrival]:
    """Play a trace over and over, thinned to the number that is planned and to the rhythm of the day."""
    rows = trace.read(plan.trace) if plan.trace is not None else []
    _refuse_late(plan, rows)
    length_s = rows[-1][0] + 1.0
    named = features(plan.features)
    shares = [one.share for one in named]
    repeats = math.ceil(plan.span_s / length_s)
    expected = sum(
        rhythm(plan, plan.start_ns + int((turn + 0.5) * length_s * NS_PER_S)) * len(rows)
        for turn in range(repeats)
    )
    keep = min(1.0, plan.requests / plan.processes / max(1.0, expected))
    found: list[Arrival] = []
    for turn in range(repeats):
        for t_s, read, written in rows:
            at_ns = plan.start_ns + int((turn * length_s + t_s) * NS_PER_S)
            if dice.random() < keep * rhythm(plan, at_ns) and at_ns < plan.end_ns:
                weights = [share * _weight(plan, index, at_ns) for index, share in enumerate(shares)]
                found.append((at_ns, read, written, dice.choices(named, weights)[0]))
    return found


def _refuse_late(plan: Plan, rows: Sequence[trace.Row]) -> None:
    if rows and rows[0][0] >= plan.span_s:
        raise PlanError(
            f"{plan.trace}: its first request comes after {rows[0][0]:g} s, and {plan.span_s} s are simulated"
        )


def _asked(plan: Plan, dice: random.Random, arrival: Arrival) -> Asked:
    at_ns, read, written, feature = arrival
    kind = feature.kind
    fate, lot = OK, dice.random()
    if "failures" in plan.incidents and lot < kind.errors + kind.cancels:
        fate = FAILS if lot < kind.errors else CANCELLED
    confidence = dice.betavariate(4.0, 1.6)
    right = _right(dice, kind.ladder, confidence)
    cached = 0.0 if kind.served is None else dice.uniform(*kind.served.cached)
    return Asked(
        at_ns=at_ns,
        feature=feature,
        tenant=_one_of(dice, TENANTS),
        input_tokens=read,
        output_tokens=written,
        cached_tokens=int(read * cached),
        size=min(3.0, (read + _WRITTEN * written) / 1_500),
        fate=fate,
        confidence=confidence,
        light_right=right[0],
        heavy_right=right[1],
        succeeds=dice.random() < kind.succeeds,
        scored=dice.random() < _SCORED,
    )


def _one_of(dice: random.Random, names: Sequence[str]) -> str:
    """Return one of them: the first ones more often."""
    return names[min(int(dice.expovariate(0.7)), len(names) - 1)]


def _right(dice: random.Random, ladder: Ladder | None, confidence: float) -> tuple[bool, bool]:
    if ladder is None:
        return True, True
    lot = dice.random()
    light, heavy = (low + (high - low) * confidence for low, high in (ladder.light_right, ladder.heavy_right))
    # One lot for both: what the light model gets right, the heavy one mostly does.
    return lot < light, lot < heavy
