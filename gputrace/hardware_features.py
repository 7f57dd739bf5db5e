"""What readings of a device say of the features that this process charged on it: energy and busy share."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gputrace import catalogue, ledger
from gputrace.devices.energy import apportion
from gputrace.devices.readings import BusyShare
from gputrace.hardware_published import split_name
from gputrace.node_union import Pieces
from gputrace.staged import PartOf, around

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.cardinality import Series
    from gputrace.hardware_published import Told

    Rows = list[tuple[dict[str, str], float]]

_UJ_PER_J = 1_000_000
_NS_PER_S = 1_000_000_000
#: Stretches that wait for a reading: minutes, at the settler's pace.
_MOST_STRETCHES = 8_192


class Stretch(NamedTuple):
    """What this process was charged on a device between two instants.

    Attributes:
        start_ns: Begin, on CLOCK_MONOTONIC.
        end_ns: End.
        charges: 1/``SCALE`` ns by series, and stage of a cascade where there is one.
    """

    start_ns: int
    end_ns: int
    charges: tuple[tuple[Series | PartOf, int], ...]


class _Device:
    """One device as this process holds it.

    Attributes:
        stretches: What was charged and not told yet.
        overlap_ns: Several processes held it at once up to here.
        held: When any call of this process held it, exactly.
        holders: Calls that hold it now.
    """

    def __init__(self) -> None:
        self.stretches: deque[Stretch] = deque(maxlen=_MOST_STRETCHES)
        self.overlap_ns = 0
        self.held = Pieces(0)
        self.holders = 0
        self._since_ns = 0

    def start(self, at_ns: int) -> None:
        if not self.holders:
            self._since_ns = max(at_ns, self._since_ns)
        self.holders += 1

    def stop(self, at_ns: int) -> None:
        if self.holders == 1:
            self.until(at_ns)
        self.holders = max(0, self.holders - 1)

    def until(self, at_ns: int) -> None:
        """Count what is held up to an instant."""
        if self.holders and at_ns > self._since_ns:
            self.held.add(self._since_ns, at_ns)
            self._since_ns = at_ns


class FeatureReadings:
    """Energy by series and busy share by feature, of this process."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._energy_uj: dict[tuple[Series, str, str], int] = {}
        self._shares: dict[tuple[tuple[str, str], ...], BusyShare] = {}

    def start(self, device_id: str, at_ns: int) -> None:
        """Let one more call of this process hold a device."""
        self._device(device_id).start(at_ns)

    def stop(self, device_id: str, at_ns: int) -> None:
        """Let one call hold a device no more."""
        self._device(device_id).stop(at_ns)

    def holders(self, device_id: str) -> int:
        """Return how many calls of this process hold a device now."""
        return self._device(device_id).holders

    def charged(self, device_id: str, stretch: Stretch) -> None:
        """Keep what was charged until the period that it lies in was read."""
        device = self._device(device_id)
        device.until(stretch.end_ns)
        if len(device.stretches) == _MOST_STRETCHES:
            _was_read(device.stretches[0], unpowered=True)
        _awaits_reading(stretch)
        device.stretches.append(stretch)

    def overlapped(self, device_id: str, until_ns: int) -> None:
        """Note that several processes held a device at once shortly before an instant."""
        self._device(device_id).overlap_ns = until_ns

    def held_between(self, device_id: str, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return for how long this process held a device, ns, and 0: it misses nothing of its own."""
        held = self._device(device_id).held
        return held.until(end_ns) - held.until(start_ns), 0

    def told(self, device_id: str, told: Told, *, alone: bool) -> None:
        """Share what was read of a period.

        Args:
            device_id: The device.
            told: The period.
            alone: No other process can have held the device in it.
        """
        device = self._device(device_id)
        alone = alone and not told.any_missed and device.overlap_ns <= told.start_ns
        charges = _within(device.stretches, told.start_ns, told.end_ns)
        held_ns, _ = self.held_between(device_id, told.start_ns, told.end_ns)
        if told.reading is None or not charges:
            _share_with_stages(dict.fromkeys(charges))
            return
        self._share_energy(told, held_ns, charges)
        # As long as what it held: what others held of the device, no feature of this process is alone in.
        if alone and held_ns == told.split.charged_ns:
            self._share_time(told, charges)

    def _share_energy(self, told: Told, held_ns: int, charges: dict[Series | PartOf, int]) -> None:
        energy, reading = told.energy, told.reading
        if energy is None or reading is None or not told.split.charged_ns:
            _share_with_stages(dict.fromkeys(charges))
            return
        source, split = str(reading.energy_source), split_name(energy)
        all_uj = sum(energy.charged_uj.values())
        # A hold that came too late to be counted on the device has no part in the device's energy.
        own_uj = all_uj * min(held_ns, told.split.charged_ns) // told.split.charged_ns
        parts = apportion(own_uj, charges)
        for owner, part_uj in parts.items():
            key = (owner.series if isinstance(owner, PartOf) else owner, source, split)
            self._energy_uj[key] = self._energy_uj.get(key, 0) + part_uj
        _share_with_stages(parts)

    def _share_time(self, told: Told, charges: dict[Series | PartOf, int]) -> None:
        reading = told.reading
        by_feature: dict[tuple[tuple[str, str], ...], int] = {}
        for series, amount in charges.items():
            named = tuple(
                (name, series.attributes[name])
                for name in (catalogue.FEATURE, catalogue.HW_TYPE, catalogue.HW_NAME)
                if name in series.attributes
            )
            by_feature[named] = by_feature.get(named, 0) + amount
        for named, amount in by_feature.items():
            share = self._shares.get(named) or BusyShare()
            busy_ns = None if reading is None else reading.busy_ns
            if share.add(told.end_ns - told.start_ns, busy_ns, amount // ledger.SCALE):
                self._shares[named] = share

    def rows(self) -> dict[str, Rows]:
        """Return what to show, by the name of the metric."""
        energy = [
            (
                {**series.attributes, catalogue.ENERGY_SOURCE: source, catalogue.ENERGY_SPLIT: split},
                drawn_uj / _UJ_PER_J,
            )
            for (series, source, split), drawn_uj in self._energy_uj.items()
        ]
        shares = [(dict(named), share) for named, share in self._shares.items()]
        return {
            catalogue.FEATURE_ENERGY.name: energy,
            catalogue.FEATURE_ALONE_TIME.name: [(of, share.wall_ns / _NS_PER_S) for of, share in shares],
            catalogue.FEATURE_ALONE_BUSY_TIME.name: [(of, share.busy_ns / _NS_PER_S) for of, share in shares],
            catalogue.FEATURE_ALONE_PERIODS.name: [(of, share.periods) for of, share in shares],
        }

    def _device(self, device_id: str) -> _Device:
        device = self._devices.get(device_id)
        if device is None:
            device = self._devices[device_id] = _Device()
        return device


def _awaits_reading(stretch: Stretch) -> None:
    for owner, _ in stretch.charges:
        if isinstance(owner, PartOf):
            for tally in around(owner.tally):
                tally.unread += 1


def _was_read(stretch: Stretch, *, unpowered: bool = False) -> None:
    for owner, _ in stretch.charges:
        if isinstance(owner, PartOf):
            for tally in around(owner.tally):
                tally.unread -= 1
                tally.unpowered |= unpowered


def _share_with_stages(parts: Mapping[Series | PartOf, int | None]) -> None:
    for owner, part_uj in parts.items():
        if isinstance(owner, PartOf):
            for tally in around(owner.tally):
                tally.read(part_uj)


def _within(stretches: deque[Stretch], start_ns: int, end_ns: int) -> dict[Series | PartOf, int]:
    """Return what was charged in a period, and forget what came before its end.

    Stretches are shorter than periods; one that lies across an end of the period is
    divided by time.
    """
    charges: dict[Series | PartOf, int] = {}
    while stretches and stretches[0].start_ns < end_ns:
        stretch = stretches.popleft()
        length_ns = stretch.end_ns - stretch.start_ns
        before_ns = max(0, min(stretch.end_ns, start_ns) - stretch.start_ns)
        within_ns = max(0, min(stretch.end_ns, end_ns) - stretch.start_ns) - before_ns
        if within_ns > 0:
            for series, amount in stretch.charges:
                part = _part(amount, before_ns, within_ns, length_ns)
                charges[series] = charges.get(series, 0) + part
        if stretch.end_ns > end_ns:
            stretches.appendleft(stretch)
            break
        _was_read(stretch)
    return charges


def _part(amount: int, before_ns: int, within_ns: int, length_ns: int) -> int:
    """Return the part of an amount that falls into a span; adjacent parts sum to the whole."""
    return amount * (before_ns + within_ns) // length_ns - amount * before_ns // length_ns
