"""The label values that NVML can express, field by field of the model."""

CLOCK_DOMAINS = ("graphics", "sm", "memory", "video")
ECC_TYPES = ("corrected", "uncorrected")
ECC_LIFETIMES = ("volatile", "aggregate")
ECC_LOCATIONS = (
    "l1_cache",
    "l2_cache",
    "device_memory",
    "register_file",
    "texture_memory",
    "texture_shm",
    "cbu",
    "sram",
)
RETIREMENT_CAUSES = ("single_bit", "double_bit")
REMAPPING_CAUSES = ("correctable", "uncorrectable")
BANK_AVAILABILITY = ("max", "high", "partial", "low", "none")
DIRECTIONS = ("tx", "rx")
NVLINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
NVLINK5_ERRORS = (
    "malformed_packet",
    "buffer_overrun",
    "receive",
    "receive_remote",
    "receive_general",
    "link_integrity",
    "transmit_discard",
    "link_recovery_successful",
    "link_recovery_failed",
    "link_recovery",
    "effective",
    "symbol",
)
VIOLATION_OF_REASON = {
    "sw_power_cap": "power",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "hw_power_brake",
    "thermal": "thermal",
    "board_limit": "board_limit",
    "low_utilization": "low_utilization",
    "reliability": "reliability",
    "app_clocks": "app_clocks",
    "base_clocks": "base_clocks",
}
