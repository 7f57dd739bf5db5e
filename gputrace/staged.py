"""Work in stages: what each stage of a cascade, and each audit, was charged."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gputrace import ledger
from gputrace.call_site import HOLD_NONE, Site
from gputrace.prices_billing import Bill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gputrace.call import Call
    from gputrace.cardinality import Series
    from gputrace.prices_rows import Price
    from gputrace.prices_timeline import Amount

_UNITS_PER_HOUR = ledger.SCALE * 3_600 * 1_000_000_000
_UJ_PER_J = 1_000_000
_UNITS_PER_S = ledger.SCALE * 1_000_000_000

#: Whether this process has ever begun any: until then nobody needs to look.
in_use = False


class StagedSite(Site):
    """The site of a stage, or of the container around stages."""

    __slots__ = ()

    is_staged = True


class StagedRequestSite(StagedSite):
    """The site of a container that is a request as well: there is none around it."""

    __slots__ = ()

    is_request = True


class Tally:
    """What one stage came to.

    Written by the settler; what it says is final once its work is told.

    Attributes:
        name: Of the stage; empty for what belongs to none.
        work: What it is a stage of.
        call: Its call, None for what belongs to no stage.
        input_size: As the program said; None where it did not.
        charged: In 1/``SCALE`` ns.
        bill: The same by price; None where nothing has a price.
        measured: Calls that were timed.
        unmeasured: Calls that should have been, and could not.
        unread: Stretches of its time for which the device's readings have yet to come.
        completed: The block was left without an exception.
    """

    __slots__ = (
        "bill",
        "call",
        "charged",
        "completed",
        "energy_uj",
        "input_size",
        "measured",
        "name",
        "unmeasured",
        "unpowered",
        "unread",
        "work",
    )

    apart = False

    def __init__(self, name: str, work: StagedWork, input_size: float | None = None) -> None:
        self.name = name
        self.work = work
        self.call: Call | None = None
        self.input_size = input_size
        self.charged = 0
        self.bill: Bill | None = None
        self.measured = 0
        self.unmeasured = 0
        self.energy_uj: int | None = None
        self.unread = 0
        self.unpowered = False
        self.completed = False

    def add(self, amount: int, parts: tuple[tuple[Price | None, Amount], ...] | None) -> None:
        """Count what was charged.

        Args:
            amount: 1/``SCALE`` ns.
            parts: The same by the price that held, None where nothing is billed.
        """
        self.charged += amount
        if parts is not None:
            if self.bill is None:
                self.bill = Bill()
            self.bill.add(parts)

    def read(self, energy_uj: int | None) -> None:
        """Take note of a reading.

        Args:
            energy_uj: Its part of the energy of a period; None where that was not read.
        """
        if energy_uj is None:
            self.unpowered = True
        else:
            self.energy_uj = (self.energy_uj or 0) + energy_uj

    @property
    def energy_j(self) -> float | None:
        """What it drew, J; None where that was not read, or not all of it."""
        if self.energy_uj is None or self.unread or self.unpowered or self.time_s is None:
            return None
        return self.energy_uj / _UJ_PER_J

    @property
    def time_s(self) -> float | None:
        """Charged device time, s; None where it was not measured, or not all of it."""
        return self.charged / _UNITS_PER_S if self.measured and not self.unmeasured else None

    def costs(self) -> dict[str, float]:
        """Return the cost by currency; empty where any of the time had no price or was not measured."""
        if self.time_s is None or self.bill is None or self.bill.unpriced:
            return {}
        return {currency: float(cost) for currency, cost in self.bill.costs(_UNITS_PER_HOUR).items()}


class StagedWork:
    """A container of stages that is open or not settled yet.

    Attributes:
        rest: Sums up what is inside it and in no stage.
        outer: The stage that it is in itself, where cascades are nested.
        following: Calls inside it, itself included, that the settler follows.
        awaited: Batches that it waits for, one entry each.
        billed_stage: What the stage of all work inside it is called, whatever it says itself.
        unsettled: It was told although something inside it goes on.
    """

    billed_stage: str | None = None
    #: It is no part of what it was begun in.
    apart = False

    def __init__(self, outer: Tally | None) -> None:
        self.outer = outer
        self.rest = Tally("", self)
        self.following = 0
        self.awaited: deque[None] = deque()
        self.unsettled = False

    def tallies(self) -> Iterable[Tally]:
        """Return what sums up all inside it."""
        return (self.rest,)

    def told(self) -> None:
        """Take note that all inside it is settled; on the settler's thread, outside of its locks."""


class PartOf(NamedTuple):
    """A series that a stage was charged under: what energy is shared by."""

    series: Series
    tally: Tally

    @property
    def attributes(self) -> dict[str, str]:
        """Those of the series."""
        return self.series.attributes


def begin() -> None:
    """Say that this process has staged work."""
    global in_use  # noqa: PLW0603 - a latch
    in_use = True


def tally_of(call: Call | None) -> Tally | None:
    """Return what sums up a call: the nearest stage that it is in or is, None where it is in none."""
    if not in_use:
        return None
    while call is not None:
        if call.site.is_staged:
            staged = call.staged
            return staged if isinstance(staged, Tally) else staged.rest
        call = call.parent
    return None


def around(tally: Tally | None) -> Iterator[Tally]:
    """Yield a tally and those around it, the innermost first."""
    while tally is not None:
        yield tally
        tally = tally.work.outer


def container_site(operation: str, *, is_request: bool) -> StagedSite:
    """Return a site for a container.

    Args:
        operation: Name of the work.
        is_request: There is no request around it.
    """
    kind = StagedRequestSite if is_request else StagedSite
    return kind(operation, {}, hold=HOLD_NONE)
