"""The GPUs of this node, as this process holds them, reads them and, while it is the publisher, shows them.

The settler tells what is held; the sampler reads the driver on its own thread;
both meet in :meth:`Hardware.tick`. What the devices cost and draw is published
by one process a node, what features charged on them by each for its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.devices.nvml import NvmlSampler
from gputrace.hardware_features import FeatureReadings
from gputrace.hardware_gauges import Errors, gauges
from gputrace.hardware_own import OwnDevices
from gputrace.hardware_published import NodeDevice, PublishedDevice
from gputrace.node import Node, Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputrace.accounts import Account
    from gputrace.costs import Costs
    from gputrace.devices.nvml_devices import NvmlDevice
    from gputrace.devices.readings import Reading
    from gputrace.hardware_features import Stretch
    from gputrace.hardware_published import HeldBetween, Told
    from gputrace.node import Shared

    Rows = list[tuple[dict[str, str], float]]

_NS_PER_S = 1_000_000_000
#: How far the clock of a GPU that was never used here may turn out to lie behind the host's.
_UNSEEN_ERROR_NS = 5_000_000
_REAP_NS = 1_000_000_000
#: Where no reader looks for so long, none will miss what the dead held.
_NO_READER_NS = 600_000_000_000
_MOST_READINGS = 65_536


class Hardware:
    """The devices of the node. All but the sampler's thread call it under the settler's lock.

    Args:
        instance_id: ``service.instance.id`` of this process.
        now_ns: CLOCK_MONOTONIC.
        agent: This is ``gputrace agent``.
        standard_metrics: Whether ``hw.*`` is shown.
        environment: ``os.environ`` by default.
        sampler: Reads the driver; one of its own by default.

    Attributes:
        node: This process among those of the node.
        sampler: Reads the driver.
        closed: Nothing is told any more; what this process holds no longer counts.
        lost: Calls that processes which died accepted and never exported.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        instance_id: str,
        now_ns: int,
        *,
        agent: bool = False,
        standard_metrics: bool = True,
        environment: Mapping[str, str] | None = None,
        sampler: NvmlSampler | None = None,
    ) -> None:
        self.node = Node(instance_id, now_ns, agent=agent, environment=environment)
        self.node.on_parting = self._part
        self.sampler = sampler or NvmlSampler(on_reading=self.take)
        self.lost = 0
        self._standard_metrics = standard_metrics
        self._errors = Errors()
        self._features = FeatureReadings()
        self._readings: deque[Reading] = deque(maxlen=_MOST_READINGS)
        self._published: dict[str, PublishedDevice] = {}
        self._own = OwnDevices(self.node, self._features)
        self._names: dict[str, str | None] = {}
        #: What the driver names, as of this tick.
        self._driven: dict[str, NvmlDevice] = {}
        self._costs: Costs | None = None
        #: Up to where it left word, and when a reader looked last.
        self._word_ns: dict[str, int] = {}
        self._seen_ns = self._now_ns = now_ns
        self._publishing = self.closed = False
        self._reaped_ns = now_ns

    # --- what this process holds -----------------------------------------------

    def declare(self, account: Account) -> None:
        """Say that this process may hold a device from here on."""
        self._names[account.device.id] = account.device.name
        self.node.ring.declare(account.device.id)

    def start(self, account: Account, at_ns: int) -> None:
        """Let one more call hold a device."""
        self.node.ring.start(account.device.id, at_ns)
        self._features.start(account.device.id, at_ns)

    def stop(self, account: Account, at_ns: int) -> None:
        """Let one call hold a device no more."""
        self.node.ring.stop(account.device.id, at_ns)
        self._features.stop(account.device.id, at_ns)

    def charged(self, account: Account, stretch: Stretch) -> None:
        """Take note of what this process was charged on a device, now final.

        Args:
            account: The device.
            stretch: When, and what.
        """
        if stretch.end_ns > stretch.start_ns:
            self._features.charged(account.device.id, stretch)
        self.frontier(account, stretch.end_ns)

    def frontier(self, account: Account, at_ns: int) -> None:
        """Say that every hold of this process on a device up to an instant is known."""
        self._own.frontier(account.device.id, at_ns)
        self.node.ring.frontier(account.device.id, at_ns)

    def count(self, accepted: int, exported: int) -> None:
        """Say how many calls this process accepted so far, and how many of them a reader has seen."""
        self.node.ring.count(accepted, exported)

    def entering(self, accepted: int) -> Callable[[], None]:
        """Return what counts one more call that this process accepts, beyond those, on whichever thread."""
        return self.node.ring.entering(accepted)

    # --- the driver ------------------------------------------------------------

    def take(self, reading: Reading) -> None:
        """Take a reading of the driver, on whichever thread."""
        self._readings.append(reading)

    # --- one tick --------------------------------------------------------------

    def tick(self, now_ns: int, costs: Costs | None, accounts: Mapping[object, Account]) -> None:
        """Publish what became known; comes last in a tick of the settler.

        Args:
            now_ns: The instant T of the tick.
            costs: Bills it.
            accounts: The devices of this process.
        """
        errors = [account.error_ns for account in accounts.values() if not account.lost]
        known = [error for error in errors if error < _NS_PER_S]
        self._costs, self._now_ns = costs, now_ns
        self._ask_driver()
        self._advance(now_ns, self.node.tick(now_ns, now_ns - max(known, default=_UNSEEN_ERROR_NS)))
        if self._publishing:
            self._reap(now_ns)

    def _ask_driver(self) -> None:
        state = self.sampler.state()
        self._driven = {one.device.uuid: one.device for one in state.devices if one.device is not None}
        self._errors.count(state)

    def _advance(self, now_ns: int, shared: Mapping[str, Shared]) -> None:
        """Count what became final, and tell what is known of it."""
        if self.node.is_publisher is not self._publishing:
            self._change_role(now_ns)
        self._hold_all(shared)
        self._distribute()
        if not self._publishing:
            self._own.tell()
            return
        self._look_for_devices(now_ns)
        for published in self._published.values():
            for told in published.tell(self.node.final_ns(published.device.id), self._held(published)):
                self._tell(published, told)

    def _part(self, now_ns: int, last: Mapping[str, Shared]) -> None:
        """Leave everything to another process that takes the role, and that begins where this one ends."""
        self._advance(now_ns, last)
        self._leave_word()

    def _hold_all(self, shared: Mapping[str, Shared]) -> None:
        for device_id, increment in shared.items():
            published = self._known(device_id, increment.charged_ns)
            if increment.overlap_ns:
                self._features.overlapped(device_id, self.node.final_ns(device_id))
            if published is not None:
                self._hold(published, increment)

    def _hold(self, published: PublishedDevice, increment: Shared) -> None:
        device_id = published.device.id
        end_ns = self.node.final_ns(device_id)
        # Where another process stalls, what it held becomes final after the device was named.
        start_ns = min(published.frontier_ns, end_ns - increment.charged_ns)
        published.held(increment, end_ns, self.node.first_held_ns(device_id))
        if self._costs is not None:
            self._costs.bill_state(published, "charged", start_ns, end_ns, increment.charged_ns)

    def _tell(self, published: PublishedDevice, told: Told) -> None:
        self._features.told(published.device.id, told, alone=True)
        if self._costs is not None:
            split = told.split
            spent = {"untracked": split.untracked_ns, "idle": split.idle_ns, "unknown": split.unknown_ns}
            for state, spent_ns in spent.items():
                self._costs.bill_state(published, state, told.start_ns, told.end_ns, spent_ns)

    def _distribute(self) -> None:
        """Give each reading to the device that it is of."""
        while self._readings:
            reading = self._readings.popleft()
            if self._publishing:
                published = self._published.get(reading.device)
                named = self._driven.get(reading.device)
                if published is None and named is not None and not named.sliced:
                    published = self._publish(reading.device, reading.start_ns)
                if published is not None:
                    published.read(reading)
            else:
                self._own.read(reading)

    def _known(self, device_id: str, charged_ns: int) -> PublishedDevice | None:
        """Return a device that is published: from its first holder on, if not before."""
        published = self._published.get(device_id)
        began_ns = self.node.first_held_ns(device_id)
        if published is None and charged_ns and began_ns is not None:
            return self._publish(device_id, began_ns)
        return published

    def _look_for_devices(self, now_ns: int) -> None:
        """Publish what the driver names, also what it tells nothing else of: that time is unknown.

        Not a GPU that is cut into slices: they are what is used, and each is a device.
        """
        for device in self._driven.values():
            published = self._published.get(device.uuid)
            if published is not None:
                published.named(device.name, device.parent)
            elif not device.sliced:
                self._publish(device.uuid, now_ns)

    def _publish(self, device_id: str, begins_ns: int) -> PublishedDevice:
        found = self._driven.get(device_id)
        shown = self.node.taken_over.get(device_id)
        name = next(
            (one.name for one in (found, shown) if one is not None and one.name is not None),
            self._names.get(device_id),
        )
        parent = next((one.parent for one in (found, shown) if one is not None), None)
        device = NodeDevice(device_id, name, parent)
        published = PublishedDevice(device, begins_ns, self.node.begins_ns(device_id))
        self._published[device_id] = published
        return published

    def _change_role(self, now_ns: int) -> None:
        self._publishing = self.node.is_publisher
        self._own.clear()
        for device_id, published in self._published.items():
            published.begin_anew(now_ns, self.node.begins_ns(device_id) if self._publishing else None)
        for device_id, shown in self.node.taken_over.items() if self._publishing else ():
            published = self._published.get(device_id) or self._publish(device_id, shown.final_ns)
            published.begin_anew(shown.final_ns)
            if shown.untold_ns:
                self._tell(published, published.inherit(shown.untold_ns))

    def _held(self, published: PublishedDevice) -> HeldBetween:
        device_id = published.device.id

        def between(start_ns: int, end_ns: int) -> tuple[int, int] | None:
            held_ns = self.node.held_between(device_id, start_ns, end_ns)
            missed_ns = self.node.missed_between(device_id, start_ns, end_ns)
            return None if held_ns is None or missed_ns is None else (held_ns, missed_ns)

        return between

    def _reap(self, now_ns: int) -> None:
        if now_ns - self._reaped_ns >= _REAP_NS:
            self._reaped_ns = now_ns
            self._reap_all(now_ns)

    def _reap_all(self, now_ns: int) -> None:
        # What the dead held is the next publisher's to read, until it is final here and a reader has seen it.
        shown_ns = self._word_ns
        if now_ns - self._seen_ns > _NO_READER_NS:
            shown_ns = {device_id: self.node.final_ns(device_id) for device_id in self._published}
        self.lost += sum(dead.lost for dead in self.node.reap(shown_ns))

    # --- beginning and end -----------------------------------------------------

    def run(self, instance_id: str, now_ns: int) -> None:
        """Start to read the driver; after :meth:`close`, begin anew.

        Args:
            instance_id: ``service.instance.id`` of this process.
            now_ns: CLOCK_MONOTONIC.
        """
        if self.closed:
            # Whoever publishes from here on begins anew, this process too.
            self.closed = self._publishing = False
            self.node.reset(instance_id, now_ns)
            for device_id in self._names:
                self.node.ring.declare(device_id)
                for _ in range(self._features.holders(device_id)):
                    self.node.ring.start(device_id, now_ns)
        self.sampler.start()

    def close(self, now_ns: int, costs: Costs | None) -> None:
        """Leave the node, with everything told that can be told by now; the next publisher goes on from here.

        Args:
            now_ns: CLOCK_MONOTONIC.
            costs: Bills it.
        """
        if self.closed:
            return
        self.closed = True
        self._costs = costs
        self._ask_driver()
        self._advance(now_ns, self.node.conclude(now_ns))
        if self._publishing:
            for published in self._published.values():
                final_ns = self.node.final_ns(published.device.id)
                silent = self._errors.silent(published.device.id)
                for told in published.tell_all(final_ns, self._held(published), silent=silent):
                    self._tell(published, told)
            self._leave_word()
            self._reap_all(now_ns)
        self.node.leave()

    def _leave_word(self) -> None:
        word = {}
        for device_id, one in self._published.items():
            final_ns = self.node.final_ns(device_id)
            untold_ns = one.untold_ns(final_ns, self._held(one))
            word[device_id] = Shown(final_ns, one.device.name, one.device.parent, untold_ns)
        self.node.leave_word(word)
        self._word_ns = {device_id: one.final_ns for device_id, one in word.items()}

    def forget(self) -> None:
        """Leave everything to the parent, in a forked child."""
        self.closed = True
        self.node.forget()
        self.sampler.reset()

    # --- what is shown ---------------------------------------------------------

    def accounts(self) -> list[Account]:
        """Return the devices that this process publishes, or did."""
        return list(self._published.values())

    def rows(self, publisher: str) -> dict[str, Rows]:
        """Return what to show beside time and cost, by the name of the metric.

        Args:
            publisher: ``service.instance.id`` of this process.
        """
        if self._publishing and not self.closed:
            # What a reader sees now, the next publisher must not show again.
            self._leave_word()
            self._seen_ns = self._now_ns
        shown = self._features.rows()
        devices = {one: one.attributes(publisher) for one in self._published.values()}
        shown[catalogue.DEVICE_OVERLAP_TIME.name] = [
            (of, one.overlap_ns / _NS_PER_S) for one, of in devices.items()
        ]
        shown[catalogue.DEVICE_UNTRACKED_UPPER_TIME.name] = [
            (of, one.untracked_upper_ns / _NS_PER_S) for one, of in devices.items()
        ]
        shown[catalogue.DEVICE_ENERGY.name] = [
            ({**of, **by}, drawn_j) for one, of in devices.items() for by, drawn_j in one.energy_j()
        ]
        if self._publishing:
            up = float(self.sampler.state().up)
            shown[catalogue.NVML_UP.name] = [({catalogue.PUBLISHER: publisher}, up)]
            if self._standard_metrics:
                shown.update(gauges(self._published.values(), self.sampler, self._errors))
        return shown
