"""What /sys and /proc report about the GPUs of a host, without a driver library."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.host import VendorOnHost, read_host
from gputally.devices.vendors import AMD, NVIDIA, nvidia_module_version, parse_nvidia_version
from tests.support.amd_trees import HOSTS, planted


def pci_device(sysfs: Path, address: str, vendor: str, device_class: str, driver: str = "") -> None:
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(device_class + "\n")
    if driver:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def test_only_display_controllers_and_accelerators_are_gpus(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:3b:00.0", "0x10de", "0x030200")
    pci_device(tmp_path, "0000:01:00.0", "0x10de", "0x030000")
    pci_device(tmp_path, "0000:01:00.1", "0x10de", "0x040300")  # the card's sound
    pci_device(tmp_path, "0000:02:00.0", "0x1002", "0x038000")
    pci_device(tmp_path, "0000:05:00.0", "0x1002", "0x120000")
    pci_device(tmp_path, "0000:05:00.1", "0x1002", "0x040300")
    pci_device(tmp_path, "0000:07:00.0", "0x8086", "0x030000")
    (tmp_path / "bus/pci/devices/0000:09:00.0").mkdir()  # no files in it
    host = read_host(tmp_path, tmp_path)
    assert host == (
        VendorOnHost(NVIDIA, ("0000:01:00.0", "0000:3b:00.0"), None),
        VendorOnHost(AMD, ("0000:02:00.0", "0000:05:00.0"), None),
    )
    assert all(one.present for one in host)


def test_an_amd_gpu_of_another_driver_is_ignored(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:02:00.0", "0x1002", "0x030000", "radeon")
    pci_device(tmp_path, "0000:03:00.0", "0x1002", "0x120000", "vfio-pci")
    pci_device(tmp_path, "0000:04:00.0", "0x1002", "0x120000", "amdgpu")
    _, amd = read_host(tmp_path, tmp_path)
    assert amd.gpus == ("0000:04:00.0",)


def test_a_host_without_pci(tmp_path: Path) -> None:
    host = read_host(tmp_path, tmp_path)
    assert host == (VendorOnHost(NVIDIA, (), None), VendorOnHost(AMD, (), None))
    assert not any(one.present for one in host)


@pytest.mark.parametrize("sign", ["module/amdgpu", "class/kfd"])
def test_a_loaded_driver_indicates_a_gpu(tmp_path: Path, sign: str) -> None:
    (tmp_path / sign).mkdir(parents=True)
    nvidia, amd = read_host(tmp_path, tmp_path)
    assert amd.present
    assert not nvidia.present


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_with_amd_gpus(name: str) -> None:
    tree = planted(name)
    nvidia, amd = read_host(tree / "sys", tree / "proc")
    assert amd.present
    assert nvidia.present is (name == "card10")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025",
            "550.163.01",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", "580.65.06"),
        ("GCC version:  gcc version 12.2.0", None),
        ("", None),
    ],
)
def test_the_version_of_either_kernel_module(text: str, version: str | None) -> None:
    assert parse_nvidia_version(text) == version


@given(st.text())
def test_any_text_gives_a_version_or_none(text: str) -> None:
    version = parse_nvidia_version(text)
    assert version is None or version in text


def test_without_a_module_the_version_is_none(tmp_path: Path) -> None:
    assert nvidia_module_version(tmp_path, tmp_path) is None
