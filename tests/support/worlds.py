"""Worlds that the driver stand-in plays: readings of the simulator's engine, frozen at one moment."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gputally.model import Reading
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import MigLayout, Scenario
from tools.standin.scenario import Fault, Frame, write_scenario

MOMENT_SECONDS = 600


def readings(scenario: Scenario, elapsed: float = MOMENT_SECONDS) -> tuple[Reading, ...]:
    """What the GPUs read at a moment in the middle of things."""
    return Engine(scenario).readings(elapsed, since=elapsed - 5, epoch_seconds=1_700_000_000)


def world(model: str, gpus: int = 2, **changes: object) -> tuple[Reading, ...]:
    return readings(replace(default_scenario(gpus, model, seed=1), **changes))  # type: ignore[arg-type]


def mig_world(model: str, *profiles: str) -> tuple[Reading, ...]:
    """Two GPUs, the first of them cut into MIG devices."""
    return world(model, mig=(MigLayout(gpus=(0,), profiles=profiles),))


def play(path: Path, *frames: tuple[Reading, ...], faults: tuple[Fault, ...] = ()) -> Path:
    """A scenario file that holds the readings (several: one second each)."""
    return write_scenario(path, [Frame(float(at), now) for at, now in enumerate(frames)], faults=faults)


EVERY_MODEL: dict[str, Callable[[], tuple[Reading, ...]]] = {
    "a100": lambda: world("a100", 3),
    "a100 with mig": lambda: mig_world("a100", "3g.20gb", "2g.10gb", "1g.5gb"),
    "h100": lambda: world("h100", 3),
    "h100 with mig": lambda: mig_world("h100", "4g.40gb", "1g.10gb"),
    "h200": lambda: world("h200", 2),
    "b200": lambda: world("b200", 3),
    "gb200": lambda: world("gb200", 3),
    "l4": lambda: world("l4", 2),
    "l40s": lambda: world("l40s", 3),
    "t4": lambda: world("t4", 3),
    "rtx4090": lambda: world("rtx4090", 2),
    "a desktop card without ecc or energy counter": lambda: world("gtx1080ti", 2),
}
