"""The cards that can be simulated: what `nvidia-smi -q` prints of the real ones.

A capability that a card lacks is false, empty or None here, and then its field stays None in every
reading. Sizes are MiB, power is watts, clocks are MHz and temperatures are degrees Celsius, as the
driver's tool prints them, so that a row can be compared with the real card.
"""

from dataclasses import dataclass
from typing import Literal

from gputally.devices.simulated import MODEL_NAMES

NVLINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")
NVLINK5_ERRORS = ("receive", "link_recovery", "link_integrity", "link_recovery_failed")


@dataclass(frozen=True, slots=True)
class Clocks:
    """One clock per domain; the multiprocessors always run at the graphics clock."""

    graphics: int
    memory: int
    video: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A size in which a GPU can be cut: of 7 compute slices and 8 memory slices."""

    name: str
    slices: int
    memory_slices: int
    multiprocessors: int
    memory_mib: int
    most: int
    """How many of it fit on one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One model of GPU."""

    name: str
    compute_capability: str
    vbios_version: str
    multiprocessors: int
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    idle_watts: int
    min_watts: int
    default_watts: int
    max_watts: int
    clocks_max: Clocks
    clocks_idle: Clocks
    clocks_application: tuple[int, int] | None
    """Graphics and memory; None where the card has no such setting."""
    full_load_celsius: int
    """Where the core settles at the default power limit."""
    slowdown_celsius: int | None = None
    shutdown_celsius: int | None = None
    margin_from_celsius: int | None = None
    """The core temperature at which T.Limit reads 0; None where the driver has no T.Limit."""
    memory_thermometer: bool = False
    performance_state_idle: int = 0
    performance_state_busy: int = 0
    pcie_generation: int
    pcie_width: int = 16
    nvlinks: int = 0
    nvlink_errors: tuple[str, ...] = ()
    fans: int = 0
    fan_idle_percent: int = 0
    ecc: Literal["on", "off", "none"] = "on"
    """`off`: the card could, but its owner has it off; `none`: it cannot."""
    remap_banks: int = 0
    """Banks with spare rows; 0 where the card has none or hides them."""
    retires_pages: bool = False
    energy_counter: bool = True
    throttle_counters: tuple[str, ...] = (
        "sw_power_cap",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    )
    jpeg_and_optical_flow: bool = True
    activity_counters: bool = False
    """NVML GPM: Hopper and newer."""
    recovery_action: bool = True
    data_center: bool = True
    """Has a serial number, and runs in persistence mode."""
    mig_profiles: tuple[MigProfile, ...] = ()


def _profiles(
    rows: tuple[tuple[str, int, int, int, int], ...],
) -> tuple[MigProfile, ...]:
    """Rows are name, memory slices, multiprocessors, MiB, most; the name says the compute slices."""
    return tuple(
        MigProfile(name, int(name[0]), eighths, sms, mib, most) for name, eighths, sms, mib, most in rows
    )


CARDS: dict[str, Card] = {
    "a100": Card(
        name="NVIDIA A100-SXM4-40GB",
        compute_capability="8.0",
        vbios_version="92.00.45.00.03",
        multiprocessors=108,
        memory_mib=40960,
        reserved_mib=583,
        bar1_mib=65536,
        idle_watts=52,
        min_watts=100,
        default_watts=400,
        max_watts=400,
        clocks_max=Clocks(1410, 1215, 1290),
        clocks_idle=Clocks(210, 1215, 585),
        clocks_application=(1095, 1215),
        full_load_celsius=66,
        slowdown_celsius=89,
        shutdown_celsius=92,
        memory_thermometer=True,
        pcie_generation=4,
        nvlinks=12,
        nvlink_errors=NVLINK_ERRORS,
        remap_banks=640,
        mig_profiles=_profiles(
            (
                ("1g.5gb", 1, 14, 4864, 7),
                ("1g.10gb", 2, 14, 9856, 4),
                ("2g.10gb", 2, 28, 9856, 3),
                ("3g.20gb", 4, 42, 19968, 2),
                ("4g.20gb", 4, 56, 19968, 1),
                ("7g.40gb", 8, 98, 40192, 1),
            )
        ),
    ),
    "a100-80gb": Card(
        name="NVIDIA A100-SXM4-80GB",
        compute_capability="8.0",
        vbios_version="92.00.36.00.02",
        multiprocessors=108,
        memory_mib=81920,
        reserved_mib=869,
        bar1_mib=131072,
        idle_watts=62,
        min_watts=100,
        default_watts=400,
        max_watts=400,
        clocks_max=Clocks(1410, 1593, 1290),
        clocks_idle=Clocks(210, 1593, 585),
        clocks_application=(1275, 1593),
        full_load_celsius=64,
        slowdown_celsius=89,
        shutdown_celsius=92,
        memory_thermometer=True,
        pcie_generation=4,
        nvlinks=12,
        nvlink_errors=NVLINK_ERRORS,
        remap_banks=640,
        mig_profiles=_profiles(
            (
                ("1g.10gb", 1, 14, 9728, 7),
                ("1g.20gb", 2, 14, 19968, 4),
                ("2g.20gb", 2, 28, 19968, 3),
                ("3g.40gb", 4, 42, 40192, 2),
                ("4g.40gb", 4, 56, 40192, 1),
                ("7g.80gb", 8, 98, 80640, 1),
            )
        ),
    ),
    "h100": Card(
        name="NVIDIA H100 80GB HBM3",
        compute_capability="9.0",
        vbios_version="96.00.74.00.1C",
        multiprocessors=132,
        memory_mib=81559,
        reserved_mib=551,
        bar1_mib=131072,
        idle_watts=70,
        min_watts=200,
        default_watts=700,
        max_watts=700,
        clocks_max=Clocks(1980, 2619, 1545),
        clocks_idle=Clocks(345, 2619, 765),
        clocks_application=(1980, 2619),
        full_load_celsius=67,
        slowdown_celsius=89,
        shutdown_celsius=95,
        margin_from_celsius=87,
        memory_thermometer=True,
        pcie_generation=5,
        nvlinks=18,
        nvlink_errors=NVLINK_ERRORS,
        remap_banks=2560,
        activity_counters=True,
        mig_profiles=_profiles(
            (
                ("1g.10gb", 1, 16, 9984, 7),
                ("1g.20gb", 2, 26, 20096, 4),
                ("2g.20gb", 2, 32, 20096, 3),
                ("3g.40gb", 4, 60, 40448, 2),
                ("4g.40gb", 4, 64, 40448, 1),
                ("7g.80gb", 8, 132, 81152, 1),
            )
        ),
    ),
    "h200": Card(
        name="NVIDIA H200",
        compute_capability="9.0",
        vbios_version="96.00.A5.00.03",
        multiprocessors=132,
        memory_mib=143771,
        reserved_mib=700,
        bar1_mib=262144,
        idle_watts=75,
        min_watts=200,
        default_watts=700,
        max_watts=700,
        clocks_max=Clocks(1980, 3201, 1545),
        clocks_idle=Clocks(345, 3201, 765),
        clocks_application=(1980, 3201),
        full_load_celsius=66,
        slowdown_celsius=89,
        shutdown_celsius=95,
        margin_from_celsius=87,
        memory_thermometer=True,
        pcie_generation=5,
        nvlinks=18,
        nvlink_errors=NVLINK_ERRORS,
        remap_banks=3072,
        activity_counters=True,
        mig_profiles=_profiles(
            (
                ("1g.18gb", 1, 16, 16384, 7),
                ("1g.35gb", 2, 26, 33280, 4),
                ("2g.35gb", 2, 32, 33280, 3),
                ("3g.71gb", 4, 60, 71168, 2),
                ("4g.71gb", 4, 64, 71168, 1),
                ("7g.141gb", 8, 132, 143104, 1),
            )
        ),
    ),
    "b200": Card(
        name="NVIDIA B200",
        compute_capability="10.0",
        vbios_version="97.00.88.00.0F",
        multiprocessors=148,
        memory_mib=183359,
        reserved_mib=716,
        bar1_mib=262144,
        idle_watts=140,
        min_watts=200,
        default_watts=1000,
        max_watts=1000,
        clocks_max=Clocks(1965, 3996, 1545),
        clocks_idle=Clocks(120, 3996, 765),
        clocks_application=(1965, 3996),
        full_load_celsius=68,
        margin_from_celsius=87,
        memory_thermometer=True,
        pcie_generation=5,
        nvlinks=18,
        nvlink_errors=NVLINK5_ERRORS,
        remap_banks=4096,
        activity_counters=True,
        mig_profiles=_profiles(
            (
                ("1g.23gb", 1, 18, 22528, 7),
                ("1g.45gb", 2, 30, 45312, 4),
                ("2g.45gb", 2, 36, 45312, 3),
                ("3g.90gb", 4, 70, 91008, 2),
                ("4g.90gb", 4, 72, 91008, 1),
                ("7g.180gb", 8, 148, 182528, 1),
            )
        ),
    ),
    "gb200": Card(
        name="NVIDIA GB200",
        compute_capability="10.0",
        vbios_version="97.00.B9.00.47",
        multiprocessors=152,
        memory_mib=189471,
        reserved_mib=734,
        bar1_mib=262144,
        idle_watts=165,
        min_watts=200,
        default_watts=1200,
        max_watts=1200,
        clocks_max=Clocks(2062, 3996, 1635),
        clocks_idle=Clocks(120, 3996, 765),
        clocks_application=(2062, 3996),
        full_load_celsius=62,
        margin_from_celsius=87,
        memory_thermometer=True,
        pcie_generation=6,
        nvlinks=18,
        nvlink_errors=NVLINK5_ERRORS,
        remap_banks=4096,
        activity_counters=True,
        mig_profiles=_profiles(
            (
                ("1g.23gb", 1, 18, 23168, 7),
                ("1g.47gb", 2, 30, 46848, 4),
                ("2g.47gb", 2, 36, 46848, 3),
                ("3g.93gb", 4, 70, 94080, 2),
                ("4g.93gb", 4, 72, 94080, 1),
                ("7g.186gb", 8, 152, 188672, 1),
            )
        ),
    ),
    "l4": Card(
        name="NVIDIA L4",
        compute_capability="8.9",
        vbios_version="95.04.29.00.06",
        multiprocessors=58,
        memory_mib=23034,
        reserved_mib=434,
        bar1_mib=32768,
        idle_watts=13,
        min_watts=40,
        default_watts=72,
        max_watts=72,
        clocks_max=Clocks(2040, 6251, 1770),
        clocks_idle=Clocks(210, 405, 765),
        clocks_application=(2040, 6251),
        full_load_celsius=70,
        slowdown_celsius=86,
        shutdown_celsius=89,
        margin_from_celsius=84,
        performance_state_idle=8,
        pcie_generation=4,
        remap_banks=96,
    ),
    "l40s": Card(
        name="NVIDIA L40S",
        compute_capability="8.9",
        vbios_version="95.02.66.00.02",
        multiprocessors=142,
        memory_mib=46068,
        reserved_mib=594,
        bar1_mib=65536,
        idle_watts=33,
        min_watts=100,
        default_watts=350,
        max_watts=350,
        clocks_max=Clocks(2520, 9001, 1965),
        clocks_idle=Clocks(210, 405, 1185),
        clocks_application=(2520, 9001),
        full_load_celsius=72,
        slowdown_celsius=90,
        shutdown_celsius=95,
        margin_from_celsius=88,
        performance_state_idle=8,
        pcie_generation=4,
        remap_banks=192,
    ),
    "t4": Card(
        name="Tesla T4",
        compute_capability="7.5",
        vbios_version="90.04.84.00.06",
        multiprocessors=40,
        memory_mib=15360,
        reserved_mib=388,
        bar1_mib=256,
        idle_watts=10,
        min_watts=60,
        default_watts=70,
        max_watts=70,
        clocks_max=Clocks(1590, 5001, 1470),
        clocks_idle=Clocks(300, 405, 540),
        clocks_application=(585, 5001),
        full_load_celsius=74,
        slowdown_celsius=93,
        shutdown_celsius=96,
        performance_state_idle=8,
        pcie_generation=3,
        retires_pages=True,
        recovery_action=False,
    ),
    "rtx4090": Card(
        name="NVIDIA GeForce RTX 4090",
        compute_capability="8.9",
        vbios_version="95.02.18.80.87",
        multiprocessors=128,
        memory_mib=24564,
        reserved_mib=346,
        bar1_mib=256,
        idle_watts=18,
        min_watts=150,
        default_watts=450,
        max_watts=600,
        clocks_max=Clocks(3105, 10501, 2415),
        clocks_idle=Clocks(210, 405, 1185),
        clocks_application=None,
        full_load_celsius=69,
        slowdown_celsius=92,
        shutdown_celsius=97,
        margin_from_celsius=90,
        performance_state_idle=8,
        performance_state_busy=2,
        pcie_generation=4,
        fans=2,
        ecc="off",
        recovery_action=False,
        data_center=False,
    ),
    "gtx1080ti": Card(
        name="NVIDIA GeForce GTX 1080 Ti",
        compute_capability="6.1",
        vbios_version="86.02.39.00.22",
        multiprocessors=28,
        memory_mib=11264,
        reserved_mib=85,
        bar1_mib=256,
        idle_watts=9,
        min_watts=125,
        default_watts=250,
        max_watts=300,
        clocks_max=Clocks(1911, 5505, 1620),
        clocks_idle=Clocks(139, 405, 544),
        clocks_application=None,
        full_load_celsius=80,
        slowdown_celsius=93,
        shutdown_celsius=96,
        performance_state_idle=8,
        performance_state_busy=2,
        pcie_generation=3,
        fans=1,
        fan_idle_percent=23,
        ecc="none",
        energy_counter=False,
        throttle_counters=("sw_power_cap", "sync_boost"),
        jpeg_and_optical_flow=False,
        recovery_action=False,
        data_center=False,
    ),
}


def find_card(model: str) -> Card:
    """The card of that name, in any case; ValueError names the allowed ones."""
    card = CARDS.get(model.lower())
    if card is None:
        raise ValueError(f"model {model!r} is not known; allowed: {', '.join(MODEL_NAMES)}")
    return card
