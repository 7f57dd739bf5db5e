"""What the settler keeps about an open call: its lanes, one for each device and stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputrace.accounts import Account
    from gputrace.call import Call


class Lane:
    """One call on one device and stream: its marks become starts and stops there.

    Attributes:
        followed: The call.
        account: The device.
        slot: Position of the stream among the events of a mark; None on the host.
        order: Sorts simultaneous events: parents before children.
        read: Number of marks turned into events.
        began_ns: Start of the step that is open, None between steps.
    """

    __slots__ = ("account", "began_ns", "broken", "fed_ns", "followed", "holding", "order", "read", "skip", "slot")

    def __init__(self, followed: Followed, account: Account, slot: int | None, order: int) -> None:
        self.followed = followed
        self.account = account
        self.slot = slot
        self.order = order
        self.read = 0
        self.began_ns: int | None = None
        self.holding = False
        self.broken = False
        self.skip = 0
        self.fed_ns = 0


class Followed:
    """What the settler keeps about a call until it is settled.

    Attributes:
        call: The call.
        number: Its id in the ledger, 0 when it holds nothing there.
        lanes: Where it is timed.
        known_ns: Last instant at which no mark of it was being taken.
        charged: Scaled charge so far.
        held_ns: Time that it held by itself so far.
        waiting: Events that wait beyond the frontier.
    """

    __slots__ = (
        "call",
        "charged",
        "dropped",
        "first_ns",
        "held_ns",
        "known_ns",
        "lanes",
        "last_ns",
        "marks_seen",
        "number",
        "waiting",
        "warned",
    )

    def __init__(self, call: Call, known_ns: int) -> None:
        self.call = call
        self.number = 0
        self.lanes: tuple[Lane, ...] = ()
        self.known_ns = known_ns
        self.charged = 0
        self.held_ns = 0
        self.waiting = 0
        self.dropped = 0
        self.first_ns = 0
        self.last_ns = 0
        self.marks_seen = 0
        self.warned = False
