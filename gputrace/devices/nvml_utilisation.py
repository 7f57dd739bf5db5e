"""How busy one device was: from the driver's sample buffer, else from its utilisation rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputrace.devices import nvml_quantity
from gputrace.devices.nvml_quantity import Quantity
from gputrace.devices.nvml_samples import SampleBuffer, Span, read_clocks

if TYPE_CHECKING:
    from collections.abc import Callable

#: A value that is older than so many polls stands for nothing any more.
STALE_POLLS = 3

SAMPLES = "samples"
RATES = "rates"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time of which the busy part is known, or None, and from where."""

    span: Span
    source: str | None


class Utilisation:
    """How busy one device was, as stretches of time in order, without gaps.

    Args:
        interval_ns: Time between two polls.
        monotonic_ns: CLOCK_MONOTONIC.
        wall_ns: The wall clock, which the driver's timestamps are on.
    """

    def __init__(self, interval_ns: int, monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]) -> None:
        self._interval_ns = interval_ns
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._samples = Quantity("utilisation samples", self._read_samples, interval_ns)
        self._rate = Quantity("utilisation rate", nvml_quantity.read_rate, interval_ns)
        self._buffer = SampleBuffer()
        self._source: str | None = None
        self._empty_answers = 0
        #: Up to here everything was said.
        self._end_ns: int | None = None

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is asked of the device."""
        return (self._samples, self._rate)

    def _read_samples(self, handle: Any) -> list[tuple[int, int]]:
        return nvml_quantity.read_samples(handle, self._buffer.last_seen_us)

    def ask(self, handle: Any, began_ns: int) -> list[Stretch]:
        """Return what has become known.

        Args:
            handle: The device's.
            began_ns: When the poll began.

        Raises:
            RefusedError: The device or the library as a whole is gone.
        """
        if self._source == RATES:
            return self._ask_rate(handle, began_ns)
        spans: list[Span] = []
        samples = self._samples.ask(handle, began_ns)
        if samples is not None:
            spans = self._buffer.take(samples, read_clocks(self._monotonic_ns, self._wall_ns))
            self._empty_answers += 1
        if self._buffer.last_seen_us:
            self._source = SAMPLES
        if self._source is None and (self._samples.hopeless or self._empty_answers >= STALE_POLLS):
            self._source = RATES
            return self._ask_rate(handle, began_ns)
        return self._without_gaps([Stretch(one, None if one.busy_ns is None else SAMPLES) for one in spans])

    def _without_gaps(self, stretches: list[Stretch]) -> list[Stretch]:
        """Add the time of which no sample tells or will tell, since its energy may be known all the same."""
        now_ns = self._monotonic_ns()
        if self._end_ns is None:
            self._say_until(now_ns)
            return []
        begins_ns = stretches[0].span.start_ns if stretches else now_ns
        gap_ns = begins_ns - self._end_ns
        # Samples that are late may still come: the buffer holds them for seconds.
        late = not stretches and gap_ns <= STALE_POLLS * self._interval_ns
        if gap_ns > 0 and not late:
            stretches = [Stretch(Span(self._end_ns, begins_ns, None), None), *stretches]
        if stretches:
            self._say_until(stretches[-1].span.end_ns)
        return stretches

    def _say_until(self, at_ns: int) -> None:
        self._end_ns = at_ns
        self._buffer.skip_to(at_ns)

    def _ask_rate(self, handle: Any, began_ns: int) -> list[Stretch]:
        """The rate is of the driver's last sample period; it stands for the time of one poll, no more."""
        percent = self._rate.ask(handle, began_ns)
        now_ns, start_ns = self._monotonic_ns(), self._end_ns
        if start_ns is None or now_ns <= start_ns:
            self._end_ns = now_ns if start_ns is None else start_ns
            return []
        self._end_ns = now_ns
        if percent is None:
            return [Stretch(Span(start_ns, now_ns, None), None)]
        begin_ns = start_ns
        if now_ns - start_ns > STALE_POLLS * self._interval_ns:
            begin_ns = now_ns - self._interval_ns
        known = Stretch(Span(begin_ns, now_ns, (now_ns - begin_ns) * percent // 100), RATES)
        return [Stretch(Span(start_ns, begin_ns, None), None), known] if begin_ns > start_ns else [known]
