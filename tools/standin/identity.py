"""Identity of a GPU or MIG device in NVML's numbers."""

from gputally.model import Gpu, MigInstance

# NVML_DEVICE_ARCH_* by compute capability: the newest that is not newer than the GPU's.
_ARCHITECTURES = (
    ((3, 0), 2),
    ((5, 0), 3),
    ((6, 0), 4),
    ((7, 0), 5),
    ((7, 5), 6),
    ((8, 0), 7),
    ((8, 9), 8),
    ((9, 0), 9),
    ((10, 0), 10),
)
# NVML_NVLINK_VERSION_* by architecture: Volta 2.2, Ampere 3.1, Hopper 4.0, Blackwell 5.0.
_NVLINK_VERSIONS = {4: 1, 5: 3, 6: 3, 7: 5, 9: 6, 10: 7}
# NVML_BRAND_* by a part of the model's name; the first match is used.
_BRANDS = (("GeForce RTX", 15), ("GeForce", 5), ("Quadro RTX", 12), ("Quadro", 1), ("RTX", 13), ("Tesla", 2))
_BRAND_NVIDIA = 14
# GPU instance profile ids of A100 and newer by number of slices.
_PROFILE_IDS = {1: 19, 2: 14, 3: 9, 4: 5, 7: 0}


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    if gpu.compute_capability is None:
        return None
    major, _, minor = gpu.compute_capability.partition(".")
    return int(major), int(minor or 0)


def architecture(gpu: Gpu) -> int | None:
    """NVML_DEVICE_ARCH_*, or None when the compute capability is unknown."""
    capability = _capability(gpu)
    if capability is None:
        return None
    return max((number for since, number in _ARCHITECTURES if since <= capability), default=None)


def raw_identity(gpu: Gpu) -> dict[str, str | int | None]:
    capability = _capability(gpu)
    return {
        "uuid": gpu.uuid,
        "name": gpu.model,
        "serial": gpu.serial,
        "vbios": gpu.vbios_version,
        "pci_bus_id": gpu.pci_bus_id,
        "minor_number": gpu.minor_number,
        "architecture": architecture(gpu),
        "brand": next((number for text, number in _BRANDS if text in gpu.model), _BRAND_NVIDIA),
        "cc_major": None if capability is None else capability[0],
        "cc_minor": None if capability is None else capability[1],
    }


def raw_mig_identity(instance: MigInstance) -> dict[str, str | int | None]:
    profile = instance.profile or ""
    slices = {part[-1]: int(part[:-1]) for part in profile.split(".")[:2] if part[:-1].isdigit()}
    gi_slices = slices.get("g")
    return {
        "uuid": instance.uuid,
        "gi": instance.gpu_instance_id,
        "ci": instance.compute_instance_id,
        "profile": instance.profile,
        "gi_slices": gi_slices,
        "ci_slices": slices.get("c", gi_slices),
        "profile_id": None if gi_slices is None else _PROFILE_IDS.get(gi_slices),
    }


def nvlink_version(gpu: Gpu) -> int | None:
    """NVML_NVLINK_VERSION_*, or None when the architecture is unknown or has no NVLink."""
    number = architecture(gpu)
    return None if number is None else _NVLINK_VERSIONS.get(number)
