"""The settler on the host stand-in and on the virtual GPU."""

from __future__ import annotations

import asyncio
import threading

import pytest

import gputrace
from gputrace import catalogue
from gputrace.devices.base import NotReadableError
from gputrace.devices.cuda import CudaDevice
from gputrace.testing import Recorder, VirtualClock, VirtualGpu

MS = 1_000_000


def by_operation(recorder: Recorder) -> dict[str, int]:
    charged: dict[str, int] = {}
    for call in recorder.settled():
        charged[call.operation] = charged.get(call.operation, 0) + call.charged_ns
    return charged


def states(recorder: Recorder) -> dict[str, float]:
    return {
        attributes[catalogue.DEVICE_STATE]: round(seconds * 1e9)
        for attributes, seconds in recorder.snapshot().device_time_s
    }


def test_nested_calls_are_charged_to_the_innermost() -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        with gputrace.span("outer"):
            clock.advance(20)
            with gputrace.span("inner"):
                clock.advance(40)
            clock.advance(40)
        assert by_operation(recorder) == {"outer": 60, "inner": 40}


def test_two_owners_at_once_share_the_device() -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        first, second = gputrace.span("first"), gputrace.span("second")
        first.__enter__()
        other = threading.Thread(target=second.__enter__)
        other.start()
        other.join()
        clock.advance(60)
        first.__exit__(None, None, None)
        clock.advance(40)
        second.__exit__(None, None, None)
        assert by_operation(recorder) == {"first": 30, "second": 70}
        assert states(recorder)["charged"] == 100


def test_ten_coroutines_that_await_one_tracked_batch_hold_nothing() -> None:
    clock = VirtualClock()

    @gputrace.track(operation="batch")
    def run_batch(size: int) -> int:
        clock.advance(500)
        return size

    @gputrace.track(operation="request")
    async def request(waiting: asyncio.Future[int]) -> int:
        return await waiting

    async def serve() -> list[int]:
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        requests = [asyncio.create_task(request(waiting)) for _ in range(10)]
        await asyncio.sleep(0)
        clock.advance(1_000)
        waiting.set_result(run_batch(10))
        return await asyncio.gather(*requests)

    with Recorder(clock) as recorder:
        assert asyncio.run(serve()) == [10] * 10
        assert by_operation(recorder) == {"batch": 500, "request": 0}


def test_a_long_call_is_charged_as_it_runs() -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder, gputrace.span("training", feature="nightly"):
        for seen in (100, 200, 300):
            clock.advance(100)
            assert recorder.time_by() == {"nightly": pytest.approx(seen / 1e9)}
            assert not recorder.settled()


def test_a_container_holds_nothing_and_its_children_belong_to_one_owner() -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        with gputrace.span("request", hold="none", feature="chat"):
            clock.advance(10)
            with gputrace.span("model"):
                clock.advance(30)
        assert by_operation(recorder) == {"request": 0, "model": 30}
        request = next(call for call in recorder.settled() if call.operation == "request")
        assert request.device_id is None
        assert request.duration_ns == 40
        model = next(call for call in recorder.settled() if call.operation == "model")
        assert model.call.root is request.call


def test_the_weight_of_the_outermost_call_counts() -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        heavy, light = gputrace.span("heavy", weight=3), gputrace.span("light")
        heavy.__enter__()
        other = threading.Thread(target=light.__enter__)
        other.start()
        other.join()
        clock.advance(100)
        heavy.__exit__(None, None, None)
        light.__exit__(None, None, None)
        assert by_operation(recorder) == {"heavy": 75, "light": 25}


def test_what_a_call_started_and_outlived_is_an_owner_of_its_own() -> None:
    clock = VirtualClock()

    async def background() -> None:
        await asyncio.sleep(0)
        with gputrace.span("later"):
            clock.advance(5)

    async def serve() -> None:
        with gputrace.span("request", feature="chat"):
            task = asyncio.create_task(background())
        await task

    with Recorder(clock) as recorder:
        asyncio.run(serve())
        later = next(call for call in recorder.settled() if call.operation == "later")
        assert later.call.parent is None
        assert later.feature == "chat"


def test_states_of_the_host_sum_to_its_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    cpu = 0
    monkeypatch.setattr("gputrace.devices.host.process_time_ns", lambda: cpu)
    with Recorder(clock) as recorder:
        with gputrace.span("work"):
            clock.advance(30)
        clock.advance(70)
        cpu = 80
        assert states(recorder) == {"charged": 30, "untracked": 50, "idle": 20, "unknown": 0}
        # Two threads at once use more CPU than there is wall time.
        clock.advance(100)
        cpu = 280
        assert states(recorder) == {"charged": 30, "untracked": 150, "idle": 20, "unknown": 0}
        clock.advance(40)
        assert states(recorder) == {"charged": 30, "untracked": 150, "idle": 60, "unknown": 0}


def test_a_stream_of_steps_does_not_grow() -> None:
    clock = VirtualClock()

    @gputrace.track(operation="stream")
    def stream():
        while True:
            clock.advance(1)
            yield

    with Recorder(clock) as recorder:
        items = stream()
        for _ in range(50):
            for _ in range(100):
                next(items)
            recorder.settle()
        (followed,) = recorder.settler._followed
        assert len(followed.call.marks) <= 2
        items.close()
        assert by_operation(recorder) == {"stream": 5_000}


def test_metric_attribute_values_are_capped() -> None:
    clock = VirtualClock()
    with Recorder(clock) as recorder:
        for number in range(300):
            with gputrace.span("work", feature=f"feature-{number}"):
                clock.advance(1)
        recorder.settle()
        by_feature = recorder.time_by()
        assert len(by_feature) == 201
        assert by_feature["feature-0"] == pytest.approx(1e-9)
        assert by_feature[catalogue.OTHER] == pytest.approx(100e-9)
        assert recorder.snapshot().folded > 0


def test_tenants_are_on_metrics_only_when_asked_for() -> None:
    for asked, expected in (((), {""}), (("tenant",), {"acme"})):
        with Recorder(VirtualClock(step_ns=1), metric_attributes=asked) as recorder:
            with gputrace.attribute_to(tenant="acme"), gputrace.span("work"):
                pass
            assert set(recorder.time_by(catalogue.TENANT)) == expected
            assert recorder.settled()[0].tenant == "acme"


# --- on the virtual GPU ------------------------------------------------------


def test_outstanding_calls_on_one_stream_are_charged_their_kernels() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        for name in ("first", "second", "third"):
            with gputrace.span(name):
                gpu.launch(2 * MS)
        gpu.advance(MS)
        assert recorder.settled() == []
        gpu.advance(9 * MS)
        assert by_operation(recorder) == {"first": 2 * MS, "second": 2 * MS, "third": 2 * MS}
        assert gpu.synchronizations == 0
        assert states(recorder)["charged"] == 6 * MS
        assert states(recorder)["idle"] == 0


def test_concurrent_streams_share_the_device() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        with gputrace.span("first"):
            gpu.launch(4 * MS)
        with gpu.stream(gpu.Stream()), gputrace.span("second"):
            gpu.launch(4 * MS)
        gpu.advance(10 * MS)
        assert by_operation(recorder) == {"first": 2 * MS, "second": 2 * MS}


def test_a_call_on_two_devices_is_charged_on_each() -> None:
    with VirtualGpu(devices=2) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        for device in (0, 1):
            with gpu.device(device):
                gpu.launch(0)
        with gputrace.span("parallel", devices=(0, 1)):
            for device in (0, 1):
                with gpu.device(device):
                    gpu.launch(3 * MS)
        gpu.advance(10 * MS)
        assert by_operation(recorder) == {"parallel": 6 * MS}


def test_side_streams_are_united() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        side = gpu.Stream()
        with gputrace.span("both", streams=(side,)):
            gpu.launch(2 * MS)
            gpu.launch(5 * MS, side)
        gpu.advance(10 * MS)
        assert by_operation(recorder) == {"both": 5 * MS}


def test_another_stream_at_exit_makes_the_call_estimated() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        other = gpu.stream(gpu.Stream())
        with gputrace.span("wandering"):
            gpu.launch(MS)
            other.__enter__()
        other.__exit__(None, None, None)
        gpu.advance(10 * MS)
        recorder.settle()
        assert set(recorder.time_by(catalogue.TIME_SOURCE)) == {"estimated"}


def test_work_before_cuda_is_initialised_is_counted_as_unmeasured() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        with gputrace.span("loads-the-model"):
            gpu.launch(MS)
        with gputrace.span("uses-it"):
            gpu.launch(MS)
        gpu.advance(10 * MS)
        assert by_operation(recorder) == {"loads-the-model": 0, "uses-it": MS}
        assert recorder.snapshot().unmeasured == [({catalogue.LOSS_REASON: "cuda_initialised_inside"}, 1)]


def test_a_capture_in_a_call_is_not_broken_and_counted_as_unmeasured() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        with gpu.capture() as graph:
            with gputrace.span("captured"):
                gpu.launch(MS)
            recorder.settle()
        with gputrace.span("replayed"):
            graph.replay()
        gpu.advance(10 * MS)
        assert by_operation(recorder) == {"captured": 0, "replayed": MS}
        assert recorder.snapshot().unmeasured == [({catalogue.LOSS_REASON: "graph_capture"}, 1)]


def test_a_lost_device_ends_its_calls_without_an_error_and_leaves_the_others() -> None:
    with VirtualGpu(devices=2) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        for device in (0, 1):
            with gpu.device(device):
                gpu.launch(0)
        with gputrace.span("on-both", devices=(0, 1)), gpu.device(0):
            gpu.launch(4 * MS)
        with gpu.device(1), gputrace.span("on-the-other"):
            gpu.launch(MS)
        gpu.advance(MS)
        recorder.settle()
        gpu.lose(0)
        gpu.advance(10 * MS)
        charged = by_operation(recorder)
        assert charged["on-the-other"] == MS
        assert set(charged) == {"on-both", "on-the-other"}
        assert {reason[catalogue.LOSS_REASON] for reason, _ in recorder.snapshot().unmeasured} == {
            "device_lost"
        }


def test_events_are_reused_only_after_they_were_read() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        for _ in range(200):
            with gputrace.span("work"):
                gpu.launch(MS)
            gpu.advance(MS // 2)
            recorder.settle()
        gpu.advance(1_000 * MS)
        assert by_operation(recorder) == {"work": 200 * MS}


def test_a_generator_on_the_gpu_is_charged_its_steps() -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()

        @gputrace.track(operation="decode")
        def decode():
            for _ in range(3):
                gpu.launch(MS)
                yield

        for _ in decode():
            gpu.advance(10 * MS)
        gpu.advance(10 * MS)
        assert by_operation(recorder) == {"decode": 3 * MS}


def test_a_device_that_cannot_be_read_now_is_not_charged_past_what_may_have_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with VirtualGpu() as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        with gputrace.span("work"):
            gpu.launch(4 * MS)
        gpu.advance(MS)
        recorder.settle()
        gpu.advance(9 * MS)
        with monkeypatch.context() as patched:

            def refuse(*_: object) -> None:
                raise NotReadableError

            patched.setattr(CudaDevice, "read", refuse)
            recorder.settle()
        assert by_operation(recorder) == {"work": 4 * MS}


def test_a_settler_that_runs_meanwhile_keeps_its_clock() -> None:
    with Recorder(VirtualClock(start_ns=1_000)) as running:
        running.settle()
        with Recorder(VirtualClock(start_ns=5)) as recorder:
            with gputrace.span("work"):
                pass
            running.settle()
            assert len(recorder.settled()) == 1
        running.settle()
