"""The findings of `promtool check metrics` for an exposition."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Faults:
    """Its findings."""

    exit_code: int
    lines: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.lines)

    @property
    def first(self) -> str:
        return self.lines[0] if self.lines else ""

    @property
    def verdict(self) -> str:
        if self.exit_code == 0:
            return "clean"
        return "lint" if self.exit_code == 3 else "cannot be parsed"


def promtool_faults(promtool: Path, body: bytes) -> Faults:
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=body, capture_output=True, timeout=60, check=False
    )
    return Faults(
        checked.returncode, parse_findings((checked.stdout + checked.stderr).decode(errors="replace"))
    )


def parse_findings(text: str) -> tuple[str, ...]:
    """One line per finding."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())
