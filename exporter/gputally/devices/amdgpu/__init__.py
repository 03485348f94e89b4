"""Reader `amdgpu`: AMD GPUs as the kernel shows them in /sys and /proc, without ROCm.

`cards` finds them, `card` reads one of them with the help of `files`, `hwmon` and `gpu_metrics`, and
`processes` finds who uses them. What the files mean: https://docs.kernel.org/gpu/amdgpu/
"""

from gputally.devices.amdgpu.reader import AmdgpuReader

__all__ = ["FILLS", "AmdgpuReader"]

FILLS = frozenset(
    {
        "MigReading.graphics_active_ratio",
        "MigReading.processes",
        "Process.memory_used_bytes",
        "ProcessSample.decoder_ratio",
        "ProcessSample.encoder_ratio",
        "ProcessSample.sm_ratio",
        "clock_hertz",
        "clock_max_hertz",
        "ecc_errors",
        "energy_millijoules",
        "fan_speed_ratio",
        "gpu_utilization_ratio",
        "gtt_total_bytes",
        "gtt_used_bytes",
        "jpeg_utilization_ratio",
        "memory_free_bytes",
        "memory_temperature_celsius",
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_utilization_ratio",
        "memory_visible_total_bytes",
        "memory_visible_used_bytes",
        "mig",
        "pcie_generation",
        "pcie_generation_max",
        "pcie_replays",
        "pcie_throughput_bytes_per_second",
        "pcie_width",
        "pcie_width_max",
        "power_default_limit_watts",
        "power_limit_watts",
        "power_max_limit_watts",
        "power_min_limit_watts",
        "power_watts",
        "process_samples",
        "processes",
        "ras_errors",
        "sensor_celsius",
        "sensor_critical_celsius",
        "temperature_celsius",
        "temperature_shutdown_celsius",
        "temperature_slowdown_celsius",
        "throttle_active",
        "xgmi_bytes",
        "xgmi_up",
    }
)
"""The fields that this reader can fill."""
