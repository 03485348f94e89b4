"""An `nvidia-smi` that answers from captures, or as it is told to, and the exporter that runs it."""

import sys
from pathlib import Path

from tests.support.exporter import Exporter

CAPTURES = Path(__file__).parents[1] / "fixtures/nvidia-smi"


class FakeTool:
    """A command `nvidia-smi`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "nvidia-smi"
        self.answers(CAPTURES / "h100-processes")

    def _write(self, script: str) -> None:
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text("#!/bin/sh\n" + script)
        unfinished.chmod(0o755)
        unfinished.replace(self.path)

    def answers(self, capture: Path, version: str = "550", then: str = "") -> None:
        """Play a capture: the columns that were asked for, of the file that has them all."""
        player = Path(__file__).parents[1] / "system/play_nvidia_smi.py"
        self._write(f'"{sys.executable}" "{player}" "{capture}" {version} "$@" {then}\n')

    def does(self, script: str) -> None:
        self._write(script)


def start(directory: Path, tool: FakeTool, *arguments: str) -> Exporter:
    command = ("serve", "--reader", "nvidia-smi", "--nvidia-smi", str(tool.path), "--interval", "300ms")
    exporter = Exporter(directory / "log", *command, "--timeout", "3s", *arguments)
    exporter.wait_until(
        lambda: exporter.value("gputally_source_up", "nvidia-smi") is not None, "the first sample"
    )
    return exporter
