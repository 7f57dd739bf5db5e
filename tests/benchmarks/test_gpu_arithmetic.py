"""What the check of a GPU computes and decides, on made-up figures."""

from __future__ import annotations

import types
from typing import Any

import pytest
from gpu_checks import comparison, result, table
from gpu_checks.comparison import Measured, allowed_ns, compare, worst
from gpu_checks.kernels import Kernel, work_of
from gpu_checks.profile_reading import PREFIX, kernels_by_call
from gpu_checks.synchronisations import Synchronisations

US = 1_000


def event(name: str, start_us: float, end_us: float, **others: Any) -> Any:
    """A row as ``torch.profiler`` gives it."""
    given = {"device_type": "DeviceType.CPU", "id": 0, "activity_type": "cpu_op", "is_user_annotation": False}
    row = types.SimpleNamespace(name=name, **{**given, **others})
    row.time_range = types.SimpleNamespace(start=start_us, end=end_us)
    return row


def mark(name: str, start_us: float, end_us: float, **others: Any) -> Any:
    given = {"is_user_annotation": True, "activity_type": "user_annotation", **others}
    return event(PREFIX + name, start_us, end_us, **given)


def launch(
    number: int, at_us: float, name: str = "cudaLaunchKernel", activity: str | None = "cuda_runtime"
) -> Any:
    return event(name, at_us, at_us + 4, id=number, activity_type=activity)


def kernel(number: int, start_us: float, end_us: float, **others: Any) -> Any:
    given = {"device_type": "DeviceType.CUDA", "activity_type": "kernel", **others}
    return event("gemm", start_us, end_us, id=number, **given)


# --- kernels ---------------------------------------------------------------------


def test_busy_time_is_the_union_and_gaps_are_the_rest() -> None:
    work = work_of([Kernel(50, 60), Kernel(0, 10), Kernel(5, 20), Kernel(6, 8), Kernel(60, 61)])
    assert work == (5, 0, 61, 31)
    assert (work.span_ns, work.gaps_ns) == (61, 30)


def test_of_no_kernel_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        work_of([])


# --- the profile -----------------------------------------------------------------


def test_kernels_belong_to_the_mark_in_which_they_were_launched() -> None:
    events = [
        mark("b/0", 100, 200),
        mark("a/0", 0, 90),
        launch(1, 10),
        launch(2, 120),
        launch(3, 95),  # between the marks
        kernel(1, 1_000.5, 1_010.25),
        kernel(2, 1_020, 1_030, activity_type="gpu_memset"),
        kernel(3, 1_040, 1_050),
        kernel(4, 1_060, 1_070),  # launched before the trace began
    ]
    assert kernels_by_call(events) == {
        "a/0": [Kernel(1_000_500, 1_010_250, "gemm")],
        "b/0": [Kernel(1_020_000, 1_030_000, "gemm")],
    }


def test_a_call_may_have_several_marks_and_a_graph_one_launch() -> None:
    events = [
        mark("a", 0, 10),
        mark("b", 10.5, 20),
        mark("a", 21, 30),
        launch(7, 5, "cudaGraphLaunch"),
        launch(8, 25, "cuLaunchKernelEx", "cuda_driver"),
        *[kernel(7, start, start + 1) for start in (100, 102, 104)],
        kernel(8, 110, 111),
    ]
    found = kernels_by_call(events)
    assert [one.start_ns // US for one in found["a"]] == [100, 102, 104, 110]
    assert found["b"] == []


def test_what_is_no_work_of_the_device_is_left_out() -> None:
    on_device = {"device_type": "DeviceType.CUDA"}
    events = [
        mark("a", 0, 50),
        launch(1, 10),
        # A torch operator may have the number of some launch.
        event("aten::mm", 40, 45, id=1),
        kernel(1, 100, 110),
        mark("a", 100, 110, **on_device, activity_type="gpu_user_annotation", id=1),
        event("other range", 90, 300, **on_device, is_user_annotation=True, activity_type=None, id=1),
        event("Stream Wait Event", 120, 130, **on_device, activity_type="cuda_sync", id=1),
    ]
    assert kernels_by_call(events) == {"a": [Kernel(100 * US, 110 * US, "gemm")]}


def test_an_older_torch_that_names_no_activities_is_read_by_names() -> None:
    events = [
        mark("a", 0, 50, activity_type=None),
        launch(1, 10, activity=None),
        event("aten::mm", 9, 20, id=2, activity_type=None),
        kernel(1, 100, 110, activity_type=None),
        kernel(2, 120, 130, activity_type=None),
        event("Context Sync", 140, 150, device_type="DeviceType.CUDA", id=1, activity_type=None),
    ]
    assert kernels_by_call(events) == {"a": [Kernel(100 * US, 110 * US, "gemm")]}


def test_without_launches_the_marks_on_the_device_serve() -> None:
    on = {"device_type": "DeviceType.CUDA", "device_index": 0}
    events = [
        mark("a", 0, 50),
        mark("a", 100, 130, **on, device_resource_id=7, activity_type="gpu_user_annotation"),
        kernel(1, 100, 110, device_index=0, device_resource_id=7),
        kernel(2, 120, 130, device_index=0, device_resource_id=7),
        kernel(3, 115, 120, device_index=0, device_resource_id=8),
        kernel(4, 128, 140, device_index=0, device_resource_id=7),
    ]
    assert [one.start_ns // US for one in kernels_by_call(events)["a"]] == [100, 120]


@pytest.mark.requires("torch")
def test_the_rows_of_a_real_profiler_have_what_is_read() -> None:
    import torch
    from torch.autograd.profiler_util import FunctionEvent

    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as profile:
        for number in range(2):
            with profiler.record_function(f"{PREFIX}real/{number}"):
                torch.ones(8, 8) @ torch.ones(8, 8)
    rows = list(profile.events())
    assert kernels_by_call(rows) == {"real/0": [], "real/1": []}
    within = next(row for row in rows if row.name == f"{PREFIX}real/1").time_range
    kind = torch.autograd.DeviceType
    started = FunctionEvent(77, "cudaLaunchKernel", 1, within.start, within.start + 1, device_type=kind.CPU)
    ran = FunctionEvent(77, "gemm", 1, 5_000.0, 5_001.5, device_type=kind.CUDA)
    assert kernels_by_call([*rows, started, ran])["real/1"] == [Kernel(5_000_000, 5_001_500, "gemm")]


# --- the comparison --------------------------------------------------------------


def test_two_per_cent_are_allowed_or_twenty_microseconds() -> None:
    assert allowed_ns(100 * US) == 20 * US
    assert allowed_ns(1_000 * US) == 20 * US
    assert allowed_ns(50_000 * US) == 1_000 * US


@pytest.mark.parametrize(
    ("error_ns", "kept"), [(20_000, True), (-20_000, True), (20_001, False), (-20_001, False)]
)
def test_a_charge_is_held_against_first_start_and_last_end(error_ns: int, kept: bool) -> None:
    kernels = {"a": [Kernel(100 * US, 200 * US), Kernel(400 * US, 600 * US)]}
    (row,) = compare({"a": Measured(500 * US + error_ns, 777)}, kernels)
    assert row == {
        "operation": "a",
        "kernels": 2,
        "busy_ns": 300 * US,
        "gaps_ns": 200 * US,
        "span_ns": 500 * US,
        "held_ns": 777,
        "charged_ns": 500 * US + error_ns,
        "expected_ns": 500 * US,
        "error_ns": error_ns,
        "allowed_ns": 20 * US,
        "kept": kept,
    }


def test_calls_at_once_should_be_charged_their_share() -> None:
    kernels = {"a": [Kernel(0, 100)], "b": [Kernel(60, 160)], "c": [Kernel(500, 600)]}
    rows = compare({name: Measured(80, 100) for name in "abc"}, kernels)
    assert [row["expected_ns"] for row in rows] == [80, 80, 100]
    assert [row["error_ns"] for row in rows] == [0, 0, -20]


@pytest.mark.parametrize(
    ("measured", "kernels", "message"),
    [
        ({}, {"a": [Kernel(0, 1)]}, "gputrace settled no call a"),
        ({"a": Measured(1, 1)}, {"a": []}, "the profiler shows no kernel of a"),
        ({"a": Measured(1, 1)}, {}, "the profiler shows no kernel of a"),
    ],
)
def test_a_call_that_one_of_them_does_not_know_is_named(measured: Any, kernels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(measured, kernels)


def test_the_worst_is_by_what_is_allowed() -> None:
    rows = [{"error_ns": 900, "allowed_ns": 1_000}, {"error_ns": -30, "allowed_ns": 20}]
    assert worst(rows) is rows[1]


# --- synchronisations ------------------------------------------------------------


class Base:
    def wait(self) -> int:
        return 3


class Stream(Base):
    pass


def test_waits_are_counted_passed_on_and_then_left_alone() -> None:
    module = types.SimpleNamespace(wait=lambda seconds: seconds)
    before = module.wait
    with Synchronisations([(Stream, "wait"), (module, "wait")]) as waits:
        assert Stream().wait() == 3
        assert module.wait(seconds=2) == 2
        assert Base().wait() == 3
    assert waits.called == ["Stream.wait", "SimpleNamespace.wait"]
    assert waits.count == 2
    Stream().wait()
    assert waits.count == 2
    assert module.wait is before
    assert "wait" not in vars(Stream)


# --- the result ------------------------------------------------------------------


def call(**others: Any) -> dict[str, Any]:
    (row,) = compare({"a/0": Measured(500 * US, 500 * US)}, {"a/0": [Kernel(0, 500 * US)]})
    return {**row, **others}


def good() -> dict[str, Any]:
    conservation = {"calls_ns": 1.0, "features_ns": 1.0, "held_ns": 1, "exact": True}
    cost = dict.fromkeys(result._COST, 1.0)
    workload = {"key": "a", "title": "a thing", "judged": True, "calls": [call()], "error": None}
    energy = dict.fromkeys(result._ENERGY, 10.0)
    return {
        "schema": 1,
        "gpu": "NVIDIA H200",
        "made": "2026-01-01",
        "versions": {"torch": "2.13"},
        "seconds": 10.0,
        "charges": {"workloads": [workload], "conservation": conservation, "unmeasured": {}},
        "capture": {
            "held": True,
            "error": None,
            "queries": 3,
            "in_background": True,
            "calls": 2,
            "unmeasured": {},
            "conservation": dict(conservation),
        },
        "cost": {
            "rows": [{**cost, "work_ns": 100_000, "kept": True}],
            "synchronisations": [],
            "unmeasured": {},
        },
        "driver": {
            "up": True,
            "trouble": None,
            "mapping": {
                "devices": 1,
                "found": [True],
                "names": [True],
                "by_environment": True,
                "certain": True,
                "kept": True,
            },
            "energy": {**energy, "readings": 10, "source": "counter", "kept": True},
            "held_ns": 5,
            "split": True,
        },
        "complaints": [],
    }


def test_a_good_result_has_no_failure_and_the_right_form() -> None:
    assert result.failures(good()) == []
    assert result.misshapen(good()) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("charges",), None, "charges: could not be measured"),
        (("driver",), None, "driver: could not be measured"),
        (("charges", "workloads", 0, "calls", 0, "kept"), False, "a: 1 of 1 charges are off; a/0 by 0.0 us"),
        (("charges", "workloads", 0, "error"), "no kernel", "a: no kernel"),
        (("charges", "conservation", "exact"), False, "charges: the charges do not sum to what was held"),
        (("charges", "unmeasured"), {"device_lost": 2}, "charges: 2 calls unmeasured: device_lost"),
        (("capture", "held"), False, "capture: broke while the settler polled"),
        (("capture", "queries"), 0, "capture: the settler asked for no event"),
        (("capture", "conservation", "exact"), False, "capture: the charges do not sum"),
        (
            ("cost", "synchronisations"),
            ["cuda.synchronize"],
            "tracking waited for the device: cuda.synchronize",
        ),
        (("driver", "up"), False, "driver: NVML does not answer: None"),
        (("driver", "mapping", "kept"), False, "driver: torch's devices and NVML's are not the same"),
        (("driver", "held_ns"), 0, "driver: calls were not charged under the UUID"),
        (("driver", "energy", "kept"), False, "driver: readings sum to 10.0 J"),
        (("driver", "split"), False, "driver: the parts of the energy"),
        (("complaints",), ["oh"], "gputrace logged: oh"),
    ],
)
def test_whatever_is_wrong_is_said(path: tuple[str | int, ...], value: Any, said: str) -> None:
    found: Any = good()
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (line,) = result.failures(found)
    assert line.startswith(said)
    assert line in table.section([found])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("driver", "energy", "kept"), None),  # no counter to compare with
        (("driver", "split"), None),
        (("charges", "workloads", 0, "judged"), False),
        (("cost", "rows", 0, "kept"), False),  # a budget of time is shown
        (("driver", "mapping", "by_environment"), False),
    ],
)
def test_what_is_not_judged_is_no_failure(path: tuple[str | int, ...], value: Any) -> None:
    found: Any = good()
    found["charges"]["workloads"][0]["calls"][0]["kept"] = path[-1] != "judged"
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert result.failures(found) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found.pop("gpu"), "result has no gpu"),
        (lambda found: found.update(more=1), "result has an unknown more"),
        (
            lambda found: found["charges"]["workloads"][0]["calls"][0].pop("kept"),
            "result.charges.workloads[0].calls[0] has no kept",
        ),
        (lambda found: found["capture"].update(queries=True), "result.capture.queries is True"),
        (lambda found: found["cost"].update(rows={}), "result.cost.rows is no list"),
        (lambda found: found.update(driver=[]), "result.driver is no object"),
        (lambda found: found.update(seconds="5"), "result.seconds is '5'"),
    ],
)
def test_a_misshapen_result_is_not_written(change: Any, said: str, tmp_path: Any) -> None:
    found = good()
    change(found)
    assert said in result.misshapen(found)
    with pytest.raises(ValueError, match="no valid file"):
        result.write(found, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_file_that_is_no_result_is_named(tmp_path: Any) -> None:
    result.write(good(), tmp_path)
    assert result.read(tmp_path) == [good()]
    (tmp_path / "gpu-odd.json").write_text("{}")
    with pytest.raises(ValueError, match=r"gpu-odd\.json is no result"):
        result.read(tmp_path)


# --- the tables ------------------------------------------------------------------


def test_tables_go_between_the_markers() -> None:
    document = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.replaced(document, "new") == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    assert table.replaced(table.replaced(document, "x"), "new") == table.replaced(document, "new")


@pytest.mark.parametrize(
    "document", ["", table.BEGIN, table.END + table.BEGIN, (table.BEGIN + table.END) * 2]
)
def test_a_document_without_markers_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="must hold"):
        table.replaced(document, "new")


def test_what_was_measured_is_shown_apart() -> None:
    found = good()
    found["charges"]["workloads"][0]["calls"] = [
        call(
            busy_ns=1_000_000,
            gaps_ns=2_000_000,
            held_ns=4_000_000,
            expected_ns=3_000_000,
            charged_ns=3_500_000,
        )
    ]
    shown = table.section([found])
    assert shown.startswith("### NVIDIA H200\n\n2026-01-01; torch 2.13. Everything held.")
    assert "| a thing | 1 | 1 | 1.000 | 2.000 | 4.000 | 3.000 | 3.500 | +0.0 (20.0) |" in shown
    assert "| 0.1 | 1.00 | +1.00 | +1.00 | 1.00, kept | +100.00 % |" in shown
    assert "Synchronisations while tracking: 0." in shown
    assert "readings 10.0 J, counter 10.0 J, +0.00 %" in shown


def test_until_a_gpu_was_measured_it_says_so() -> None:
    assert table.section([]) == table.NOTHING
    assert comparison.ALLOWED_SHARE == 0.02
