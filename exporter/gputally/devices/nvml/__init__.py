"""Reader `nvml`: NVIDIA GPUs through the driver's own library, libnvidia-ml.so.1, by way of pynvml.

`library` starts it and judges its errors, `query` asks one device, and each other module reads one
kind of thing. What the functions mean: https://docs.nvidia.com/deploy/nvml-api/
"""

from gputally.devices.nvml.reader import NvmlReader

__all__ = ["NvmlReader"]
