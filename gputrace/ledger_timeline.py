"""Shares one device's time as it passes, for :mod:`gputrace.ledger`, which states the rules: pure arithmetic.

The method is virtual time, as in weighted fair queueing (Demers, Keshav and Shenker, 1989; Parekh and
Gallager, 1993). With ``V(t) = integral of dt / sum of the weights of the owners that hold``, an owner of
weight ``w`` that holds from ``a`` to ``b`` is charged ``w * (V(b) - V(a))``: one start or stop costs the same
however many calls overlap. An owner's charge is split in the same way, by a local virtual time ``L(t) =
integral of d(charge of the owner) / number of its innermost calls``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from gputrace.ledger_chains import Id, not_holding

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.ledger_chains import CallRecord

    #: Gives what each of several equals gets, and what is left over.
    Divide: TypeAlias = Callable[["Amount", int], tuple["Amount", "Amount"]]

#: Time in parts of a nanosecond: scaled ints, or Fractions where nothing may be lost.
Amount = TypeVar("Amount", int, Fraction)


class _Hold:
    """A call that holds the device, or has a child that is such a hold itself."""

    __slots__ = ("above", "below", "call", "starts")

    def __init__(self, call: CallRecord, starts: int, below: int) -> None:
        self.call = call
        self.starts = starts
        self.below = below
        self.above: _Hold | None = None


class _Owner(Generic[Amount]):
    """A root while it holds the device: its local virtual time ``L`` and its holds.

    Attributes:
        seen: The device's ``V`` up to which the owner's charge is split.
        local: ``L`` at that moment.
        left: What the last division left over.
        innermost: The innermost calls, each with the ``L`` up to which it has been paid.
    """

    __slots__ = ("holds", "innermost", "left", "local", "seen", "weight")

    def __init__(self, weight: int, seen: Amount, zero: Amount) -> None:
        self.weight = weight
        self.seen: Amount = seen
        self.local: Amount = zero
        self.left: Amount = zero
        self.innermost: dict[Id, Amount] = {}
        self.holds: dict[CallRecord, _Hold] = {}


class Timeline(Generic[Amount]):
    """One device: who holds it now, and what each call is owed.

    ``divide(owed, among)`` gives what each of ``among`` equals gets, and what is left over. That goes into
    the next division, and to a call at each report and when its owner lets go, so that no unit is lost.

    Args:
        device: The id of the device, for error messages.
        now_ns: Where its time begins, ns on its own clock.
        unit: What one nanosecond counts.
        divide: The division: ``divmod``, or one that is exact.

    Attributes:
        reported_ns: The union of all holds in ns, up to the last report.
    """

    def __init__(self, device: Id, now_ns: int, unit: Amount, divide: Divide[Amount]) -> None:
        zero = unit * 0
        self.reported_ns = 0
        self._device = device
        self._now_ns = now_ns
        self._unit: Amount = unit
        self._divide: Divide[Amount] = divide
        self._zero: Amount = zero
        self._held_ns = 0
        self._weight = 0
        self._virtual: Amount = zero
        self._left: Amount = zero
        self._owners: dict[Id, _Owner[Amount]] = {}
        self._due: dict[Id, Amount] = {}

    def start(self, call: CallRecord, weight: int, at_ns: int) -> None:
        """Let ``call``, whose root has ``weight``, hold the device once more.

        Raises:
            ValueError: ``at_ns`` lies before the device's last instant.
        """
        self._move(at_ns, call)
        owner = self._owners.get(call.root)
        if owner is None:
            owner = self._owners[call.root] = _Owner(weight, self._virtual, self._zero)
            self._weight += weight
        hold = owner.holds.get(call)
        if hold is not None:
            # It holds already, or something below it does: nobody's share changes.
            hold.starts += 1
            return
        self._accrue(owner)
        hold = owner.holds[call] = _Hold(call, starts=1, below=0)
        owner.innermost[call.name] = owner.local
        self._silence_above(owner, hold)

    def stop(self, call: CallRecord, at_ns: int) -> None:
        """End one of the holds of ``call`` at ``at_ns``.

        Raises:
            ValueError: The call does not hold the device, or ``at_ns`` lies before its last instant.
        """
        owner = self._owners.get(call.root)
        hold = None if owner is None else owner.holds.get(call)
        if owner is None or hold is None or not hold.starts:
            raise not_holding(call.name, self._device, at_ns)
        self._move(at_ns, call)
        hold.starts -= 1
        if hold.starts or hold.below:
            return
        self._accrue(owner)
        self._settle(owner, call.name)
        self._revive_above(owner, hold)
        if not owner.innermost:
            self._let_go(owner, call)

    def report(self, until_ns: int) -> dict[Id, Amount]:
        """Move to ``until_ns`` and hand out what each call is owed since the last time.

        Raises:
            ValueError: ``until_ns`` lies before the device's last instant.
        """
        self._move(until_ns, None)
        for owner in self._owners.values():
            self._accrue(owner)
            left, self._left = owner.left + self._left, self._zero
            for name, mark in owner.innermost.items():
                self._owe(name, owner.local - mark + left)
                left = self._zero
            owner.innermost = dict.fromkeys(owner.innermost, self._zero)
            owner.local = owner.left = owner.seen = self._zero
        # Everyone is paid, so virtual time may begin anew and stay small.
        self._virtual = self._zero
        self.reported_ns = self._held_ns
        due, self._due = self._due, {}
        return due

    def _move(self, at_ns: int, call: CallRecord | None) -> None:
        """Let time pass: ``V`` grows by what each unit of weight is charged."""
        elapsed_ns = at_ns - self._now_ns
        if elapsed_ns < 0:
            what = "advance" if call is None else f"event of call {call.name!r}"
            raise ValueError(
                f"{what} on device {self._device!r} at {at_ns} ns, where the device is at {self._now_ns} ns"
                " already; hand in the events of a device in time order"
            )
        self._now_ns = at_ns
        if elapsed_ns and self._owners:
            self._held_ns += elapsed_ns
            step, self._left = self._divide(elapsed_ns * self._unit + self._left, self._weight)
            self._virtual += step

    def _accrue(self, owner: _Owner[Amount]) -> None:
        """Bring ``L`` of an owner up to now; wanted before its innermost calls change."""
        owed = (self._virtual - owner.seen) * owner.weight
        if owed:
            step, owner.left = self._divide(owed + owner.left, len(owner.innermost))
            owner.local += step
            owner.seen = self._virtual

    def _settle(self, owner: _Owner[Amount], name: Id) -> None:
        """Owe an innermost call its share so far, and let it be one no more."""
        self._owe(name, owner.local - owner.innermost.pop(name))

    def _owe(self, name: Id, amount: Amount) -> None:
        if amount:
            self._due[name] = self._due.get(name, self._zero) + amount

    def _silence_above(self, owner: _Owner[Amount], hold: _Hold) -> None:
        """Tell the chain above that something below it holds now.

        The first ancestor that holds, or was told before, has told all above it. So the walk ends there, and
        no other ancestor can have been innermost until now.
        """
        call = hold.call.parent
        while call is not None:
            above = owner.holds.get(call)
            if above is not None:
                hold.above = above
                above.below += 1
                if above.below == 1:
                    self._settle(owner, call.name)
                return
            above = hold.above = owner.holds[call] = _Hold(call, starts=0, below=1)
            hold, call = above, call.parent

    def _revive_above(self, owner: _Owner[Amount], hold: _Hold) -> None:
        """Undo :meth:`_silence_above`: the next holder above may be innermost again."""
        while True:
            del owner.holds[hold.call]
            above = hold.above
            if above is None:
                return
            above.below -= 1
            if above.below:
                return
            if above.starts:
                owner.innermost[above.call.name] = owner.local
                return
            hold = above

    def _let_go(self, owner: _Owner[Amount], last: CallRecord) -> None:
        """Drop an owner that holds no more; its last call takes what is left over."""
        self._owe(last.name, owner.left)
        self._weight -= owner.weight
        del self._owners[last.root]
        if not self._owners:
            self._owe(last.name, self._left)
            self._left = self._virtual = self._zero
