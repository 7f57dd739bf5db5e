"""What the settled calls add up to: time by device and state, and totals by series.

Exact totals are kept in the ledger's scaled integers and rounded only when
they are read, so that the parts always sum to the whole.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputrace import catalogue, faults, ledger
from gputrace.cardinality import Cap
from gputrace.cardinality_series import CallSeries
from gputrace.settings_table import DEFAULT_SET_LIMIT, DEFAULT_VALUE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gputrace.attribution import Attribution
    from gputrace.call import Call
    from gputrace.cardinality import Series
    from gputrace.costs import Costs
    from gputrace.devices.base import Device, EventDevice
    from gputrace.devices.host import HostDevice

    Rows = list[tuple[dict[str, str], float]]

NS_PER_S = 1_000_000_000
#: Reason under which calls count that a process of the node accepted, and did not live to export.
PROCESS_DIED = "process_died"

#: Those whose attributes users give values to, by name.
_OF_FEATURES = {metric.name: metric for metric in catalogue.METRICS if catalogue.FEATURE in metric.attributes}

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


class ReportedAccount(SharedAccount):
    """A GPU of which this process hears afterwards.

    Args:
        device: The GPU.
        begins_ns: The node knows all that this process held on it by then: nothing.
    """

    def __init__(self, device: EventDevice, begins_ns: int) -> None:
        super().__init__(device)
        self._begun = True
        self.begins_ns = self.frontier_ns = begins_ns


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
    budgets: list[tuple[dict[str, str], float]] = field(default_factory=list)
    outcomes: list[tuple[dict[str, str], float]] = field(default_factory=list)
    units: list[tuple[dict[str, str], float]] = field(default_factory=list)
    #: Of the metrics of requests, by the metric's name; likewise below.
    requests: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    #: Of the metrics that come from readings of GPUs, by the metric's name.
    readings: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    #: Of the metrics of cascades, by the metric's name.
    escalations: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    queue_length: int = 0
    folded: int = 0


class Totals:
    """Counters by series, as many as the cap lets there be.

    Args:
        metric_attributes: Attributes on metrics beyond the defaults, such as ``tenant``.
        value_limit: Distinct values kept of each attribute.
        set_limit: Attribute sets of an instrument.
        features: Features that keep their names and are shown from the start, as 0.
        models: Models likewise.
        cap: One that is in use already, as in a forked child, whose metric readers know its names.

    Attributes:
        names: Which series calls are counted under.
        folded: Values of finished calls that were counted as ``__other__``.
        time: Scaled charge by series.
        calls: Finished calls by series.
        unmeasured: Calls that could not be timed, by reason.
        lost: Records that could not be delivered, by reason.
    """

    def __init__(  # noqa: PLR0913 - one argument a setting
        self,
        metric_attributes: tuple[str, ...] = (),
        value_limit: int = DEFAULT_VALUE_LIMIT,
        set_limit: int = DEFAULT_SET_LIMIT,
        features: tuple[str, ...] = (),
        models: tuple[str, ...] = (),
        *,
        cap: Cap | None = None,
    ) -> None:
        self.names = CallSeries(cap or Cap())
        self.folded = 0
        self.time: dict[Series, int] = {}
        self.calls: defaultdict[Series, int] = defaultdict(int)
        self.unmeasured: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        #: Adds to a snapshot what others count beside the calls, under the same lock.
        self.count_more: Callable[[Snapshot], None] | None = None
        self.apply(metric_attributes, value_limit, set_limit, features, models)
        self._show_declared()

    def apply(
        self,
        metric_attributes: tuple[str, ...],
        value_limit: int,
        set_limit: int = DEFAULT_SET_LIMIT,
        features: tuple[str, ...] = (),
        models: tuple[str, ...] = (),
    ) -> None:
        """Use other settings from here on; what was counted stays where it is."""
        self.names.cap.apply(value_limit, set_limit, features, models)
        self.names.apply(metric_attributes, features, models)

    def lose(self, calls: int) -> None:
        """Take note of how many calls dead processes of the node have lost so far."""
        if calls:
            self.lost[PROCESS_DIED] = calls

    def kept(self, name: str, value: str) -> str:
        """Return a value under which an attribute is counted: its own while there is room."""
        kept = self.names.cap.value(name, value)
        self.folded += kept == catalogue.OTHER
        return kept

    def counted_as(self, metric: catalogue.Metric, attributes: dict[str, str]) -> dict[str, str]:
        """Return the set under which an instrument counts one whose values were ``kept``."""
        return self.names.cap.series(metric, attributes).attributes

    def _show_declared(self) -> None:
        for time, calls in self.names.take_declared():
            self.time.setdefault(time, 0)
            self.calls.setdefault(calls, 0)

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
        return self.names.of_time(
            call, account, call.attribution if billed is None else billed, estimated=estimated
        )

    def call_series(self, call: Call, account: Account | None, status: str) -> Series:
        """Return the series under which a finished call is counted, and count what was folded for it."""
        series, folded = self.names.of_call(call, account, status)
        self.folded += folded
        return series

    def snapshot(
        self, accounts: list[Account], publisher: str, queue_length: int, costs: Costs | None = None
    ) -> Snapshot:
        """Return all counters, rounded."""
        self._show_declared()
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
            shown.feature_cost = self.names.cap.rows(catalogue.FEATURE_COST, costs.by_feature())
            shown.device_cost = costs.by_state(devices)
            shown.device_price = costs.prices(devices)
            shown.unpriced_s = costs.unpriced_s(devices)
            shown.price_info = costs.price_info(devices)
        if self.count_more is not None:
            self.count_more(shown)
            shown.folded = self.folded
        shown.lost = [({catalogue.LOSS_REASON: reason}, count) for reason, count in self.lost.items()]
        shown.unmeasured = [
            ({catalogue.LOSS_REASON: reason}, count)
            for reason, count in {**self.unmeasured, **faults.all_unmeasured()}.items()
        ]
        return shown

    def bounded(self, rows: dict[str, Rows]) -> dict[str, Rows]:
        """Return rows by the name of their metric, with no more sets than an instrument may have."""
        return {
            name: self.names.cap.rows(_OF_FEATURES[name], of_one) if name in _OF_FEATURES else of_one
            for name, of_one in rows.items()
        }
