"""Changes values of a planted tree as the kernel does: a reader gets the old or the new value."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from gputally.devices.amdgpu.gpu_metrics import decode
from gputally.devices.amdgpu.gpu_metrics_layouts import read_table
from tests.support.gpu_metrics_tables import Given, build

_STEP_SECONDS = 0.02


def rewrite(path: Path, content: str | bytes) -> None:
    """Replaces the content of a file atomically."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.rename(path)


def card_directory(host: Path, address: str) -> Path:
    return host / "sys/devices/pci0000:00" / address


def energy_counter(card: Path) -> int:
    """Millijoules."""
    return decode((card / "gpu_metrics").read_bytes()).energy_millijoules or 0


def set_energy(card: Path, millijoules: int) -> None:
    """Sets the energy counter of gpu_metrics."""
    ticks = -(-millijoules * 65536 // 1000)  # rounded up, because the reader rounds down
    set_table(card, energy_accumulator=ticks)


def set_table(card: Path, **changes: Given) -> None:
    """Sets fields of gpu_metrics."""
    version, values = read_table((card / "gpu_metrics").read_bytes())
    measured = {
        name: [
            number for number in takewhile(lambda number: number is not None, numbers) if number is not None
        ]
        for name, numbers in values.items()
    }
    rewrite(card / "gpu_metrics", build(version, **{**measured, **changes}))


@contextmanager
def increasing_energy(watts: Mapping[Path, float]) -> Iterator[None]:
    """Increases the energy counters of these cards with the given power until the end of the block."""
    began, ended = time.monotonic(), threading.Event()
    initial = {card: energy_counter(card) for card in watts}

    def increase() -> None:
        while not ended.wait(_STEP_SECONDS):
            for card, power in watts.items():
                set_energy(card, initial[card] + round((time.monotonic() - began) * power * 1000))

    thread = threading.Thread(target=increase)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def set_engine_time(host: Path, pid: int, descriptor: int, engine: str, nanoseconds: int) -> None:
    """Sets the time that a client has spent on an engine."""
    path = host / f"proc/{pid}/fdinfo/{descriptor}"
    key = f"drm-engine-{engine}:"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    rewrite(path, "".join(f"{line}\n" for line in [*lines, f"{key}\t{nanoseconds} ns"]))
