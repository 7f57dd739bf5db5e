"""The simulated service: plays one request after the other through the public API of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace.simulate.demand import CANCELLED, FAILS, OK, half_way_ns, longest_s
from gputrace.simulate.plan import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.simulate.demand import Asked, Demand
    from gputrace.simulate.features import Ladder, Work
    from gputrace.simulate.fleet import Fleet, Lane
    from gputrace.simulate.plan import Plan
    from gputrace.simulate.truth import Truth

#: Users say some time after the answer what they think of it.
_FEEDBACK_NS = 90 * NS_PER_S
#: Nobody waits longer for a GPU.
_PATIENCE_NS = 120 * NS_PER_S


class ModelError(RuntimeError):
    """What fails in the simulation."""


class OverloadedError(RuntimeError):
    """Nobody had a GPU free for the request."""


class Service:
    """One process of the service.

    Args:
        plan: What is simulated.
        process: Number of the process.
        fleet: Its GPUs.
        demand: Its requests.
        truth: What it did is counted there.
    """

    def __init__(self, plan: Plan, process: int, fleet: Fleet, demand: Demand, truth: Truth) -> None:
        self._plan = plan
        self._process = process
        self._fleet = fleet
        self._second = demand.second
        self._truth = truth
        self._cascades: dict[str, gputrace.Cascade] = {}
        self._feedback: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    # --- one request ------------------------------------------------------------

    def play(self, one: Asked) -> None:
        """Serve one request, now."""
        fleet, kind = self._fleet, one.feature.kind
        lane = fleet.freest()
        now_ns = fleet.clock()
        if lane is not None:
            begin_ns = fleet.free_ns(lane)
            ends_ns = begin_ns + round(longest_s(one, self._second) * kind.batched * NS_PER_S)
            if ends_ns > self._plan.end_ns:
                # What could not end by the end of the simulation is not asked for.
                return
            if begin_ns - now_ns > _PATIENCE_NS:
                lane = None
        with contextlib.suppress(ModelError, OverloadedError, asyncio.CancelledError):
            if kind.batched > 1:
                self._batch(one, lane)
            elif kind.ladder is not None:
                self._climb(one, kind.ladder, lane)
            else:
                self._answer(one, lane)

    def _count(self, one: Asked, status: str) -> None:
        self._truth.requests[one.feature.name, status] += 1

    def _answer(self, one: Asked, lane: Lane | None) -> None:
        kind = one.feature.kind
        self._count(one, FAILS if lane is None else one.fate)
        with gputrace.request(kind.route, feature=one.feature.name, tenant=one.tenant) as request:
            if lane is None:
                raise OverloadedError("no GPU is free")
            self._run_all(one, kind.works, lane)
            self._units(one)
            request_id = request.id
        self._later(lane, lambda: self._outcome(one, request_id, good=True))

    def _run_all(self, one: Asked, works: tuple[Work, ...], lane: Lane) -> None:
        for index, work in enumerate(works):
            ends_here = one.fate != OK and index == len(works) - 1 and one.feature.kind.ladder is None
            self._run(one, work, lane, ends_here=ends_here)

    def _run(self, one: Asked, work: Work, lane: Lane, *, ends_here: bool = False) -> None:
        with (
            self._fleet.gpu.stream(lane.stream),
            gputrace.span(work.operation, model=work.model, variant=work.variant),
        ):
            self._compute(one, work, lane, ends_here=ends_here)

    def _compute(
        self, one: Asked, work: Work, lane: Lane, *, ends_here: bool = False, stage: str | None = None
    ) -> None:
        name = one.feature.name
        seconds = work.cost * one.size * self._second
        self._truth.calls[name] += 1
        self._fleet.launch(lane, seconds / 2 if ends_here else seconds, ((name, 1),), stage)
        if ends_here:
            if one.fate == CANCELLED:
                raise asyncio.CancelledError
            raise ModelError("the simulated model failed")

    def _units(self, one: Asked) -> None:
        tokens = one.input_tokens + one.output_tokens
        gputrace.current().add_units(tokens=tokens)
        self._truth.units[one.feature.name] += tokens

    # --- cascades ---------------------------------------------------------------

    def _cascade(self, ladder: Ladder) -> gputrace.Cascade:
        cascade = self._cascades.get(ladder.name)
        if cascade is None:
            cascade = self._cascades[ladder.name] = gputrace.Cascade(
                ladder.name,
                stages=("light", "heavy"),
                threshold=ladder.threshold,
                audit_rate=ladder.audit_rate,
                seed=f"{self._plan.seed}/{self._process}/{ladder.name}",
            )
        raised = "threshold" in self._plan.incidents and self._fleet.clock() >= half_way_ns(self._plan)
        if raised and cascade.threshold != ladder.later:
            cascade.threshold = ladder.later
        return cascade

    def _climb(self, one: Asked, ladder: Ladder, lane: Lane | None) -> None:
        kind = one.feature.kind
        self._count(one, FAILS if lane is None else one.fate)
        with self._cascade(ladder).request(
            kind.route,
            feature=one.feature.name,
            tenant=one.tenant,
            input_size=one.input_tokens,
        ) as request:
            if lane is None:
                raise OverloadedError("no GPU is free")
            self._run_all(one, kind.works, lane)
            self._stage(one, request, ladder.light, lane, "light", ends_here=one.fate != OK)
            escalated = request.escalate(one.confidence, audit=lambda: self._audit(one, ladder, lane))
            if escalated:
                self._stage(one, request, ladder.heavy, lane, "heavy")
            self._units(one)
            audited, request_id = request.audited, request.id
        decision = "escalated" if escalated else "audited" if audited else "kept"
        self._truth.decisions[ladder.name, decision] += 1
        self._later(lane, lambda: self._judge(one, request_id, decision))

    def _stage(
        self, one: Asked, request: Any, work: Work, lane: Lane, stage: str, *, ends_here: bool = False
    ) -> None:
        with (
            self._fleet.gpu.stream(lane.stream),
            request.stage(stage, model=work.model, variant=work.variant),
        ):
            self._compute(one, work, lane, ends_here=ends_here, stage=stage)

    def _audit(self, one: Asked, ladder: Ladder, lane: Lane) -> None:
        with self._fleet.gpu.stream(lane.stream), gputrace.span("audit", model=ladder.heavy.model):
            self._compute(one, ladder.heavy, lane, stage="audit")

    # --- batches ----------------------------------------------------------------

    def _batch(self, one: Asked, lane: Lane | None) -> None:
        kind, name = one.feature.kind, one.feature.name
        work = kind.works[0]
        members, ids = [], []
        for _ in range(kind.batched):
            self._count(one, FAILS if lane is None else OK)
            with gputrace.request(kind.route, feature=name, tenant=one.tenant) as request:
                if lane is None:
                    raise OverloadedError("no GPU is free")
                members.append(gputrace.member())
                self._units(one)
                ids.append(request.id)
        if lane is None:
            return
        with (
            self._fleet.gpu.stream(lane.stream),
            gputrace.batch(members, operation=work.operation, model=work.model, variant=work.variant),
        ):
            seconds = work.cost * one.size * self._second * kind.batched
            self._truth.calls[name] += 1
            self._fleet.launch(lane, seconds, ((name, 1),))
        for request_id in ids:
            self._later(lane, lambda request_id=request_id: self._outcome(one, request_id, good=True))

    # --- what comes later -------------------------------------------------------

    def _later(self, lane: Lane | None, say: Callable[[], None]) -> None:
        if lane is not None:
            at_ns = self._fleet.free_ns(lane) + _FEEDBACK_NS
            heapq.heappush(self._feedback, (at_ns, next(self._numbers), say))

    def hear(self, until_ns: int | None = None) -> None:
        """Let users say what they think by now.

        Args:
            until_ns: Whatever is due then; None for all, however early.
        """
        while self._feedback and (until_ns is None or self._feedback[0][0] <= until_ns):
            heapq.heappop(self._feedback)[2]()

    def _outcome(self, one: Asked, request_id: str, *, good: bool) -> None:
        if good and one.succeeds:
            gputrace.outcome(one.feature.kind.outcome, request_id=request_id)
            self._truth.outcomes[one.feature.kind.outcome] += 1

    def _judge(self, one: Asked, request_id: str, decision: str) -> None:
        if one.scored or decision == "audited":
            gputrace.score(request_id, float(one.light_right), name="correct", stage="light")
            if decision != "kept":
                gputrace.score(request_id, float(one.heavy_right), name="correct", stage="heavy")
        right = one.heavy_right if decision == "escalated" else one.light_right
        self._outcome(one, request_id, good=right)
