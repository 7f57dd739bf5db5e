"""Every interleaving of a call with a tick: what is streamed equals what is computed offline."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

import gputrace
from gputrace import call as calls, catalogue
from gputrace.following import Followed, Lane
from gputrace.ledger import SCALE, Interval, charge
from gputrace.settler import Settler
from gputrace.settler_charges import Charges
from gputrace.testing import RecordedCall, Recorder, Stepper, VirtualClock, VirtualGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MARKS: dict[calls.Call, list[int]] = {}
USER_CODE = (calls.enter, calls.leave, calls.suspend, calls.resume, calls._mark, calls.Call.__init__)
TICK_CODE = (
    Settler._settle_once,
    Settler._drain,
    Settler._open,
    Settler._read_calls,
    Charges.charge,
    Settler._finish,
    Lane.read_marks,
)


@pytest.fixture(autouse=True)
def forgotten_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the marks that the settler forgets once they are read."""
    MARKS.clear()

    def keep(followed: Followed, marks: list[int]) -> None:
        MARKS.setdefault(followed.call, []).extend(marks)

    monkeypatch.setattr(Followed, "release", keep)


def intervals_of(settled: Sequence[RecordedCall]) -> list[Interval]:
    rows = []
    for recorded in settled:
        call = recorded.call
        parent = call.parent
        while parent is not None and parent.site.hold == "none":
            parent = parent.parent
        root = call.root or call
        if call.site.hold == "none":
            continue
        marks = MARKS[call]
        rows += [
            Interval(
                call.call_number,
                root.call_number,
                "host",
                start,
                end,
                parent=None if parent is None else parent.call_number,
                weight=root.site.weight,
            )
            for start, end in zip(marks[::2], marks[1::2], strict=True)
        ]
    return rows


def assert_streamed_equals_offline(recorder: Recorder) -> None:
    settled = recorder.settled()
    offline = charge(intervals_of(settled), exact=True)
    for recorded in settled:
        exact = offline.calls.get(recorded.call.call_number, Fraction(0))
        assert abs(Fraction(recorded.charged, SCALE) - exact) < Fraction(1, 2**20)
    total = sum(recorder.settler.totals.time.values())
    assert total == SCALE * sum(offline.devices.values())


def assert_balanced(recorder: Recorder, before: dict[str, float]) -> dict[str, float]:
    """Nothing that was published may ever be taken back, and the twins agree at any moment."""
    shown = recorder.settler.snapshot()
    charged = sum(
        seconds
        for attributes, seconds in shown.device_time_s
        if attributes[catalogue.DEVICE_STATE] == "charged"
    )
    now = {str(attributes): seconds for attributes, seconds in shown.feature_time_s}
    assert sum(now.values()) == pytest.approx(charged, abs=1e-15)
    assert all(now.get(series, -1.0) >= seconds for series, seconds in before.items())
    return now


def nested() -> None:
    with gputrace.span("outer", feature="a"), gputrace.span("inner", feature="b"):
        pass


def generator() -> None:
    @gputrace.track(feature="stream")
    def items():
        yield 1
        with gputrace.span("inside"):
            yield 2

    list(items())


@pytest.mark.parametrize("work", [nested, generator])
def test_ticks_at_every_instruction_of_the_users_thread(work: Callable[[], None]) -> None:
    with Recorder(VirtualClock(step_ns=7)) as recorder:
        other = gputrace.span("other", feature="c", weight=3)
        other.__enter__()
        stepper = Stepper(work, USER_CODE)
        published: dict[str, float] = {}
        stops = 0
        while stepper.step():
            stops += 1
            recorder.settle()
            published = assert_balanced(recorder, published)
        other.__exit__(None, None, None)
        assert stops > 50
        assert_streamed_equals_offline(recorder)


def test_one_tick_at_each_single_stop() -> None:
    """A tick at one stop only, so that the ticks before do not hide a fault of that one."""
    stop, finished = 0, False
    while not finished:
        with Recorder(VirtualClock(step_ns=7)) as recorder:
            other = gputrace.span("other", weight=2)
            other.__enter__()
            stepper = Stepper(nested, USER_CODE)
            finished = not all(stepper.step() for _ in range(stop + 1))
            recorder.settle()
            if not finished:
                stepper.finish()
            other.__exit__(None, None, None)
            assert_streamed_equals_offline(recorder)
        stop += 1
    assert stop > 40


@pytest.mark.parametrize("every", [7, 11, 13, 17, 19, 29, 37])
def test_the_user_goes_on_while_a_tick_stands_still(every: int) -> None:
    """Calls enter or leave at every so many instructions of the ticks, so in the end at each."""
    with Recorder(VirtualClock(step_ns=7)) as recorder:
        block, inside = gputrace.span("block"), False
        stops, published = 0, {}
        for _ in range(25):
            tick = Stepper(recorder.settler.tick, TICK_CODE)
            while tick.step():
                stops += 1
                if stops % every:
                    continue
                if inside:
                    block.__exit__(None, None, None)
                else:
                    block.__enter__()
                inside = not inside
            published = assert_balanced(recorder, published)
        if inside:
            block.__exit__(None, None, None)
        assert_streamed_equals_offline(recorder)


def request_of_one_call() -> Iterator[None]:
    with gputrace.request("GET /a", feature="f"):
        yield
        with gputrace.span("inside"):
            pass


def batch_for_two_requests() -> Iterator[None]:
    made = []
    for feature in ("f", "g"):
        with gputrace.request("GET /a", feature=feature):
            made.append(gputrace.member())
    with gputrace.batch(made, hold="none"):
        yield
        with gputrace.span("inside"):
            pass


def container_in_a_batch_for_two_requests() -> Iterator[None]:
    made = []
    for feature in ("f", "g"):
        with gputrace.request("GET /a", feature=feature):
            made.append(gputrace.member())
    with gputrace.batch(made, hold="none"), gputrace.span("container", hold="none"):
        yield
        with gputrace.span("inside"):
            pass


def cascade_of_one_stage() -> Iterator[None]:
    cascade = gputrace.Cascade("answer", threshold=0.5)
    with cascade.request(feature="f") as request:
        with request.stage("small"):
            yield
            with gputrace.span("inside"):
                pass
        request.escalate(0.9)


@pytest.mark.parametrize(
    "work",
    [
        request_of_one_call,
        batch_for_two_requests,
        container_in_a_batch_for_two_requests,
        cascade_of_one_stage,
    ],
)
def test_what_sums_up_others_is_told_after_all_of_them(work: Callable[[], Iterator[None]]) -> None:
    """The rest of the work happens between two instructions of one tick, at each in turn."""
    stop, finished = 0, False
    while not finished:
        with Recorder(VirtualClock(step_ns=7)) as recorder:
            tick = Stepper(recorder.settler.tick, (Settler._settle_once, Settler._finish))
            doing = work()
            next(doing)
            finished = not all(tick.step() for _ in range(stop + 1))
            next(doing, None)
            if not finished:
                tick.finish()
            for _ in range(3):
                told = [call.operation for call in recorder.settled()]
            assert told.index("inside") < told.index("answer" if "answer" in told else "GET /a"), stop
            by_feature = {name for name, seconds in recorder.time_by().items() if seconds}
            assert by_feature == ({"f", "g"} if "batch" in told else {"f"})
            for event in recorder.events:
                assert event.body["stages"][0]["time"] == recorder.time_by()["f"]
            assert_streamed_equals_offline(recorder)
        stop += 1
    assert stop > 20


def test_a_mark_that_was_taken_before_a_tick_and_arrives_while_it_reads() -> None:
    """The thread stalls between reading the clock and recording it, and goes on at any point of the tick."""
    stop, finished = 0, False
    while not finished:
        clock, readings = VirtualClock(step_ns=7), 0

        def counted() -> int:
            nonlocal readings
            readings += 1
            return clock()  # noqa: B023 - used within this turn

        with Recorder(counted) as recorder:
            other, block = gputrace.span("other", weight=2), gputrace.span("block")
            other.__enter__()
            block.__enter__()
            leaving = Stepper(lambda: block.__exit__(None, None, None), (calls.leave,))  # noqa: B023
            before = readings
            while readings == before:
                assert leaving.step()
            tick = Stepper(recorder.settler.tick, (Settler._read_calls,))
            finished = not all(tick.step() for _ in range(stop + 1))
            leaving.finish()
            if not finished:
                tick.finish()
            other.__exit__(None, None, None)
            assert_streamed_equals_offline(recorder)
        stop += 1
    assert stop > 20


def test_a_thread_that_stalls_between_queue_and_mark_delays_what_is_final() -> None:
    clock = VirtualClock(step_ns=1)
    with Recorder(clock) as recorder:
        stepper = Stepper(lambda: gputrace.span("stalled").__enter__(), (calls.enter,))
        while stepper.step():
            if recorder.settler.queue:
                break
        recorder.settle()
        with gputrace.span("other", feature="seen"):
            clock.advance(1_000)
        assert "seen" not in recorder.time_by() or recorder.time_by()["seen"] == 0.0
        stepper.finish()
        assert recorder.time_by()["seen"] > 0.0


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["enter", "leave", "tick", "wait"]), st.integers(0, 3), st.integers(0, 50)),
    max_size=60,
)


@given(OPERATIONS)
def test_random_schedules_and_ticks(operations: list[tuple[str, int, int]]) -> None:
    """Four owners open and close nested calls; ticks fall anywhere."""
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        stacks: dict[int, list[calls.Call]] = {owner: [] for owner in range(4)}
        sites = {
            owner: calls.Site(f"owner-{owner}", {"feature": str(owner)}, weight=owner + 1)
            for owner in range(4)
        }

        def enter(owner: int) -> None:
            outer = stacks[owner][-1] if stacks[owner] else None
            previous = calls.current_scope.get()
            calls.current_scope.set(outer)
            stacks[owner].append(calls.enter(sites[owner]))
            calls.current_scope.set(previous)

        for operation, owner, ns in operations:
            if operation == "enter":
                enter(owner)
            elif operation == "leave" and stacks[owner]:
                calls.leave(stacks[owner].pop())
            elif operation == "tick":
                recorder.settle()
            else:
                clock.advance(ns)
        for stack in stacks.values():
            while stack:
                calls.leave(stack.pop())
        assert_streamed_equals_offline(recorder)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5_000_000), st.booleans()), max_size=30))
def test_random_kernels_on_streams_sum_to_what_the_device_was_held(
    kernels: list[tuple[int, int, bool]],
) -> None:
    with VirtualGpu(devices=1) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        streams = [gpu.Stream() for _ in range(3)]
        for stream, duration_ns, tick in kernels:
            with gpu.stream(streams[stream]), gputrace.span(f"stream-{stream}"):
                gpu.launch(duration_ns)
            gpu.advance(1_000_000)
            if tick:
                recorder.settle()
        gpu.advance(200_000_000)
        recorder.settle()
        held = sorted((entry.start_ns, entry.end_ns) for entry in gpu.log if entry.kind == "kernel")
        union, reached = 0, 0
        for start_ns, end_ns in held:
            union += max(0, end_ns - max(start_ns, reached))
            reached = max(reached, end_ns)
        assert sum(recorder.settler.totals.time.values()) / SCALE == pytest.approx(union, abs=2_000)
