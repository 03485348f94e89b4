"""Which readers to use. Each is imported only when it is wanted: memory that nobody uses is not free."""

# ruff: noqa: PLC0415

from gputally.config import Config, ConfigError
from gputally.devices import Reader


def choose_readers(config: Config) -> list[Reader]:
    """The readers of --reader, best first."""
    if config.reader == "simulated":
        return [_simulated(config)]
    if config.reader == "nvml":
        return [_nvml(config)]
    if config.reader == "nvidia-smi":
        return [_nvidia_smi(config)]
    return [_nvml(config), _nvidia_smi(config)]


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


def _simulated(config: Config) -> Reader:
    from gputally.devices.simulated import simulated_reader

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
