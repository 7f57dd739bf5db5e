"""Intervals that are told afterwards, for servers that nobody can instrument."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

import gputrace
from gputrace import attribution, batching, call as calls, catalogue, faults, intervals, ledger
from gputrace.accounts import Totals
from gputrace.devices.reported import LATEST_NS
from gputrace.hardware import Hardware
from gputrace.settler import Settler
from gputrace.testing import Recorder, VirtualClock, VirtualGpu
from tests.hardware_programs import GPU0

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
S = 1_000_000_000
GPU = "GPU-aaaa"


def members(*features: str | None) -> list[batching.Member]:
    made = []
    for feature in features:
        with gputrace.attribute_to(**({"feature": feature} if feature else {})):
            made.append(gputrace.member())
    return made


def charged_ns(recorder: Recorder, attribute: str = catalogue.FEATURE) -> dict[str, int]:
    return {name: round(seconds * 1e9) for name, seconds in recorder.time_by(attribute).items() if seconds}


def unmeasured(recorder: Recorder) -> dict[str, int]:
    return {of[catalogue.LOSS_REASON]: count for of, count in recorder.snapshot().unmeasured}


@pytest.fixture
def ready(clock: VirtualClock) -> VirtualClock:
    """A clock that has run for a while, so that something may lie in the past."""
    clock.advance(100 * S)
    return clock


def test_an_interval_is_split_among_its_members_once_no_other_can_come_before_it(
    ready: VirtualClock, recorder: Recorder
) -> None:
    now_ns = ready()
    gputrace.record_interval(
        members("search", "chat"),
        GPU,
        now_ns - 300 * MS,
        now_ns,
        weights=[2, 1],
        model="llm",
        operation="step",
    )
    assert charged_ns(recorder) == {}
    ready.advance(LATEST_NS - 1)
    assert sum(charged_ns(recorder).values()) < 300 * MS
    ready.advance(2)
    assert charged_ns(recorder) == {"search": 200 * MS, "chat": 100 * MS}
    assert charged_ns(recorder, catalogue.MODEL) == {"llm": 300 * MS}
    assert charged_ns(recorder, catalogue.TIME_SOURCE) == {"estimated": 300 * MS}
    (call,) = recorder.settled()
    assert (call.operation, call.feature, call.device_id, call.source) == (
        "step",
        catalogue.SHARED,
        GPU,
        "estimated",
    )
    assert (call.charged_ns, call.held_ns, call.duration_ns) == (300 * MS, 300 * MS, 300 * MS)
    assert unmeasured(recorder) == {}


def test_a_kernel_is_no_estimate(ready: VirtualClock, recorder: Recorder) -> None:
    gputrace.record_interval(members("search"), GPU, ready() - MS, ready(), source="kernel")
    ready.advance(LATEST_NS + 1)
    assert charged_ns(recorder, catalogue.TIME_SOURCE) == {"kernel": MS}
    ((of, count),) = recorder.snapshot().calls
    assert (of[catalogue.TIME_SOURCE], count) == ("kernel", 1)


told = st.lists(
    st.tuples(
        st.integers(0, 9_000),  # start, ms
        st.integers(0, 2_000),  # length, ms
        st.integers(0, 3),  # feature
        st.integers(0, 500),  # time until it is told, ms
    ),
    min_size=1,
    max_size=12,
)


@given(told)
def test_whatever_the_order_each_instant_is_shared_by_those_that_held_it(
    given: list[tuple[int, int, int, int]],
) -> None:
    """Against the arithmetic by hand; told in the order of their ends and delays, the latest first."""
    clock = VirtualClock()
    clock.advance(1_000 * S)
    began_ns = clock()
    found = [(start, start + length, f"f{feature}", delay) for start, length, feature, delay in given]
    with Recorder(clock) as recorder:
        for start, end, feature, delay in sorted(found, key=lambda one: (one[1] + one[3], -one[0])):
            at_ns = began_ns + (end + delay) * MS
            clock.advance(max(0, at_ns - clock()))
            recorder.settle()
            gputrace.record_interval(members(feature), GPU, began_ns + start * MS, began_ns + end * MS)
        clock.advance(LATEST_NS + 1)
        shown = {series: total for series, total in charged_ns(recorder).items() if total}
        assert unmeasured(recorder) == {}
        held = sum(recorder.settler.totals.time.values())
    expected: dict[str, Fraction] = {}
    instants = sorted({at for start, end, *_ in found for at in (start, end)})
    union = 0
    for begin, end in itertools.pairwise(instants):
        holders = [feature for start, stop, feature, _ in found if start <= begin and stop >= end]
        union += (end - begin) * bool(holders)
        for feature in holders:
            expected[feature] = expected.get(feature, Fraction(0)) + Fraction(
                (end - begin) * MS, len(holders)
            )
    assert shown == {feature: round(ns) for feature, ns in expected.items()}
    assert held == union * MS * ledger.SCALE


@pytest.mark.parametrize(
    ("start_s", "end_s", "reason", "charged_s"),
    [
        (-9, -8, None, 1),
        (-10, -9, None, 1),
        (-12, -9, intervals.LATE, 1),
        (-15, -12, intervals.LATE, 0),
        (-1, 1, intervals.FUTURE, 0),
        (-1, -2, intervals.REVERSED, 0),
        (0, 0, None, 0),
    ],
)
def test_what_cannot_be_charged_is_counted(  # noqa: PLR0913 - a table
    ready: VirtualClock,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    start_s: int,
    end_s: int,
    reason: str | None,
    charged_s: int,
) -> None:
    faults.reset()
    recorder.settle()
    for _ in range(2):
        gputrace.record_interval(members("search"), GPU, ready() + start_s * S, ready() + end_s * S)
    ready.advance(LATEST_NS + 1)
    assert sum(charged_ns(recorder).values()) == charged_s * S
    assert unmeasured(recorder) == ({} if reason is None else {reason: 2})
    assert len(caplog.messages) == (reason is not None)
    # Counted like any other: somebody was served.
    assert [count for _, count in recorder.snapshot().calls] == [2]


def test_one_that_stalls_on_its_way_is_never_charged_before_what_is_final(
    ready: VirtualClock, recorder: Recorder
) -> None:
    gputrace.record_interval(members("search"), GPU, ready(), ready())
    recorder.settle()
    queued = recorder.settler.queue
    gputrace.record_interval(members("search"), GPU, ready() - 2 * S, ready())
    stalled = queued.pop()
    ready.advance(LATEST_NS - S)
    recorder.settle()
    queued.append(stalled)
    ready.advance(3 * S)
    # A second of it was final by then.
    assert charged_ns(recorder) == {"search": S}
    assert len(recorder.settled()) == 2


def test_a_device_that_times_calls_itself_needs_no_reports() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        with gputrace.span("work", feature="search"):
            gpu.launch(2 * MS)
        gpu.advance(5 * MS)
        (call,) = recorder.settled()
        assert call.device_id is not None
        gputrace.record_interval(members("chat"), call.device_id, gpu.host_ns() - MS, gpu.host_ns())
        gpu.advance(LATEST_NS + 1)
        assert charged_ns(recorder) == {"search": 2 * MS}
        assert unmeasured(recorder) == {"device_timed": 1}


def test_a_device_that_is_told_of_times_no_calls() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        gpu.advance(100 * MS)
        with gputrace.span("work", feature="search"):
            gpu.launch(2 * MS)
        (queued,) = recorder.settler.queue
        timer: Any = queued.timer
        recorder.settler.queue.clear()
        device_id = timer.slots[0].device.id
        gputrace.record_interval(members("chat"), device_id, gpu.host_ns() - MS, gpu.host_ns())
        recorder.settler.queue.append(queued)
        gpu.advance(LATEST_NS + 1)
        assert charged_ns(recorder) == {"chat": MS}
        assert unmeasured(recorder) == {"device_reported": 1}


def test_a_flush_does_not_wait_for_other_intervals_and_a_stop_expects_none(
    ready: VirtualClock, recorder: Recorder
) -> None:
    gputrace.record_interval(members("search"), GPU, ready() - S, ready())
    assert recorder.settler.flush(0.0)
    assert recorder.time_by() == {}
    recorder.settler.stop()
    assert charged_ns(recorder) == {"search": S}
    recorder.settler.start()
    ready.advance(S)
    gputrace.record_interval(members("search"), GPU, ready() - MS, ready())
    recorder.settler.stop()
    assert charged_ns(recorder) == {"search": S + MS}


def test_a_request_is_told_with_its_share_of_the_interval(ready: VirtualClock, recorder: Recorder) -> None:
    with gputrace.request("GET /chat", feature="chat"):
        member = gputrace.member()
    began_ns = ready()
    ready.advance(40 * MS)
    gputrace.record_interval([member, *members("search")], GPU, began_ns, ready())
    recorder.settle()
    assert [one.operation for one in recorder.settled()] == []
    ready.advance(LATEST_NS + 1)
    by_operation = {one.operation: one for one in recorder.settled()}
    request = by_operation["GET /chat"].call.request
    assert (request.calls, request.charged) == (1, 20 * MS * ledger.SCALE)


@pytest.mark.parametrize("device", ["", None, 0, b"GPU-1"])
def test_a_device_that_is_none_is_refused(device: Any) -> None:
    with pytest.raises(ValueError, match=r"device=.*nvidia-smi -L"):
        gputrace.record_interval([], device, 0, 1)


def test_a_source_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"source='guess'.*estimated, kernel"):
        gputrace.record_interval([], GPU, 0, 1, "guess")


def test_times_that_are_none_never_reach_the_program(
    ready: VirtualClock, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    before = faults.count()
    wrong: Any = "now"
    gputrace.record_interval(members("search"), GPU, wrong, wrong)
    assert faults.count() == before + 1
    gputrace.record_interval(members("search"), GPU, float(ready() - MS), float(ready()))  # type: ignore[arg-type]
    ready.advance(LATEST_NS + 1)
    assert charged_ns(recorder) == {"search": MS}


def test_members_that_nobody_named_are_billed_to_nobody(ready: VirtualClock, recorder: Recorder) -> None:
    gputrace.record_interval([None, *members("search")], GPU, ready() - 2 * MS, ready())
    ready.advance(LATEST_NS + 1)
    assert charged_ns(recorder) == {catalogue.NO_FEATURE: MS, "search": MS}


def test_whoever_tells_is_not_billed(ready: VirtualClock, recorder: Recorder) -> None:
    with gputrace.request("GET /log", feature="log"), gputrace.span("reader", hold="none", feature="log"):
        gputrace.record_interval(members("search"), GPU, ready() - MS, ready())
        assert attribution.scope_in_force() is not None
    ready.advance(LATEST_NS + 1)
    assert charged_ns(recorder) == {"search": MS}


def test_the_node_charges_the_device_what_the_features_are_charged(
    ready: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What began before the node heard of the device is final there: that this process held nothing."""
    monkeypatch.setattr(calls, "clock", ready)
    monkeypatch.setattr(calls, "queue", calls.queue)
    monkeypatch.setattr(calls, "settling", True)
    hardware = Hardware("a", ready(), environment={"GPUTRACE_NODE_DIR": str(tmp_path)})
    settler = Settler(Totals(), hardware=hardware)
    calls.record(settler.queue)
    for _ in range(20):
        ready.advance(50 * MS)
        settler.tick()
    declared_ns = ready()
    ready.advance(50 * MS)
    gputrace.record_interval(members("search"), GPU0, declared_ns - 500 * MS, ready() - 10 * MS)
    for step in range(1, 301):
        ready.advance(50 * MS)
        settler.tick()
        if not step % 40:
            gputrace.record_interval(members("search"), GPU0, ready() - 700 * MS, ready() - 100 * MS)
    settler.stop()
    shown = settler.snapshot()
    (feature_s,) = [value for _, value in shown.feature_time_s]
    states = {of[catalogue.DEVICE_STATE]: value for of, value in shown.device_time_s}
    assert feature_s == pytest.approx(0.04 + 7 * 0.6, abs=1e-9)
    assert states["charged"] == pytest.approx(feature_s, abs=1e-9)
    assert hardware.node.late_ns == 0
