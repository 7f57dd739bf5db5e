"""The ledger that the settler streams calls through; :mod:`gputrace.ledger` states the rules."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Generic, Literal, cast, overload

from gputrace.ledger_chains import Chains, Id, not_holding
from gputrace.ledger_timeline import Amount, Timeline

if TYPE_CHECKING:
    from gputrace.ledger_timeline import Divide

#: Units in a nanosecond: the amounts that a :class:`Ledger` hands out are in 1/SCALE ns.
SCALE = 2**64


class Ledger(Generic[Amount]):
    """Charge calls for device time while they run.

    The events of a device come in the order of its clock; devices are independent of each other. What
    :meth:`advance` has said is final. The type of a plain ``Ledger()`` is ``Ledger[int]``.

    **Unit.** Amounts are in 1/``SCALE`` ns: ints, or Fractions with ``exact=True``. Either way the sum of all
    increments of a device is ``SCALE * held(device)``, to the unit, after every :meth:`advance`.

    **Error.** The int total of a call differs from its exact share by less than ``E * (W + N) / SCALE`` ns
    after E starts, stops and advances of the device while the call held it. W is the largest sum of weights
    that held at once, N the most innermost calls of one root. Up to W + N = 2**24, a million events stay
    below 2**-20 ns.

    **Memory** is that of the open calls, and of closed ones until :meth:`advance` has said what they were
    owed. An open root also remembers the links of its last ``REMEMBERED_LINKS`` closed calls. Nothing of a
    root outlives its last open call; a device keeps a few numbers.

    **Cost.** A start or stop costs the same however many calls overlap; it walks up no further than to the
    nearest ancestor that holds, or has another call below it that does.

    Args:
        exact: Count in Fractions, without any error, but slowly: for tests.
    """

    @overload
    def __init__(self: Ledger[int], *, exact: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: Ledger[Fraction], *, exact: Literal[True]) -> None: ...
    def __init__(self, *, exact: bool = False) -> None:
        unit, divide = (Fraction(SCALE), _divide_evenly) if exact else (SCALE, divmod)
        # The overloads tie Amount to the value of exact; the type checker cannot.
        self._unit: Amount = cast("Amount", unit)
        self._divide: Divide[Amount] = cast("Divide[Amount]", divide)
        self._chains = Chains()
        self._timelines: dict[Id, Timeline[Amount]] = {}

    def open(self, call: Id, root: Id, parent: Id | None = None, weight: int = 1) -> None:
        """Make a call known, before it starts to hold anything.

        Args:
            call: Its id; no open call has it.
            root: The id of the outermost call, the owner that shares devices. That call need not be open.
            parent: The nearest call above. It may have closed. Open it before anything below it starts: as
                long as it was never opened, the chain ends at it.
            weight: The weight of the root on every device, an int >= 1.

        Raises:
            ValueError: The call is open already or is its own ancestor; its parent has another root; the
                weight is no int >= 1, or not the one that the root's other open calls gave.
        """
        self._chains.open(call, root, parent, weight)

    def start(self, call: Id, device: Id, at_ns: int) -> None:
        """Let an open call hold ``device`` from ``at_ns`` on.

        It may hold a device several times at once (streams, threads), and does until as many stops have come.

        Args:
            call: The id of an open call.
            device: The id of the device.
            at_ns: The instant, int ns on that device's clock.

        Raises:
            ValueError: The call is not open, or the device is past ``at_ns``.
        """
        record = self._chains.get(call, "start")
        timeline = self._timelines.get(device) or self._add_device(device, at_ns)
        timeline.start(record, record.weight, at_ns)
        record.starts += 1

    def stop(self, call: Id, device: Id, at_ns: int) -> None:
        """End one hold of an open call on ``device`` at ``at_ns``.

        Args:
            call: The id of an open call that holds the device.
            device: The id of the device.
            at_ns: The instant, int ns on that device's clock.

        Raises:
            ValueError: The call is not open or does not hold the device, or the device is past ``at_ns``.
        """
        record = self._chains.get(call, "stop")
        timeline = self._timelines.get(device)
        if timeline is None:
            raise not_holding(call, device, at_ns)
        timeline.stop(record, at_ns)
        record.starts -= 1

    def close(self, call: Id) -> None:
        """Say that an open call will hold nothing any more.

        What it is still owed comes with the next ``advance`` of each device.

        Raises:
            ValueError: The call is not open, or still holds a device.
        """
        self._chains.close(call)

    def advance(self, device: Id, until_ns: int) -> dict[Id, Amount]:
        """Charge ``device`` up to ``until_ns`` and hand out what is new.

        Args:
            device: The id of the device; one that was never seen begins here.
            until_ns: The instant, int ns on that device's clock. No later event may lie before it.

        Returns:
            By call, closed ones too, the charge since the last advance, in 1/``SCALE`` ns. Calls without any
            are left out.

        Raises:
            ValueError: The device is past ``until_ns``.
        """
        timeline = self._timelines.get(device) or self._add_device(device, until_ns)
        return timeline.report(until_ns)

    def held(self, device: Id) -> int:
        """Return the union of all holds of ``device`` up to its last advance, in ns."""
        timeline = self._timelines.get(device)
        return 0 if timeline is None else timeline.reported_ns

    def _add_device(self, device: Id, now_ns: int) -> Timeline[Amount]:
        timeline = Timeline(device, now_ns, self._unit, self._divide)
        self._timelines[device] = timeline
        return timeline


def _divide_evenly(owed: Fraction, among: int) -> tuple[Fraction, Fraction]:
    return owed / among, Fraction(0)
