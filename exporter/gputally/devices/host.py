"""GPUs and drivers of this host as the kernel shows them in /sys and /proc, and the readers for them."""

from dataclasses import dataclass
from pathlib import Path

from gputally.devices import Reader
from gputally.devices.vendors import VENDORS, ReaderSettings, Vendor, reader_row

# VGA, 3D and other display controllers; processing accelerators, the class of AMD's Instincts.
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


@dataclass(frozen=True, slots=True)
class VendorOnHost:
    """The GPUs and the driver of one vendor on this host."""

    vendor: Vendor
    gpus: tuple[str, ...]
    """PCI addresses."""
    module: str | None
    """Version or name of the loaded kernel module; None when it is not loaded."""

    @property
    def present(self) -> bool:
        return bool(self.gpus) or self.module is not None


def read_host(sysfs: Path, procfs: Path) -> tuple[VendorOnHost, ...]:
    """Every vendor, whether present or not, in the order of VENDORS."""
    devices = [device for device in sorted((sysfs / "bus/pci/devices").glob("*")) if _is_gpu(device)]
    return tuple(
        VendorOnHost(
            vendor,
            tuple(device.name for device in devices if _is_of(vendor, device)),
            vendor.loaded_module(sysfs, procfs),
        )
        for vendor in VENDORS
    )


def vendors_to_read(host: tuple[VendorOnHost, ...]) -> list[Vendor]:
    """The vendors that are present; on a host with no GPU and no driver the first vendor."""
    return [one.vendor for one in host if one.present] or [VENDORS[0]]


def choose_readers(reader: str, settings: ReaderSettings) -> list[list[Reader]]:
    """The readers of --reader: for each vendor those of its GPUs, best first."""
    if reader != "auto":
        return [[reader_row(reader).build(settings)]]
    host = read_host(settings.sysfs, settings.procfs)
    return [[row.build(settings) for row in vendor.readers] for vendor in vendors_to_read(host)]


def read_boot_id(procfs: Path) -> str:
    """The random id of this boot (random(4)); empty when it cannot be read."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_gpu(device: Path) -> bool:
    return _read(device / "class").startswith(_GPU_CLASSES)


def _is_of(vendor: Vendor, device: Path) -> bool:
    if _read(device / "vendor") != vendor.pci_vendor:
        return False
    return not vendor.only_own_module or _bound_module(device) in (None, vendor.kernel_module)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _bound_module(device: Path) -> str | None:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return None
