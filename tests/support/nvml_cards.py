"""Cards as their drivers show them: what each kind has, and what it has not. No two values are alike."""

from dataclasses import fields, replace
from typing import Any

from gputally.devices.nvml import FILLS
from gputally.model import (
    COMPUTE_MODES,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    Activity,
    Gpu,
    Labelled,
    MigInstance,
    MigReading,
    Process,
    ProcessSample,
    Reading,
    state_set,
)

GIB = 1024**3
MHZ = 1_000_000
SAMPLED_AT_US = 1_760_000_000_000_000


def gpu(index: int, model: str, capability: str) -> Gpu:
    return Gpu(
        uuid=f"GPU-{index:08x}-86f3-7a43-b711-4771313afc50",
        index=index,
        vendor="nvidia",
        model=model,
        pci_bus_id=f"00000000:{0x1A + index:02X}:00.0",
        serial=f"16502230{index:05}",
        vbios_version="96.00.61.00.01",
        driver_version="580.95.05",
        cuda_version="13.0",
        compute_capability=capability,
        minor_number=index + 2,
    )


def ecc(first: int) -> dict[str, Any]:
    locations = ("l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory")
    lifetimes = ("volatile", "aggregate")
    totals = [(kind, life) for kind in ("corrected", "uncorrected") for life in lifetimes]
    places = [(*total, location) for total in totals for location in locations]
    places += [("uncorrected", life, "cbu") for life in lifetimes]
    return {
        "ecc_errors": {key: first + place for place, key in enumerate(totals)},
        "ecc_location_errors": {key: first + 10 + place for place, key in enumerate(places)},
    }


def nvlinks(links: int, kinds: tuple[str, ...], down: int) -> dict[str, Any]:
    names = [str(link) for link in range(links)]
    return {
        "nvlink_up": {(name,): float(int(name) != down) for name in names},
        "nvlink_errors": {
            (name, kind): 100 * place + int(name) for name in names for place, kind in enumerate(kinds)
        },
        "nvlink_bytes": {("tx",): 1024 * links * 777, ("rx",): 1024 * links * 999},
    }


UP_TO_HOPPER = ("crc_flit", "crc_data", "replay", "recovery", "ecc_data")
BLACKWELL = (
    "malformed_packet",
    "buffer_overrun",
    "receive",
    "link_integrity",
    "transmit_discard",
    "link_recovery_failed",
    "link_recovery",
)
ACTIVITY: dict[str, Any] = {
    "graphics_active_ratio": 0.875,
    "sm_active_ratio": 0.75,
    "sm_occupancy_ratio": 0.4375,
    "tensor_active_ratio": 0.3125,
    "dram_active_ratio": 0.5625,
    "fp64_active_ratio": 0.03125,
    "fp32_active_ratio": 0.125,
    "fp16_active_ratio": 0.0,
}


def throttling(reasons: tuple[str, ...], active: str) -> Labelled:
    return {(reason,): float(reason == active) for reason in reasons}


def t4(index: int = 0) -> Reading:
    """Turing: fan-less, page retirement instead of row remapping, no NVLink, no memory temperature."""
    return Reading(
        gpu=gpu(index, "Tesla T4", "7.5"),
        gpu_utilization_ratio=0.37,
        memory_utilization_ratio=0.12,
        encoder_utilization_ratio=0.03,
        decoder_utilization_ratio=0.04,
        memory_total_bytes=16 * GIB,
        memory_used_bytes=3 * GIB,
        memory_free_bytes=12 * GIB,
        memory_reserved_bytes=1 * GIB,
        bar1_total_bytes=256 * 1024**2,
        bar1_used_bytes=5 * 1024**2,
        bar1_free_bytes=251 * 1024**2,
        power_watts=33.417,
        power_limit_watts=70.0,
        power_enforced_limit_watts=69.5,
        power_default_limit_watts=70.5,
        power_min_limit_watts=60.0,
        power_max_limit_watts=71.0,
        energy_millijoules=8_111_222_333,
        temperature_celsius=47,
        temperature_slowdown_celsius=93,
        temperature_shutdown_celsius=96,
        clock_hertz={
            ("graphics",): 585 * MHZ,
            ("sm",): 586 * MHZ,
            ("memory",): 5000 * MHZ,
            ("video",): 540 * MHZ,
        },
        clock_max_hertz={
            ("graphics",): 1590 * MHZ,
            ("sm",): 1591 * MHZ,
            ("memory",): 5001 * MHZ,
            ("video",): 1470 * MHZ,
        },
        clock_application_hertz={("graphics",): 587 * MHZ, ("memory",): 5002 * MHZ},
        performance_state=0,
        throttle_active=throttling(THROTTLE_REASONS[:-1], "sw_power_cap"),
        throttle_seconds={("sw_power_cap",): 12.000000345, ("thermal",): 3.5, ("sync_boost",): 0.25},
        **ecc(1),
        retired_pages={("single_bit",): 5, ("double_bit",): 6},
        retired_pages_pending=True,
        pcie_generation=1,
        pcie_generation_max=3,
        pcie_width=8,
        pcie_width_max=16,
        pcie_replays=17,
        xid_errors={("13",): 2, ("48",): 1},
        persistence_mode=True,
        accounting_mode=False,
        ecc_mode=True,
        compute_mode=state_set(COMPUTE_MODES, "exclusive_process"),
        processes=(
            Process(pid=4711, kind="compute", name="python3", memory_used_bytes=GIB),
            Process(pid=4712, kind="compute+mps", name="nvidia-cuda-mps-server", memory_used_bytes=2 * GIB),
        ),
        process_samples=(
            ProcessSample(4711, SAMPLED_AT_US + 1, 0.31, 0.11, 0.01, 0.02),
            ProcessSample(4712, SAMPLED_AT_US + 1, 0.06, 0.01, 0.0, 0.0),
        ),
    )


def a100(index: int = 0) -> Reading:
    """Ampere: HBM with a thermometer, row remapping, twelve NVLinks."""
    return replace(
        t4(index),
        gpu=gpu(index, "NVIDIA A100-SXM4-40GB", "8.0"),
        jpeg_utilization_ratio=0.05,
        ofa_utilization_ratio=0.06,
        memory_temperature_celsius=58,
        memory_temperature_limit_celsius=95,
        memory_total_bytes=40 * GIB,
        retired_pages=None,
        retired_pages_pending=None,
        remapped_rows={("correctable",): 3, ("uncorrectable",): 1},
        remapped_rows_pending=True,
        remapped_rows_failure=False,
        remap_banks={("max",): 639, ("high",): 1, ("partial",): 2, ("low",): 3, ("none",): 4},
        mig_mode=False,
        **nvlinks(12, UP_TO_HOPPER, down=7),
    )


def in_mig_mode(reading: Reading) -> Reading:
    """What any card stops telling in MIG mode."""
    return replace(
        reading,
        mig_mode=True,
        gpu_utilization_ratio=None,
        memory_utilization_ratio=None,
        encoder_utilization_ratio=None,
        decoder_utilization_ratio=None,
        jpeg_utilization_ratio=None,
        ofa_utilization_ratio=None,
        process_samples=None,
        processes=tuple(process for mig in reading.mig for process in mig.processes or ()),
    )


def mig_device(parent: Gpu, place: int, profile: str, total: int, **activity: Any) -> MigReading:
    return MigReading(
        instance=MigInstance(
            uuid=f"MIG-{parent.index}{place}-5c6f-5d53-a1d3-1dbf2d4ba8f0",
            parent_uuid=parent.uuid,
            parent_index=parent.index,
            gpu_instance_id=7 + place,
            compute_instance_id=place,
            profile=profile,
        ),
        multiprocessors=14 * (place + 1),
        memory_total_bytes=total,
        memory_used_bytes=total // 4,
        memory_free_bytes=total // 2,
        memory_reserved_bytes=total // 8,
        **activity,
    )


def on_instance(mig: MigInstance, pid: int) -> Process:
    return Process(
        pid=pid,
        kind="compute",
        name="python3",
        memory_used_bytes=pid * 1024,
        gpu_instance_id=mig.gpu_instance_id,
        compute_instance_id=mig.compute_instance_id,
    )


def with_mig(reading: Reading, profiles: dict[str, int], **activity: Any) -> Reading:
    """The card, split into devices of these profiles and memory sizes, a process on each."""
    devices = []
    for place, (profile, total) in enumerate(profiles.items()):
        device = mig_device(reading.gpu, place, profile, total, **activity)
        devices.append(replace(device, processes=(on_instance(device.instance, 900 + place),)))
    return in_mig_mode(replace(reading, mig=tuple(devices)))


def a100_mig(index: int = 0) -> Reading:
    return with_mig(a100(index), {"1g.5gb": 5 * GIB, "3g.20gb": 20 * GIB, "1c.2g.10gb": 10 * GIB})


def h100(index: int = 0) -> Reading:
    """Hopper: GPM, eighteen NVLinks, recovery action, temperature as a margin too."""
    return replace(
        a100(index),
        gpu=gpu(index, "NVIDIA H100 80GB HBM3", "9.0"),
        memory_total_bytes=80 * GIB,
        memory_temperature_limit_celsius=None,
        temperature_margin_celsius=38,
        temperature_slowdown_offset_celsius=-2,
        pcie_throughput_bytes_per_second={("tx",): 3 * 2**18, ("rx",): 5 * 2**20},
        recovery_action=state_set(RECOVERY_ACTIONS, "drain_and_reset"),
        throttle_seconds={
            ("sw_power_cap",): 12.5,
            ("sync_boost",): 0.25,
            ("sw_thermal_slowdown",): 1.000000001,
            ("hw_thermal_slowdown",): 2.5,
            ("hw_power_brake_slowdown",): 3.75,
            ("board_limit",): 4.25,
            ("low_utilization",): 5.5,
            ("reliability",): 6.125,
        },
        fabric_state=3,
        fabric_status=0,
        fabric_clique={("00000000-0000-0000-0000-000000000000",): 0},
        **nvlinks(18, UP_TO_HOPPER, down=15),
        **ACTIVITY,
    )


def h100_mig(index: int = 0) -> Reading:
    return with_mig(h100(index), {"1g.10gb": 10 * GIB, "3g.40gb": 40 * GIB}, **ACTIVITY)


def b200(index: int = 0) -> Reading:
    """Blackwell: the fifth NVLink counts other things, and thresholds are not absolute any more."""
    return replace(
        h100(index),
        gpu=gpu(index, "NVIDIA B200", "10.0"),
        memory_total_bytes=180 * GIB,
        fabric_state=2,
        fabric_status=None,
        fabric_clique=None,
        temperature_margin_celsius=-2,
        temperature_slowdown_celsius=None,
        temperature_shutdown_celsius=None,
        **nvlinks(18, BLACKWELL, down=1),
    )


def gb200(index: int = 0) -> Reading:
    """A superchip: no PCIe replay counter, no application clocks, a GPU that may need the node's help."""
    return replace(
        b200(index),
        gpu=gpu(index, "NVIDIA GB200", "10.0"),
        memory_total_bytes=186 * GIB,
        pcie_replays=None,
        clock_application_hertz=None,
        recovery_action=state_set(RECOVERY_ACTIONS, "recover_imex_domain"),
        fabric_state=3,
        fabric_status=0,
        fabric_clique={("2d9a7c11-03f5-4b6e-8d20-9c1e55aa0471",): 32766},
        fabric_problem={
            ("degraded_bandwidth",): 1.0,
            ("route_recovery",): 0.0,
            ("route_unhealthy",): 0.0,
            ("access_timeout_recovery",): 0.0,
            ("incorrect_configuration",): 0.0,
        },
    )


def l40s(index: int = 0) -> Reading:
    """Ada for servers: no NVLink, no memory thermometer, no MIG, no GPM."""
    return replace(
        a100(index),
        gpu=gpu(index, "NVIDIA L40S", "8.9"),
        memory_total_bytes=48 * GIB,
        memory_temperature_celsius=None,
        memory_temperature_limit_celsius=None,
        temperature_margin_celsius=45,
        temperature_slowdown_offset_celsius=-5,
        mig_mode=None,
        nvlink_up=None,
        nvlink_errors=None,
        nvlink_bytes=None,
        pcie_throughput_bytes_per_second={("tx",): 1_234_000, ("rx",): 5_678_000},
        accounting_mode=True,
        accounted=(),
    )


def desktop(index: int = 0) -> Reading:
    """A GeForce: fans, a display, graphics processes; no ECC, no energy counter, no serial number."""
    return replace(
        t4(index),
        gpu=replace(gpu(index, "NVIDIA GeForce GTX 1650", "7.5"), serial=None),
        energy_millijoules=None,
        ecc_mode=None,
        ecc_errors=None,
        ecc_location_errors=None,
        retired_pages=None,
        retired_pages_pending=None,
        accounting_mode=None,
        clock_application_hertz=None,
        throttle_seconds=None,
        throttle_active=throttling(THROTTLE_REASONS, "display_clock_setting"),
        fan_speed_ratio={("0",): 0.41, ("1",): 0.42},
        xid_errors={},
        process_samples=(),
        processes=(
            Process(pid=1201, kind="graphics", name="Xorg", memory_used_bytes=None),
            Process(pid=1202, kind="compute+graphics", name="blender", memory_used_bytes=GIB),
        ),
    )


def with_new_fields(index: int = 0) -> Reading:
    """An H100 with a number in each field that NVML can fill and no other card has.

    So a new field is read from the stand-in by every test of the reader before a card above has a real value.
    """
    cards = [card() for card in CARDS.values() if card is not with_new_fields]
    numbers: dict[str, Any] = {
        field.name: 345
        for field in fields(Reading)
        if field.name in FILLS and field.type in (int | None, float | None)
        if all(getattr(card, field.name) is None for card in cards)
    }
    return replace(h100(index), **numbers)


CARDS = {
    "T4": t4,
    "A100": a100,
    "A100 in MIG mode": a100_mig,
    "H100": h100,
    "H100 in MIG mode": h100_mig,
    "B200": b200,
    "GB200": gb200,
    "L40S": l40s,
    "desktop": desktop,
    "with new fields": with_new_fields,
}

assert set(ACTIVITY) == set(Activity.__dataclass_fields__)
