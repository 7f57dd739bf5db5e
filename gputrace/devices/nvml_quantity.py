"""One quantity of one device: asked again and again, until the driver says that it never will answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace.devices import nvml_library
from gputrace.devices.nvml_library import DEVICE_GONE, LIBRARY_GONE, NOT_FOUND, PERMANENT, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_NS = 60_000_000_000
_FAILURES_ENOUGH = 3


class Backoff:
    """When to try again: each failure doubles the time, up to a minute.

    Args:
        first_ns: The time after the first failure.
    """

    def __init__(self, first_ns: int) -> None:
        self._first_ns = first_ns
        self._delay_ns = 0
        self._due_ns: int | None = None

    def due(self, now_ns: int) -> bool:
        """Tell whether it is time to try."""
        return self._due_ns is None or now_ns >= self._due_ns

    def failed(self, now_ns: int) -> None:
        """Wait longer than the last time."""
        self._delay_ns = min(max(self._first_ns, self._delay_ns * 2), _LONGEST_NS)
        self._due_ns = now_ns + self._delay_ns

    def succeeded(self) -> None:
        """Forget the failures."""
        self._delay_ns, self._due_ns = 0, None


_BLANKS_32 = range(0x7FFFFFF0, 0x80000000)
_FIRST_BLANK_64 = 0x7FFFFFFFFFFFFFF0
_ALL_ONES_32 = 0xFFFFFFFF


def is_blank(value: int) -> bool:
    """Tell whether a number is a sentinel that DCGM or the driver puts where there is no value.

    DCGM's blanks are the last 16 numbers of a signed type (DCGM#83), NVML's are all ones.
    """
    return value in _BLANKS_32 or value == _ALL_ONES_32 or value >= _FIRST_BLANK_64


class Quantity:
    """One quantity of one device.

    Attributes:
        name: What it is, for people.
        refusal: The code that it was refused with last, None while it answers.
        answered: Whether it ever answered, which is the only proof that it is supported.
        asked_ns: When it was asked last.

    Args:
        name: What it is.
        read: Reads it; given the device's handle.
        first_ns: The time until it is asked again after a failure.
    """

    def __init__(self, name: str, read: Callable[[Any], Any], first_ns: int) -> None:
        self.name = name
        self.refusal: int | None = None
        self.answered = False
        self.asked_ns: int | None = None
        self._failures = 0
        self._read = read
        self._backoff = Backoff(first_ns)

    @property
    def never(self) -> bool:
        """Whether the driver will never answer."""
        return self.refusal in PERMANENT

    @property
    def hopeless(self) -> bool:
        """Whether another source should serve in its place: it never answered, and was asked often enough."""
        return self.never or (not self.answered and self._failures >= _FAILURES_ENOUGH)

    def retry(self) -> None:
        """Ask again at once, since the library or the device was opened anew."""
        self._backoff.succeeded()

    def ask(self, handle: Any, now_ns: int) -> Any:
        """Return the value, None where there is none at the moment.

        Raises:
            RefusedError: The device or the library as a whole is gone.
        """
        if self.never or not self._backoff.due(now_ns):
            return None
        self.asked_ns = now_ns
        try:
            value = self._read(handle)
        except RefusedError as error:
            if error.code in LIBRARY_GONE | DEVICE_GONE:
                raise
            self.refusal = error.code
            self._failures += 1
            self._backoff.failed(now_ns)
            return None
        self._backoff.succeeded()
        self.refusal, self.answered = None, True
        return value


def read_number(name: str, *arguments: object) -> Callable[[Any], int]:
    """Return what reads a whole number and refuses sentinels."""

    def read(handle: Any) -> int:
        value = int(nvml_library.call(name, handle, *arguments))
        if is_blank(value):
            raise RefusedError(nvml_library.NO_DATA)
        return value

    return read


#: NVML_FI_DEV_POWER_INSTANT: ``nvmlDeviceGetPowerUsage`` averages over a second on most GPUs since Ampere.
_POWER_INSTANT = 186
_UNSIGNED_INT = 1


def read_instant_power(handle: Any) -> int:
    """Return the power at this instant, mW."""
    field = nvml_library.call("nvmlDeviceGetFieldValues", handle, [_POWER_INSTANT])[0]
    if field.nvmlReturn != 0:
        raise RefusedError(field.nvmlReturn)
    return _power(field.value.uiVal)


def read_power(handle: Any) -> int:
    """Return the power that the driver shows, mW."""
    return _power(int(nvml_library.call("nvmlDeviceGetPowerUsage", handle)))


def _power(milliwatts: int) -> int:
    # A GPU that answers draws something: 0 is how some drivers spell "unknown".
    if milliwatts == 0 or is_blank(milliwatts):
        raise RefusedError(nvml_library.NO_DATA)
    return milliwatts


def read_memory(handle: Any) -> tuple[int, int]:
    """Return the memory used and that there is, bytes."""
    memory = nvml_library.call("nvmlDeviceGetMemoryInfo", handle)
    used, total = int(memory.used), int(memory.total)
    if total == 0 or used > total or is_blank(used) or is_blank(total):
        raise RefusedError(nvml_library.NO_DATA)
    return used, total


#: Above the melting point of solder no GPU answers.
_HOTTEST_C = 180


def read_temperature(handle: Any) -> float:
    """Return the temperature of the chip, °C."""
    celsius = int(nvml_library.call("nvmlDeviceGetTemperature", handle, 0))
    if celsius > _HOTTEST_C:
        raise RefusedError(nvml_library.NO_DATA)
    return float(celsius)


def read_rate(handle: Any) -> int:
    """Return the utilisation of the driver's last sample period, percent."""
    percent = int(nvml_library.call("nvmlDeviceGetUtilizationRates", handle).gpu)
    if percent > 100:  # noqa: PLR2004 - percent
        raise RefusedError(nvml_library.JUNK)
    return percent


def read_samples(handle: Any, last_seen_us: int) -> list[tuple[int, int]]:
    """Return the utilisation samples since a moment: timestamps in µs, percents."""
    try:
        # NVML_GPU_UTILIZATION_SAMPLES
        kind, samples = nvml_library.call("nvmlDeviceGetSamples", handle, 1, last_seen_us)
    except RefusedError as error:
        if error.code == NOT_FOUND:
            # None that are newer.
            return []
        raise
    field = "uiVal" if kind == _UNSIGNED_INT else "ullVal"
    return [(int(one.timeStamp), int(getattr(one.sampleValue, field))) for one in samples]
