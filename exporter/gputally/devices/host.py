"""What the kernel says of this host, without any driver library: PCI in /sys, module and boot in /proc."""

import re
from dataclasses import dataclass
from pathlib import Path

_NVIDIA = "0x10de"
_AMD = "0x1002"
# VGA, 3D and other display controllers; processing accelerators, as AMD's Instincts call themselves.
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


@dataclass(frozen=True, slots=True)
class Host:
    """Whose GPUs are there, and whose driver is loaded."""

    nvidia: tuple[str, ...]
    """PCI addresses, in use or not."""
    nvidia_module: str | None
    """Version of the kernel module; None when it is not loaded."""
    amd: tuple[str, ...]
    """Without those that belong to another driver: old cards, and GPUs that a virtual machine has."""
    amd_module: bool

    @property
    def has_nvidia(self) -> bool:
        return bool(self.nvidia) or self.nvidia_module is not None

    @property
    def has_amd(self) -> bool:
        return bool(self.amd) or self.amd_module


def read_host(sysfs: Path, procfs: Path) -> Host:
    nvidia, amd = [], []
    for device in sorted((sysfs / "bus/pci/devices").glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            device_class = (device / "class").read_text().strip()
        except OSError:
            continue
        if not device_class.startswith(_GPU_CLASSES):
            continue
        if vendor == _NVIDIA:
            nvidia.append(device.name)
        elif vendor == _AMD and _driver_of(device) in (None, "amdgpu"):
            amd.append(device.name)
    return Host(
        nvidia=tuple(nvidia),
        nvidia_module=nvidia_module_version(procfs),
        amd=tuple(amd),
        amd_module=any((sysfs / sign).is_dir() for sign in ("module/amdgpu", "class/kfd")),
    )


def _driver_of(device: Path) -> str | None:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return None


def nvidia_module_version(procfs: Path) -> str | None:
    """Version of the loaded kernel module (/proc/driver/nvidia/version), None when it is not loaded."""
    try:
        return parse_module_version((procfs / "driver/nvidia/version").read_text())
    except (OSError, UnicodeDecodeError):
        return None


def parse_module_version(text: str) -> str | None:
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None


def read_boot_id(procfs: Path) -> str:
    """What the kernel drew by lot when it booted (random(4)); empty when it cannot be read."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
