"""Turns the meters of a planted tree on as the kernel does: one sees the old value or the new one."""

from itertools import takewhile
from pathlib import Path

from gputally.devices.amdgpu.gpu_metrics_layouts import read_table
from tests.support.gpu_metrics_tables import build


def rewrite(path: Path, content: str | bytes) -> None:
    """Give a file another content, at one moment."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.rename(path)


def card_directory(host: Path, address: str) -> Path:
    return host / "sys/devices/pci0000:00" / address


def set_energy(card: Path, millijoules: int) -> None:
    """Let the energy counter of a card's gpu_metrics be at this."""
    version, values = read_table((card / "gpu_metrics").read_bytes())
    measured = {
        name: [
            number for number in takewhile(lambda number: number is not None, numbers) if number is not None
        ]
        for name, numbers in values.items()
    }
    ticks = -(-millijoules * 65536 // 1000)  # rounded up, since who reads it rounds down
    table = build(version, **{**measured, "energy_accumulator": [ticks]})
    rewrite(card / "gpu_metrics", table)


def set_engine_time(host: Path, pid: int, descriptor: int, engine: str, nanoseconds: int) -> None:
    """Let a client have spent this long on an engine."""
    path = host / f"proc/{pid}/fdinfo/{descriptor}"
    key = f"drm-engine-{engine}:"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    rewrite(path, "".join(f"{line}\n" for line in [*lines, f"{key}\t{nanoseconds} ns"]))
