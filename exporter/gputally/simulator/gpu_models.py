"""The properties of a simulated GPU model. The rows stand in `nvidia_models` and `amd_models`.

A missing capability is false, empty or None here, and its field is None in every reading. Sizes are MiB,
power is watts, clocks are MHz and temperatures are degrees Celsius, as the drivers' tools print them, so
that a row can be compared with the real GPU.
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
    """AMD models have it among their domains."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A size of MIG instances, out of 7 compute slices and 8 memory slices."""

    name: str
    slices: int
    memory_slices: int
    multiprocessors: int
    memory_mib: int
    most: int
    """The number that fits on one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """The properties of the models of all vendors."""

    vendor: ClassVar[str]
    throttle_reasons: ClassVar[tuple[str, ...]]

    name: str
    vbios_version: str
    driver_version: str
    """The driver version, unless the scenario sets one."""
    memory_mib: int
    reserved_mib: int = 0
    own_mib: int = 1
    """Memory that the driver allocates on an idle GPU, beside the reserved memory."""
    idle_watts: int
    min_watts: int
    """The lowest power limit; 0 where the driver reports none."""
    default_watts: int
    max_watts: int
    clocks_max: Clocks
    clocks_idle: Clocks
    full_load_celsius: int
    """The core temperature at the default power limit."""
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
    """Has a serial number; NVIDIA models run in persistence mode."""
    mig_profiles: tuple[MigProfile, ...] = ()

    @property
    def hot_celsius(self) -> int:
        """The slowdown temperature, also for models that report only the distance to it."""
        return self.slowdown_celsius or 88

    @property
    def least_limit_watts(self) -> int:
        return self.min_watts or self.idle_watts + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaModel(GpuModel):
    """One NVIDIA model."""

    vendor: ClassVar[str] = "nvidia"
    throttle_reasons: ClassVar[tuple[str, ...]] = THROTTLE_REASONS

    driver_version: str = "580.95.05"
    compute_capability: str
    multiprocessors: int
    bar1_mib: int
    clocks_application: tuple[int, int] | None
    """Graphics and memory; None where the model has no such setting."""
    margin_from_celsius: int | None = None
    """The core temperature at which the GPU slows down; None where the driver has no T.Limit."""
    memory_thermometer: bool = False
    memory_limit_celsius: int | None = None
    performance_state_idle: int = 0
    performance_state_busy: int = 0
    nvlink_errors: tuple[str, ...] = ()
    ecc: Literal["on", "off", "none"] = "on"
    """`off`: supported and disabled; `none`: not supported."""
    remap_banks: int = 0
    """Banks with spare rows; 0 where the model has none or does not report them."""
    retires_pages: bool = False
    throttle_counters: tuple[str, ...] = (
        "sw_power_cap",
        "sync_boost",
        "low_utilization",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    )
    jpeg_and_optical_flow: bool = True
    activity_counters: bool = False
    """NVML GPM: Hopper and newer."""
    recovery_action: bool = True
    fabric: tuple[str, int] | None = None
    """NVLink cluster and clique; None on models without NVSwitches."""
    fabric_health: bool = False
    """Reports problems of the fabric."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A clock beside those of graphics and memory."""

    name: str
    idle: int
    busy: int
    most: int | None = None
    """None where the driver does not report it."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """A temperature sensor: its difference to the first sensor, idle and at full load."""

    name: str
    idle: int = 0
    busy: int = 0
    critical: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdModel(GpuModel):
    """One AMD model."""

    vendor: ClassVar[str] = "amd"
    throttle_reasons: ClassVar[tuple[str, ...]] = (
        "sw_power_cap",
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
    )

    gtt_mib: int
    gtt_own_mib: int
    """The part in use by the driver on an idle GPU."""
    domains: tuple[Domain, ...]
    sensors: tuple[Sensor, ...]
    """The first is the temperature of the GPU."""
    ras_blocks: tuple[str, ...] = ()
    ras_types: tuple[str, ...] = ()
    compute_occupancy: bool
    """Whether KFD reports the compute units in use by a process (GFX9 only), which divide the GPU's busy time
    among several processes; else their memory does."""
    one_video_queue: bool
    """VCN 4 and later: decoding counts as encoding."""


AnyModel = NvidiaModel | AmdModel
