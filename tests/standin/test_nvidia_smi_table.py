"""The functions that the real nvidia-smi takes from a table instead of from NVML's exported names."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tests.standin.real_pynvml import nvml

TABLE_ID = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
HANDLE_BY_INDEX, ENFORCED_LIMIT, COMPUTE, MPS, GRAPHICS, HOST_PCIE, MARGIN = 81, 108, 213, 214, 215, 230, 240
LOGGING, UNKNOWN = 26, 300


class NamedProcess(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
        ("protected_memory", ctypes.c_ulonglong),
        ("name", ctypes.c_char * 4096),
    )


def table() -> ctypes.Array[ctypes.c_void_p]:
    found = ctypes.POINTER(ctypes.c_void_p)()
    assert nvml.nvmlLib.nvmlInternalGetExportTable(ctypes.byref(found), TABLE_ID) == nvml.NVML_SUCCESS
    size = found[0]
    return ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p * ((size or 0) // 8))).contents


def call(slot: int, *arguments: Any) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)
    address: Any = table()[slot]
    plain = [ctypes.cast(a, ctypes.c_void_p) if isinstance(a, nvml.c_nvmlDevice_t) else a for a in arguments]
    return int(function(address)(*plain, *[None] * (3 - len(plain))))


@pytest.fixture
def handle(gpu: Callable[[str], Any]) -> Any:
    return gpu(
        "power.enforced 699000\npcie.gen_max 5\ntemp.margin -4\nprocesses 3\n"
        "process 4711 compute 1073741824 - - python3 train.py\n"
        "process 4712 graphics - - - X\n"
        "process 4713 compute+mps 7 - - client\n"
    )


def test_single_numbers(handle: Any) -> None:
    value = ctypes.c_int(0)
    read = []
    for slot in (ENFORCED_LIMIT, HOST_PCIE, MARGIN):
        assert call(slot, handle, ctypes.addressof(value)) == nvml.NVML_SUCCESS
        read.append(value.value)
    assert read == [699000, 5, -4]


def test_a_handle_by_index(handle: Any) -> None:
    found = nvml.c_nvmlDevice_t()
    assert call(HANDLE_BY_INDEX, 0, ctypes.addressof(found), 0x22) == nvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetUUID(found) == "GPU-0"


@pytest.mark.parametrize(
    ("slot", "listed"),
    [
        (COMPUTE, [(4711, 1073741824, b"python3 train.py"), (4713, 7, b"client")]),
        (GRAPHICS, [(4712, 2**64 - 1, b"X")]),
        (MPS, [(4713, 7, b"client")]),
    ],
)
def test_process_lists_contain_names(handle: Any, slot: int, listed: list[tuple[int, int, bytes]]) -> None:
    room = ctypes.c_uint(250)
    entries = (NamedProcess * 250)()
    assert call(slot, handle, ctypes.addressof(room), ctypes.addressof(entries)) == nvml.NVML_SUCCESS
    assert [(e.pid, e.memory, e.name) for e in entries[: room.value]] == listed


def test_unknown_functions_are_not_supported_for_a_device_and_accepted_otherwise(handle: Any) -> None:
    untouched = ctypes.c_uint(17)
    assert call(UNKNOWN, handle, ctypes.addressof(untouched)) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert untouched.value == 17
    assert call(LOGGING, 0x45F943) == nvml.NVML_SUCCESS


def test_another_table_is_not_found(handle: Any) -> None:
    found = ctypes.c_void_p()
    wrong = bytes(16)
    assert (
        nvml.nvmlLib.nvmlInternalGetExportTable(ctypes.byref(found), wrong) == nvml.NVML_ERROR_NOT_SUPPORTED
    )
