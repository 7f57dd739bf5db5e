"""The simulated service: plays one request after the other through the public API of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace.simulate.demand import CANCELLED, FAILS, OK, half_way_ns, longest_s
from gputrace.simulate.plan import NS_PER_S
from gputrace.simulate.scheduler import Signal, Until
from gputrace.simulate.serving import ModelServer, ServerGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from gputrace.cascades_policy import Policy
    from gputrace.simulate.demand import Asked, Demand
    from gputrace.simulate.features import Ladder, Served, Work
    from gputrace.simulate.fleet import Fleet, Lane
    from gputrace.simulate.plan import Plan
    from gputrace.simulate.scheduler import Scheduler
    from gputrace.simulate.truth import Truth

    Thresholds = list[tuple[str, tuple[str, ...], Policy]]

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
        scheduler: Runs it.
        demand: Its requests.
        truth: What it did is counted there.
    """

    def __init__(  # noqa: PLR0913 - what a service is made of
        self,
        plan: Plan,
        process: int,
        fleet: Fleet,
        scheduler: Scheduler,
        demand: Demand,
        truth: Truth,
    ) -> None:
        self._plan = plan
        self._process = process
        self._fleet = fleet
        self._scheduler = scheduler
        self._second = demand.second
        self._truth = truth
        self._cascades: dict[str, gputrace.Cascade] = {}
        self._servers: dict[str, ModelServer] = {}
        self._audited_until_ns = 0

    # --- one request ------------------------------------------------------------

    def play(self, one: Asked) -> None:
        """Begin to serve a request, now."""
        kind = one.feature.kind
        if not self._in_time(one):
            # What could not end by the end of the simulation is not asked for.
            return
        if kind.batched > 1:
            self._batch(one)
        elif kind.ladder is not None:
            self._start(one, self._climb(one, kind.ladder))
        elif kind.served is not None:
            self._ask(one, kind.served)
        else:
            self._start(one, self._answer(one))

    def _in_time(self, one: Asked) -> bool:
        longest_ns = round(longest_s(one, self._second) * one.feature.kind.batched * NS_PER_S)
        return self._fleet.clock() + longest_ns <= self._plan.end_ns

    def _start(self, one: Asked, work: Coroutine[Any, Any, None]) -> None:
        self._scheduler.start(self._counted(one, work))

    async def _counted(self, one: Asked, work: Coroutine[Any, Any, None]) -> None:
        """Let a request end as its caller would see it, and count how."""
        status = OK
        try:
            await work
        except (ModelError, OverloadedError, ServerGoneError):
            status = FAILS
        except asyncio.CancelledError:
            status = CANCELLED
        self._truth.requests[one.feature.name, status] += 1

    async def _lane(self, one: Asked) -> Lane:
        """Wait for a lane.

        Raises:
            OverloadedError: There is none, or it came too late.
        """
        since_ns = self._fleet.clock()
        lane = await self._fleet.take()
        if lane is not None:
            if self._fleet.clock() - since_ns <= _PATIENCE_NS and self._in_time(one):
                return lane
            self._fleet.give_back(lane)
        raise OverloadedError("no GPU was free in time")

    async def _answer(self, one: Asked) -> None:
        kind = one.feature.kind
        with gputrace.request(kind.route, feature=one.feature.name, tenant=one.tenant) as request:
            lane = await self._lane(one)
            try:
                await self._run_all(one, kind.works, lane)
            finally:
                self._fleet.give_back(lane)
            self._units(one)
            request_id = request.id
        self._later(lambda: self._outcome(one, request_id, good=True))

    async def _run_all(self, one: Asked, works: tuple[Work, ...], lane: Lane) -> None:
        for index, work in enumerate(works):
            ends_here = one.fate != OK and index == len(works) - 1 and one.feature.kind.ladder is None
            block = gputrace.span(work.operation, model=work.model, variant=work.variant)
            await self._run(one, work, lane, block, ends_here=ends_here)

    async def _run(  # noqa: PLR0913 - what a model call is
        self,
        one: Asked,
        work: Work,
        lane: Lane,
        block: AbstractContextManager[Any],
        *,
        ends_here: bool = False,
        stage: str | None = None,
    ) -> None:
        """Run a model in a block that is tracked, and wait for it."""
        name, stream = one.feature.name, self._fleet.gpu.stream
        error: BaseException | None = None
        with stream(lane.stream):
            block.__enter__()
        try:
            seconds = work.cost * one.size * self._second
            self._truth.calls[name] += 1
            await Until(self._fleet.launch(lane, seconds / 2 if ends_here else seconds, ((name, 1),), stage))
            self._survive(one, lane, ends_here=ends_here)
        except (ModelError, asyncio.CancelledError) as raised:
            error = raised
            raise
        finally:
            # Streams are a thread's, not a coroutine's: whoever leaves the block stands on its stream.
            with stream(lane.stream):
                block.__exit__(None if error is None else type(error), error, None)

    def _survive(self, one: Asked, lane: Lane, *, ends_here: bool) -> None:
        """Let a model call end as it is fated to."""
        if self._fleet.is_lost(lane):
            raise ModelError("the simulated GPU is gone")
        if ends_here and one.fate == CANCELLED:
            raise asyncio.CancelledError
        if ends_here:
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

    def thresholds(self) -> Thresholds:
        """Return name, stages and policy of its cascades, and of no other process's."""
        return [(one.name, one.stages, one.policy) for one in self._cascades.values()]

    async def _climb(self, one: Asked, ladder: Ladder) -> None:
        kind = one.feature.kind
        lane: Lane | None = None
        try:
            with self._cascade(ladder).request(
                kind.route, feature=one.feature.name, tenant=one.tenant, input_size=one.input_tokens
            ) as request:
                lane = taken = await self._lane(one)
                await self._run_all(one, kind.works, taken)
                await self._stage(one, request, ladder.light, taken, "light", ends_here=one.fate != OK)
                escalated = request.escalate(one.confidence, audit=lambda: self._audit(one, ladder, taken))
                audited, request_id = request.audited, request.id
                decision = "escalated" if escalated else "audited" if audited else "kept"
                self._truth.decisions[ladder.name, decision] += 1
                if escalated:
                    await self._stage(one, request, ladder.heavy, taken, "heavy")
                self._units(one)
            self._later(lambda: self._judge(one, request_id, decision))
            # An audit begins when the answer is out, and takes the lane for as long as it runs.
            if audited:
                await Until(self._audited_until_ns)
        finally:
            if lane is not None:
                self._fleet.give_back(lane)

    async def _stage(  # noqa: PLR0913 - what a stage is
        self, one: Asked, request: Any, work: Work, lane: Lane, stage: str, *, ends_here: bool = False
    ) -> None:
        block = request.stage(stage, model=work.model, variant=work.variant)
        await self._run(one, work, lane, block, ends_here=ends_here, stage=stage)

    def _audit(self, one: Asked, ladder: Ladder, lane: Lane) -> None:
        """Compute the heavy answer, without waiting for it."""
        heavy = ladder.heavy
        self._truth.calls[one.feature.name] += 1
        with self._fleet.gpu.stream(lane.stream), gputrace.span("audit", model=heavy.model):
            seconds = heavy.cost * one.size * self._second
            self._audited_until_ns = self._fleet.launch(lane, seconds, ((one.feature.name, 1),), "audit")

    # --- model servers ----------------------------------------------------------

    def _ask(self, one: Asked, served: Served) -> None:
        server = self._servers.get(served.model)
        if server is None:
            server = self._servers[served.model] = ModelServer(
                served,
                f"{self._plan.seed}/{self._process}/{served.model}",
                self._plan,
                self._fleet,
                self._scheduler,
                self._second,
                self._truth,
            )
        if server.in_time(one):
            self._start(one, self._served(one, server))

    async def _served(self, one: Asked, server: ModelServer) -> None:
        kind = one.feature.kind
        with gputrace.request(kind.route, feature=one.feature.name, tenant=one.tenant) as request:
            await server.answer(one)
            if one.fate == CANCELLED:
                raise asyncio.CancelledError
            if one.fate == FAILS:
                raise ModelError("the simulated model failed")
            self._units(one)
            request_id = request.id
        self._later(lambda: self._outcome(one, request_id, good=True))

    # --- batches ----------------------------------------------------------------

    def _batch(self, one: Asked) -> None:
        done = Signal()
        members: list[Any] = []
        for _ in range(one.feature.kind.batched):
            self._start(one, self._member(one, members, done))
        self._scheduler.start(self._together(one, members, done))

    async def _member(self, one: Asked, members: list[Any], done: Signal) -> None:
        with gputrace.request(one.feature.kind.route, feature=one.feature.name, tenant=one.tenant) as request:
            members.append(gputrace.member())
            self._units(one)
            request_id = request.id
            await done
        self._later(lambda: self._outcome(one, request_id, good=True))

    async def _together(self, one: Asked, members: list[Any], done: Signal) -> None:
        kind = one.feature.kind
        work = kind.works[0]
        lane = await self._fleet.take()
        try:
            # The members wait for it, however late it is.
            block = gputrace.batch(members, operation=work.operation, model=work.model, variant=work.variant)
            if lane is not None and self._in_time(one):
                many = dataclasses.replace(one, size=one.size * kind.batched, fate=OK)
                with gputrace.attribute_to(feature=one.feature.name), contextlib.suppress(ModelError):
                    await self._run(many, work, lane, block)
        finally:
            done.give()
            if lane is not None:
                self._fleet.give_back(lane)

    # --- what comes later -------------------------------------------------------

    def _later(self, say: Callable[[], None]) -> None:
        """Let a user say some time later what they think; before the simulation ends, in any case."""
        at_ns = min(self._fleet.clock() + _FEEDBACK_NS, self._plan.end_ns)
        self._scheduler.at(at_ns, say)

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
