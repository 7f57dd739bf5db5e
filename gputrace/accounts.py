"""What the settled calls add up to: time by device and state, and totals by series.

Exact totals are kept in the ledger's scaled integers and rounded only when
they are read, so that the parts always sum to the whole.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputrace import catalogue, ledger
from gputrace.attribution import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gputrace.attribution import Attribution
    from gputrace.call import Call
    from gputrace.costs import Costs
    from gputrace.devices.base import Device, EventDevice
    from gputrace.devices.host import HostDevice

NS_PER_S = 1_000_000_000

#: An event of a call on a device: (ns, 0 for a stop or 1 for a start, sequence of the lane, lane).
DeviceEvent = tuple[int, int, int, Any]


class Account:
    """One device in this process: the events not charged yet, and where its time went.

    Attributes:
        device: The device.
        begins_ns: The publisher's first reading, on the device's clock.
        frontier_ns: Up to here everything is final.
        events: Starts and stops beyond the frontier.
        error_ns: Bound of the error of the mapping to the host clock.
        lost: The device no longer answers.
        unreadable: An event that may have happened cannot be read at the moment.
    """

    def __init__(self, device: Device, begins_ns: int) -> None:
        self.device = device
        self.begins_ns = begins_ns
        self.frontier_ns = begins_ns
        self.events: list[DeviceEvent] = []
        self.lost = False
        self.unreadable = False

    @property
    def error_ns(self) -> int:
        """Bound of the clock mapping's error, ns; none on the host."""
        return 0

    def sample(self, now_ns: int) -> None:
        """Take the readings that belong to the instant ``now_ns``."""

    def instants(self, frontier_ns: int) -> Iterator[int]:
        """Yield the instants up to ``frontier_ns`` at which the device is charged."""
        if frontier_ns > self.frontier_ns:
            yield frontier_ns

    def advanced(self, until_ns: int, held_ns: int) -> None:
        """Take note that the device is charged up to ``until_ns``.

        Args:
            until_ns: One of ``instants``.
            held_ns: Union of all holds so far.
        """
        self.frontier_ns = until_ns
        self._held_ns = held_ns

    _held_ns = 0

    def attributes(self, publisher: str) -> dict[str, str]:
        """Return the metric attributes of the device.

        Args:
            publisher: Who reads it.
        """
        named = {catalogue.HW_NAME: self.device.name} if self.device.name else {}
        return {
            catalogue.HW_ID: self.device.id,
            catalogue.HW_TYPE: self.device.type,
            catalogue.PUBLISHER: publisher,
            **named,
        }

    def states_ns(self) -> dict[str, int]:
        """Return the time in each state so far, ns; sums to the wall time."""
        wall_ns = self.frontier_ns - self.begins_ns
        return {"charged": self._held_ns, "untracked": 0, "idle": 0, "unknown": wall_ns - self._held_ns}


class EventAccount(Account):
    """A GPU. Until something reads it, what is not charged is unknown, never idle.

    Args:
        device: The GPU.
    """

    device: EventDevice

    def __init__(self, device: EventDevice) -> None:
        # Where its clock stands is known once the first event was read.
        super().__init__(device, 0)
        self._begun = False

    def instants(self, frontier_ns: int) -> Iterator[int]:
        """Yield the frontier; its time begins with the first, or with an event before that."""
        if not self._begun:
            self._begun = True
            first_ns = self.events[0][0] if self.events else frontier_ns
            self.begins_ns = self.frontier_ns = min(first_ns, frontier_ns)
        return super().instants(frontier_ns)

    @property
    def error_ns(self) -> int:
        """Bound of the clock mapping's error, ns."""
        return self.device.mapping_error_ns


class SharedAccount(EventAccount):
    """A GPU whose time another account tells, that of the node: several processes may hold it."""

    def states_ns(self) -> dict[str, int]:
        """Return nothing: what this process held is not what the device was charged for."""
        return {}


class HostAccount(Account):
    """The host stand-in: CPU time tells untracked from idle, sample period by sample period."""

    device: HostDevice

    def __init__(self, device: HostDevice, begins_ns: int) -> None:
        super().__init__(device, begins_ns)
        self._cpu_ns = device.cpu_time_ns()
        self._samples: deque[tuple[int, int]] = deque()
        self._untracked_ns = 0
        self._idle_ns = 0

    def sample(self, now_ns: int) -> None:
        """Read the CPU time that belongs to the instant ``now_ns``."""
        self._samples.append((now_ns, self.device.cpu_time_ns()))

    def instants(self, frontier_ns: int) -> Iterator[int]:
        """Yield the instants of the samples up to the frontier: no state is known in between."""
        while self._samples and self._samples[0][0] <= frontier_ns:
            yield self._samples[0][0]

    def advanced(self, until_ns: int, held_ns: int) -> None:
        """Split one sample period: charged, untracked max(0, min(wall, CPU) - charged), idle the rest."""
        _, cpu_ns = self._samples.popleft()
        wall_ns = until_ns - self.frontier_ns
        charged_ns = held_ns - self._held_ns
        untracked_ns = max(0, min(wall_ns, cpu_ns - self._cpu_ns) - charged_ns)
        self._untracked_ns += untracked_ns
        self._idle_ns += wall_ns - charged_ns - untracked_ns
        self._cpu_ns = cpu_ns
        super().advanced(until_ns, held_ns)

    def states_ns(self) -> dict[str, int]:
        """Return the time in each state so far, ns; sums to the wall time."""
        return {
            "charged": self._held_ns,
            "untracked": self._untracked_ns,
            "idle": self._idle_ns,
            "unknown": 0,
        }


class Series:
    """One set of metric attributes; compared by identity."""

    __slots__ = ("attributes",)

    def __init__(self, attributes: dict[str, str]) -> None:
        self.attributes = attributes


@dataclass
class Snapshot:
    """What the instruments show, all taken at one instant.

    Each list holds (series attributes, value).
    """

    feature_time_s: list[tuple[dict[str, str], float]] = field(default_factory=list)
    calls: list[tuple[dict[str, str], int]] = field(default_factory=list)
    device_time_s: list[tuple[dict[str, str], float]] = field(default_factory=list)
    lost: list[tuple[dict[str, str], int]] = field(default_factory=list)
    unmeasured: list[tuple[dict[str, str], int]] = field(default_factory=list)
    feature_cost: list[tuple[dict[str, str], float]] = field(default_factory=list)
    device_cost: list[tuple[dict[str, str], float]] = field(default_factory=list)
    device_price: list[tuple[dict[str, str], float]] = field(default_factory=list)
    unpriced_s: list[tuple[dict[str, str], float]] = field(default_factory=list)
    price_info: list[tuple[dict[str, str], float]] = field(default_factory=list)
    outcomes: list[tuple[dict[str, str], float]] = field(default_factory=list)
    units: list[tuple[dict[str, str], float]] = field(default_factory=list)
    #: Of the metrics of requests, by the metric's name; likewise below.
    requests: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    #: Of the metrics that come from readings of GPUs, by the metric's name.
    readings: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    queue_length: int = 0
    folded: int = 0


class Totals:
    """Counters by series. Values keep their names: the first so many of each attribute, later ones fold.

    Args:
        metric_attributes: Attributes on metrics beyond the defaults, such as ``tenant``.
        value_limit: Distinct values kept of each attribute.
    """

    def __init__(self, metric_attributes: tuple[str, ...] = (), value_limit: int = 200) -> None:
        self.apply(metric_attributes, value_limit)
        self._values: dict[str, set[str]] = {}
        self._series: dict[tuple[tuple[str, str], ...], Series] = {}
        self.folded = 0
        self.time: dict[Series, int] = {}
        self.calls: dict[Series, int] = {}
        self.unmeasured: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        #: Adds to a snapshot what others count beside the calls, under the same lock.
        self.count_more: Callable[[Snapshot], None] | None = None

    def apply(self, metric_attributes: tuple[str, ...], value_limit: int) -> None:
        """Use other settings from here on; what was counted stays where it is."""
        self._with_tenant = "tenant" in metric_attributes
        self._value_limit = value_limit
        # What sites remember was made for other totals, or under other settings.
        self._validity = object()

    def kept(self, name: str, value: str) -> str:
        """Return a value under which an attribute is counted: its own while there is room."""
        values = self._values.setdefault(name, set())
        if value in values:
            return value
        value = printable(value)
        if value in values:
            return value
        if len(values) < self._value_limit:
            values.add(value)
            return value
        self.folded += 1
        return catalogue.OTHER

    def _interned(self, attributes: dict[str, str]) -> Series:
        key = tuple(attributes.items())
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(attributes)
        return series

    def attributes_of(
        self, call: Call, attribution: Attribution, account: Account | None, *, estimated: bool
    ) -> dict[str, str]:
        """Return the metric attributes of a call on a device."""
        given = {
            catalogue.FEATURE: attribution.feature or catalogue.NO_FEATURE,
            catalogue.OPERATION: call.site.operation,
            catalogue.MODEL: attribution.model,
            catalogue.VARIANT: attribution.variant,
            catalogue.STAGE: attribution.stage,
            catalogue.TENANT: attribution.tenant if self._with_tenant else None,
        }
        attributes = {name: self.kept(name, value) for name, value in given.items() if value is not None}
        if account is not None:
            attributes[catalogue.TIME_SOURCE] = "estimated" if estimated else account.device.source
            attributes[catalogue.HW_TYPE] = account.device.type
            if account.device.name:
                attributes[catalogue.HW_NAME] = account.device.name
        return attributes

    def time_series(
        self, call: Call, account: Account, *, estimated: bool, billed: Attribution | None = None
    ) -> Series:
        """Return the series under which a call's time on a device is counted.

        Args:
            call: The call.
            account: The device.
            estimated: The time is.
            billed: Who is, where that is not the call's own attribution.
        """
        billed = call.attribution if billed is None else billed
        key = (billed, account, estimated, self._validity)
        series = call.site.series.get(key)
        if series is None:
            attributes = self.attributes_of(call, billed, account, estimated=estimated)
            series = self._cache(call, key, attributes)
            self.time.setdefault(series, 0)
        return series

    def call_series(self, call: Call, account: Account | None, status: str) -> Series:
        """Return the series under which a finished call is counted."""
        key = (call.attribution, account, status, self._validity)
        series = call.site.series.get(key)
        if series is None:
            attributes = self.attributes_of(call, call.attribution, account, estimated=False)
            series = self._cache(call, key, {**attributes, catalogue.STATUS: status})
            self.calls.setdefault(series, 0)
        return series

    def _cache(self, call: Call, key: tuple[Any, ...], attributes: dict[str, str]) -> Series:
        cache = call.site.series
        if len(cache) >= self._value_limit * 8:
            cache.clear()
        series = cache[key] = self._interned(attributes)
        return series

    def snapshot(
        self, accounts: list[Account], publisher: str, queue_length: int, costs: Costs | None = None
    ) -> Snapshot:
        """Return all counters, rounded."""
        shown = Snapshot(queue_length=queue_length, folded=self.folded)
        scale = ledger.SCALE * NS_PER_S
        shown.feature_time_s = [(series.attributes, total / scale) for series, total in self.time.items()]
        shown.calls = [(series.attributes, count) for series, count in self.calls.items()]
        devices = {account: account.attributes(publisher) for account in accounts}
        for account, device in devices.items():
            shown.device_time_s += [
                ({**device, catalogue.DEVICE_STATE: state}, spent_ns / NS_PER_S)
                for state, spent_ns in account.states_ns().items()
            ]
        if costs is not None:
            shown.feature_cost = costs.by_feature()
            shown.device_cost = costs.by_state(devices)
            shown.device_price = costs.prices(devices)
            shown.unpriced_s = costs.unpriced_s(devices)
            shown.price_info = costs.price_info(devices)
        if self.count_more is not None:
            self.count_more(shown)
            shown.folded = self.folded
        shown.lost = [({catalogue.LOSS_REASON: reason}, count) for reason, count in self.lost.items()]
        shown.unmeasured = [
            ({catalogue.LOSS_REASON: reason}, count) for reason, count in self.unmeasured.items()
        ]
        return shown
