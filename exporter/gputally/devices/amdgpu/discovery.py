"""The GPUs of the kernel's amdgpu driver and their identity: /sys/class/drm/card*/device.

Left out: cards of other drivers, connectors (card0-DP-1), render nodes (renderD128) and the partitions of a
GPU (cards of the platform device amdgpu_xcp, without a vendor).
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from gputally.devices import Errors
from gputally.devices.amd import gpu_uuid, model_name
from gputally.devices.amdgpu.files import Files, inside
from gputally.model import Gpu, Unavailable

_AMD = 0x1002
_DRIVER = "amdgpu"
_CARD = re.compile(r"card([0-9]{1,6})")
_UNIQUE_ID = re.compile(r"(?:0x)?([0-9a-f]{1,16})")
_DISPLAY_CLASSES = ("0x03", "0x1200")  # display controllers; processing accelerators (Instinct)


@dataclass(frozen=True, slots=True)
class DrmCard:
    """One AMD GPU: the directory of its files, and its identity."""

    number: int
    directory: Path
    pci_address: str
    device_id: int
    model: str
    uuid: str = ""
    """Empty while it cannot be read, as during a reset."""
    serial: str | None = None
    vbios_version: str | None = None

    def gpu(self, index: int, driver_version: str | None) -> Gpu:
        return Gpu(
            uuid=self.uuid,
            index=index,
            vendor="amd",
            model=self.model,
            pci_bus_id=self.pci_address,
            serial=self.serial,
            vbios_version=self.vbios_version,
            driver_version=driver_version,
            minor_number=self.number,
        )


def find_cards(sysfs: Path, errors: Errors) -> list[DrmCard]:
    """The cards by their number. Raises Unavailable when there is none."""
    classes = Files(sysfs / "class", errors)
    found = []
    denied = set()
    numbered = [int(match[1]) for name in classes.names("drm") if (match := _CARD.fullmatch(name))]
    for number in sorted(numbered):
        directory = inside(sysfs, sysfs / f"class/drm/card{number}/device")
        if directory is None:
            continue
        files = Files(directory, errors)
        card = _identify(number, files)
        if card is not None:
            found.append(card)
        denied |= files.denied
    if not found:
        raise _none_found(sysfs, denied=bool(classes.denied | denied))
    return _unique(found)


@dataclass(frozen=True, slots=True)
class RenderDevice:
    """The device of a render node: a GPU, or the platform device of one of its partitions."""

    name: str
    card_number: int | None


def find_render_device(sysfs: Path, render_minor: int | None) -> RenderDevice | None:
    """The device of the render node renderD<n>; None when it is unknown."""
    directory = inside(sysfs, sysfs / f"class/drm/renderD{render_minor}/device")
    if render_minor is None or directory is None:
        return None
    unread: Errors = Counter()
    numbers = [
        int(match[1]) for name in Files(directory, unread).names("drm") if (match := _CARD.fullmatch(name))
    ]
    return RenderDevice(directory.name, numbers[0] if len(numbers) == 1 else None)


def read_driver_version(sysfs: Path, procfs: Path) -> str | None:
    """The version of AMD's own driver, else the version of the kernel."""
    unread: Errors = Counter()
    version = Files(sysfs, unread).text("driver_version", f"module/{_DRIVER}/version")
    return version or Files(procfs, unread).text("driver_version", "sys/kernel/osrelease")


def _identify(number: int, files: Files) -> DrmCard | None:
    if files.number("vendor", "vendor") != _AMD:
        return None
    facts = dict(
        line.split("=", 1) for line in (files.text("vendor", "uevent") or "").splitlines() if "=" in line
    )
    if facts.get("DRIVER") != _DRIVER:
        return None
    address = facts.get("PCI_SLOT_NAME", files.directory.name).lower()
    device_id = files.number("vendor", "device") or 0
    return DrmCard(
        number=number,
        directory=files.directory,
        pci_address=address,
        device_id=device_id,
        model=model_name(files.text("model", "product_name"), device_id),
        uuid=_uuid(files, address),
        serial=files.text("serial", "serial_number"),
        vbios_version=files.text("vbios_version", "vbios_version"),
    )


def _uuid(files: Files, address: str) -> str:
    match = _UNIQUE_ID.fullmatch((files.text("uuid", "unique_id") or "").lower())
    return "" if "uuid" in files.failed else gpu_uuid(int(match[1], 16) if match else None, address)


def _unique(cards: list[DrmCard]) -> list[DrmCard]:
    """Two dies of one package may have the same id: then the address is added."""
    counts = Counter(card.uuid for card in cards)
    return [
        replace(card, uuid=f"{card.uuid}-{card.pci_address}") if card.uuid and counts[card.uuid] > 1 else card
        for card in cards
    ]


def _none_found(sysfs: Path, *, denied: bool) -> Unavailable:
    if denied:
        return Unavailable(
            f"no permission to read the files of the GPUs below {sysfs}/class/drm",
            "mount /sys readable into the container, and check AppArmor and SELinux",
        )
    present = _amd_pci_devices(sysfs)
    if not present:
        return Unavailable("no AMD GPU", "check that the GPU is on the bus (lspci -d 1002:)")
    addresses = ", ".join(sorted(present))
    if not (sysfs / "module" / _DRIVER).exists():
        return Unavailable(
            f"the amdgpu driver is not loaded, but there are AMD GPUs: {addresses}",
            "load the driver: modprobe amdgpu",
        )
    others = sorted({driver for driver in present.values() if driver not in ("", _DRIVER)})
    if others:
        return Unavailable(
            f"the AMD GPUs are bound to another driver ({', '.join(others)}): {addresses}",
            "bind them to amdgpu, unless a virtual machine uses them",
        )
    return Unavailable(
        f"the amdgpu driver has not bound the AMD GPUs of this host: {addresses}",
        "search the kernel log for driver errors: dmesg | grep -i amdgpu",
    )


def _amd_pci_devices(sysfs: Path) -> dict[str, str]:
    """PCI address of each AMD GPU, in use or not -> its driver, empty when it has none."""
    unread: Errors = Counter()
    found = {}
    for name in Files(sysfs, unread).names("bus/pci/devices"):
        directory = inside(sysfs, sysfs / "bus/pci/devices" / name)
        if directory is None:
            continue
        files = Files(directory, unread)
        kind = files.text("class", "class") or ""
        if files.number("vendor", "vendor") == _AMD and kind.startswith(_DISPLAY_CLASSES):
            found[name] = _driver(directory)
    return found


def _driver(directory: Path) -> str:
    try:
        return (directory / "driver").readlink().name
    except OSError:
        return ""
