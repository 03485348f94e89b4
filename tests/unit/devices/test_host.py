"""What /sys and /proc tell of NVIDIA hardware without a driver library."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.host import nvidia_module_version, nvidia_pci_addresses, parse_module_version


def pci_device(sysfs: Path, address: str, vendor: str, device_class: str) -> None:
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(device_class + "\n")


def test_only_nvidia_display_controllers_are_gpus(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:3b:00.0", "0x10de", "0x030200")
    pci_device(tmp_path, "0000:01:00.0", "0x10de", "0x030000")
    pci_device(tmp_path, "0000:01:00.1", "0x10de", "0x040300")  # the card's sound
    pci_device(tmp_path, "0000:02:00.0", "0x1002", "0x030000")  # AMD
    (tmp_path / "bus/pci/devices/0000:09:00.0").mkdir()  # no files in it
    assert nvidia_pci_addresses(tmp_path) == ["0000:01:00.0", "0000:3b:00.0"]


def test_no_pci_at_all(tmp_path: Path) -> None:
    assert nvidia_pci_addresses(tmp_path) == []


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
    assert parse_module_version(text) == version


@given(st.text())
def test_any_text_gives_a_version_or_none(text: str) -> None:
    version = parse_module_version(text)
    assert version is None or version in text


def test_no_module_is_none(tmp_path: Path) -> None:
    assert nvidia_module_version(tmp_path) is None
