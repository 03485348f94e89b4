"""Who a device is: what does not change while the driver is loaded."""

from dataclasses import dataclass
from typing import Any

from gputally.devices.nvml.library import DeviceLost, Library
from gputally.devices.nvml.query import Query
from gputally.model import Gpu


@dataclass(frozen=True, slots=True)
class Driver:
    """The versions that all devices share."""

    version: str | None
    cuda_version: str | None


def read_driver(library: Library) -> Driver:
    cuda = library.ask("cuda_version", "nvmlSystemGetCudaDriverVersion_v2")
    return Driver(
        version=library.ask("driver_version", "nvmlSystemGetDriverVersion") or None,
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def read_uuid(query: Query) -> str:
    """Raises DeviceLost when the device does not say who it is."""
    uuid = query.ask("uuid", "nvmlDeviceGetUUID")
    if not uuid:
        raise DeviceLost
    return str(uuid)


def read_identity(query: Query, index: int, driver: Driver) -> Gpu:
    pci = query.ask("pci_bus_id", "nvmlDeviceGetPciInfo_v3")
    capability = query.ask("compute_capability", "nvmlDeviceGetCudaComputeCapability")
    return Gpu(
        uuid=read_uuid(query),
        index=index,
        vendor="nvidia",
        model=_text(query, "model", "nvmlDeviceGetName") or "",
        pci_bus_id=None if pci is None else _decode(pci.busId) or None,
        serial=_text(query, "serial", "nvmlDeviceGetSerial"),
        vbios_version=_text(query, "vbios_version", "nvmlDeviceGetVbiosVersion"),
        driver_version=driver.version,
        cuda_version=driver.cuda_version,
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        minor_number=query.number("minor_number", "nvmlDeviceGetMinorNumber"),
    )


def _text(query: Query, field: str, function: str) -> str | None:
    return query.ask(field, function) or None


def _decode(text: Any) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
