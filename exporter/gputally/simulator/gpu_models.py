"""What a simulated card is. The rows stand in `nvidia_models` and `amd_models`.

A capability that a card lacks is false, empty or None here, and then its field stays None in every
reading. Sizes are MiB, power is watts, clocks are MHz and temperatures are degrees Celsius, as the
drivers' tools print them, so that a row can be compared with the real card.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gputally.model import THROTTLE_REASONS


@dataclass(frozen=True, slots=True)
class Clocks:
    """One clock per domain; the multiprocessors always run at the graphics clock."""

    graphics: int
    memory: int
    video: int = 0
    """AMD's have it among their domains."""


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
class GpuModel:
    """What cards of all makers have."""

    vendor: ClassVar[str]
    throttle_reasons: ClassVar[tuple[str, ...]]

    name: str
    vbios_version: str
    driver_version: str
    """What runs it, unless the scenario says otherwise."""
    memory_mib: int
    reserved_mib: int = 0
    own_mib: int = 1
    """What the driver itself has allocated on an idle GPU, beside what it reserves."""
    idle_watts: int
    min_watts: int
    """The least power limit; 0 where the driver tells none."""
    default_watts: int
    max_watts: int
    clocks_max: Clocks
    clocks_idle: Clocks
    full_load_celsius: int
    """Where the core settles at the default power limit."""
    slowdown_celsius: int | None = None
    shutdown_celsius: int | None = None
    pcie_generation: int
    pcie_width: int = 16
    links: int = 0
    """To other GPUs: NVLink or XGMI."""
    fans: int = 0
    fan_idle_percent: int = 0
    energy_counter: bool = True
    data_center: bool = True
    """Has a serial number; of NVIDIA's, runs in persistence mode."""
    mig_profiles: tuple[MigProfile, ...] = ()

    @property
    def hot_celsius(self) -> int:
        """Where the core must slow down, also of a card that tells only how far it is from there."""
        return self.slowdown_celsius or 88

    @property
    def least_limit_watts(self) -> int:
        return self.min_watts or self.idle_watts + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaModel(GpuModel):
    """One model of NVIDIA's."""

    vendor: ClassVar[str] = "nvidia"
    throttle_reasons: ClassVar[tuple[str, ...]] = THROTTLE_REASONS

    driver_version: str = "580.95.05"
    compute_capability: str
    multiprocessors: int
    bar1_mib: int
    clocks_application: tuple[int, int] | None
    """Graphics and memory; None where the card has no such setting."""
    margin_from_celsius: int | None = None
    """The core temperature at which T.Limit reads 0; None where the driver has no T.Limit."""
    memory_thermometer: bool = False
    performance_state_idle: int = 0
    performance_state_busy: int = 0
    nvlink_errors: tuple[str, ...] = ()
    ecc: Literal["on", "off", "none"] = "on"
    """`off`: the card could, but its owner has it off; `none`: it cannot."""
    remap_banks: int = 0
    """Banks with spare rows; 0 where the card has none or hides them."""
    retires_pages: bool = False
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


@dataclass(frozen=True, slots=True)
class Domain:
    """A clock beside those of graphics and memory."""

    name: str
    idle: int
    busy: int
    most: int | None = None
    """None where the driver does not tell."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """A thermometer: how much warmer it is than the first of its card, idle and at full load."""

    name: str
    idle: int = 0
    busy: int = 0
    critical: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdModel(GpuModel):
    """One model of AMD's."""

    vendor: ClassVar[str] = "amd"
    throttle_reasons: ClassVar[tuple[str, ...]] = (
        "sw_power_cap",
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
    )

    gtt_mib: int
    gtt_own_mib: int
    """What the driver uses of it on an idle GPU."""
    domains: tuple[Domain, ...]
    sensors: tuple[Sensor, ...]
    """The first is the card's temperature."""
    ras_blocks: tuple[str, ...] = ()
    ras_types: tuple[str, ...] = ()
    compute_occupancy: bool
    """Whether KFD tells the compute units that a process fills: GFX9 only."""
    one_video_queue: bool
    """VCN 4 and later: decoding counts as encoding."""


AnyModel = NvidiaModel | AmdModel
