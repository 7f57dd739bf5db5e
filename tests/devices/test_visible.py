"""CUDA's ordinals, by UUID: what each spelling of CUDA_VISIBLE_DEVICES leaves, and what cannot be known."""

from __future__ import annotations

import types

import pytest

from gputrace.devices import cuda_runtime, visible
from gputrace.devices.nvml_devices import NvmlDevice
from gputrace.devices.virtual import VirtualGpu
from gputrace.devices.visible import VisibleDevice

H100 = "NVIDIA H100 80GB HBM3"
A, B, C = "GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-cccc3333-0000"
GPUS = [NvmlDevice(A, 0, H100), NvmlDevice(B, 1, H100), NvmlDevice(C, 2, H100)]

MIG_A, MIG_B = "MIG-11c29e81-e611", "MIG-11c2ffff-0000"
SLICED = [
    NvmlDevice(A, 0, H100, sliced=True),
    NvmlDevice(MIG_A, 0, "1g.10gb", parent=A, gpu_instance=7, compute_instance=0),
    NvmlDevice(MIG_B, 0, "1g.10gb", parent=A, gpu_instance=9, compute_instance=0),
]


def seen(variable: str | None, devices: list[NvmlDevice] = GPUS, **others: str) -> visible.Visible:
    environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    return visible.visible(devices, environment | others)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param(None, [A, B, C], id="unset"),
        pytest.param("", [], id="empty"),
        pytest.param("  ", [], id="blank"),
        pytest.param("0", [A], id="one"),
        pytest.param("2,0", [C, A], id="remapped"),
        pytest.param(" 2 , 0 ", [C, A], id="spaces"),
        pytest.param("2,0,", [C, A], id="comma at the end"),
        pytest.param("1,-1,2", [B], id="stops at -1"),
        pytest.param("-1", [], id="-1 alone hides all"),
        pytest.param("NoDevFiles", [], id="what a batch system writes"),
        pytest.param("0,3,1", [A], id="stops at one that is not there"),
        pytest.param("0,x,1", [A], id="stops at rubbish"),
        pytest.param("1gpu,2", [B, C], id="a number with something after it"),
        pytest.param("0,1,0", [], id="twice the same hides all"),
        pytest.param(f"{C},{A}", [C, A], id="UUIDs"),
        pytest.param("GPU-cccc", [C], id="prefix"),
        pytest.param("GPU-c,GPU-aaaa2", [C, B], id="prefixes"),
        pytest.param("GPU-aaaa", [], id="prefix of two"),
        pytest.param(f"{A},GPU-aaaa1", [], id="the same by another name"),
        pytest.param(f"{A},GPU-ffff,{B}", [A], id="stops at an unknown UUID"),
        pytest.param(f"{A},1", [A], id="kinds are not mixed"),
        pytest.param(f"0,{B}", [A], id="nor the other way round"),
        pytest.param(f"0,{MIG_A}", [A], id="a slice where there is none"),
    ],
)
def test_what_the_variable_leaves(variable: str | None, expected: list[str]) -> None:
    assert list(seen(variable).uuids) == expected


@pytest.mark.parametrize("variable", ["0,3,1", "0,x,1", "0,1,0", "GPU-aaaa", f"{A},1"])
def test_what_is_odd_is_said(variable: str) -> None:
    (note,) = seen(variable).notes
    assert "CUDA_VISIBLE_DEVICES" in note


@pytest.mark.parametrize(
    ("variable", "expected", "certain"),
    [
        pytest.param(MIG_A, [MIG_A], True, id="UUID"),
        pytest.param("MIG-11c29", [MIG_A], True, id="prefix"),
        pytest.param("MIG-11c2", [], True, id="prefix of two"),
        pytest.param(f"MIG-{A}/9/0", [MIG_B], True, id="as before driver 470"),
        pytest.param(f"MIG-{A}/9/1", [], True, id="no such compute instance"),
        pytest.param(f"MIG-{C}/9/0", [], True, id="no such GPU"),
        pytest.param(f"{MIG_B},{MIG_A}", [MIG_B], True, id="a process sees one slice"),
        pytest.param(None, [MIG_A], False, id="unset"),
        pytest.param("0", [MIG_A], False, id="a number"),
        pytest.param(A, [MIG_A], False, id="the whole GPU"),
    ],
)
def test_slices(variable: str | None, expected: list[str], certain: bool) -> None:
    found = seen(variable, SLICED)
    assert list(found.uuids) == expected
    assert all(device.certain is certain for device in found.devices)


def test_slices_beside_a_whole_gpu_are_uncertain() -> None:
    found = seen(None, [*SLICED, NvmlDevice(C, 1, H100)])
    assert found.devices == (VisibleDevice(0, C, certain=False),)
    assert "alone can tell" in found.notes[0]


def test_pytorch_90543_the_order_of_different_gpus_is_known_only_where_it_is_pinned() -> None:
    """pynvml#28: CUDA puts the fastest first, NVML counts along the bus."""
    mixed = [NvmlDevice(A, 0, "Tesla T4"), NvmlDevice(B, 1, H100)]
    assert [device.certain for device in seen(None, mixed).devices] == [False, False]
    assert "fastest first" in seen("1", mixed).notes[0]
    assert [device.certain for device in seen("1", mixed, CUDA_DEVICE_ORDER="FASTEST_FIRST").devices] == [
        False
    ]
    assert seen(None, mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID") == seen(f"{A},{B}", mixed)
    assert seen(B, mixed).devices == (VisibleDevice(0, B, certain=True),)


def test_torch_wins() -> None:
    """It has asked CUDA, whatever the variable has been changed to since."""
    found = visible.visible(GPUS, {"CUDA_VISIBLE_DEVICES": "0"}, [C[4:], A[4:]])
    assert found.devices == (VisibleDevice(0, C), VisibleDevice(1, A))
    assert found.notes == ()


def test_torch_names_slices_without_saying_that_they_are() -> None:
    assert visible.visible(SLICED, {}, [MIG_B[4:]]).uuids == (MIG_B,)


def test_a_device_that_nvml_does_not_show_keeps_its_name() -> None:
    found = visible.visible(GPUS, {}, ["dddd4444-0000"])
    assert found.uuids == ("GPU-dddd4444-0000",)
    assert "cuda:0" in found.notes[0]


def test_nothing_without_nvml() -> None:
    assert seen("0,1", []).uuids == ()


def test_vllm_41848_an_environment_of_slices_is_no_number() -> None:
    """`int("MIG-…")` took vllm#46132 and zeus#109 down, too."""
    assert seen(MIG_A, SLICED).uuids == (MIG_A,)


def test_cuda_is_not_initialised_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with VirtualGpu(devices=1) as gpu:
        assert visible.torch_uuids() is None
        assert not gpu.is_initialized()
        gpu.init()
        assert visible.torch_uuids() == [str(gpu.get_device_properties(0).uuid)]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert visible.read([]).uuids == (f"GPU-{gpu.get_device_properties(0).uuid}",)


@pytest.mark.parametrize("properties", [types.SimpleNamespace(), types.SimpleNamespace(uuid=None)])
def test_a_torch_without_uuids_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, properties: types.SimpleNamespace
) -> None:
    runtime = types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, get_device_properties=lambda _: properties
    )
    monkeypatch.setattr(cuda_runtime, "runtime", lambda: runtime)
    assert visible.torch_uuids() is None
    monkeypatch.setattr(runtime, "device_count", lambda: (_ for _ in ()).throw(RuntimeError("lost")))
    assert visible.torch_uuids() is None
