"""Reads all GPUs of the machine through NVML, about once a second, whatever the driver does.

No exception leaves the sampler. Where there is no driver, no permission or no
library it reads nothing, and ``state()`` says why in words. Each device stands
alone: one that fails is asked ever less often, one whose call hangs is skipped,
and of the time in which a device did not answer there is no reading.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import faults
from gputrace.devices import nvml_devices, nvml_library
from gputrace.devices.nvml_follower import DeviceState, Follower
from gputrace.devices.nvml_library import LIBRARY_GONE, UNKNOWN, Explanation, Library, RefusedError
from gputrace.devices.nvml_poller import Gauges, Poller
from gputrace.devices.nvml_quantity import Backoff
from gputrace.devices.nvml_utilisation import STALE_POLLS
from gputrace.devices.nvml_worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.devices.nvml_devices import NvmlDevice
    from gputrace.devices.readings import Reading

__all__ = ["DeviceState", "Gauges", "NvmlSampler", "State"]

_NS_PER_S = 1_000_000_000
_LIBRARY = "library"
#: A process must be able to end while a call hangs.
_PARTING_S = 0.5
#: More than any machine has; a count beyond it is junk.
_MOST_GPUS = 256


@dataclass(frozen=True, slots=True)
class State:
    """What can be read on this machine.

    Attributes:
        up: Whether NVML answers.
        trouble: Why it does not, None where it does or was not asked yet.
        devices: Its devices.
    """

    up: bool
    trouble: Explanation | None
    devices: tuple[DeviceState, ...]


class NvmlSampler:
    """Reads all devices, on a thread of its own or when told to.

    Args:
        interval_s: Time between two polls, s.
        on_reading: Called with each reading, on the thread that polls.
        worker: Runs the calls.
        monotonic_ns: CLOCK_MONOTONIC.
        wall_ns: The wall clock.
    """

    def __init__(
        self,
        interval_s: float = 1.0,
        on_reading: Callable[[Reading], object] | None = None,
        *,
        worker: Callable[[], Worker] = Worker,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._interval_ns = round(interval_s * _NS_PER_S)
        self._on_reading = on_reading
        self._make_worker = worker
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._worker = self._make_worker()
        self._library = Library()
        self._followers: list[Follower] = []
        self._trouble: int | None = None
        self._backoff = Backoff(self._interval_ns)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def reset(self) -> None:
        """Begin anew, in a forked child: neither threads nor what the library had open came along."""
        nvml_library.reset()
        self._forget()

    def _own(self) -> None:
        if self._process != os.getpid():
            self.reset()

    # --- the thread --------------------------------------------------------

    def start(self) -> None:
        """Poll from now on; in a forked child it must be called again."""
        self._own()
        if self._thread is None or not self._thread.is_alive():
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._ended,), name="gputrace-nvml-sampler", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and give the library back; what hangs is left behind."""
        self._own()
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=_PARTING_S)
        self._thread = None
        if self._lock.acquire(timeout=_PARTING_S):
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        # While a call hangs, closing the library under it could take the process down.
        if self._library.opened and not self._worker.hanging:
            with contextlib.suppress(RefusedError):
                self._worker.run(_LIBRARY, self._library.close)
        self._worker.stop()

    def _run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            began_ns = time.monotonic_ns()
            self.sample_once()
            took_ns = time.monotonic_ns() - began_ns
            ended.wait(max(self._interval_ns / 10, self._interval_ns - took_ns) / _NS_PER_S)

    # --- one poll ----------------------------------------------------------

    def sample_once(self) -> list[Reading]:
        """Poll all devices once.

        Returns:
            Their readings since the last poll; those of one device are in order.
        """
        self._own()
        readings: list[Reading] = []
        with self._lock, faults.contained("read the GPUs through NVML"):
            if self._open():
                self._poll(readings)
        if self._on_reading is not None:
            for reading in readings:
                with faults.contained("take a reading of a GPU"):
                    self._on_reading(reading)
        return readings

    def _open(self) -> bool:
        """Open the library where it is not, and find the devices."""
        if self._library.opened and self._trouble is None:
            return True
        now_ns = self._monotonic_ns()
        if not self._backoff.due(now_ns):
            return False
        # Until a device answers: a library that opens and tells nothing must not be opened at every poll.
        self._backoff.failed(now_ns)
        try:
            count = self._worker.run(_LIBRARY, self._open_library)
        except RefusedError as error:
            self._trouble = error.code
            return False
        self._trouble = None
        self._find(count, now_ns)
        return True

    def _open_library(self) -> int:
        self._library.open(closing=not self._worker.hanging)
        return min(int(nvml_library.call("nvmlDeviceGetCount")), _MOST_GPUS)

    def _poll(self, readings: list[Reading]) -> None:
        """Poll the devices that are due, and judge by what they answer whether the library is still there."""
        now_ns = self._monotonic_ns()
        answered, codes = False, set()
        for follower in list(self._followers):
            if not follower.due(now_ns):
                continue
            if follower.poller is None:
                self._find_again(follower, now_ns)
                continue
            # Contained one by one: what goes wrong with one device must not cost the others their readings.
            with faults.contained("read a GPU through NVML"):
                read = follower.poll(self._worker, now_ns)
                answered = answered or read is not None
                codes.add(follower.code)
                readings += read or []
        if answered or not self._followers:
            self._backoff.succeeded()
        else:
            self._trouble = next((code for code in codes if code in LIBRARY_GONE | {UNKNOWN}), None)

    def _find(self, count: int, now_ns: int) -> None:
        """Find out who is at which index; devices that were known go on as they were."""
        known = self._known()
        found: list[Follower] = []
        for index in range(count):
            found += self._identify(index, known, now_ns)
        gone = [one for one in known.values() if one not in found]
        for one in gone:
            one.failed(nvml_library.GPU_NOT_FOUND, now_ns)
        self._followers = found + gone

    def _find_again(self, nobody: Follower, now_ns: int) -> None:
        """Ask who is at an index at which nobody told; it may be one that is missed elsewhere."""
        found = self._identify(nobody.index, self._known(), now_ns)
        followers = [one for one in self._followers if one not in found]
        place = followers.index(nobody)
        followers[place : place + 1] = found
        self._followers = followers

    def _known(self) -> dict[str, Follower]:
        return {one.poller.device.uuid: one for one in self._followers if one.poller is not None}

    def _identify(self, index: int, known: dict[str, Follower], now_ns: int) -> list[Follower]:
        try:
            answer = self._worker.run(index, lambda: nvml_devices.found_at(index))
        except RefusedError as error:
            nobody = Follower(index, None, self._interval_ns)
            nobody.failed(error.code, now_ns)
            return [nobody]
        followers = []
        for device, handle in answer:
            follower = known.get(device.uuid)
            if follower is None:
                poller = Poller(device, handle, self._interval_ns, self._monotonic_ns, self._wall_ns)
                follower = Follower(index, poller, self._interval_ns)
            else:
                follower.resume(index, device, handle)
            followers.append(follower)
        return followers

    # --- what others ask ---------------------------------------------------

    def state(self) -> State:
        """Return what can be read, and what cannot and why; ``doctor`` prints it."""
        if self._process != os.getpid():
            return State(up=False, trouble=None, devices=())
        trouble = None if self._trouble is None else nvml_library.explain(self._trouble)
        up = self._library.opened and trouble is None
        return State(up, trouble, tuple(one.state for one in list(self._followers)))

    def devices(self) -> tuple[NvmlDevice, ...]:
        """Return the devices that were found, in NVML's order; each GPU before its slices."""
        return tuple(state.device for state in self.state().devices if state.device is not None)

    def latest(self, uuid: str) -> Gauges | None:
        """Return what a device showed at the last poll, None where that is too long ago to be true."""
        for follower in list(self._followers):
            poller = follower.poller
            if poller is not None and poller.device.uuid == uuid and poller.gauges is not None:
                age_ns = self._monotonic_ns() - poller.gauges.at_ns
                return poller.gauges if age_ns <= STALE_POLLS * self._interval_ns else None
        return None
