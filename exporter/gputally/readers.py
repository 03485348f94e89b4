"""Which readers to use. Each is imported only when it is wanted: memory that nobody uses is not free."""

# ruff: noqa: PLC0415

from collections.abc import Callable

from gputally.config import Config
from gputally.devices import Reader
from gputally.devices.host import read_host
from gputally.flags import ConfigError


def choose_sources(config: Config) -> list[list[Reader]]:
    """The readers of --reader: for each vendor those that read the same GPUs, best first."""
    if config.reader != "auto":
        return [[_READERS[config.reader](config)]]
    host = read_host(config.sysfs, config.procfs)
    sources = []
    if host.has_nvidia or not host.has_amd:
        sources.append([_nvml(config), _nvidia_smi(config)])
    if host.has_amd:
        sources.append([_amdgpu(config), _rocm_smi(config)])
    return sources


def _nvml(config: Config) -> Reader:
    from gputally.devices.nvml import NvmlReader

    return NvmlReader(
        pcie_throughput=config.pcie_throughput,
        release_driver=config.release_driver,
        accounting=config.accounting,
    )


def _nvidia_smi(config: Config) -> Reader:
    from gputally.devices.nvidia_smi import NvidiaSmiReader

    # A little less than the whole time, so that a hanging command is killed and named, not overrun.
    return NvidiaSmiReader(command=config.nvidia_smi, timeout_seconds=config.timeout_seconds * 0.8)


def _amdgpu(config: Config) -> Reader:
    from gputally.devices.amdgpu import AmdgpuReader

    return AmdgpuReader(config.sysfs, config.procfs, pcie_throughput=config.pcie_throughput)


def _rocm_smi(config: Config) -> Reader:
    from gputally.devices.rocm_smi import RocmSmiReader

    return RocmSmiReader(config.rocm_smi, timeout_seconds=config.timeout_seconds * 0.8)


def _simulated(config: Config) -> Reader:
    from gputally.simulator import simulated_reader

    try:
        return simulated_reader(
            scenario=config.scenario,
            gpus=config.gpus,
            model=config.model,
            seed=config.seed,
            began_at=config.began_at,
            pcie_throughput=config.pcie_throughput,
        )
    except ValueError as error:
        raise ConfigError(f"--scenario: {error}") from None


_READERS: dict[str, Callable[[Config], Reader]] = {
    "nvml": _nvml,
    "nvidia-smi": _nvidia_smi,
    "amdgpu": _amdgpu,
    "rocm-smi": _rocm_smi,
    "simulated": _simulated,
}
