"""Runs the simulated model servers: each step through the SDK, on a GPU of the fleet."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import gputrace
from gputrace import catalogue
from gputrace.simulate import model_server
from gputrace.simulate.demand import longest_s, served_second, served_tokens
from gputrace.simulate.plan import NS_PER_S
from gputrace.simulate.scheduler import Signal, Until

if TYPE_CHECKING:
    from gputrace.simulate.demand import Asked
    from gputrace.simulate.features import Served
    from gputrace.simulate.fleet import Fleet, Lane
    from gputrace.simulate.model_server import Batcher, Taken
    from gputrace.simulate.plan import Plan
    from gputrace.simulate.scheduler import Scheduler
    from gputrace.simulate.truth import Truth

    Members = list[tuple[model_server.Served["Request"], gputrace.Work]]

#: Noise, what is computed twice and a lane that is waited for make it later than a sum of requests says.
_LATE = 2.0
#: Weights of owners are whole numbers.
_PER_S = 10**12


class ServerGoneError(RuntimeError):
    """The simulated model server has lost its GPU, or got none."""


class Request(NamedTuple):
    """What a model server knows of a request.

    Attributes:
        asked: The request.
        member: Who is billed.
        answered: Given when it leaves the server.
        failed: Filled when it leaves without an answer.
    """

    asked: Asked
    member: Any
    answered: Signal
    failed: list[str]


class ModelServer:
    """One model server of one process. It takes a lane of the fleet while it has somebody to serve.

    Args:
        served: What it serves.
        name: Of its dice.
        plan: What is simulated.
        fleet: The GPUs.
        scheduler: Runs it.
        second: How many seconds a unit of cost takes.
        truth: What it did is counted there.
    """

    def __init__(  # noqa: PLR0913 - what a server is made of
        self,
        served: Served,
        name: str,
        plan: Plan,
        fleet: Fleet,
        scheduler: Scheduler,
        second: float,
        truth: Truth,
    ) -> None:
        self._model, self._variant = served.model, served.variant
        self._dice = random.Random(name)  # noqa: S311 - a simulation
        self._plan = plan
        self._fleet = fleet
        self._scheduler = scheduler
        self._second = second
        self._truth = truth
        self._batcher: Batcher[Request] = model_server.Batcher()
        self._owed_s = 0.0
        self._asleep = Signal()
        scheduler.start(self._run())

    def in_time(self, one: Asked) -> bool:
        """Tell whether a request that comes now is answered by the end of the simulation."""
        owed_s = self._owed_s + longest_s(one, self._second)
        return self._fleet.clock() + round(_LATE * owed_s * NS_PER_S) <= self._plan.end_ns

    async def answer(self, one: Asked) -> None:
        """Serve a request; in its scope.

        Raises:
            ServerGoneError: The server could not.
        """
        request = Request(one, gputrace.member(), Signal(), [])
        self._batcher.waiting.append(model_server.Served(request, *served_tokens(one)))
        self._owed_s += longest_s(one, self._second)
        # Those that come at the same moment are served together.
        self._scheduler.at(self._fleet.clock(), self._asleep.give)
        await request.answered
        if request.failed:
            raise ServerGoneError(request.failed[0])

    async def _run(self) -> None:
        while True:
            if not self._batcher.busy:
                self._asleep = Signal()
                await self._asleep
            lane = await self._fleet.take()
            if lane is None:
                self._fail("there is no simulated GPU any more")
                continue
            try:
                await self._serve(lane)
            finally:
                self._fleet.give_back(lane)

    async def _serve(self, lane: Lane) -> None:
        """Take steps as long as there is somebody to serve."""
        while self._batcher.busy:
            members = self._batcher.step()
            if not await self._step(lane, members):
                self._fail("the simulated model server is gone")
                return
            for one in self._batcher.leave():
                self._let_go(one)

    async def _step(self, lane: Lane, members: Members) -> bool:
        """Take one step; False where it could not be ended."""
        work = [done for _, done in members]
        parts = model_server.taken(work)
        noise = max(0.5, self._dice.gauss(1.0, model_server.NOISE))
        seconds = model_server.seconds(parts) * noise * served_second(self._second)
        if self._fleet.clock() + round(seconds * NS_PER_S) > self._plan.end_ns:
            return False
        stream = self._fleet.gpu.stream
        block = gputrace.step(
            [one.owner.member for one, _ in members],
            work,
            model=self._model,
            variant=self._variant,
            span=False,
        )
        with stream(lane.stream):
            block.__enter__()
        owners, phases = _owners(members, parts)
        await Until(self._fleet.launch(lane, seconds, owners, phases=phases))
        error = ServerGoneError("its GPU is lost") if self._fleet.is_lost(lane) else None
        with stream(lane.stream):
            block.__exit__(None if error is None else type(error), error, None)
        self._count(members)
        return error is None

    def _count(self, members: Members) -> None:
        self._truth.steps[self._model] += 1
        features = {one.owner.asked.feature.name for one, _ in members}
        self._truth.calls[features.pop() if len(features) == 1 else catalogue.SHARED] += 1
        for one, done in members:
            feature = one.owner.asked.feature.name
            for kind in ("prefill", "decode", "cached", "recomputed"):
                self._truth.step_tokens[feature, kind] += getattr(done, kind)

    def _fail(self, why: str) -> None:
        """Let everybody go without an answer."""
        everybody = [*self._batcher.running, *self._batcher.waiting]
        self._batcher.running.clear()
        self._batcher.waiting.clear()
        for one in everybody:
            one.owner.failed.append(why)
            self._let_go(one)

    def _let_go(self, one: model_server.Served[Request]) -> None:
        self._owed_s -= longest_s(one.owner.asked, self._second)
        one.owner.answered.give()


def _owners(members: Members, parts: list[Taken]) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Return whom a step is truly owed by, and for what."""
    owed: Counter[tuple[str, str]] = Counter()
    for (one, _), part in zip(members, parts, strict=True):
        feature = one.owner.asked.feature.name
        for phase, took_s in part._asdict().items():
            owed[feature, phase] += round(took_s * _PER_S)
    return tuple((feature, much) for (feature, _), much in owed.items()), tuple(phase for _, phase in owed)
