"""What the settler keeps about an open call: its lanes, one for each device and stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace import catalogue, faults
from gputrace.devices import cuda, selection
from gputrace.devices.base import DeviceLostError, NotReadableError
from gputrace.ledger import SCALE

if TYPE_CHECKING:
    from gputrace.accounts import Account
    from gputrace.batching import Batch
    from gputrace.call import Call
    from gputrace.cardinality import Series

#: Kinds of events, in the order in which those of one instant come.
STOP, START = 0, 1
LONG_HOLD_NS = 600 * 1_000_000_000


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

    __slots__ = (
        "account",
        "began_ns",
        "broken",
        "fed_ns",
        "followed",
        "holding",
        "order",
        "read",
        "skip",
        "slot",
    )

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

    def read_marks(self, seen: int) -> bool:
        """Turn the marks that have happened into events of the device, in order.

        Args:
            seen: How many marks there are, those forgotten included.

        Returns:
            False where the device turned out to be lost.
        """
        followed, account = self.followed, self.account
        marks, dropped = followed.call.marks, followed.dropped
        while self.read < seen:
            mark: Any = marks[self.read - dropped]
            if mark is None or self.broken:
                self._break_off()
                self.read += 1
                continue
            if self.slot is None:
                # What is told late may begin before what is final.
                at_ns: int = max(mark, account.frontier_ns)
            else:
                try:
                    device: Any = account.device
                    read_ns = device.read(mark.events[self.slot])
                except NotReadableError:
                    # It may have happened already: the device must not be charged past it.
                    account.unreadable = True
                    return True
                except DeviceLostError:
                    return False
                if read_ns is None:
                    return True
                # The mapping of the clocks is only so good; the device's order is certain.
                at_ns = max(read_ns, account.frontier_ns, self.fed_ns)
            self.fed_ns = at_ns
            account.events.append((at_ns, self.read & 1 ^ START, self.order, self))
            followed.waiting += 1
            self.read += 1
        return True

    def is_silent(self) -> bool:
        """Tell whether the device no longer answers, while a step is open of which all was read.

        Until its own code ends no mark is read, however long ago the device was lost.
        """
        if self.slot is None:
            return False
        # Marks are forgotten in pairs: the one that began the step is there.
        mark: Any = self.followed.call.marks[self.read - 1 - self.followed.dropped]
        device: Any = self.account.device
        return not device.answers(mark.events[self.slot])

    def _break_off(self) -> None:
        """A mark could not be recorded: what was charged stands, and nothing beyond it is known."""
        if not self.broken and self.read & 1:
            # Not left open until the call is concluded, which may be long after its end.
            account = self.account
            account.events.append((max(account.frontier_ns, self.fed_ns), STOP, self.order, self))
            self.followed.waiting += 1
        self.broken = True


class Followed:
    """What the settler keeps about a call until it is settled.

    Attributes:
        call: The call.
        batch: The batch that it is or is made in, whose members are charged; None for most.
        number: Its id in the ledger, 0 when it holds nothing there.
        lanes: Where it is timed.
        known_ns: Last instant at which no mark of it was being taken.
        charged: Scaled charge so far.
        held_ns: Time that it held by itself so far.
        waiting: Events that wait beyond the frontier.
        series: What it is counted under, once it is settled.
    """

    __slots__ = (
        "batch",
        "call",
        "charged",
        "dropped",
        "ended",
        "first_ns",
        "held_ns",
        "known_ns",
        "lanes",
        "last_ns",
        "marks_seen",
        "number",
        "series",
        "waiting",
        "warned",
    )

    def __init__(self, call: Call, known_ns: int) -> None:
        self.call = call
        parent = call.parent
        if call.site.is_batch:
            self.batch: Batch | None = call.batch
        else:
            self.batch = None if parent is None or parent.settled is None else parent.settled.batch
        self.number = 0
        self.lanes: tuple[Lane, ...] = ()
        self.known_ns = known_ns
        self.charged = 0
        self.held_ns = 0
        self.waiting = 0
        self.dropped = 0
        self.ended = False
        self.first_ns = 0
        self.last_ns = 0
        self.marks_seen = 0
        self.warned = False
        self.series: Series | None = None

    @property
    def counted(self) -> bool:
        """Whether it is counted here: a step that several processes take is counted by one of them."""
        return self.batch is None or self.batch.counted

    def is_settled(self) -> bool:
        """Tell whether the call was left, its span too, and nothing of it is still to be read or charged."""
        call = self.call
        if not call.closed or self.waiting or (call.span is not None and call.context is not None):
            return False
        if self.marks_seen < self.dropped + len(call.marks):
            return False
        return all(lane.read >= self.marks_seen for lane in self.lanes)

    def is_entered(self, *, more_wait: bool) -> bool:
        """Tell whether the settler follows all that was begun inside a call that has ended.

        What a timed call ended with is not settled before that instant is final, and what
        was begun until then is followed by then. One that is not timed may have begun a call
        and ended since the queue was drained.

        Args:
            more_wait: There are calls in the queue.
        """
        entered = self.ended or not more_wait or (bool(self.lanes) and not any(x.broken for x in self.lanes))
        self.ended = True
        return entered

    def forget_read_marks(self, seen: int, *, closed: bool) -> None:
        """Forget marks that were read, so that a long stream does not grow.

        Args:
            seen: How many marks there are, those forgotten included.
            closed: No more will come.
        """
        marks = self.call.marks
        if seen > self.marks_seen:
            if not self.marks_seen:
                self.first_ns = self._host_ns(marks[0])
            self.last_ns = self._host_ns(marks[seen - self.dropped - 1])
            self.marks_seen = seen
        read = min((lane.read for lane in self.lanes), default=seen) - self.dropped
        # Events are reused only when both of a pair were read.
        read -= read & 1
        # One pair is all that most calls have.
        if read > 2 or (read and not closed):  # noqa: PLR2004
            self.release(marks[:read])
            del marks[:read]
            self.dropped += read

    def release(self, marks: list[Any]) -> None:
        """Give the events of marks that were read back to their devices."""
        for lane in self.lanes:
            if lane.slot is not None and not lane.account.lost:
                device: Any = lane.account.device
                device.release(*(mark.events[lane.slot] for mark in marks if mark is not None))

    def why_unmeasured(self) -> str | None:
        """Return why the call could not be timed, None where it could or had nothing to time."""
        timer = self.call.timer
        if timer is None:
            return None
        if isinstance(timer, selection.Untimed):
            return "cuda_initialised_inside" if timer.began_uninitialised and cuda.initialised() else None
        return timer.unmeasured

    def measured(self) -> dict[str, str | float]:
        """Return what was found of a settled call, as attributes of its span; none where it was not timed."""
        if not self.lanes or self.series is None:
            return {}
        return {
            catalogue.CALL_DEVICE_TIME: self.charged / (SCALE * 1_000_000_000),
            catalogue.CALL_HELD_TIME: self.held_ns / 1_000_000_000,
            catalogue.TIME_SOURCE: self.series.attributes[catalogue.TIME_SOURCE],
            catalogue.HW_ID: self.lanes[0].account.device.id,
        }

    def warn_of_long_hold(self, held_ns: int) -> None:
        """Warn once of a call that has held its device for very long."""
        if held_ns > LONG_HOLD_NS and not self.warned:
            self.warned = True
            faults.log_once(
                f"long-hold:{self.call.site.operation}",
                "gputrace: %r has held its device for over ten minutes; if it only waits, use hold='none'",
                self.call.site.operation,
            )

    def _host_ns(self, mark: Any) -> int:
        if isinstance(mark, int):
            return mark
        # A mark that could not be recorded still has its time on the host.
        timer: Any = self.call.timer
        return int(timer.host_ns if mark is None else mark.host_ns)
