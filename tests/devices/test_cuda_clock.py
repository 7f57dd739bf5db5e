"""The clock of a GPU in the host's time: precise, monotone and continuous, for hours."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from gputrace.devices import cuda
from gputrace.devices.base import NotReadableError
from gputrace.devices.cuda_clock import NARROW_NS, SLACK_NS, HostMapping, ns_between
from gputrace.devices.virtual import VirtualClock, VirtualEvent, VirtualGpu

if TYPE_CHECKING:
    from gputrace.devices.base import Mark

US = 1_000
MS = 1_000_000
S = 1_000_000_000
HOUR = 3_600 * S


def call(gpu: VirtualGpu, duration_ns: int) -> tuple[Any, Mark, Mark]:
    timer = cuda.timer()
    assert timer is not None
    start = timer.mark()
    gpu.launch(duration_ns)
    end = timer.mark()
    assert start is not None
    assert end is not None
    return timer.slots[0].device, start, end


def read(device: Any, mark: Mark) -> int:
    value = device.read(mark.events[0])
    assert value is not None
    device.release(*mark.events)
    return int(value)


def truth(mark: Mark) -> int:
    event: Any = mark.events[0]
    return int(event.at_ns)


@pytest.mark.parametrize("skew_ppm", [0.0, 37.0, -80.0])
def test_hours_of_calls_are_told_to_the_microsecond(skew_ppm: float) -> None:
    with VirtualGpu(1) as gpu:
        gpu.init()
        gpu.devices[0].skew_ppm, gpu.devices[0].offset_ns = skew_ppm, 5 * HOUR
        began, last = gpu.host_ns(), 0
        while gpu.host_ns() < began + 2 * HOUR:
            device, start, end = call(gpu, 3 * MS)
            gpu.advance(950 * MS)
            started, ended = read(device, start), read(device, end)
            assert last < started < ended
            assert abs(ended - started - 3 * MS) < US
            # The first seconds teach how fast the device's clock runs; the promise holds from the start.
            if gpu.host_ns() > began + 10 * S:
                assert abs(started + SLACK_NS - truth(start)) < US
            assert started <= truth(start) <= started + device.mapping_error_ns
            last = ended
        assert device.mapping_error_ns < 2 * SLACK_NS + US
        assert len(device.pool._in_use) <= 64  # references; older ones are used again
        assert gpu.synchronizations == 0


def test_a_call_after_an_idle_day_is_as_precise_as_any() -> None:
    with VirtualGpu(1) as gpu:
        gpu.init()
        gpu.devices[0].skew_ppm = 25.0
        last = 0
        for _ in range(5):
            for _ in range(20):
                device, start, end = call(gpu, 123_456)
                gpu.advance(S)
                started, ended = read(device, start), read(device, end)
                assert last < started
                assert abs(ended - started - 123_456) < US
                assert started <= truth(start) <= started + device.mapping_error_ns
                last = ended
            gpu.advance(24 * HOUR)


def test_an_event_in_flight_across_renewals_stays_readable() -> None:
    with VirtualGpu(1) as gpu:
        gpu.init()
        side = gpu.Stream()
        device, start, end = call(gpu, 100 * S + 1_236_500)
        for _ in range(150):
            gpu.advance(S)
            with gpu.stream(side):
                read(device, call(gpu, 0)[1])
        started, ended = read(device, start), read(device, end)
        assert abs(ended - started - 100 * S - 1_236_500) < US
        assert abs(ended + SLACK_NS - truth(end)) < US


def test_looking_takes_time_and_the_promise_holds_all_the_same() -> None:
    # Each reading of the clock takes 2 µs, each event 10: brackets of some 14 µs.
    with VirtualGpu(1, VirtualClock(step_ns=2 * US), latency_ns=10 * US) as gpu:
        gpu.init()
        gpu.devices[0].skew_ppm = -60.0
        for _ in range(2_000):
            device, start, end = call(gpu, MS)
            gpu.advance(300 * MS)
            for mark in (start, end):
                value = read(device, mark)
                assert value <= truth(mark) <= value + device.mapping_error_ns
        assert 2 * SLACK_NS < device.mapping_error_ns < 2 * SLACK_NS + 30 * US


def test_a_busy_gpu_delays_the_reference_and_nobody_waits() -> None:
    with VirtualGpu(1, latency_ns=5 * MS) as gpu:
        gpu.init()
        device, start, _ = call(gpu, MS)
        gpu.advance(20 * MS)
        with pytest.raises(NotReadableError, match="reference event has not happened yet"):
            device.read(start.events[0])  # recorded just now
        gpu.advance(20 * MS)
        value = read(device, start)
        assert value <= truth(start) <= value + device.mapping_error_ns
        assert device.mapping_error_ns == 20 * MS + 2 * SLACK_NS
        assert gpu.synchronizations == 0


def test_the_narrowest_of_several_brackets_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with VirtualGpu(1) as gpu:
        gpu.init()
        device, start, _ = call(gpu, MS)
        make = gpu.Stream

        def slow(**options: Any) -> Any:
            gpu.advance(3 * MS)  # as torch's first stream of a device, or another thread that runs meanwhile
            return make(**options)

        monkeypatch.setattr(gpu, "Stream", slow)
        value = read(device, start)
        assert value <= truth(start) <= value + device.mapping_error_ns
        assert device.mapping_error_ns == 2 * SLACK_NS
        assert len(device.pool._in_use) == 2  # the end of the call, and one reference


def test_a_reference_that_took_a_second_says_nothing() -> None:
    with VirtualGpu(1, latency_ns=5 * MS) as gpu:
        gpu.init()
        device, start, _ = call(gpu, MS)
        gpu.advance(20 * MS)
        for wait_ns in (2 * S, 2 * S):
            with pytest.raises(NotReadableError):
                device.read(start.events[0])
            gpu.advance(wait_ns)
        assert device.mapping_error_ns == S


def test_after_an_idle_hour_a_call_waits_for_a_new_reference() -> None:
    with VirtualGpu(1) as gpu:
        gpu.init()
        device, start, end = call(gpu, MS)
        gpu.advance(S)
        read(device, start)
        read(device, end)
        gpu.advance(HOUR)
        gpu.driver.latency_ns = 5 * MS
        device, start, end = call(gpu, 1_234_567)
        gpu.advance(S)
        with pytest.raises(NotReadableError):
            device.read(start.events[0])  # an hour from the last: right to 0.25 ms only
        gpu.advance(S)
        assert abs(read(device, end) - read(device, start) - 1_234_567) < US


def test_a_reference_that_could_not_be_recorded_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``query()`` answers True: at once where it is new, with an old moment where it was used before."""
    record, refusing = VirtualEvent.record, False

    def refuse(event: VirtualEvent, stream: Any = None) -> None:
        if refusing and stream is not None and stream.stream_id:
            raise RuntimeError("CUDA out of memory")
        record(event, stream)

    monkeypatch.setattr(VirtualEvent, "record", refuse)
    with VirtualGpu(1) as gpu:
        gpu.init()
        for wait_ns in (S, HOUR):
            device, start, end = call(gpu, 1_234_567)
            gpu.advance(S)
            refusing = True
            for _ in range(2):
                with pytest.raises(NotReadableError, match="out of memory"):
                    device.read(start.events[0])
            refusing = False
            value = device.read(start.events[0])
            assert value <= truth(start) <= value + device.mapping_error_ns
            assert abs(read(device, end) - read(device, start) - 1_234_567) < US
            gpu.advance(wait_ns)


def test_reversed_pairs_are_asked_the_other_way_round() -> None:
    gpu = VirtualGpu(1)
    first, second = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    first.record()
    gpu.advance(1_500)
    second.record()
    assert (ns_between(first, second), ns_between(second, first), ns_between(first, first)) == (
        1_500,
        -1_500,
        0,
    )


def test_the_map_catches_up_while_it_is_read_all_the_time() -> None:
    mapping = HostMapping()
    ticks = 0
    for number in range(20):
        host_ns = ticks - ticks * 50 // 10**6
        mapping.anchor(ticks, host_ns, host_ns, S)
        lag_ns = mapping.host_ns(ticks) + SLACK_NS - host_ns
        assert number < 5 or abs(lag_ns) < US
        ticks += S
        mapping.host_ns(ticks)


def test_a_wide_bracket_moves_nothing_that_lies_within_it() -> None:
    mapping = HostMapping()
    for second in range(10):
        mapping.anchor(second * S, second * S, second * S, S)
    mapping.anchor(10 * S, 10 * S - 5 * MS, 10 * S + 5 * MS, S)
    assert abs(mapping.host_ns(11 * S) + SLACK_NS - 11 * S) < US
    mapping.anchor(12 * S, 12 * S + 5 * MS, 12 * S + 15 * MS, S)
    # Beyond it: what was known before is wrong, and the map slowly catches up.
    assert mapping.error_ns > 14 * MS
    assert mapping.host_ns(13 * S) > 13 * S + 300 * US


anchors = st.lists(
    st.tuples(
        st.integers(1 * MS, 10 * S),  # to the next anchor
        st.integers(0, 3 * NARROW_NS),  # width of its bracket
        st.floats(-400, 400),  # ppm by which the device's clock runs off meanwhile
        st.lists(st.floats(0.0, 1.0), max_size=4),  # where it is read meanwhile
    ),
    min_size=1,
    max_size=30,
)


@given(anchors)
def test_the_map_is_monotone_and_never_jumps(steps: list[tuple[int, int, float, list[float]]]) -> None:
    mapping = HostMapping()
    ticks, host_ns = 0, 10**15
    mapping.anchor(ticks, host_ns, host_ns + 10, S)
    told: list[tuple[int, int]] = []
    for to_next, width_ns, skew_ppm, reads in steps:
        told += [(at, mapping.host_ns(at)) for at in sorted(ticks + int(to_next * part) for part in reads)]
        ticks += to_next
        host_ns += to_next - round(to_next * skew_ppm / 1e6)
        mapping.anchor(ticks, host_ns - width_ns // 2, host_ns + width_ns, S)
        assert mapping.error_ns >= 2 * SLACK_NS
    for (ticks, host_ns), (later, later_ns) in pairwise(told):
        passed = later - ticks
        rounded_ns = 2 * len(steps) + 2  # down to a whole nanosecond at each bend
        assert abs(later_ns - host_ns - passed) <= passed * 500 // 10**6 + rounded_ns
    # What was told once is told again, as far back as knots are kept.
    assert [mapping.host_ns(at) for at, _ in told] == [value for _, value in told]
