"""The settler: turns marks into intervals, intervals into charges, charges into totals.

One background thread a process. A tick takes its instant T first, drains the
queue next, reads the calls' marks and their events last, and clips at T. What
it publishes is final: the frontier of a device never passes the bound of a
mark that is being taken, so a thread that stalls there delays, and never
falsifies.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic, sleep, thread_time
from typing import TYPE_CHECKING, Any

from gputrace import attribution, call as calls, faults, identity
from gputrace.accounts import Account, HostAccount, Snapshot, Totals
from gputrace.devices import cuda, cuda_capture, selection
from gputrace.devices.host import HostDevice
from gputrace.devices.reported import Told
from gputrace.following import Followed, Lane
from gputrace.settler_charges import Charges
from gputrace.settler_counts import Counts
from gputrace.settler_devices import DEVICE_REPORTED, DEVICE_TIMED, Devices, is_told
from gputrace.settler_requests import Requests
from gputrace.settler_stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gputrace.call import Call
    from gputrace.costs import Costs
    from gputrace.devices.base import Slot
    from gputrace.hardware import Hardware

TICK_S = 0.05
POLL_NS = 50_000_000
MAX_HOLD_NS = 3_600 * 1_000_000_000


class Settler:
    """Follows the calls of this process and settles them.

    Args:
        totals: Where charges are counted.
        on_settled: Called for each settled call, outside of all locks, with what was found.
        hardware: The node's GPUs, where other processes may hold them too and the driver is read;
            None counts what this process holds alone.
    """

    def __init__(
        self,
        totals: Totals,
        on_settled: Callable[[Followed, dict[str, str | float]], None] | None = None,
        *,
        hardware: Hardware | None = None,
    ) -> None:
        self.totals = totals
        self.on_settled = on_settled
        self.hardware = hardware
        #: Where calls enter; the hot path appends to the queue of the settler in force.
        self.queue: deque[Call] = deque()
        self.accounts: dict[Any, Account] = {}
        self._devices = Devices(self.accounts, hardware)
        self._requests = Requests(totals)
        self._stages = Stages()
        self._charges = Charges(totals, self._requests, hardware)
        self._followed: list[Followed] = []
        self._settled: deque[tuple[Followed, dict[str, str | float]]] = deque()
        #: Called after each tick, outside of all locks, for what waits for no call.
        self.on_tick: Callable[[], None] = lambda: None
        # Both may be asked for by the thread that holds them: in a signal handler or a finaliser that
        # flushes while this settles, or by a span processor of the user's that flushes when a span ends.
        # It then leaves the work to itself further up.
        self._state_lock = threading.RLock()
        self._emit_lock = threading.RLock()
        self._settling = False
        self._emitting = False
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._order = 0
        # Its own for life: marks may be taken with another one, while a Recorder is in force.
        self._clock = calls.clock
        self._last_ns = self._polled_ns = self._clock()
        self._max_hold_ns = MAX_HOLD_NS
        self.counts = Counts(hardware)
        if not selection.gpu and hardware is None:
            self._host: HostAccount | None = HostAccount(HostDevice(), self._last_ns)
            self.accounts[self._host.device.id] = self._host
        else:
            self._host = None

    def use_prices(self, costs: Costs | None) -> None:
        """Bill what is charged from here on.

        Args:
            costs: Bills it; None bills nothing.
        """
        with self._state_lock:
            if costs is not None:
                for account in self.accounts.values():
                    costs.begin(account)
            self._charges.costs = costs

    # --- the thread --------------------------------------------------------

    def start(self) -> None:
        """Start the background thread, or start it again."""
        self._stopping = False
        self._devices.await_more(more=True)
        self.counts.begin()
        self._thread = threading.Thread(target=self._run, name="gputrace-settler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Settle what can be settled and end the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
        self._devices.await_more(more=False)
        self.tick()
        if cuda_capture.poll_here == self._poll_here:
            # Another settler may take over, and users' threads must find that one.
            cuda_capture.poll_here = None
        if self.hardware is not None and not self.hardware.closed:
            with self._state_lock:
                self.counts.end()
                self.hardware.close(self._clock(), self._charges.costs)
                self.totals.lose(self.hardware.lost)

    def _run(self) -> None:
        while not self._stopping:
            began = thread_time()
            with faults.contained("settle calls"):
                self.tick()
            # Many open calls make ticks long: leave at least half of a core to the program. By CPU time,
            # so that a busy machine does not stretch the sample periods.
            self._wake.wait(max(TICK_S, thread_time() - began))
            self._wake.clear()

    def tick(self, *, users_thread: bool = False) -> None:
        """Settle once, and hand on what was settled.

        Args:
            users_thread: This runs on a thread of the user's, where events may be
                read even if the thread's stream capture mode cannot be exchanged.
        """
        with self._state_lock:
            self._settle(users_thread=users_thread)
        self._emit()

    def _poll_here(self) -> None:
        """Settle on a user's thread now and then, unless another thread does so already."""
        now_ns = self._clock()
        if now_ns - self._polled_ns < POLL_NS or not self._state_lock.acquire(blocking=False):
            return
        self._polled_ns = now_ns
        try:
            with faults.contained("settle calls"):
                self._settle(users_thread=True)
        finally:
            self._state_lock.release()

    def flush(self, deadline: float) -> bool:
        """Settle every call that was left before, waiting for devices until ``deadline``.

        Not for intervals that were told afterwards: others may still come.

        Args:
            deadline: ``time.monotonic()`` value, s.

        Returns:
            Whether all of them were settled.
        """
        while True:
            self.tick(users_thread=True)
            with self._state_lock:
                outstanding = any(one.call.closed and not is_told(one) for one in self._followed)
                self._stages.hasten()
            self._emit()
            if not outstanding or monotonic() >= deadline:
                return not outstanding
            sleep(0.001)

    def exported(self) -> None:
        """Take note that an export has arrived, of what a reader was shown last."""
        with self._state_lock:
            self.counts.exported()

    def snapshot(self) -> Snapshot:
        """Settle, and return all counters at one instant.

        Called by metric readers: whatever is exported is up to date and balanced.
        """
        with self._state_lock:
            with faults.contained("settle calls"):
                self._settle()
            queue_length = len(self._followed) + len(self.queue)
            publisher = identity.instance_id()
            self.counts.shown()
            hardware = self.hardware
            accounts = list(self.accounts.values()) if hardware is None else hardware.accounts()
            shown = self.totals.snapshot(accounts, publisher, queue_length, self._charges.costs)
            shown.requests = self.totals.bounded(self._requests.rows())
            if hardware is not None:
                shown.readings = self.totals.bounded(hardware.rows(publisher))
            return shown

    # --- one tick ----------------------------------------------------------

    def _settle(self, *, users_thread: bool = False) -> None:
        if self._settling:
            return
        self._settling = True
        try:
            self._settle_once(users_thread=users_thread)
        finally:
            self._settling = False

    def _settle_once(self, *, users_thread: bool) -> None:
        if self.hardware is not None and self.hardware.closed:
            # What is charged from here on, nobody would show for the devices.
            return
        now_ns = self._clock()
        for account in self.accounts.values():
            account.sample(now_ns)
        self._drain()
        if self._charges.costs is not None:
            self._charges.costs.refresh()
        with cuda.relaxed_capture(users_thread=users_thread) as readable:
            frontiers = self._read_calls(now_ns)
        if not readable:
            # Events were not asked, so nothing is known of when they happened.
            frontiers = {account: at for account, at in frontiers.items() if account is self._host}
            if cuda_capture.poll_here is None and not users_thread:
                cuda_capture.poll_here = self._poll_here
                cuda.say_unreadable()
        for account, frontier_ns in frontiers.items():
            self._charges.charge(account, frontier_ns)
        self._finish(now_ns)
        self._last_ns = now_ns
        if self.hardware is not None:
            self._publish(self.hardware, now_ns)

    def _publish(self, hardware: Hardware, now_ns: int) -> None:
        """Tell the other processes of the node what this one holds, and show what they hold together."""
        for account in self.accounts.values():
            if account.lost:
                # Nobody waits for a device that will never tell.
                hardware.frontier(account, now_ns)
        self.counts.tell()
        hardware.tick(now_ns, self._charges.costs, self.accounts)
        self.totals.lose(hardware.lost)

    def _drain(self) -> None:
        queue = self.queue
        # What enters from here on starts after T and can wait for the next tick.
        for _ in range(len(queue)):
            call = queue.popleft()
            followed = call.settled = Followed(call, self._last_ns)
            self.counts.accepted += 1
            self._requests.opened(followed)
            self._stages.opened(call)
            timer = call.timer
            if timer is None:
                if call.site.hold is not calls.HOLD_NONE and self._host is not None:
                    self._open(followed, ((self._host, None),))
            elif isinstance(timer, Told):
                self._open_told(followed, timer)
            elif not isinstance(timer, selection.Untimed) and timer.slots:
                self._open_timed(followed, timer.slots)
            self._followed.append(followed)

    def _open_timed(self, followed: Followed, slots: tuple[Slot, ...]) -> None:
        accounts = [(self._devices.timed(slot), at) for at, slot in enumerate(slots)]
        lanes = [(account, at) for account, at in accounts if account is not None]
        if len(lanes) < len(accounts):
            self._count_unmeasured(DEVICE_REPORTED)
        self._open(followed, lanes)

    def _open_told(self, followed: Followed, told: Told) -> None:
        account = self._devices.told(told, self._last_ns)
        if account is None:
            self._count_unmeasured(DEVICE_TIMED)
        else:
            self._open(followed, ((account, None),))

    def _open(self, followed: Followed, lanes: Iterable[tuple[Account, int | None]]) -> None:
        made = []
        for account, slot in lanes:
            self._order += 1
            made.append(Lane(followed, account, slot, self._order))
        followed.lanes = tuple(made)
        self._charges.open(followed)

    def _read_calls(self, now_ns: int) -> dict[Account, int]:
        bounds = dict.fromkeys(self.accounts.values(), now_ns)
        held: dict[Account, Lane] = {}
        for account in bounds:
            account.unreadable = False
        for followed in self._followed:
            call = followed.call
            # In this order: see the module ``call``.
            pending, closed = call.pending, call.closed
            seen = followed.dropped + len(call.marks)
            if not pending:
                followed.known_ns = now_ns
            for lane in followed.lanes:
                if pending:
                    bounds[lane.account] = min(bounds[lane.account], followed.known_ns)
                if lane.read < seen and not lane.read_marks(seen):
                    self._lose(lane.account)
                    lane.read_marks(seen)
                elif lane.read & 1 and not lane.broken:
                    held[lane.account] = lane
            followed.forget_read_marks(seen, closed=closed)
        for account, lane in held.items():
            # One question a device: what runs on it may be silent for an hour, and the device gone.
            if lane.is_silent():
                self._lose(account)
        # The first event read tells how well a device's clock is known, so this comes last.
        return {
            account: at_ns - account.error_ns for account, at_ns in bounds.items() if not account.unreadable
        }

    def _lose(self, account: Account) -> None:
        """A device fell off the bus: what it was charged stands, the rest is unknown."""
        for _ in range(0 if account.lost else self._charges.lose(account)):
            self._count_unmeasured("device_lost")

    def _finish(self, now_ns: int) -> None:
        still: list[Followed] = []
        for followed in self._followed:
            if followed.is_settled() and followed.is_entered(more_wait=bool(self.queue)):
                self._conclude(followed, now_ns)
            elif not self._abandon(followed, now_ns):
                still.append(followed)
        self._followed = still
        told = self._requests.settled(now_ns)
        if self.on_settled is not None:
            self._settled.extend(told)
        self._stages.settle(now_ns)

    def _conclude(self, followed: Followed, now_ns: int) -> None:
        call = followed.call
        account = followed.lanes[0].account if followed.lanes else None
        if followed.number:
            self._charges.close(followed)
        reason = followed.why_unmeasured()
        if reason is not None and not any(lane.account.lost for lane in followed.lanes):
            self._count_unmeasured(reason)
        self._stages.concluded(followed, now_ns)
        followed.release(call.marks)
        series = followed.series = self.totals.call_series(call, account, call.status or "ok")
        self.totals.calls[series] += followed.counted
        self.counts.concluded += 1
        call.settled = None
        if self._requests.concluded(followed, now_ns):
            return
        if self.on_settled is not None:
            self._settled.append((followed, followed.measured()))

    def _abandon(self, followed: Followed, now_ns: int) -> bool:
        """Close a call whose end never comes; warn of one that holds for very long."""
        if followed.call is attribution.outermost:
            # It is the whole program, and ends with it.
            return False
        began = [lane.began_ns for lane in followed.lanes if lane.began_ns is not None]
        held_since = min(began, default=now_ns)
        followed.warn_of_long_hold(now_ns - held_since)
        if now_ns - held_since <= self._max_hold_ns:
            return False
        self._count_unmeasured("max_hold")
        self._conclude(followed, now_ns)
        return True

    def _count_unmeasured(self, reason: str) -> None:
        self.totals.unmeasured[reason] = self.totals.unmeasured.get(reason, 0) + 1

    def _emit(self) -> None:
        on_settled = self.on_settled
        with self._emit_lock:
            if self._emitting:
                return
            self._emitting = True
            try:
                while self._settled and on_settled is not None:
                    followed, measured = self._settled.popleft()
                    on_settled(followed, measured)
                self._stages.tell()
                self.on_tick()
            finally:
                self._emitting = False
