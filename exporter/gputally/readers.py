"""The readers of --reader. Each is imported only when it is used: an unused reader costs no memory."""

from dataclasses import fields
from typing import TYPE_CHECKING

from gputally.config import Config
from gputally.devices import Reader
from gputally.devices.host import choose_readers
from gputally.devices.vendors import ReaderSettings
from gputally.flags import ConfigError

if TYPE_CHECKING:
    from gputally.simulator import SimulatedReader


def choose_sources(config: Config) -> list[list[Reader]]:
    """The readers of --reader: for each vendor those of its GPUs, best first."""
    if config.reader == "simulated":
        return [[simulated(config)]]
    settings = {setting.name: getattr(config, setting.name) for setting in fields(ReaderSettings)}
    return choose_readers(config.reader, ReaderSettings(**settings))


def simulated(config: Config) -> "SimulatedReader":
    from gputally.simulator import simulated_reader  # noqa: PLC0415

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
