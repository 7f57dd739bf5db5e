"""Feeds what happened on devices to the ledger, and counts and bills what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import staged
from gputrace.following import START
from gputrace.hardware_features import Stretch
from gputrace.ledger import Ledger
from gputrace.settler_requests import request_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.accounts import Account, DeviceEvent, Totals
    from gputrace.attribution import Attribution
    from gputrace.call import Call
    from gputrace.cardinality import Series
    from gputrace.costs import Costs
    from gputrace.following import Followed, Lane
    from gputrace.hardware import Hardware
    from gputrace.requests import Request
    from gputrace.settler_requests import Requests
    from gputrace.staged import Tally


class Charges:
    """The calls that take part in the ledger, and what they are charged.

    Args:
        totals: Where charges are counted.
        requests: Sums up those of requests.
        hardware: Tells the other processes of the node what this one holds.

    Attributes:
        open_calls: The calls that take part, by number.
        costs: Bills what is charged; None bills nothing.
    """

    def __init__(self, totals: Totals, requests: Requests, hardware: Hardware | None) -> None:
        self._requests = requests
        self.open_calls: dict[int, Followed] = {}
        self.costs: Costs | None = None
        self._totals = totals
        self._hardware = hardware
        self._ledger: Ledger[int] = Ledger()

    def open(self, followed: Followed) -> None:
        """Let a call that has lanes take part, under the nearest open call that it was made in."""
        call = followed.call
        ancestor = call.parent
        # Containers, and what is settled already, are no links of the ledger's chain.
        while ancestor is not None and getattr(ancestor.settled, "number", 0) not in self.open_calls:
            ancestor = ancestor.parent
        root = call if call.root is None else call.root
        followed.number = call.call_number
        self.open_calls[followed.number] = followed
        self._requests.batches.steps.opened(followed)
        self._ledger.open(
            followed.number,
            root.call_number,
            None if ancestor is None else ancestor.settled.number,
            root.site.weight,
        )

    def close(self, followed: Followed) -> None:
        """End a call; what it was charged is final."""
        for lane in followed.lanes:
            if lane.holding:
                self.stop(lane, lane.account.frontier_ns)
        self._ledger.close(followed.number)
        del self.open_calls[followed.number]

    def lose(self, account: Account) -> int:
        """Let a device be charged no further, as it no longer answers.

        Returns:
            How many calls were on it; one on several of its streams counts once for each.
        """
        account.lost = True
        for *_, lane in account.events:
            lane.followed.waiting -= 1
        account.events.clear()
        lanes = [
            lane
            for followed in self.open_calls.values()
            for lane in followed.lanes
            if lane.account is account
        ]
        for lane in lanes:
            lane.broken = True
            if lane.holding:
                self.stop(lane, account.frontier_ns)
        return len(lanes)

    def charge(self, account: Account, frontier_ns: int) -> None:
        """Feed the events up to the frontier to the ledger and count the charges."""
        if account.lost:
            return
        events = account.events
        events.sort(key=_event_order)
        fed = 0
        for until_ns in account.instants(frontier_ns):
            while fed < len(events) and events[fed][0] <= until_ns:
                self._feed(events[fed])
                fed += 1
            self._count(account, until_ns)
        del events[:fed]

    def _count(self, account: Account, until_ns: int) -> None:
        """Charge a device up to an instant, and count what is new by series."""
        device_id, start_ns = account.device.id, account.frontier_ns
        charged = self._ledger.advance(device_id, until_ns)
        account.advanced(until_ns, self._ledger.held(device_id))
        time = self._totals.time
        counted = []
        shared: list[tuple[Series | staged.PartOf, int]] = []
        for number, amount in charged.items():
            followed = self.open_calls[number]  # type: ignore[index]
            followed.charged += amount
            named: dict[Attribution, Series] = {}
            for billed, request, tally, part in _owed(followed, device_id, amount):
                series = named.get(billed)
                if series is None:
                    # Of the many members of a batch, few are billed apart.
                    series = named[billed] = self._series(followed.call, account, billed)
                time[series] = time.get(series, 0) + part
                counted.append((series, part))
                shared.append((series if tally is None else staged.PartOf(series, tally), part))
                if request is not None or tally is not None:
                    parts = (
                        None if self.costs is None else self.costs.split(account, start_ns, until_ns, part)
                    )
                    if request is not None:
                        self._requests.charged(request, part, parts)
                    for one in staged.around(tally):
                        one.add(part, parts)
        if self.costs is not None:
            self.costs.bill(account, start_ns, until_ns, counted)
        if self._hardware is not None:
            self._hardware.charged(account, Stretch(start_ns, until_ns, tuple(shared)))

    def _series(self, call: Call, account: Account, billed: Attribution) -> Series:
        estimated = call.timer is not None and call.timer.estimated
        return self._totals.time_series(call, account, estimated=estimated, billed=billed)

    def _feed(self, event: DeviceEvent) -> None:
        at_ns, kind, _, lane = event
        followed = lane.followed
        followed.waiting -= 1
        if lane.broken and not lane.holding:
            return
        if kind == START:
            if lane.skip:
                lane.skip -= 1
                return
            self._start(lane, at_ns)
            lane.began_ns = at_ns
        elif not lane.holding:
            # An empty step: at one instant, stops sort before starts.
            lane.skip += 1
        else:
            self.stop(lane, at_ns)
            followed.held_ns += at_ns - lane.began_ns
            lane.began_ns = None

    def _start(self, lane: Lane, at_ns: int) -> None:
        self._ledger.start(lane.followed.number, lane.account.device.id, at_ns)
        lane.holding = True
        if self._hardware is not None:
            self._hardware.start(lane.account, at_ns)

    def stop(self, lane: Lane, at_ns: int) -> None:
        """Let a call hold a device no more."""
        self._ledger.stop(lane.followed.number, lane.account.device.id, at_ns)
        lane.holding = False
        if self._hardware is not None:
            self._hardware.stop(lane.account, at_ns)


def _event_order(event: DeviceEvent) -> tuple[int, int, int]:
    return event[:3]


def _owed(
    followed: Followed, device_id: object, amount: int
) -> Iterable[tuple[Attribution, Request | None, Tally | None, int]]:
    """Return who owes a charge, in which request and stage, and how much: the call or its batch's members."""
    call, batch = followed.call, followed.batch
    if batch is None:
        return ((call.attribution, request_of(call), staged.tally_of(call), amount),)
    parts = zip(batch.billed(call), batch.split(device_id, amount), strict=True)
    return [(billed, one.request, one.tally, part) for billed, (one, part) in parts if part]
