"""Reader `amdgpu`: AMD GPUs as the kernel shows them in /sys and /proc, without ROCm.

`cards` finds them, `card` reads one of them with the help of `files`, `hwmon` and `gpu_metrics`, and
`processes` finds who uses them. What the files mean: https://docs.kernel.org/gpu/amdgpu/
"""

from gputally.devices.amdgpu.reader import AmdgpuReader

__all__ = ["AmdgpuReader"]
