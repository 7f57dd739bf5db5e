"""One device of the node as its publisher shows it: where its time and energy went.

What is charged is told as soon as it is final. Whether the rest was untracked
or idle is told period by period, as the driver is read; where it is not read
the rest is unknown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.accounts import Account
from gputrace.devices.energy import EnergySplit, IdlePower, split_energy
from gputrace.devices.readings import Split, split_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gputrace.devices.readings import Reading
    from gputrace.node import Shared

    #: (held, never to be known) in ns between two instants; None where that cannot be said.
    HeldBetween = Callable[[int, int], tuple[int, int] | None]

#: A driver that hangs answers late or never; then the time is unknown.
PATIENCE_NS = 5_000_000_000

_UJ_PER_J = 1_000_000


@dataclass(slots=True)
class NodeDevice:
    """A GPU or slice of this node; see ``gputrace.devices.base.Device``.

    Attributes:
        id: NVML UUID.
        name: Product name, None where unknown.
        parent: UUID of the GPU that a slice is cut from.
    """

    id: str
    name: str | None = None
    parent: str | None = None
    type: str = "gpu"
    source: str = "cuda_event"


@dataclass(frozen=True, slots=True)
class Told:
    """What became known of a stretch of a device's time.

    Attributes:
        start_ns: Its begin on CLOCK_MONOTONIC.
        end_ns: Its end, exclusive.
        split: Where its time went.
        reading: What the driver said of it, None where it said nothing.
        energy: Whose its energy was, None where that was not measured.
        any_missed: Somebody may have held the device unseen.
    """

    start_ns: int
    end_ns: int
    split: Split
    reading: Reading | None = None
    energy: EnergySplit | None = None
    any_missed: bool = False


class PublishedDevice(Account):
    """A device whose time this process publishes.

    Args:
        device: Which.
        begins_ns: Where its window begins if nothing is ever read or held.
        not_before_ns: It cannot begin before: what was held then is not known, or shown by somebody else.

    Attributes:
        overlap_ns: What several processes were charged for at once.
        untracked_upper_ns: Untracked time at the most.
        drawn_uj: Energy of the periods that were read, by source.
        utilisation: When the device was last read, and the busy share of that period.
        told_ns: Length of the time that was told, and how much of it was held.
    """

    device: NodeDevice

    def __init__(self, device: NodeDevice, begins_ns: int, not_before_ns: int = 0) -> None:
        super().__init__(device, max(begins_ns, not_before_ns))
        self.overlap_ns = 0
        self.untracked_upper_ns = 0
        self.drawn_uj: dict[str, int] = {}
        self.utilisation: tuple[int, float] | None = None
        self._states = dict.fromkeys(catalogue.DEVICE_STATES, 0)
        self._energy_uj: dict[tuple[str, str], dict[str, int]] = {}
        self._idle_power = IdlePower()
        self.told_ns = (0, 0)
        self._told_ns = self.begins_ns
        self._not_before_ns = not_before_ns
        self._first_held_ns: int | None = None
        self._begun = False
        self._label: dict[str, str] | None = None
        self._waiting: deque[Reading] = deque(maxlen=1_024)

    @property
    def idle_power(self) -> IdlePower:
        """What it draws when nothing runs."""
        return self._idle_power

    def named(self, name: str | None, parent: str | None) -> None:
        """Take note of what the driver calls it, where that was not known."""
        self.device.name = self.device.name or name
        self.device.parent = self.device.parent or parent

    def begin_anew(self, at_ns: int, not_before_ns: int | None = None) -> None:
        """Go on after a time in which another process published it, or nobody.

        Args:
            at_ns: From here on.
            not_before_ns: Nobody spoke for it meanwhile: another window begins, as the first one did.
        """
        self.frontier_ns = self._told_ns = at_ns
        self._begun = not_before_ns is None
        self._first_held_ns = None
        self._not_before_ns = not_before_ns or 0
        self._waiting.clear()

    def inherit(self, untold_ns: int) -> Told:
        """Count what the publisher before left untold as unknown: its readings went with it."""
        self._states["unknown"] += untold_ns
        self.told_ns = (self.told_ns[0] + untold_ns, self.told_ns[1])
        split = Split(0, 0, 0, untold_ns, 0)
        return Told(self._told_ns - untold_ns, self._told_ns, split)

    def untold_ns(self, final_ns: int, held_between: HeldBetween) -> int:
        """Return how much of its window up to an instant is in no state yet, ns."""
        if final_ns <= self._told_ns or not (self._begun or self._first_held_ns is not None):
            # Nothing came after, or the window has not begun.
            return 0
        found = held_between(self._told_ns, final_ns)
        return 0 if found is None else final_ns - self._told_ns - found[0]

    def held(self, shared: Shared, until_ns: int, first_ns: int | None = None) -> None:
        """Count what became final of its holders.

        Args:
            shared: The increment.
            until_ns: Final up to here.
            first_ns: Where the first of all its holders began.
        """
        if shared.charged_ns and self._first_held_ns is None and first_ns is not None:
            self._first_held_ns = first_ns
            if not self._begun:
                self._begin(first_ns)
        self._states["charged"] += shared.charged_ns
        self.overlap_ns += shared.overlap_ns
        self.frontier_ns = max(self.frontier_ns, until_ns)

    def read(self, reading: Reading) -> None:
        """Keep a reading until its period is final."""
        self._waiting.append(reading)

    def tell(self, final_ns: int, held_between: HeldBetween) -> Iterator[Told]:
        """Count what became known of the time beyond its holders.

        Args:
            final_ns: Holders are final up to here.
            held_between: What they held.
        """
        while self._waiting and self._waiting[0].end_ns <= final_ns:
            reading = self._waiting.popleft()
            if not self._begun:
                # The window begins with the first reading, or with a holder before it.
                held_ns = self._first_held_ns
                self._begin(reading.start_ns if held_ns is None else min(held_ns, reading.start_ns))
            if reading.end_ns <= self._told_ns:
                continue
            if reading.start_ns > self._told_ns:
                yield from self._told(self._told_ns, reading.start_ns, None, held_between)
            # It came too late for the part of its period that was told already, and says nothing of the rest.
            whole = reading if reading.start_ns == self._told_ns else None
            yield from self._told(self._told_ns, reading.end_ns, whole, held_between)
        if final_ns - self._told_ns > PATIENCE_NS and not self._waiting:
            yield from self._told(self._told_ns, final_ns - PATIENCE_NS, None, held_between)

    def _begin(self, at_ns: int) -> None:
        self._told_ns = self.begins_ns = max(at_ns, self._not_before_ns)

    def tell_all(self, final_ns: int, held_between: HeldBetween, *, silent: bool = False) -> Iterator[Told]:
        """Count the rest, where no reading will come.

        Args:
            final_ns: Holders are final up to here.
            held_between: What they held.
            silent: The device answers no more; one that was never read is as silent.
        """
        if final_ns > self._told_ns and (silent or self.utilisation is None):
            yield from self._told(self._told_ns, final_ns, None, held_between)

    def _told(
        self, start_ns: int, end_ns: int, reading: Reading | None, held_between: HeldBetween
    ) -> Iterator[Told]:
        self._told_ns, self._begun = end_ns, True
        found = held_between(start_ns, end_ns)
        if found is None:
            return
        held_ns, missed_ns = found
        wall_ns = end_ns - start_ns
        split = split_time(wall_ns, held_ns, None if reading is None else reading.busy_ns)
        # Nobody is known to have held it then, but somebody may have.
        doubtful_ns = min(missed_ns, split.idle_ns)
        split = replace(split, idle_ns=split.idle_ns - doubtful_ns, unknown_ns=split.unknown_ns + doubtful_ns)
        self._states["untracked"] += split.untracked_ns
        self._states["idle"] += split.idle_ns
        self._states["unknown"] += split.unknown_ns
        self.untracked_upper_ns += split.untracked_upper_ns
        self.told_ns = (self.told_ns[0] + wall_ns, self.told_ns[1] + split.charged_ns)
        energy = None
        if reading is not None:
            if reading.busy_ns is not None:
                self.utilisation = (end_ns, reading.busy_ns / wall_ns)
            energy = self._share_energy(reading, split)
        yield Told(start_ns, end_ns, split, reading, energy, any_missed=missed_ns > 0)

    def _share_energy(self, reading: Reading, split: Split) -> EnergySplit | None:
        if reading.energy_uj is None or reading.energy_source is None:
            return None
        shared = split_energy(
            reading.energy_uj,
            {"charged": split.charged_ns},
            held_ns=split.charged_ns,
            untracked_ns=split.untracked_ns,
            idle_ns=split.idle_ns,
            unknown_ns=split.unknown_ns,
            idle_uj_per_ns=self._idle_power.uj_per_ns,
        )
        self._idle_power.add(reading.wall_ns, split.charged_ns, reading.busy_ns, reading.energy_uj)
        source = reading.energy_source
        self.drawn_uj[source] = self.drawn_uj.get(source, 0) + reading.energy_uj
        states = self._energy_uj.setdefault(
            (source, split_name(shared)), dict.fromkeys(catalogue.DEVICE_STATES, 0)
        )
        states["charged"] += shared.charged_uj["charged"]
        states["untracked"] += shared.untracked_uj
        states["idle"] += shared.idle_uj
        states["unknown"] += shared.unknown_uj
        return shared

    def attributes(self, publisher: str) -> dict[str, str]:
        """Return the metric attributes of the device, as it was shown first: a series never moves."""
        if self._label is None:
            parent = self.device.parent
            self._label = super().attributes("") | ({} if parent is None else {catalogue.HW_PARENT: parent})
        return {**self._label, catalogue.PUBLISHER: publisher}

    def states_ns(self) -> dict[str, int]:
        """Return the time in each state so far, ns."""
        return dict(self._states)

    def energy_j(self) -> list[tuple[dict[str, str], float]]:
        """Return the energy in each state so far, J, by source and split."""
        return [
            (
                {
                    catalogue.DEVICE_STATE: state,
                    catalogue.ENERGY_SOURCE: source,
                    catalogue.ENERGY_SPLIT: split,
                },
                drawn_uj / _UJ_PER_J,
            )
            for (source, split), states in self._energy_uj.items()
            for state, drawn_uj in states.items()
        ]


def split_name(shared: EnergySplit) -> str:
    """Return how energy was shared, as ``gputrace.energy.split`` says it."""
    return "estimated" if shared.estimated else "idle_power"
