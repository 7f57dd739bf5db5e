"""Virtual time: what is due happens in order, and the clock says when."""

from __future__ import annotations

from contextvars import ContextVar

from gputrace.simulate.scheduler import Scheduler, Signal, Until
from gputrace.testing import VirtualClock

NAME: ContextVar[str] = ContextVar("NAME")


def test_what_is_due_happens_in_order() -> None:
    clock = VirtualClock(100)
    scheduler = Scheduler(clock)
    happened: list[tuple[str, int]] = []
    for name, at_ns in (("late", 300), ("early", 200), ("same", 200), ("over", 50), ("never", 900)):
        scheduler.at(at_ns, lambda name=name: happened.append((name, clock())))  # type: ignore[misc]
    scheduler.run_until(500)
    assert happened == [("over", 100), ("early", 200), ("same", 200), ("late", 300)]
    assert clock() == 500


def test_coroutines_wait_for_moments_and_for_each_other() -> None:
    clock = VirtualClock(0)
    scheduler = Scheduler(clock)
    seen: list[tuple[str, int]] = []
    done = Signal()

    async def waits(name: str) -> None:
        NAME.set(name)
        await done
        seen.append((NAME.get(), clock()))

    async def works() -> None:
        await Until(clock() + 10)
        await Until(clock() + 5)
        done.give()
        await done
        seen.append(("works", clock()))

    scheduler.start(waits("a"))
    scheduler.start(waits("b"))
    scheduler.start(works())
    scheduler.run_until(100)
    assert seen == [("a", 15), ("b", 15), ("works", 15)]
    assert NAME.get("none") == "none"
