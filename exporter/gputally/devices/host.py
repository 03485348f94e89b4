"""What the kernel says of this host, without any driver library: PCI in /sys, module and boot in /proc."""

import re
from pathlib import Path

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA controller, 3D controller


def nvidia_pci_addresses(sysfs: Path) -> list[str]:
    """PCI addresses of NVIDIA GPUs, in use or not (/sys/bus/pci/devices)."""
    found = []
    for device in sorted((sysfs / "bus/pci/devices").glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            device_class = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA and device_class.startswith(_DISPLAY_CLASSES):
            found.append(device.name)
    return found


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
