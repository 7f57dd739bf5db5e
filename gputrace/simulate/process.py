"""One simulated process: the SDK with its settler, node and instruments, in a time of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from gputrace import (
    call as calls,
    call_register,
    cascades_counting,
    cascades_shadow,
    catalogue,
    clocks,
    identity,
    outcomes,
    settler_requests,
)
from gputrace.accounts import Totals
from gputrace.costs import Costs
from gputrace.devices import selection
from gputrace.devices.virtual_driver import VirtualClock
from gputrace.hardware import Hardware
from gputrace.node_folder import FOLDER_VARIABLE, MEMORY
from gputrace.prices import PriceBook
from gputrace.settler import Settler
from gputrace.simulate import made_up
from gputrace.simulate.demand import draw, lost_ns
from gputrace.simulate.fleet import Driver, Fleet
from gputrace.simulate.plan import NS_PER_S
from gputrace.simulate.scheduler import Scheduler
from gputrace.simulate.service import Service
from gputrace.simulate.truth import Truth
from gputrace.telemetry import by_hand, spans
from gputrace.telemetry.metrics import Instruments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gputrace.accounts import Snapshot
    from gputrace.following import Followed
    from gputrace.simulate.plan import Plan
    from gputrace.simulate.service import Thresholds
    from gputrace.telemetry.collecting import Collected
    from gputrace.telemetry.delivery import Destination

SERVICE_NAME = "simulated-service"
#: The settler looks so long after a period has ended: until then it may not know when its calls did.
_LOOK_NS = 6_000_000
#: A new series is shown as 0 first, and with its value so long after.
_AFTER_ZERO_NS = 50_000_000
#: What goes on after a request, such as its audit: the fewer requests are played, the longer each computes.
_PATIENCE_NS = 3_600 * NS_PER_S


class SimulatedProcess:
    """Plays the requests of one process. One at a time: it takes the place of what the SDK keeps globally.

    Args:
        plan: What is simulated.
        number: Number of the process.
        destinations: Where spans and log events go, and metrics as :meth:`send` is called.
        prices: Price book.

    Attributes:
        truth: What happened, complete once :meth:`play` has ended.
        providers: Collect and export.
    """

    def __init__(self, plan: Plan, number: int, destinations: Sequence[Destination], prices: Path) -> None:
        self._plan = plan
        self._number = number
        self.truth = Truth()
        self.clock = VirtualClock(plan.start_ns)
        self._scheduler = Scheduler(self.clock)
        self._fleet = Fleet(plan, number, self.clock)
        self._driver = Driver(self._fleet)
        self._demand = draw(plan, number)
        self._service = Service(plan, number, self._fleet, self._scheduler, self._demand, self.truth)
        self._book = PriceBook(prices)
        self._read_ns = plan.start_ns
        self._lost = False
        self.providers = by_hand.ProvidersByHand(
            SERVICE_NAME,
            made_up.instance_id(plan, number),
            destinations,
            seed=f"{plan.seed}/{number}/spans",
            traced=plan.traced_requests / plan.requests,
            start_ns=plan.start_ns,
        )

    # --- the SDK ----------------------------------------------------------------

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """Set the SDK up in this time, as ``configure`` would in the real one."""
        with contextlib.ExitStack() as stack:
            stack.callback(_restore, calls.clock, calls.queue, calls.settling, selection.gpu)
            stack.callback(outcomes.record, outcomes.in_force())
            stack.callback(cascades_counting.record, cascades_counting.in_force())
            stack.callback(cascades_shadow.use, cascades_shadow.in_force())
            stack.callback(_publish, cascades_counting.thresholds)
            stack.callback(_wait_for, settler_requests.PATIENCE_NS)
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="gputrace-simulated-", dir=_in_memory())
            )
            clocks.monotonic_ns = clocks.wall_ns = calls.clock = self.clock
            spans.wall_offset_ns = 0
            identity.use(made_up.instance_id(self._plan, self._number))
            by_hand.use(self.providers)
            stack.enter_context(self._fleet.gpu)
            self._fleet.open()
            selection.choose()
            cascades_shadow.use(cascades_shadow.AtOnce())
            _publish(self._service.thresholds)
            _wait_for(_PATIENCE_NS)
            self._assemble(folder)
            yield

    def _assemble(self, folder: str) -> None:
        hardware = Hardware(
            identity.instance_id(),
            self.clock(),
            environment={FOLDER_VARIABLE: folder},
            sampler=self._driver,  # type: ignore[arg-type] # it answers what is asked of one
        )
        named = ("tenant",) if self._plan.tenants else ()
        totals = Totals(named)
        self._settler = Settler(totals, self._settled, hardware=hardware)
        self._settler.use_prices(Costs(self._book))
        self._outcomes = outcomes.Outcomes(totals, named)
        self._instruments = Instruments(self._snapshot, self.providers.meter)
        self._escalations = cascades_counting.Escalations(totals, self._instruments.record_score)
        self._settler.on_tick = self._escalations.tell
        totals.count_more = self._count_more
        hardware.run(identity.instance_id(), self.clock())
        calls.record(self._settler.queue)
        outcomes.record(self._outcomes)
        cascades_counting.record(self._escalations)

    def _count_more(self, shown: Snapshot) -> None:
        self._outcomes.show(shown)
        self._escalations.show(shown)
        shown.budgets = [
            ({catalogue.FEATURE: feature, catalogue.CURRENCY: made_up.CURRENCY}, per_month)
            for feature, per_month in made_up.budgets(self._plan).items()
        ]

    def _snapshot(self) -> Snapshot:
        shown = self._settler.snapshot()
        self._outcomes.tell()
        return shown

    def _settled(self, followed: Followed, measured: dict[str, str | float]) -> None:
        call = followed.call
        if followed.series is not None:
            device_time = measured.get(catalogue.CALL_DEVICE_TIME)
            self._instruments.record(
                call,
                followed.series.attributes,
                max(0, followed.last_ns - followed.first_ns) / NS_PER_S,
                None if device_time is None else float(device_time),
            )
        if call.span is not None:
            spans.finish(call, followed.last_ns, measured)
        call_register.ended(call)

    # --- time -------------------------------------------------------------------

    def play(self) -> Iterator[tuple[int, Collected]]:
        """Play all requests; yield what is collected at each step, with its time.

        Every collection may be taken or left: counters are cumulative.
        """
        with self._in_place():
            yield from self._begin()
            asked = deque(self._demand.asked)
            for until_ns in range(
                self._plan.start_ns + self._plan.reading_ns, self._plan.end_ns + 1, self._plan.reading_ns
            ):
                while asked and asked[0].at_ns < until_ns + _LOOK_NS:
                    one = asked.popleft()
                    self._scheduler.at(one.at_ns, functools.partial(self._service.play, one))
                self._scheduler.run_until(until_ns + _LOOK_NS)
                self._read(until_ns)
                if (until_ns - self._plan.start_ns) % self._plan.step_ns == 0:
                    yield from self._collect(until_ns)
            yield from self._end()

    def _begin(self) -> Iterator[tuple[int, Collected]]:
        yield self._plan.start_ns, self.providers.meter.collect()

    def _end(self) -> Iterator[tuple[int, Collected]]:
        # As a program ends; by now there is nothing to wait for.
        self._settler.flush(monotonic())
        self._escalations.give_up()
        self._settler.stop()
        final = self._settler.snapshot()
        self._outcomes.tell()
        self._instruments.take_snapshot = lambda: final
        # Of what came last, once as 0 and once as it is.
        yield self._plan.end_ns + _AFTER_ZERO_NS, self.providers.meter.collect()
        yield self._plan.end_ns + 2 * _AFTER_ZERO_NS, self.providers.meter.collect()
        for device_id, launched in zip(self._fleet.ids, self._fleet.launched, strict=True):
            changes_ns = self._book.changes_between(
                device_id, self._plan.gpu_name, "gpu", self._plan.start_ns, self._plan.end_ns
            )
            self.truth.charge(launched, functools.partial(self._price, device_id), changes_ns)
        self.providers.flush()

    def _collect(self, at_ns: int) -> Iterator[tuple[int, Collected]]:
        yield at_ns, self.providers.meter.collect()
        if self._instruments.owes_to(self.providers.meter):
            yield at_ns + _AFTER_ZERO_NS, self.providers.meter.collect()

    def _read(self, until_ns: int) -> None:
        """Let the driver be read, the settler look, and users say what they think."""
        start_ns, self._read_ns = self._read_ns, until_ns
        hardware = self._settler.hardware
        for device, device_id in enumerate(self._fleet.ids):
            held_ns, busy_ns = self._fleet.busy(device, start_ns, until_ns)
            is_lost = self._fleet.gpu.devices[device].lost
            if not is_lost and hardware is not None:
                reading = self._fleet.reading(device, start_ns, until_ns, busy_ns)
                self._driver.tell(reading)
                hardware.take(reading)
                self.truth.energy_j[device_id] += reading.energy_j or 0.0
            split = _split(until_ns - start_ns, held_ns, busy_ns, is_lost=is_lost)
            self.truth.spend(device_id, split, self._price(device_id, start_ns))
        self._settler.tick()
        lost_at_ns = lost_ns(self._plan)
        is_last = self._number == self._plan.processes - 1
        if is_last and not self._lost and lost_at_ns is not None and until_ns >= lost_at_ns:
            self._lost = True
            self._fleet.lose_last()

    def _price(self, device_id: str, at_ns: int) -> float:
        found = self._book.price_of(device_id, self._plan.gpu_name, "gpu", at_ns)
        return 0.0 if found is None else float(found.per_hour)


def _in_memory() -> str | None:
    return str(MEMORY) if os.access(MEMORY, os.W_OK) else None


def _split(wall_ns: int, held_ns: int, busy_ns: int, *, is_lost: bool) -> dict[str, int]:
    if is_lost:
        # What it was charged before stands.
        return {"charged": held_ns, "unknown": wall_ns - held_ns}
    untracked_ns = max(0, busy_ns - held_ns)
    return {"charged": held_ns, "untracked": untracked_ns, "idle": wall_ns - held_ns - untracked_ns}


def _publish(thresholds: Callable[[], Thresholds]) -> None:
    cascades_counting.thresholds = thresholds


def _wait_for(patience_ns: int) -> None:
    settler_requests.PATIENCE_NS = patience_ns


def _restore(clock: object, queue: object, settling: bool, gpu: bool) -> None:  # noqa: FBT001
    import time

    clocks.monotonic_ns, clocks.wall_ns = time.monotonic_ns, time.time_ns
    spans.wall_offset_ns = time.time_ns() - time.monotonic_ns()
    calls.clock, calls.queue, calls.settling, selection.gpu = clock, queue, settling, gpu  # type: ignore[assignment]
    identity.reset()
    by_hand.use(None)
