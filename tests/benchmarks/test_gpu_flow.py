"""The whole check, part by part, on a virtual GPU: whose log is the truth."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gpu_check
import pytest
from gpu_checks import capturing, charging, result, table, tracking_cost
from gpu_checks.workloads import WORKLOADS, Workload

from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MS = 1_000_000


def by_key(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {workload["key"]: workload for workload in found["workloads"]}


def test_every_charge_is_that_of_the_kernels(machine: Any) -> None:
    found = charging.check(machine)
    workloads = by_key(found)
    assert list(workloads) == [workload.key for workload in WORKLOADS]
    for workload in WORKLOADS:
        calls = workloads[workload.key]["calls"]
        assert workloads[workload.key]["error"] is None
        assert len(calls) == workload.calls
        # The virtual GPU launches without delay: what is left is that of float32 milliseconds, a microsecond
        # and more where all this takes over eight seconds.
        assert all(abs(call["error_ns"]) < 2_000 for call in calls), workload.key
        assert all(call["span_ns"] == call["busy_ns"] + call["gaps_ns"] for call in calls)
    assert found["unmeasured"] == {}
    assert found["conservation"]["exact"]
    assert found["conservation"]["held_ns"] > 0


def test_a_host_bound_loop_holds_far_more_than_it_is_busy(machine: Any) -> None:
    for call in by_key(charging.check(machine))["host"]["calls"]:
        assert call["held_ns"] == call["charged_ns"]
        assert call["gaps_ns"] > 5 * call["busy_ns"]


def test_two_streams_share_what_they_hold_together(machine: Any) -> None:
    calls = by_key(charging.check(machine))["streams"]["calls"]
    for longer, shorter in zip(calls[::2], calls[1::2], strict=True):
        together_ns = shorter["held_ns"]
        assert abs(shorter["charged_ns"] - together_ns / 2) < 1_000
        assert abs(longer["charged_ns"] - (longer["held_ns"] - together_ns / 2)) < 1_000
        assert longer["held_ns"] > together_ns > 0


def test_a_graph_is_seen_kernel_by_kernel(machine: Any) -> None:
    assert {call["kernels"] for call in by_key(charging.check(machine))["graph"]["calls"]} == {300}


def test_kernels_that_gputrace_did_not_charge_are_found(machine: Any) -> None:
    """A mark that covers more than its call: work that ran after the end event."""
    annotate = machine.annotate

    @contextmanager
    def wider(operation: str) -> Iterator[None]:
        with annotate(operation):
            yield
            machine.spin(MS)

    machine.annotate = wider
    found = charging.check(machine, [workload for workload in WORKLOADS if workload.key == "block"])
    (block,) = found["workloads"]
    assert not any(call["kept"] for call in block["calls"])
    assert found["conservation"]["exact"]


def test_a_call_that_gputrace_lost_is_named_and_the_others_are_compared(machine: Any) -> None:
    def untracked(machine: Any, key: str, calls: int) -> list[str]:
        with machine.annotate("lost/0"):
            machine.multiply()
        return ["lost/0"]

    lost = Workload("lost", "untracked", untracked, 1)
    found = by_key(charging.check(machine, [lost, WORKLOADS[0]]))
    assert found["lost"]["error"] == "gputrace settled no call lost/0: was it measured?"
    assert len(found["products"]["calls"]) == WORKLOADS[0].calls


def test_a_capture_holds_while_the_settler_asks(machine: Any) -> None:
    found = capturing.check(machine)
    assert found["held"], found["error"]
    assert found["in_background"]
    assert found["queries"] >= 3
    assert found["calls"] == 2
    assert found["unmeasured"] == {}
    assert found["conservation"]["exact"]


def test_a_capture_that_breaks_is_told(machine: Any) -> None:
    capture = machine.cuda.capture

    @contextmanager
    def waiting() -> Iterator[Any]:
        with capture() as graph:
            yield graph
            machine.cuda.synchronize()

    machine.capture = waiting
    found = capturing.check(machine)
    assert not found["held"]
    assert "captur" in found["error"]
    assert found["calls"] == 2


def test_tracking_never_waits_for_the_device(machine: Any) -> None:
    found = tracking_cost.check(machine, {100_000: (20, 2), MS: (10, 2)})
    assert found["synchronisations"] == []
    assert found["unmeasured"] == {}
    assert [row["work_ns"] for row in found["rows"]] == [100_000, MS]


def test_a_wait_inside_tracked_work_is_counted(machine: Any) -> None:
    spin = machine.spin

    def waiting(ns: int) -> None:
        spin(ns)
        machine.cuda.synchronize()

    machine.spin = waiting
    found = tracking_cost.check(machine, {MS: (5, 1)})
    # Of the tracked loop alone: what the check itself waits for does not count.
    assert found["synchronisations"] == ["VirtualGpu.synchronize"] * 5


def test_cost_is_the_least_cpu_time_and_the_median_wall_time() -> None:
    loops = [tracking_cost.Loop(*pair) for pair in ((9.0, 110.0), (8.0, 100.0), (30.0, 400.0))]
    records = [tracking_cost.Loop(11.0, 0.0)]
    tracked = [tracking_cost.Loop(*pair) for pair in ((14.5, 111.0), (14.0, 121.0), (99.0, 999.0))]
    row = tracking_cost.row(MS, loops, records, tracked)
    assert (row["plain_host_us"], row["records_us"], row["tracked_us"]) == (8.0, 3.0, 6.0)
    assert row["beyond_records_us"] == 3.0
    assert row["kept"]
    assert row["wall_share"] == pytest.approx(0.1)
    assert not tracking_cost.row(MS, loops, records, [tracking_cost.Loop(15.1, 0.0)])["kept"]


def test_the_result_is_written_judged_and_shown(machine: Any, tmp_path: Path) -> None:
    parts = {"charges": charging.check, "capture": capturing.check}
    found = gpu_check.measure(machine, "Virtual GPU", {"torch": "none"}, parts)
    assert result.failures(found) == [
        "cost: could not be measured; see the complaints",
        "driver: could not be measured; see the complaints",
    ]
    path = result.write(found, tmp_path)
    assert path.name == "gpu-virtual-gpu.json"
    assert result.read(tmp_path) == [found]
    shown = table.section([found])
    for workload in WORKLOADS:
        assert workload.title in shown
    assert "The charges of all calls are exactly what the device was held" in shown


def test_a_part_that_fails_leaves_the_others_and_a_complaint(
    machine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GPUTRACE_RAISE_FAULTS")

    def broken(_: Any) -> dict[str, Any]:
        raise AttributeError("torch has no such thing")

    faults.reset()
    found = gpu_check.measure(machine, "X", {}, {"charges": broken, "capture": capturing.check})
    faults.reset()
    assert found["charges"] is None
    assert found["capture"]["held"]
    assert len(found["complaints"]) == 1
    assert "AttributeError('torch has no such thing')" in found["complaints"][0]
    assert result.misshapen(found) == []
    assert "in broken" in capsys.readouterr().err
