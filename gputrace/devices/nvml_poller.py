"""Reads one device, poll by poll, and turns what it answers into readings of adjacent periods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from gputrace.devices import nvml_quantity
from gputrace.devices.energy import CounterEnergy, PowerEnergy
from gputrace.devices.nvml_library import PERMANENT, UNKNOWN, RefusedError
from gputrace.devices.nvml_quantity import Quantity, read_number
from gputrace.devices.nvml_utilisation import STALE_POLLS, Stretch, Utilisation
from gputrace.devices.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.devices.nvml_devices import NvmlDevice


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a device showed at one moment; None is missing.

    Attributes:
        at_ns: When, on CLOCK_MONOTONIC.
        power_w: Power.
        memory_used_bytes: Memory in use.
        memory_limit_bytes: Memory that there is.
        temperature_c: Temperature of the chip.
    """

    at_ns: int
    power_w: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    temperature_c: float | None = None


class Poller:
    """Reads one device.

    Which of several sources serves is decided by what answers, and stays: figures
    of two sources never stand in one sum.

    Attributes:
        device: The device.
        handle: NVML's handle of it.
        gauges: What it showed last.

    Args:
        device: The device.
        handle: Its handle.
        interval_ns: Time between two polls.
        monotonic_ns: CLOCK_MONOTONIC.
        wall_ns: The wall clock, which the driver's timestamps are on.
    """

    def __init__(
        self,
        device: NvmlDevice,
        handle: Any,
        interval_ns: int,
        monotonic_ns: Callable[[], int],
        wall_ns: Callable[[], int],
    ) -> None:
        self.device = device
        self.handle = handle
        self.gauges: Gauges | None = None
        self._interval_ns = interval_ns
        self._monotonic_ns = monotonic_ns
        self._utilisation = Utilisation(interval_ns, monotonic_ns, wall_ns)
        self._counter = Quantity(
            "energy counter", read_number("nvmlDeviceGetTotalEnergyConsumption"), interval_ns
        )
        self._limit = Quantity("power limit", read_number("nvmlDeviceGetEnforcedPowerLimit"), interval_ns)
        self._instant = Quantity("power at this instant", nvml_quantity.read_instant_power, interval_ns)
        self._power = Quantity("power", nvml_quantity.read_power, interval_ns)
        self._memory = Quantity("memory", nvml_quantity.read_memory, interval_ns)
        self._temperature = Quantity("temperature", nvml_quantity.read_temperature, interval_ns)
        self._energy: CounterEnergy | PowerEnergy | None = None
        self._limit_mw: int | None = None

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Everything that is asked of the device."""
        return (
            *self._utilisation.quantities,
            self._counter,
            self._limit,
            self._instant,
            self._power,
            self._memory,
            self._temperature,
        )

    def resume(self, handle: Any) -> None:
        """Go on with a new handle, after a time of which nobody knows what happened."""
        self.handle = handle
        if self._energy is not None:
            self._energy.forget()
        for quantity in self.quantities:
            quantity.retry()

    def poll(self) -> list[Reading]:
        """Read everything once.

        Returns:
            Readings of the time since the last ones; none where nothing is known of it yet.

        Raises:
            RefusedError: The device or the library as a whole is gone.
        """
        began_ns = self._monotonic_ns()
        # Before the energy: that must reach as far as the utilisation does.
        stretches = self._utilisation.ask(self.handle, began_ns)
        power_mw = self._ask_power(began_ns)
        self._take_energy(began_ns, power_mw)
        used, limit = self._memory.ask(self.handle, began_ns) or (None, None)
        temperature = self._temperature.ask(self.handle, began_ns)
        self._check_alive(began_ns)
        self.gauges = Gauges(
            began_ns, None if power_mw is None else power_mw / 1_000, used, limit, temperature
        )
        return self._readings(stretches)

    def _check_alive(self, now_ns: int) -> None:
        """A device that answers Unknown Error to everything has been taken away from this process."""
        asked = [quantity.refusal for quantity in self.quantities if quantity.asked_ns == now_ns]
        if UNKNOWN in asked and all(code == UNKNOWN or code in PERMANENT for code in asked):
            raise RefusedError(UNKNOWN)

    def _ask_power(self, now_ns: int) -> int | None:
        if not self._instant.hopeless:
            answer = self._instant.ask(self.handle, now_ns)
            if answer is not None or self._instant.answered:
                return cast("int | None", answer)
        return cast("int | None", self._power.ask(self.handle, now_ns))

    def _take_energy(self, began_ns: int, power_mw: int | None) -> None:
        energy = self._energy
        if isinstance(energy, PowerEnergy):
            at_ns = self._monotonic_ns()
            energy.hold(at_ns)
            if power_mw is not None:
                energy.add(at_ns, power_mw)
            return
        counter_mj = self._counter.ask(self.handle, began_ns)
        if counter_mj is not None:
            if energy is None:
                energy = self._energy = CounterEnergy()
            energy.add(self._monotonic_ns(), counter_mj, self._ask_limit(began_ns))
        elif energy is None and self._counter.hopeless and power_mw is not None:
            self._energy = PowerEnergy(STALE_POLLS * self._interval_ns)
            self._energy.add(self._monotonic_ns(), power_mw)

    def _ask_limit(self, now_ns: int) -> int | None:
        # Administrators change it, upwards too; a stale one would call true energy implausible.
        answer = self._limit.ask(self.handle, now_ns)
        if answer:
            self._limit_mw = max(answer, self._limit_mw or 0)
        return self._limit_mw

    def _readings(self, stretches: list[Stretch]) -> list[Reading]:
        made = []
        for stretch in stretches:
            span, energy_uj, flag = stretch.span, None, None
            if self._energy is not None:
                energy_uj, flag = self._energy.track.take(span.start_ns, span.end_ns)
            if span.busy_ns is None and energy_uj is None and flag is None:
                continue
            # What the device shows now belongs to the end of the last period alone.
            shown = self.gauges if stretch is stretches[-1] else None
            gauges = shown or Gauges(span.end_ns)
            made.append(
                Reading(
                    self.device.uuid,
                    span.start_ns,
                    span.end_ns,
                    busy_ns=span.busy_ns,
                    busy_source=stretch.source,
                    energy_uj=energy_uj,
                    energy_source=None if energy_uj is None or self._energy is None else self._energy.source,
                    energy_flag=flag,
                    power_w=gauges.power_w,
                    memory_used_bytes=gauges.memory_used_bytes,
                    memory_limit_bytes=gauges.memory_limit_bytes,
                    temperature_c=gauges.temperature_c,
                )
            )
        return made
