"""Who the simulated GPUs are: the same seed gives the same cards, and no two are alike."""

from random import Random
from uuid import UUID

from gputally.devices.amd_identity import gpu_uuid
from gputally.model import Gpu, MigInstance
from gputally.simulator.cards import AmdCard, MigProfile
from gputally.simulator.scenario import Scenario

_FIRST_GPU_INSTANCE = {7: 0, 4: 1, 3: 1, 2: 3, 1: 7}
"""The driver numbers GPU instances by their size in slices."""


def gpu_identity(scenario: Scenario, index: int) -> Gpu:
    card = scenario.card(index)
    rng = Random(f"{scenario.seed}:{index}:identity")  # noqa: S311
    number = rng.getrandbits(128)
    serial = f"1{rng.randrange(10**9):09d}{index:04d}"[-13:]
    # 32 to a PCI domain, as far apart as the slots of a large server are.
    domain, bus = index // 32, 7 + index % 32 * 7
    driver_version = scenario.driver_version or card.driver_version
    if isinstance(card, AmdCard):
        address = f"{domain:04x}:{bus:02x}:00.0"
        return Gpu(
            uuid=gpu_uuid(number >> 64, address),
            index=index,
            vendor=card.vendor,
            model=card.name,
            pci_bus_id=address,
            serial=f"69{serial[-10:]}" if card.data_center else None,
            vbios_version=card.vbios_version,
            driver_version=driver_version,
            minor_number=index,
            simulated=True,
        )
    return Gpu(
        uuid=f"GPU-{UUID(int=number)}",
        index=index,
        vendor=card.vendor,
        model=card.name,
        pci_bus_id=f"{domain:08X}:{bus:02X}:00.0",
        serial=serial if card.data_center else None,
        vbios_version=card.vbios_version,
        driver_version=driver_version,
        cuda_version=scenario.cuda_version,
        compute_capability=card.compute_capability,
        minor_number=index,
        simulated=True,
    )


def mig_instances(scenario: Scenario, gpu: Gpu) -> tuple[tuple[MigInstance, MigProfile], ...]:
    """The MIG devices of this GPU, in the order of the scenario; none when it is not in MIG mode."""
    profiles = {profile.name: profile for profile in scenario.card(gpu.index).mig_profiles}
    taken: set[int] = set()
    instances = []
    for place, name in enumerate(scenario.layout(gpu.index) or ()):
        profile = profiles[name]
        number = _FIRST_GPU_INSTANCE[profile.slices]
        while number in taken:
            number += 1
        taken.add(number)
        rng = Random(f"{scenario.seed}:{gpu.index}:mig:{place}:{name}")  # noqa: S311
        instance = MigInstance(
            uuid=f"MIG-{UUID(int=rng.getrandbits(128))}",
            parent_uuid=gpu.uuid,
            parent_index=gpu.index,
            gpu_instance_id=number,
            compute_instance_id=0,
            profile=name,
        )
        instances.append((instance, profile))
    return tuple(instances)
